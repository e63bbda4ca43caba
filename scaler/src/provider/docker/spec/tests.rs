//! What a container is made of.

use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::replica::Capacity;

use super::super::host::DockerHost;
use super::super::label::Tag;
use super::{DockerSpec, Gpus, Network, Pull};

fn spec(name: &str) -> DockerSpec {
    DockerSpec {
        deployment: DeploymentName::new(name),
        host: DockerHost::parse(DockerHost::USUAL).unwrap(),
        image: "engine:1".to_owned(),
        command: vec!["--port={port}".to_owned()],
        env: [("KEY".to_owned(), "s3cret {port}".to_owned())].into(),
        volumes: Vec::new(),
        network: Network::Docker { name: "bridge".to_owned(), port: 8000, publish: [127, 0, 0, 1].into() },
        gpus: Gpus::Of { ids: vec!["0".to_owned(), "1".to_owned()], each: 1 },
        memory: None,
        millicpus: None,
        shm_size: None,
        pull: Pull::Never,
        capacity: Capacity::ONE,
        price: tidegate_shared::offer::Price::FREE,
        start_limit: std::time::Duration::from_secs(60),
    }
}

#[test]
fn a_container_gets_its_port_its_own_gpus_and_nothing_that_it_was_not_given() {
    let tag = Tag {
        replica: ReplicaId(3),
        recipe: "r".into(),
        capacity: Capacity::ONE,
        port: 8000,
        gpus: vec!["1".into()],
    };
    let made = spec("chat").container(&tag, "mark", "owner");
    assert_eq!(made.cmd, Some(vec!["--port=8000".to_owned()]));
    assert_eq!(made.env, Some(vec!["KEY=s3cret 8000".to_owned(), "TIDEGATE_REPLICA=mark".to_owned()]));
    let host = made.host_config.unwrap();
    let gpus = host.device_requests.unwrap().remove(0);
    assert_eq!((gpus.count, gpus.device_ids), (None, Some(vec!["1".to_owned()])));
    assert_eq!(
        (host.memory, host.memory_swap, host.nano_cpus, host.shm_size, host.binds),
        (None, None, None, None, None)
    );
    let all = DockerSpec { gpus: Gpus::All, ..spec("chat") }.container(&tag, "mark", "owner");
    assert_eq!(all.host_config.unwrap().device_requests.unwrap()[0].count, Some(-1));
}

#[test]
fn names_are_what_docker_takes_and_differ() {
    let name = |deployment: &str| spec(deployment).container_name("1a2b-3c4d-5e6f", ReplicaId(7));
    assert_eq!(name("chat"), "tidegate-1a2b3c4d-chat-7");
    let (slash, colon, plain) = (name("a/b"), name("a:b"), name("a_b"));
    assert!(slash != colon && slash != plain && colon != plain, "{slash} {colon} {plain}");
    assert!(slash.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter)), "{slash}");
}

#[test]
fn the_fingerprint_tells_recipes_apart_and_hides_secrets() {
    let base = spec("chat");
    let changed = [
        DockerSpec { image: "engine:2".to_owned(), ..base.clone() },
        DockerSpec { command: Vec::new(), ..base.clone() },
        DockerSpec { env: Default::default(), ..base.clone() },
        DockerSpec { volumes: vec!["/a:/b".to_owned()], ..base.clone() },
        DockerSpec { network: Network::Host, ..base.clone() },
        DockerSpec { gpus: Gpus::All, ..base.clone() },
        DockerSpec { memory: Some(1), ..base.clone() },
        DockerSpec { shm_size: Some(1), ..base.clone() },
    ];
    let mut all: Vec<String> = changed.iter().chain([&base]).map(DockerSpec::fingerprint).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 9);
    let patient = DockerSpec { pull: Pull::Missing, capacity: Capacity::new(4), ..base.clone() };
    assert_eq!(patient.fingerprint(), base.fingerprint(), "the containers are the same");
    assert!(!format!("{base:?}").contains("s3cret"));
}
