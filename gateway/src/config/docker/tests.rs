//! What the tables `docker` and `exec` may and may not say.

use std::path::Path;

use tidegate_scaler::provider::docker::{Gpus, Network, Pull};
use tidegate_shared::time::Duration;

use crate::config::{Config, Deployment, Source};

fn deployment(table: &str, settings: &str) -> Result<Deployment, Vec<String>> {
    let text = format!("[[deployment]]\nname = \"m\"\n[deployment.{table}]\n{settings}\n");
    match Config::parse(&text, Path::new("/etc/tidegate/tidegate.toml")) {
        Ok(mut config) => Ok(config.deployments.remove(0)),
        Err(error) => Err(error.problems().iter().map(ToString::to_string).collect()),
    }
}

/// With a host, so that the environment does not matter.
fn docker(settings: &str) -> Result<Deployment, Vec<String>> {
    deployment("docker", &format!("image = \"engine:1\"\nhost = \"unix:///run/d.sock\"\n{settings}"))
}

#[test]
fn a_container_needs_no_more_than_an_image() {
    let Source::Docker(spec) = docker("").expect("good").source else { panic!("docker") };
    assert_eq!((spec.image.as_str(), spec.deployment.as_str()), ("engine:1", "m"));
    assert_eq!(spec.host.to_string(), "unix:///run/d.sock");
    let network = Network::Docker { name: "bridge".to_owned(), port: 8000, publish: [127, 0, 0, 1].into() };
    assert_eq!((&spec.network, &spec.gpus, spec.pull), (&network, &Gpus::None, Pull::Never));
    assert_eq!((spec.memory, spec.millicpus, spec.shm_size), (None, None, None));
}

#[test]
fn a_container_may_be_told_everything() {
    let settings = "command = [\"--port\", \"{port}\"]\nenv = { A = \"b\" }\n\
        volumes = [\"./models:/models:ro\", \"/cache:/cache\", \"named:/x\"]\nnetwork = \"host\"\n\
        gpus = [\"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\"]\ngpus_per_replica = 2\nmemory = \"8GiB\"\ncpus = 2.5\n\
        shm_size = \"1GiB\"\npull = \"missing\"\ncapacity = 4\nstart_limit = \"1h\"";
    let Source::Docker(spec) = docker(settings).expect("good").source else { panic!("docker") };
    assert_eq!(spec.volumes, ["/etc/tidegate/./models:/models:ro", "/cache:/cache", "named:/x"]);
    assert_eq!((spec.network, spec.pull), (Network::Host, Pull::Missing));
    assert!(matches!(&spec.gpus, Gpus::Of { ids, each: 2 } if ids.len() == 8));
    assert_eq!((spec.memory, spec.millicpus, spec.shm_size), (Some(8 << 30), Some(2500), Some(1 << 30)));
    assert_eq!((spec.capacity.units(), spec.start_limit), (4, Duration::from_secs(3600)));
}

#[test]
fn h4_each_fault_of_a_container_names_line_value_and_rule() {
    for (settings, fault) in [
        ("gpus = 2", "docker.gpus = 2: must be \"all\" or a list of ids"),
        ("gpus = [\"0\", \"0\"]", "must not name a GPU twice"),
        ("gpus = [\"0\", \"1\"]", "deployment m: max: must not be more than 2: docker.gpus do for so many"),
        ("gpus = [\"0\"]\ngpus_per_replica = 2", "must hold at least 2 ids"),
        ("gpus_per_replica = 2", "docker.gpus_per_replica = 2: must stand beside gpus"),
        ("network = \"host\"", "must not be \"host\" without {port}"),
        ("network = \"none\"", "docker.network = \"none\": must be \"bridge\", \"host\""),
        (
            "network = \"host\"\ncommand = [\"{port}\"]\nport = 80",
            "docker.port = 80: must not be given with network",
        ),
        ("publish = \"0.0.0.0\"", "docker.publish = \"0.0.0.0\": must be one IP address"),
        ("memory = \"1MiB\"", "docker.memory = \"1MiB\": must be a size from 6MiB"),
        ("cpus = 0", "docker.cpus = 0: must be a number from 0.01 to 1024"),
        ("pull = \"always\"", "docker.pull = \"always\": must be one of \"never\", \"missing\""),
        ("volumes = [\"/models\"]", "docker.volumes[0] = \"/models\": must be SOURCE:/TARGET"),
        ("volumes = [\"a:b\"]", "must be SOURCE:/TARGET"),
        ("imagee = 1", "docker.imagee: is not a setting; did you mean image?"),
    ] {
        let faults = docker(settings).expect_err(settings);
        assert!(faults.len() == 1 && faults[0].contains(fault), "{settings}: {faults:?}");
        assert!(faults[0].starts_with("line "), "{faults:?}");
    }
    for (settings, fault) in [
        ("", "docker.image: is missing"),
        ("image = \"\"", "docker.image = \"\": must be a text in quotes, not empty"),
        ("image = \"e\"\nhost = \"ssh://me@there\"", "must be unix:///PATH or tcp://HOST:PORT"),
        (
            "image = \"e\"\nhost = \"tcp://10.0.0.7:2375\"",
            "docker.publish: must be an address of the machine",
        ),
    ] {
        let faults = deployment("docker", settings).expect_err(settings);
        assert!(faults.iter().any(|one| one.contains(fault)), "{settings}: {faults:?}");
    }
    let far = "image = \"e\"\nhost = \"tcp://10.0.0.7:2375\"\npublish = \"10.0.0.7\"";
    assert!(deployment("docker", far).is_ok());
}

#[test]
fn commands_are_three_and_whole() {
    let three = "start = [\"./f\", \"start\"]\nstop = [\"./f\", \"stop\"]\nlist = [\"./f\", \"list\"]\n";
    let Source::Exec(spec) = deployment("exec", three).expect("good").source else { panic!("exec") };
    assert_eq!(
        (spec.list, spec.dir.as_path()),
        (vec!["./f".to_owned(), "list".to_owned()], Path::new("/etc/tidegate"))
    );
    assert_eq!((spec.time_limit, spec.list_every), (Duration::from_secs(60), Duration::from_secs(2)));
    let faults = deployment("exec", "start = []\nlist = [\"\"]\ntime_limit = \"0s\"").expect_err("faults");
    for (fault, wanted) in faults.iter().zip([
        "deployment m: exec.stop: is missing",
        "exec.start: must begin with the program to start",
        "exec.list: must begin with the program to start",
        "exec.time_limit = \"0s\": must be a time from 1s to 1h",
    ]) {
        assert!(fault.contains(wanted), "{fault}");
    }
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn replicas_come_from_one_place() {
    let text = "image = \"e\"\n[deployment.process]\ncommand = [\"e\", \"{port}\"]";
    let faults = deployment("docker", text).expect_err("two");
    assert!(
        faults[0]
            .ends_with("must have one of process, docker, exec, slurm and replica, not process and docker"),
        "{faults:?}"
    );
}
