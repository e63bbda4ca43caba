//! Each placement policy through the real gateway (R3): what has no home goes where the deployment's `policy` says.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;

use crate::CHAT;

/// Three replicas of the same size that answer at once, but for requests that hold a place until the gate opens.
async fn fleet(policy: &str, gate: &Gate) -> (Gateway, Vec<Stub>) {
    let mut stubs = Vec::new();
    for _ in 0..3 {
        let gate = gate.clone();
        let answer = move |request: &tidegate_tests::stub::Request| match request.json()["user"] == "holds" {
            true => Script::new().wait(&gate).then(reply(request)),
            false => reply(request),
        };
        stubs.push(Stub::with(answer).await);
    }
    let deployment = Deployment::chat(&stubs).set("policy", policy);
    (Gateway::start(Config::of(deployment)).await, stubs)
}

/// The replica that a new conversation is placed on.
async fn placed(gateway: &Gateway, body: &Value) -> String {
    let answer = gateway.client().post(CHAT, body).await;
    assert_eq!((answer.status, answer.header("x-tidegate-route")), (200, "placed"));
    answer.header("x-tidegate-replica").to_owned()
}

/// The replicas of so many new conversations that share nothing, one after the other.
async fn place(gateway: &Gateway, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for index in 0..count {
        seen.push(placed(gateway, &chat("chat", &format!("question {index}"))).await);
    }
    seen
}

fn counts(seen: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    seen.iter().for_each(|replica| *counts.entry(replica.as_str()).or_default() += 1);
    counts
}

/// Fills one replica with requests that hold their places, by one conversation, and gives its name.
async fn burden(gateway: &Gateway, count: usize) -> String {
    let name = [("x-conversation-id", "burden")];
    let first = gateway.client().post_with(CHAT, &name, &chat("chat", "hi")).await;
    let mut body = chat("chat", "hi");
    body["user"] = "holds".into();
    for _ in 0..count {
        let (client, body) = (gateway.client(), body.clone());
        tokio::spawn(async move { client.post_with(CHAT, &name, &body).await });
    }
    gateway.in_flight(count).await;
    first.header("x-tidegate-replica").to_owned()
}

#[tokio::test]
async fn r3_least_load_goes_where_there_is_most_room() {
    let gate = Gate::closed();
    let (gateway, _stubs) = fleet("least-load", &gate).await;
    assert_eq!(counts(&place(&gateway, 30).await).into_values().collect::<Vec<_>>(), [10, 10, 10]);
    let burdened = burden(&gateway, 10).await;
    assert_eq!(counts(&place(&gateway, 30).await).get(burdened.as_str()), None);
    gate.open();
    gateway.assert_idle().await;
}

#[tokio::test]
async fn r3_two_choices_never_take_the_one_that_is_fuller_than_all_others() {
    let gate = Gate::closed();
    let (gateway, _stubs) = fleet("two-choices", &gate).await;
    assert_eq!(counts(&place(&gateway, 60).await).len(), 3);
    let burdened = burden(&gateway, 10).await;
    let seen = place(&gateway, 60).await;
    assert_eq!(counts(&seen).get(burdened.as_str()), None);
    let turns = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((1..60).contains(&turns), "drawn: {seen:?}");
    gate.open();
    gateway.assert_idle().await;
}

#[tokio::test]
async fn r3_round_robin_takes_one_after_the_other_whatever_their_load() {
    let gate = Gate::closed();
    let (gateway, _stubs) = fleet("round-robin", &gate).await;
    let _burdened = burden(&gateway, 10).await;
    let seen = place(&gateway, 30).await;
    assert!(seen.chunks(3).all(|round| round == &seen[..3]), "{seen:?}");
    assert_eq!(counts(&seen).into_values().collect::<Vec<_>>(), [10, 10, 10]);
    gate.open();
    gateway.assert_idle().await;
}

#[tokio::test]
async fn r3_random_draws_whatever_their_load_and_each_gateway_for_itself() {
    let gate = Gate::closed();
    let (gateway, stubs) = fleet("random", &gate).await;
    let burdened = burden(&gateway, 10).await;
    let seen = place(&gateway, 90).await;
    let counts = counts(&seen);
    assert_eq!(counts.len(), 3);
    assert!(counts[burdened.as_str()] >= 5, "a third of 90, or so: {counts:?}");
    let other = Gateway::start(Config::of(Deployment::chat(&stubs).set("policy", "random"))).await;
    assert_ne!(place(&other, 90).await, seen, "drawn from another seed");
    gate.open();
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_148_prefix_gathers_what_begins_alike_on_every_gateway() {
    let gate = Gate::closed();
    let (gateway, stubs) = fleet("prefix", &gate).await;
    let other = Gateway::start(Config::of(Deployment::chat(&stubs).set("policy", "prefix"))).await;
    let mut used = BTreeMap::<String, usize>::new();
    for system in 0..20 {
        let ask = |user: usize| {
            json!({"model": "chat", "messages": [
                {"role": "system", "content": format!("You are number {system}.")},
                {"role": "user", "content": format!("question {user}")}]})
        };
        let at = placed(&gateway, &ask(0)).await;
        for user in 1..3 {
            assert_eq!(placed(&gateway, &ask(user)).await, at, "the same beginning");
            assert_eq!(placed(&other, &ask(user + 10)).await, at, "on the other gateway");
        }
        *used.entry(at).or_default() += 1;
    }
    assert_eq!(used.len(), 3, "different beginnings spread: {used:?}");
    gate.open();
}
