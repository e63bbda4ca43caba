//! A crowd that waited for the first replica, and the others that come right after it (C-040, R2, R3).

use serde_json::Value;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::chat;
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Stub, healthy};
use tokio::task::JoinSet;

use crate::CHAT;

/// Conversations of the crowd.
const CROWD: usize = 40;

/// A turn of one of them: where it went, and how.
async fn turn(gateway: &Gateway, index: usize) -> (String, String) {
    let name = format!("user-{index}");
    let headers = [("x-conversation-id", name.as_str())];
    let answer = gateway.client().post_with(CHAT, &headers, &chat("chat", "hi")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    (answer.header("x-tidegate-replica").to_owned(), answer.header("x-tidegate-route").to_owned())
}

/// A turn of each, one after the other; gives the routes.
async fn round(gateway: &Gateway) -> Vec<String> {
    let mut routes = Vec::new();
    for index in 0..CROWD {
        routes.push(turn(gateway, index).await.1);
    }
    routes
}

async fn homes(gateway: &Gateway) -> Vec<Value> {
    let status = gateway.status().await;
    let replicas = status["deployments"][0]["replicas"].as_array().expect("replicas");
    replicas.iter().map(|replica| replica["conversations"].clone()).collect()
}

#[tokio::test]
async fn c_040_a_crowd_from_zero_spreads_over_replicas_that_follow_and_then_stays() {
    let stubs = [Stub::start().await, Stub::start().await];
    stubs.iter().for_each(|stub| stub.on_probe(|_| Script::json(503, &Value::Null)));
    let deployment = Deployment::chat(&stubs).set("queue.headroom", "10m");
    let gateway = Gateway::launch(Config::of(deployment)).await;
    let mut crowd = JoinSet::new();
    for index in 0..CROWD {
        let (client, name) = (gateway.client(), format!("user-{index}"));
        let body = chat("chat", "hi");
        crowd.spawn(async move { client.post_with(CHAT, &[("x-conversation-id", &name)], &body).await });
    }
    gateway.queued(CROWD).await;
    stubs[0].on_probe(healthy);
    while let Some(answer) = crowd.join_next().await {
        let answer = answer.expect("an answer");
        assert_eq!(
            (answer.status, answer.header("x-tidegate-replica")),
            (200, "chat-1"),
            "nobody is held back"
        );
    }
    stubs[1].on_probe(healthy);
    gateway.ready_replicas(2).await;
    assert_eq!(homes(&gateway).await, [CROWD, 0]);
    let mut moved = 0;
    eventually("the crowd has spread", async || {
        let routes = round(&gateway).await;
        let rehomed = routes.iter().filter(|route| *route == "rehomed").count();
        assert!(routes.iter().all(|route| route == "home" || route == "rehomed"), "{routes:?}");
        moved += rehomed;
        match homes(&gateway).await {
            homes if homes == [CROWD / 2, CROWD / 2] => Ok(()),
            homes => Err(format!("{homes:?}")),
        }
    })
    .await;
    assert_eq!(moved, CROWD / 2, "half of them, each once");
    for _ in 0..3 {
        assert!(round(&gateway).await.iter().all(|route| route == "home"), "and there it stays");
    }
    gateway.assert_idle().await;
}
