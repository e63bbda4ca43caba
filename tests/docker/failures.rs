//! What an operator is told when containers do not start, die, or are in the way (E1, C1, C-005).

use serde_json::{Value, json};
use tidegate_scaler::provider::contract::{offer, start, until, up};
use tidegate_scaler::provider::docker::{DockerSpec, Gpus, Network};
use tidegate_scaler::provider::{Instance, InstanceState, Provider, ProviderError};
use tidegate_shared::id::ReplicaId;
use tidegate_tests::client::Client;
use tidegate_tests::deadline::eventually;
use tidegate_tests::dockerd::IMAGE;

use crate::contract::{Containers, SERVES};
use crate::fleet::Fleet;

fn ended(list: &[Instance]) -> bool {
    list.iter().any(|one| matches!(one.state, InstanceState::Exited { .. }))
}

fn end_of(list: &[Instance]) -> (String, Vec<String>) {
    let ends = list.iter().find_map(|one| match &one.state {
        InstanceState::Exited { how, output } => Some((how.clone(), output.clone())),
        _ => None,
    });
    ends.expect("an end")
}

#[tokio::test]
async fn a_start_that_cannot_be_says_why_and_leaves_nothing() {
    let Some(containers) = Containers::new(Containers::fleet()).await else { return };
    let good = || containers.spec("chat", SERVES);
    let lost = Network::Docker { name: "lost".to_owned(), port: 8000, publish: [127, 0, 0, 1].into() };
    let cases: [(DockerSpec, &str); 4] = [
        (
            DockerSpec { image: "no/such:7".to_owned(), ..good() },
            "there is no image \"no/such:7\" at unix://",
        ),
        (DockerSpec { network: lost, ..good() }, "network lost not found"),
        (DockerSpec { volumes: vec!["relative/path:/x".to_owned()], ..good() }, "relative/path"),
        (
            DockerSpec { gpus: Gpus::Of { ids: vec!["0".to_owned()], each: 1 }, ..good() },
            "could not select device driver",
        ),
    ];
    for (spec, wanted) in cases {
        let provider = containers.provider(spec);
        provider.list().await.expect("a list");
        let error =
            provider.start(provider.next_id(), offer(&provider)).await.expect_err("no start").to_string();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(provider.list().await.expect("a list"), []);
        assert_eq!(containers.dockerd.labelled("tidegate.deployment=chat"), Vec::<Value>::new());
    }
}

/// GPUs that another gateway's container has are no failed start: there is no room (M1, C2).
#[tokio::test]
async fn m1_gpus_that_others_have_are_no_room_and_no_failure() {
    let Some(containers) = Containers::new(Containers::fleet()).await else { return };
    let label = "tidegate.gpus=0";
    containers.dockerd.docker(&["create", "--name", "other", "--label", label, IMAGE, "engine"]);
    let gpus = Gpus::Of { ids: vec!["0".to_owned()], each: 1 };
    let provider = containers.provider(DockerSpec { gpus, ..containers.spec("chat", SERVES) });
    provider.list().await.expect("a list");
    let error = provider.start(provider.next_id(), offer(&provider)).await.expect_err("no start");
    let ProviderError::NoRoom { why, .. } = error else { panic!("{error}") };
    assert_eq!(why, "needs 1 of the GPUs 0, and 0 of them are free; taken: 0 by other");
    assert_eq!(provider.list().await.expect("a list"), []);
}

#[tokio::test]
async fn c_005_a_name_that_is_taken_is_left_to_whom_it_belongs() {
    let Some(containers) = Containers::new(Containers::fleet()).await else { return };
    let owner: String = containers.owner().chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    let name = format!("tidegate-{owner}-chat-1");
    let stranger = containers.dockerd.docker(&["create", "--name", &name, IMAGE, "engine"]);
    let provider = containers.provider(containers.spec("chat", SERVES));
    provider.list().await.expect("a list");
    let error = provider.start(ReplicaId(1), offer(&provider)).await.expect_err("no start").to_string();
    assert!(
        error.contains(&format!("the name {name} is taken by a container that is not Tidegate's")),
        "{error}"
    );
    assert_eq!(containers.dockerd.docker(&["inspect", "--format", "{{.Id}}", &name]), stranger);
    let id = start(&provider).await;
    assert_eq!(id, ReplicaId(2));
    until(&provider, |list| up(list, 1)).await;
    provider.stop(id).await.expect("a stop");
}

