//! A replica is measured while the others serve (A1): what is found becomes the target, users come first, and whoever leaves
//! has the replica serve again.

use serde_json::{Value, json};
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;

const TUNE: &str = "/deployments/chat/tune";

/// Engines of three places that make a token in 5 ms, however many work.
async fn gateway(count: i64) -> Gateway {
    let engine = ["--model", "chat", "--slots", "3", "--load-time", "0s", "--step-us", "5000"];
    let steady = ["--step-sequence-us", "0", "--step-kv-ns", "0"];
    let deployment = Deployment::named("chat").engine(&[&engine[..], &steady[..]].concat());
    let deployment = deployment.set("mode", "active").set("min", count).set("max", count);
    let gateway = Gateway::launch(Config::of(deployment)).await;
    gateway.ready_replicas(usize::try_from(count).expect("few")).await;
    gateway
}

fn chat(text: &str) -> Value {
    json!({"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": text}]})
}

/// Waits until so many replicas say that they are held.
async fn until_held(gateway: &Gateway, count: usize) {
    eventually(&format!("{count} replicas are held"), async || {
        let status = gateway.status().await;
        let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
        let held =
            |replica: &&Value| replica["why"].as_str().is_some_and(|why| why.contains("tidegate tune"));
        let held = replicas.iter().filter(held).count();
        if held == count { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a1_a_replica_is_measured_beside_the_others_and_its_places_become_the_target() {
    let gateway = gateway(2).await;
    let body = json!({"prompt_tokens": 16, "output_tokens": 16});
    let tuning = Client::h1(gateway.admin).stream(TUNE, &body).await;
    assert_eq!(tuning.status, 200);
    until_held(&gateway, 1).await;
    let mut served = Vec::new();
    for turn in 0..10 {
        let answer = gateway.client().post("/v1/chat/completions", &chat(&turn.to_string())).await;
        assert_eq!(answer.status, 200, "users are served");
        served.push(answer.header("x-tidegate-replica").to_owned());
    }
    served.dedup();
    assert_eq!(served.len(), 1, "by the other one: {served:?}");
    let second = Client::h1(gateway.admin).post(TUNE, &json!({})).await;
    assert_eq!(second.status, 409, "one at a time");

    let told = tuning.whole().await;
    let told = String::from_utf8_lossy(&told.body).into_owned();
    let found: Value = serde_json::from_str(told.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&found["event"], &found["stored"]), (&"found".into(), &true.into()), "{found}");
    let target = found["target"].as_u64().expect("a number");
    // How far throughput grows is a matter of time; what is certain here is that the search ends at twice the slots.
    assert!((1..=6).contains(&target), "{found}");
    until_held(&gateway, 0).await;
    let sizing = Client::h1(gateway.admin).get("/deployments/chat/sizing").await.json();
    let now = &sizing["sizing"]["target_concurrency"];
    assert_eq!((now["value"].as_u64(), &now["from"]), (Some(target), &"tuned".into()), "{sizing}");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn a1_a_user_of_the_only_replica_comes_first() {
    let gateway = gateway(1).await;
    let tuning = Client::h1(gateway.admin).stream(TUNE, &json!({})).await;
    until_held(&gateway, 1).await;
    let long = json!({"model": "chat", "max_tokens": 400, "messages": [{"role": "user", "content": "tell"}]});
    let answer = gateway.client().post("/v1/chat/completions", &long).await;
    assert_eq!(answer.status, 200);
    let told = tuning.whole().await;
    let told = String::from_utf8_lossy(&told.body).into_owned();
    let last = told.lines().last().expect("a line");
    assert!(last.contains(r#""event":"failed""#) && last.contains("come first"), "{last}");
    until_held(&gateway, 0).await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn a1_whoever_leaves_has_the_replica_serve_again() {
    let gateway = gateway(2).await;
    let tuning = Client::h1(gateway.admin).stream(TUNE, &json!({"replica": "2"})).await;
    until_held(&gateway, 1).await;
    drop(tuning);
    until_held(&gateway, 0).await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn a1_a_step_ends_when_time_is_up_and_half_of_one_tells_nothing() {
    let gateway = gateway(2).await;
    // A step takes 2 s at least.
    let told = Client::h1(gateway.admin).post(TUNE, &json!({"at": [1], "limit_s": 1})).await;
    let told = String::from_utf8_lossy(&told.body).into_owned();
    let last = told.lines().last().expect("a line");
    assert!(last.contains(r#""event":"failed""#) && last.contains("within 1 s"), "{told}");
    until_held(&gateway, 0).await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn a1_what_cannot_be_measured_is_told() {
    let gateway = gateway(1).await;
    let asked = async |path: &str, body: Value| {
        let answer = Client::h1(gateway.admin).post(path, &body).await;
        (answer.status, answer.json()["error"].clone())
    };
    for unknown in ["chat-9", "9"] {
        let (status, error) = asked(TUNE, json!({"replica": unknown})).await;
        let told = format!("the replica `{unknown}` does not exist; there is `chat-1`");
        assert_eq!((status, &error["message"]), (404, &told.into()));
        // The same answer as to a drain.
        assert_eq!(asked(&format!("/deployments/chat/drain/{unknown}"), Value::Null).await, (status, error));
    }
    let (status, error) = asked(TUNE, json!({"at": [0]})).await;
    assert_eq!((status, &error["message"]), (400, &"at is 0, but must be 1 to 1024".into()));
    assert_eq!(asked("/deployments/chatt/tune", json!({})).await.0, 404);
}
