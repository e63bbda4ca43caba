//! Who says that he is urgent, or when he is gone (Q1, Q2): order in the line, whose place is taken, who is told at once.

use serde_json::{Value, json};
use tidegate_shared::names::{header, metric};
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::task::JoinHandle;

use crate::CHAT;

/// A gateway over one stub that takes one request at a time and answers when the gate lets it pass.
async fn narrow(gate: &Gate, settings: impl FnOnce(Deployment) -> Deployment) -> (Gateway, Stub) {
    let gate = gate.clone();
    let stub = Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await;
    let deployment = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.headroom", "10m");
    (Gateway::start(Config::of(settings(deployment))).await, stub)
}

/// Sends a chat with one header in the background.
fn send(client: Client, text: &str, (name, value): (&'static str, &'static str)) -> JoinHandle<Answer> {
    let body = chat("chat", text);
    tokio::spawn(async move { client.post_with(CHAT, &[(name, value)], &body).await })
}

/// The same with a priority.
fn urgent(client: Client, text: &str, priority: &'static str) -> JoinHandle<Answer> {
    send(client, text, (header::PRIORITY, priority))
}

/// The text of the message that a stub got as request `index`.
async fn text(stub: &Stub, index: usize) -> String {
    let request = stub.request(index).await;
    request.json()["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn refused(answer: &Answer, code: &str) {
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    assert_eq!(assert_error_shape(&answer.body)["code"], code);
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    assert!(answer.header("retry-after-ms").parse::<u64>().is_ok_and(|millis| millis >= 1));
}

#[tokio::test]
async fn q1_the_more_urgent_go_first_by_header_or_by_service_tier() {
    let gate = Gate::closed();
    let (gateway, stub) = narrow(&gate, |deployment| deployment).await;
    let mut clients = vec![urgent(gateway.client(), "busy", "low")];
    stub.request(0).await;
    let tier = |client: Client, text: &str, tier: &str| {
        let mut body = chat("chat", text);
        body["service_tier"] = tier.into();
        tokio::spawn(async move { client.post(CHAT, &body).await })
    };
    for index in 1..=6 {
        clients.push(match index {
            1 => urgent(gateway.client(), "low 1", "low"),
            2 => tier(gateway.h2(), "low 2", "flex"),
            3 => tier(gateway.client(), "normal 1", "auto"),
            4 => urgent(gateway.h2(), "high 1", "high"),
            5 => urgent(gateway.client(), "normal 2", "Normal"),
            _ => tier(gateway.client(), "high 2", "priority"),
        });
        gateway.queued(index).await;
    }
    for (index, expected) in
        ["busy", "high 1", "high 2", "normal 1", "normal 2", "low 1", "low 2"].into_iter().enumerate()
    {
        assert_eq!(text(&stub, index).await, expected);
        gate.pass();
    }
    for client in clients {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    let tiers = stub
        .see(|log| log.work.iter().filter(|work| work.request.json()["service_tier"] != Value::Null).count());
    assert_eq!(tiers, 3, "what the client sent goes on");
    gateway.access_line("a priority", |line| (line["priority"] == "high").then_some(())).await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn q1_a_full_line_makes_room_for_the_more_urgent() {
    let gate = Gate::closed();
    let (gateway, stub) = narrow(&gate, |deployment| deployment.set("queue.requests", 2)).await;
    let busy = urgent(gateway.client(), "busy", "normal");
    stub.request(0).await;
    let first = urgent(gateway.client(), "low 1", "low");
    gateway.queued(1).await;
    let last = urgent(gateway.h2(), "low 2", "low");
    gateway.queued(2).await;
    refused(&urgent(gateway.client(), "low 3", "low").await.expect("an answer"), "queue_full");
    let high = urgent(gateway.client(), "high", "high");
    refused(&last.await.expect("an answer"), "pushed_out");
    gateway.queued(2).await;
    let pushed = [("deployment", "chat"), ("reason", "pushed_out")];
    gateway.until_metric(metric::REFUSALS, &pushed, 1.0).await;
    gate.open();
    for client in [busy, first, high] {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    assert_eq!((text(&stub, 1).await, text(&stub, 2).await), ("high".to_owned(), "low 1".to_owned()));
    assert_eq!(urgent(gateway.h2(), "low 2", "low").await.expect("an answer").status, 200);
    assert_eq!(stub.count(), 4);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn q2_a_waiter_whose_deadline_passes_is_told_so_and_never_sent() {
    let gate = Gate::closed();
    let (gateway, stub) = narrow(&gate, |deployment| deployment).await;
    let busy = urgent(gateway.client(), "busy", "normal");
    stub.request(0).await;
    let deadlines = [
        (header::START_WITHIN_MS, "150"),
        (header::ENVOY_TIMEOUT_MS, "150"),
        ("x-stainless-read-timeout", "0.15"),
        ("x-stainless-timeout", "1"),
    ];
    let late: Vec<_> = deadlines.map(|deadline| send(gateway.client(), "late", deadline)).into();
    for client in late {
        refused(&client.await.expect("an answer"), "missed_deadline");
    }
    let missed = [("deployment", "chat"), ("reason", "missed_deadline")];
    gateway.until_metric(metric::REFUSALS, &missed, 4.0).await;
    gateway.queued(0).await;
    let patient = send(gateway.client(), "patient", (header::START_WITHIN_MS, "600000"));
    gateway.queued(1).await;
    gate.open();
    for client in [busy, patient] {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    assert_eq!((stub.count(), text(&stub, 1).await), (2, "patient".to_owned()));
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h4_a_bad_header_is_named_with_its_value_and_what_is_allowed() {
    let gate = Gate::closed();
    gate.open();
    let (gateway, stub) = narrow(&gate, |deployment| deployment).await;
    for client in [gateway.client(), gateway.h2()] {
        for (name, value, allowed) in [
            (header::PRIORITY, "urgent", "one of high, normal, low"),
            (header::PRIORITY, "1", "one of high, normal, low"),
            (header::START_WITHIN_MS, "soon", "a whole number of milliseconds from 1 to 86400000"),
            (header::START_WITHIN_MS, "0", "a whole number of milliseconds from 1 to 86400000"),
        ] {
            let answer = client.post_with(CHAT, &[(name, value)], &chat("chat", "hi")).await;
            let error = assert_error_shape(&answer.body);
            let message = format!("{name} is `{value}`, but must be {allowed}");
            assert_eq!((answer.status, &error["code"]), (400, &json!("invalid_header")));
            assert_eq!((&error["param"], &error["message"]), (&json!(name), &json!(message)));
        }
        let foreign = [("x-stainless-timeout", "never"), (header::ENVOY_TIMEOUT_MS, "-1")];
        assert_eq!(client.post_with(CHAT, &foreign, &chat("chat", "hi")).await.status, 200);
    }
    assert_eq!(stub.count(), 2);
    gateway.assert_idle().await;
}