#[tokio::test]
async fn an_end_is_told_with_its_code_and_what_the_container_was() {
    let Some(containers) = Containers::new(Containers::fleet()).await else { return };
    let mut spec = containers.spec("chat", SERVES);
    (spec.memory, spec.millicpus, spec.shm_size) = (Some(64 << 20), Some(500), Some(8 << 20));
    spec.volumes = vec![format!("{}:/given:ro", env!("CARGO_MANIFEST_DIR"))];
    let provider = containers.provider(spec);
    provider.list().await.expect("a list");
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let told = containers.dockerd.labelled("tidegate.deployment=chat").remove(0);
    let (host, config) = (&told["HostConfig"], &told["Config"]);
    assert_eq!(
        json!([host["Memory"], host["MemorySwap"], host["NanoCpus"], host["ShmSize"], host["Init"]]),
        json!([64 << 20, 64 << 20, 500_000_000, 8 << 20, true])
    );
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(host["LogConfig"], json!({"Type": "local", "Config": {"max-size": "1m", "max-file": "2"}}));
    assert_eq!(host["PortBindings"]["8000/tcp"][0]["HostIp"], "127.0.0.1");
    assert!(
        config["Env"].as_array().is_some_and(|env| env.contains(&json!("GREETING=hello on 8000"))),
        "{config}"
    );
    assert_eq!(config["Labels"]["tidegate.capacity"], "2");
    containers.dockerd.docker(&["kill", "--signal", "KILL", told["Id"].as_str().expect("an id")]);
    let (how, _) = end_of(&until(&provider, ended).await);
    assert!(how.starts_with("exit code 137: signal 9"), "{how}");
    provider.stop(id).await.expect("a stop");
}

/// A replica that is dead is replaced within one evaluation, and status says why the first one went.
#[tokio::test]
async fn c1_a_container_that_dies_is_noticed_at_once_and_replaced() {
    let fleet = Fleet::launch(false, |deployment| deployment.set("min", 1).set("max", 1)).await;
    let Some(fleet) = fleet else { return };
    let before = fleet.settled(1).await;
    let engine = Client::h1(([127, 0, 0, 1], before[0].port).into());
    let order = json!({"exit": true});
    let gone = eventually("its container is gone", async || {
        if fleet.containers().contains(&before[0]) { Err("it is there".to_owned()) } else { Ok(()) }
    });
    // Whether it answers, dying, is open.
    tokio::select! {
        _ = engine.post("/faults", &order) => {}
        () = gone => {}
    }
    fleet
        .until_status("another replica is ready", |chat| {
            let ready = |one: &Value| one["id"] == "chat-2" && one["phase"] == "ready";
            chat["replicas"].as_array()?.iter().any(ready).then_some(())
        })
        .await;
    fleet.settled(1).await;
    assert!(fleet.log().contains("chat-1"), "{}", fleet.log());
    assert!(fleet.log().contains("exit code 1"), "{}", fleet.log());
    fleet.dockerd.docker(&["kill", &fleet.settled(1).await[0].id]);
    fleet.until_status("a third", |chat| (chat["replicas"][0]["id"] == "chat-3").then_some(())).await;
}

#[tokio::test]
async fn e1_a_start_that_fails_is_shown_with_the_last_words_of_the_engine() {
    let fleet = Fleet::launch(false, |deployment| {
        let words = ["engine", "--no-such-option"].map(toml::Value::from).to_vec();
        deployment.set("docker.command", words).set("min", 1).set("max", 1)
    });
    let Some(mut fleet) = fleet.await else { return };
    let told = fleet.until_status("the failed start", |chat| {
        let text = chat["trouble"].as_str()?;
        text.contains("did not start").then(|| text.to_owned())
    });
    let text = told.await;
    assert!(
        text.contains("exit code 2") && text.contains("unexpected argument '--no-such-option'"),
        "{text}"
    );
    fleet.terminate();
    assert!(fleet.ended().await.success());
    assert_eq!(fleet.containers(), [], "and nothing of it stays");
}
