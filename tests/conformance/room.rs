//! A start command that says that there is no room (exit code 75): growth is blocked by that, and told so over all tries without
//! a break, until one finds room; then the fleet grows by itself (C2, M1).

use std::path::Path;

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;

use super::why::{QUICK, finding, text};

/// A fleet whose start command notes each try in `tries`, and waits until it may `answer`: there is room once `room` is there.
async fn launch(folder: &Path) -> Gateway {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker/exec/local.py").display().to_string();
    let start = "cd \"$EXEC_LOGS\"; echo try >> tries; while [ ! -e answer ]; do sleep 0.05; done; rm answer; \
                 if [ -e room ]; then exec \"$@\"; fi; echo 'none of 4 machines is free' >&2; exit 75";
    let binary = tidegate_tests::gateway::binary().display().to_string();
    let ours = ["/bin/sh", "-c", start, "sh", &script, "start", &binary, "engine", "--port", "{port}"];
    let words = |words: &[&str]| words.iter().map(|word| toml::Value::from(*word)).collect::<Vec<_>>();
    let deployment = Deployment::named("chat")
        .set("exec.start", words(&[&ours, QUICK].concat()))
        .set("exec.stop", words(&[&script, "stop"]))
        .set("exec.list", words(&[&script, "list"]))
        .set("exec.env.EXEC_LOGS", folder.display().to_string())
        .set("exec.list_every", "100ms")
        .set("min", 1)
        .set("max", 2);
    Gateway::launch(Config::of(deployment)).await
}

/// Waits until the start command was called so often.
async fn tried(folder: &Path, count: usize) {
    eventually(&format!("{count} tries"), async || {
        let tries = std::fs::read_to_string(folder.join("tries")).unwrap_or_default().lines().count();
        if tries >= count { Ok(()) } else { Err(format!("{tries} tries")) }
    })
    .await;
}

fn answer(folder: &Path) {
    std::fs::write(folder.join("answer"), "").expect("an answer");
}

/// What was decided, the newest first.
async fn decisions(gateway: &Gateway) -> Vec<(Value, Value)> {
    let past = Client::h1(gateway.admin).get("/deployments/chat/decisions?limit=100").await.json();
    let all = past["decisions"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| (one["reason"].clone(), one["blocked"].clone())).collect()
}

/// Status, `why` and metrics say that growth is blocked by no room, and that no start has failed.
async fn assert_told(gateway: &Gateway, when: &str) {
    let chat = gateway.status().await["deployments"][0].clone();
    assert_eq!(chat["decision"]["blocked"], serde_json::json!(["no_capacity"]), "{when}: {chat:#}");
    assert_eq!(chat["replicas"], serde_json::json!([]), "{when}: {chat:#}");
    let page = gateway.metrics().await;
    let labels = [("deployment", "chat"), ("reason", "no_capacity")];
    assert_eq!(page.total(metric::GROWTH_BLOCKED, &labels), 1.0, "{when}");
    assert_eq!(page.total(metric::DECISIONS, &labels), 1.0, "{when}");
    assert_eq!(page.total(metric::STARTS, &[("deployment", "chat"), ("result", "failed")]), 0.0, "{when}");
    let told = text(&finding(gateway, "blocked", "now").await).to_owned();
    assert!(told.contains("none of 4 machines is free"), "{when}: {told}");
}

#[tokio::test]
async fn c2_m1_no_room_for_a_start_command_is_told_over_all_tries_until_one_finds_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = launch(folder.path()).await;
    tried(folder.path(), 1).await;
    answer(folder.path());
    eventually("no room is entered", async || {
        let past = decisions(&gateway).await;
        if past.first().is_some_and(|(reason, _)| reason == "no_capacity") {
            Ok(())
        } else {
            Err(format!("{past:?}"))
        }
    })
    .await;
    let before = decisions(&gateway).await;
    for count in 2..=4 {
        tried(folder.path(), count).await;
        assert_told(&gateway, &format!("try {count} is under way")).await;
        answer(folder.path());
    }
    tried(folder.path(), 5).await;
    assert_told(&gateway, "the last try is under way").await;
    assert_eq!(decisions(&gateway).await, before, "one decision as it began");
    let log = gateway.log();
    assert_eq!(log.matches("is being started").count(), 1, "no line for each try: {log}");
    std::fs::write(folder.path().join("room"), "").expect("some room");
    answer(folder.path());
    gateway.ready_replicas(1).await;
    let since = decisions(&gateway).await;
    assert_eq!(since[since.len() - before.len()..], before);
    let blocked = |(_, blocked): &(Value, Value)| blocked.as_array().is_some_and(|all| !all.is_empty());
    assert!(!since[..since.len() - before.len()].iter().any(blocked), "{since:?}");
    let failed = [("deployment", "chat"), ("result", "failed")];
    assert_eq!(gateway.metrics().await.total(metric::STARTS, &failed), 0.0);
    let tries = std::fs::read_to_string(folder.path().join("tries")).expect("the tries");
    assert_eq!(tries.lines().count(), 5, "one at a time");
    gateway.leaves_nothing().await;
}
