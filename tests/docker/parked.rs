//! Containers that sleep instead of being stopped (C6): paused where the engine knows no sleep of its own, and the very same
//! again for the next burst, also after `kill -9` of the gateway.

use serde_json::json;
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::Deployment;
use tidegate_tests::deadline::eventually;
use tidegate_tests::shown::replicas;
use tokio::task::JoinSet;

use crate::fleet::{Container, Fleet};

/// Eight long answers at once, for which two replicas are needed; none fails.
fn burst(fleet: &Fleet) -> JoinSet<()> {
    let mut requests = JoinSet::new();
    for number in 0..8 {
        let server = fleet.address;
        let body = json!({"model": "chat", "stream": true, "max_tokens": 1500, "ignore_eos": true,
            "messages": [{"role": "user", "content": format!("question {number}")}]});
        requests.spawn(async move {
            let stream = Client::h1(server).stream("/v1/chat/completions", &body).await;
            assert_eq!(stream.status, 200);
            let answer = stream.whole().await;
            assert!(answer.body.ends_with(b"data: [DONE]\n\n"), "a whole answer: {:?}", answer.body);
        });
    }
    requests
}

/// Waits until both replicas are parked; their containers, and whether each is paused.
async fn parked(fleet: &Fleet) -> (Vec<Container>, Vec<String>) {
    eventually("two parked", async || {
        let (status, containers) = (fleet.status().await, fleet.containers());
        let parked = replicas(&status).iter().filter(|one| one["phase"] == "parked").count();
        if parked != 2 || containers.len() != 2 {
            return Err(format!("{containers:?} beside {status}"));
        }
        let state =
            |one: &Container| fleet.dockerd.docker(&["inspect", "--format", "{{.State.Paused}}", &one.id]);
        let paused: Vec<String> = containers.iter().map(state).collect();
        Ok((containers, paused))
    })
    .await
}

fn sleepers(deployment: Deployment) -> Deployment {
    let deployment = deployment.set("max", 2).set("parked", 2).set("target_concurrency", 4);
    deployment.set("window", "1s").set("queue.headroom", "5m")
}

async fn story(fleet: &mut Fleet, pauses: &str) {
    let requests = burst(fleet);
    let first = fleet.settled(2).await;
    requests.join_all().await;
    let asleep = (first.clone(), vec![pauses.to_owned(); 2]);
    eventually("as they sleep", async || {
        let seen = parked(fleet).await;
        if seen == asleep { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    fleet.kill();
    fleet.restart().await;
    assert_eq!(parked(fleet).await, asleep, "found asleep");
    let requests = burst(fleet);
    assert_eq!(fleet.settled(2).await, first, "and woken");
    requests.join_all().await;
    let metrics = fleet.metrics().await;
    let count = |result| metrics.total(metric::STARTS, &[("deployment", "chat"), ("result", result)]);
    assert_eq!(["ready", "failed", "woken", "not_woken"].map(count), [0.0, 0.0, 2.0, 0.0]);
    parked(fleet).await;
    fleet.terminate();
    assert!(fleet.ended().await.success());
    assert_eq!(fleet.containers(), [], "SIGTERM leaves nothing, paused or not");
}

#[tokio::test]
async fn c6_c_005_containers_whose_engine_knows_no_sleep_are_paused() {
    let quick = ["--model", "chat", "--load-time", "0s", "--step-us", "2000", "--sleepless"];
    let Some(mut fleet) = Fleet::launch_with(&quick, sleepers).await else { return };
    story(&mut fleet, "true").await;
}

#[tokio::test]
async fn c6_c_005_engines_in_containers_are_put_to_sleep_where_they_know_how() {
    let Some(mut fleet) = Fleet::launch(false, sleepers).await else { return };
    story(&mut fleet, "false").await;
}
