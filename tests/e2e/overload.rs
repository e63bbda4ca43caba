//! At its limits the gateway says when to come back, and keeps its word (Q1, Q2).

use std::time::Duration;

use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::as_told;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat};
use tidegate_tests::{model, sdk};
use tokio::task::JoinSet;

/// One replica, four places of half a second each; a request that cannot start within a second is refused.
fn stand_in() -> Deployment {
    let arguments = ["--model", "chat", "--slots", "4", "--load-time", "0s", "--prefill-rate", "1000000"];
    let steps = ["--step-us", "20000", "--step-sequence-us", "0", "--step-kv-ns", "0"];
    Deployment::named("chat")
        .engine(&[&arguments[..], &steps].concat())
        .set("min", 1)
        .set("max", 1)
        .set("concurrency_limit", 4)
        .set("queue.headroom", "1s")
}

/// What a refused client was told (Q2): both headers, which agree.
#[track_caller]
fn told(answer: &Answer) -> Duration {
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    assert_error_shape(&answer.body);
    let seconds: u64 = answer.header("retry-after").parse().expect("Retry-After in whole seconds");
    let millis: u64 = answer.header("retry-after-ms").parse().expect("retry-after-ms");
    assert!(seconds >= 1, "Retry-After: {seconds}");
    assert!(millis >= 1 && millis <= seconds * 1000, "retry-after-ms: {millis} of {seconds} s");
    Duration::from_millis(millis)
}

/// Sends a chat of 25 tokens, waits as told whenever refused; how often that was.
async fn obedient(client: Client, text: String) -> u32 {
    let mut body = chat("chat", &text);
    body["max_tokens"] = 25.into();
    let mut refusals = 0;
    loop {
        let answer = client.post("/v1/chat/completions", &body).await;
        if answer.status == 200 {
            return refusals;
        }
        refusals += 1;
        as_told(told(&answer)).await;
    }
}

/// Must show 4: with every place taken the excess is refused, and who waits as told is served, nearly always at the
/// first retry, though all of them ask the same.
async fn served_when_told(text: impl Fn(usize) -> String) {
    let gateway = Gateway::launch(Config::of(stand_in())).await;
    gateway.ready_replicas(1).await;
    let mut clients = JoinSet::new();
    for number in 0..80 {
        clients.spawn(obedient(gateway.client(), text(number)));
    }
    let refusals = clients.join_all().await;
    let at = |count| refusals.iter().filter(|refused| **refused == count).count();
    let refused = refusals.len() - at(0);
    assert!(refused >= 40, "a crowd of ten seconds' work does not fit into one: {refusals:?}");
    assert!(at(1) * 100 >= refused * 95, "served at the first retry, of {refused} refused: {refusals:?}");
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}

#[tokio::test]
async fn q2_who_waits_as_told_is_served() {
    served_when_told(|number| format!("question {number}")).await;
}

#[tokio::test]
async fn q2_who_waits_as_told_is_served_though_all_ask_the_same() {
    served_when_told(|_| "What is a tide?".to_owned()).await;
}

/// Must show 4: OpenAI's SDK with its default retries sees no error in a short overload.
async fn without_an_error(config: Config, model: &str, count: &str) {
    if sdk::python_folder().is_none() {
        return;
    }
    let gateway = Gateway::launch(config).await;
    gateway.ready_replicas(1).await;
    let arguments = [&gateway.base_url(), model, "1", count, "25", "2"];
    let Some(told) = sdk::python("crowd.py", &arguments).await else { return };
    let all = told.as_array().expect("a list");
    assert!(all.iter().all(|one| one["status"] == 200), "no error: {told}");
    assert!(all.iter().any(|one| one["retries"].as_u64() > Some(0)), "some were told to wait: {told}");
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}

#[tokio::test]
async fn q2_the_sdk_with_its_default_retries_sees_no_error() {
    without_an_error(Config::of(stand_in()), "chat", "40").await;
}

#[tokio::test]
async fn q2_nor_does_it_with_a_real_engine() {
    let Some(engine) = model::engine().await else { return };
    let deployment = model::deployment(engine)
        .set("min", 1)
        .set("max", 1)
        .set("target_concurrency", 1)
        .set("concurrency_limit", 1)
        .set("queue.headroom", "500ms");
    without_an_error(Config::of(deployment), engine.model, "12").await;
}
