//! The queue of a deployment (Q1 to Q5): in order, bounded in number, bytes and time, honest about coming back, free
//! of those who left, no burden for others.

use tidegate_shared::names::metric;
use tidegate_tests::client::{Answer, Client, Raw};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, chat_stream, reply};
use tidegate_tests::recipe::{Base, Doors, Way};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Stub};
use tokio::task::JoinHandle;

use crate::CHAT;

/// A stub that answers a request when the gate lets it pass.
async fn gated(gate: &Gate) -> Stub {
    let gate = gate.clone();
    Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await
}

/// The deployment `chat` over one stub that takes one request at a time; waiting is limited by the test alone.
fn narrow(stub: &Stub) -> Deployment {
    Deployment::chat([stub]).set("concurrency_limit", 1).set("queue.headroom", "10m")
}

/// Sends a chat in the background.
fn send(client: Client, text: &str) -> JoinHandle<Answer> {
    let body = chat("chat", text);
    tokio::spawn(async move { client.post(CHAT, &body).await })
}

/// The text of the message that a stub got as request `index`.
async fn text(stub: &Stub, index: usize) -> String {
    let request = stub.request(index).await;
    request.json()["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
}

/// Checks a 503: shape, code, and both headers that say when to come back (Q2).
#[track_caller]
fn assert_refused(answer: &Answer, codes: &[&str]) {
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    let error = assert_error_shape(&answer.body);
    assert!(codes.iter().any(|code| error["code"] == *code), "{error}");
    let seconds: u64 = answer.header("retry-after").parse().expect("Retry-After in whole seconds");
    let millis: u64 = answer.header("retry-after-ms").parse().expect("retry-after-ms");
    assert!(seconds >= 1, "Retry-After: {seconds}");
    assert!(millis >= 1 && millis <= seconds * 1000, "retry-after-ms: {millis} of {seconds} s");
}

#[tokio::test]
async fn q1_first_come_first_served() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let gateway = Gateway::start(Config::of(narrow(&stub))).await;
    let mut clients = vec![send(gateway.client(), "0")];
    stub.request(0).await;
    for index in 1..8 {
        let client = if index % 2 == 0 { gateway.client() } else { gateway.h2() };
        clients.push(send(client, &index.to_string()));
        gateway.queued(index).await;
    }
    gateway.in_flight(1).await;
    for (index, client) in clients.into_iter().enumerate() {
        assert_eq!(text(&stub, index).await, index.to_string());
        gate.pass();
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    assert_eq!(stub.see(|log| log.most), 1, "never above the limit of the replica");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn q2_a_full_queue_refuses_and_who_comes_back_is_served() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let gateway = Gateway::start(Config::of(narrow(&stub).set("queue.requests", 2))).await;
    let mut accepted = vec![send(gateway.client(), "0")];
    stub.request(0).await;
    for index in 1..3 {
        accepted.push(send(gateway.client(), &index.to_string()));
        gateway.queued(index).await;
    }
    for client in [gateway.client(), gateway.h2()] {
        assert_refused(&send(client, "too many").await.expect("an answer"), &["queue_full"]);
    }
    gateway.until_metric(metric::REFUSALS, &[("deployment", "chat"), ("reason", "queue_full")], 2.0).await;
    gate.open();
    for client in accepted {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    assert_eq!(send(gateway.client(), "again").await.expect("an answer").status, 200);
    assert_eq!(stub.count(), 4, "a refused request reaches nobody");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn q2_who_cannot_start_within_the_headroom_is_told_so() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let deployment = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.headroom", "200ms");
    let gateway = Gateway::start(Config::of(deployment)).await;
    let busy = send(gateway.client(), "busy");
    stub.request(0).await;
    for _ in 0..2 {
        let refused = send(gateway.client(), "late").await.expect("an answer");
        assert_refused(&refused, &["waited_too_long", "would_wait_too_long"]);
    }
    gateway.queued(0).await;
    gateway.in_flight(1).await;
    gate.open();
    assert_eq!(busy.await.expect("an answer").status, 200);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_072_the_queue_is_bounded_in_bytes() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let gateway = Gateway::start(Config::of(narrow(&stub).set("queue.bytes", "1MiB"))).await;
    let large = "x".repeat(600 << 10);
    let mut accepted = vec![send(gateway.client(), "0")];
    stub.request(0).await;
    accepted.push(send(gateway.client(), &large));
    gateway.queued(1).await;
    assert_refused(&send(gateway.client(), &large).await.expect("an answer"), &["queue_bytes"]);
    accepted.push(send(gateway.client(), "small"));
    gateway.queued(2).await;
    gate.open();
    for client in accepted {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_072_all_bodies_together_are_bounded() {
    let gate = Gate::closed();
    let (stub, other) = (gated(&gate).await, Stub::start().await);
    let config = Config::of(narrow(&stub))
        .and(Deployment::named("other").set("model", "chat").replica(&other.url(), 1))
        .set("limits.body", "2MiB")
        .set("limits.buffered", "4MiB");
    let gateway = Gateway::start(config).await;
    let large = "x".repeat(3 << 19);
    let mut accepted = vec![send(gateway.client(), "0")];
    stub.request(0).await;
    for index in 1..3 {
        accepted.push(send(gateway.client(), &large));
        gateway.queued(index).await;
    }
    let refused = send(gateway.client(), &large).await.expect("an answer");
    assert_eq!(refused.status, 503, "{:?}", refused.body);
    assert_error_shape(&refused.body);
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    assert!(gateway.metrics().await.total(metric::BUFFERED_BYTES, &[]) <= f64::from(4 << 20));
    assert_eq!(gateway.client().post(CHAT, &chat("other", "small")).await.status, 200);
    gate.open();
    for client in accepted {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    gateway.assert_idle().await;
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
}

#[tokio::test]
async fn c_008_waiters_that_leave_free_their_place_and_are_never_sent() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let gateway = Gateway::start(Config::of(narrow(&stub).set("queue.requests", 4))).await;
    let busy = send(gateway.client(), "busy");
    stub.request(0).await;
    // Over HTTP/1.1 by closing and by a reset, over HTTP/2 by giving up their streams; streamed and not.
    let mut connections = Vec::new();
    for (index, body) in [(1, chat("chat", "left")), (2, chat_stream("chat", "left"))] {
        connections.push(Raw::posted(gateway.address, CHAT, &body.to_string()).await);
        gateway.queued(index).await;
    }
    let mut streams = Vec::new();
    for (index, body) in [(3, chat("chat", "left")), (4, chat_stream("chat", "left"))] {
        let client = gateway.h2();
        streams.push(tokio::spawn(async move { client.post(CHAT, &body).await }));
        gateway.queued(index).await;
    }
    assert_eq!(gateway.metrics().await.total(metric::QUEUED, &[]), 4.0);
    connections.pop().into_iter().for_each(Raw::reset);
    drop(connections);
    streams.into_iter().for_each(|stream| stream.abort());
    gateway.queued(0).await;
    let shown = gateway.status().await["deployments"][0].clone();
    assert_eq!((&shown["queued"], &shown["in_flight"]), (&0.into(), &1.into()), "the scaler sees it too");
    let mut staying = Vec::new();
    for index in 1..5 {
        staying.push(send(gateway.client(), &format!("new {index}")));
        gateway.queued(index).await;
    }
    gate.open();
    assert_eq!(busy.await.expect("an answer").status, 200);
    for client in staying {
        assert_eq!(client.await.expect("an answer").status, 200, "a place was free");
    }
    for index in 1..5 {
        assert_eq!(text(&stub, index).await, format!("new {index}"));
    }
    assert_eq!(stub.count(), 5, "who left was never sent");
    gateway.assert_idle().await;
    gateway.until_metric(metric::REQUESTS, &[("status", "499")], 4.0).await;
}

#[tokio::test]
async fn c_008_c_046_waiters_of_every_kind_leave_by_either_door_and_others_are_served_meanwhile() {
    let (stub, other) = (Stub::start().await, Stub::start().await);
    let config = Config::of(narrow(&stub).set("queue.requests", 5))
        .and(Deployment::named("other").set("model", "chat").replica(&other.url(), 1));
    let doors = Doors::start(config).await;
    for (gateway, client) in doors.each() {
        let (base, before, gate) = (Base::of(gateway).await, stub.count(), Gate::closed());
        let held = gate.clone();
        stub.on_work(move |request| Script::new().wait(&held).then(reply(request)));
        let busy = send(client, "busy");
        stub.request(before).await;
        let fill = async |text: &'static str| {
            let mut line = Vec::new();
            for way in Way::all(client) {
                line.push(tokio::spawn(async move { way.ask(text).await }));
                gateway.queued(line.len()).await;
            }
            line
        };
        let line = fill("left").await;
        for way in Way::all(client) {
            assert_refused(&way.ask("too many").await, &["queue_full"]);
            let mut body = way.body("other");
            body["model"] = "other".into();
            assert_eq!(way.client.post(way.path, &body).await.status, 200, "{way}");
        }
        line.iter().for_each(JoinHandle::abort);
        gateway.queued(0).await;
        let line = fill("new").await;
        gate.open();
        assert_eq!(busy.await.expect("an answer").status, 200);
        for client in line {
            assert_eq!(client.await.expect("an answer").status, 200, "a place was free");
        }
        assert_eq!(stub.count() - before, 6, "who left was never sent");
        let left = stub.see(|log| {
            log.work.iter().filter(|exchange| exchange.request.json().to_string().contains("left")).count()
        });
        assert_eq!(left, 0);
        base.closed(gateway).await;
        gateway.until_metric(metric::REQUESTS, &[("status", "499")], 5.0).await;
    }
    doors.leave_nothing().await;
}

#[tokio::test]
async fn h7_a_waiter_over_http_2_leaves_by_closing_its_stream() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let gateway = Gateway::start(Config::of(narrow(&stub))).await;
    let busy = send(gateway.client(), "busy");
    stub.request(0).await;
    let waiting = send(gateway.h2(), "left");
    gateway.queued(1).await;
    waiting.abort();
    gateway.queued(0).await;
    gate.open();
    assert_eq!(busy.await.expect("an answer").status, 200);
    assert_eq!(stub.ended(0).await, End::Answered);
    gateway.assert_idle().await;
    assert_eq!(stub.count(), 1);
}

#[tokio::test]
async fn c_046_a_backlog_of_one_model_does_not_touch_another() {
    let gate = Gate::closed();
    let (stuck, free) = (gated(&gate).await, Stub::start().await);
    let config = Config::of(narrow(&stuck).set("queue.requests", 3))
        .and(Deployment::named("free").set("model", "chat").replica(&free.url(), 1));
    let gateway = Gateway::start(config).await;
    let _busy = send(gateway.client(), "0");
    stuck.request(0).await;
    let mut waiting = Vec::new();
    for index in 1..4 {
        waiting.push(send(gateway.client(), &index.to_string()));
        gateway.queued(index).await;
    }
    assert_refused(&send(gateway.client(), "full").await.expect("an answer"), &["queue_full"]);
    for client in [gateway.client(), gateway.h2()] {
        for index in 0..10 {
            assert_eq!(client.post(CHAT, &chat("free", &index.to_string())).await.status, 200);
        }
        for path in ["/livez", "/readyz", "/v1/models", "/v1/models/chat"] {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
    }
    gateway.queued(3).await;
    assert_eq!(gateway.status().await["deployments"].as_array().map(Vec::len), Some(2));
    gate.open();
    gateway.assert_idle().await;
}

#[tokio::test]
async fn q4_a_place_that_becomes_free_is_taken_at_once() {
    let gate = Gate::closed();
    let stub = gated(&gate).await;
    let gateway = Gateway::start(Config::of(narrow(&stub))).await;
    let streaming = Raw::posted(gateway.address, CHAT, &chat("chat", "leaves").to_string()).await;
    stub.request(0).await;
    let waiting = send(gateway.client(), "waits");
    gateway.queued(1).await;
    // The one that is served leaves: its place goes to the waiter, with no other event.
    drop(streaming);
    assert_eq!(text(&stub, 1).await, "waits");
    gateway.queued(0).await;
    gate.open();
    assert_eq!(waiting.await.expect("an answer").status, 200);
    gateway.assert_idle().await;
}
