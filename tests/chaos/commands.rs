//! A fleet of one's own commands (`docker/exec/local.py`) follows the demand: from zero through a burst and a plateau to
//! its ceiling and back to zero (A2, A4, A5, Q3, E1), and it loses nobody.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::{eventually, patiently};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::shown::replicas;
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{QUICK, long};

/// A gateway whose replicas are started, stopped and listed by the example; and the folder of its logs, which holds one for
/// each replica that there is.
async fn launch(set: impl Fn(Deployment) -> Deployment) -> (Gateway, tempfile::TempDir) {
    let logs = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker/exec/local.py").display().to_string();
    let program = binary().display().to_string();
    let start = [&script, "start", &program, "engine", "--port", "{port}"];
    let words = |words: &[&str]| words.iter().map(|word| toml::Value::from(*word)).collect::<Vec<_>>();
    let deployment = Deployment::named("chat")
        .set("exec.start", words(&[&start[..], QUICK].concat()))
        .set("exec.stop", words(&[&script, "stop"]))
        .set("exec.list", words(&[&script, "list"]))
        .set("exec.list_every", "500ms")
        .set("exec.env.EXEC_LOGS", logs.path().display().to_string())
        .set("target_concurrency", 4)
        .set("queue.headroom", "5m");
    (Gateway::launch(Config::of(set(deployment))).await, logs)
}

/// The replicas that the commands know of.
fn there(logs: &tempfile::TempDir) -> usize {
    std::fs::read_dir(logs.path()).expect("the folder").count()
}

/// Waits until there are exactly `count` replicas, all in that phase; their names.
async fn all(gateway: &Gateway, logs: &tempfile::TempDir, count: usize, phase: &str) -> Vec<Value> {
    eventually(&format!("{count} {phase}"), async || {
        let status = gateway.status().await;
        let all = replicas(&status);
        if all.len() == count && there(logs) == count && all.iter().all(|one| one["phase"] == phase) {
            return Ok(all.iter().map(|one| one["id"].clone()).collect());
        }
        Err(format!("{} beside {status}", there(logs)))
    })
    .await
}

/// A long answer; the replica that gave it.
fn ask(gateway: &Gateway, number: usize, tokens: u32, requests: &mut JoinSet<String>) {
    let (server, body) = (gateway.address, long(&format!("question {number}"), tokens));
    requests.spawn(async move {
        let stream = Client::h1(server).stream(CHAT, &body).await;
        assert_eq!(stream.status, 200);
        let replica = stream.header("x-tidegate-replica").to_owned();
        let answer = stream.whole().await;
        assert!(answer.body.ends_with(b"data: [DONE]\n\n"), "a whole answer: {:?}", answer.body);
        replica
    });
}

/// Must show 3, with commands of one's own: nothing, a burst, a plateau, idle. No request fails, nothing stays.
#[tokio::test]
async fn a5_from_zero_through_a_burst_and_a_plateau_to_zero_with_ones_own_commands() {
    let (gateway, logs) = launch(|deployment| deployment.set("max", 3).set("window", "2s")).await;
    assert_eq!(all(&gateway, &logs, 0, "ready").await, Vec::<Value>::new(), "nothing at first");
    let mut requests = JoinSet::new();
    (0..12).for_each(|number| ask(&gateway, number, 1500, &mut requests));
    all(&gateway, &logs, 3, "ready").await;
    let (mut seen, mut asked) = (BTreeSet::new(), 12);
    while let Some(done) = patiently("an answer", requests.join_next()).await {
        seen.insert(done.expect("no panic"));
        if asked < 60 {
            ask(&gateway, asked, 100, &mut requests);
            asked += 1;
        }
    }
    assert_eq!(seen.len(), 3, "all three served: {seen:?}");
    gateway.assert_idle().await;
    all(&gateway, &logs, 0, "ready").await;

    let status = gateway.status().await;
    let decisions = status["deployments"][0]["decisions"].as_array().expect("decisions").clone();
    let reasons: BTreeSet<&str> = decisions.iter().filter_map(|one| one["reason"].as_str()).collect();
    assert!(reasons.contains("from_zero") && reasons.contains("idle"), "{reasons:?}");
    let metrics = gateway.metrics().await;
    let served = metrics.total(metric::REQUESTS, &[("deployment", "chat"), ("status", "200")]);
    assert_eq!((served, metrics.total(metric::REQUESTS, &[("deployment", "chat")])), (60.0, 60.0));
    gateway.leaves_nothing().await;
}

/// An engine's own sleep needs nothing of the commands.
#[tokio::test]
async fn c6_engines_of_ones_own_commands_sleep_and_are_woken() {
    let (gateway, logs) =
        launch(|deployment| deployment.set("max", 2).set("parked", 2).set("window", "1s")).await;
    let mut requests = JoinSet::new();
    (0..8).for_each(|number| ask(&gateway, number, 1500, &mut requests));
    let first = all(&gateway, &logs, 2, "ready").await;
    requests.join_all().await;
    assert_eq!(all(&gateway, &logs, 2, "parked").await, first);
    let mut requests = JoinSet::new();
    (0..8).for_each(|number| ask(&gateway, number, 1500, &mut requests));
    assert_eq!(all(&gateway, &logs, 2, "ready").await, first, "the same two");
    requests.join_all().await;
    gateway.leaves_nothing().await;
}
