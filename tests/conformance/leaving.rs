//! Clients that leave (H7): before the headers and in the middle of a stream, by every way of leaving. The replica's
//! connection is closed, the counts are zero, nothing is tried again. Leaving the queue is proven in `queue`.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::Raw;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::Crowd;
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, chat_stream, delta};
use tidegate_tests::recipe::everywhere;
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Stub};
use tidegate_tests::wire::Framing;

use crate::{CHAT, serve};

/// How a client leaves that has sent its request and has no answer yet.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Closes,
    Resets,
    /// Its stream of HTTP/2 is reset; another one stays on the connection.
    CancelsStream,
}

/// Sends a request, waits until `sent` has seen it, and leaves.
async fn leave(gateway: &Gateway, how: Leaving, path: &str, body: &Value, sent: impl Future<Output = ()>) {
    if let Leaving::CancelsStream = how {
        let crowd = Crowd::of(gateway.address, 1).await;
        tokio::select! {
            answer = crowd.post(path, &[], body) => panic!("{path}: {answer:?}"),
            () = sent => {}
        }
        gateway.assert_idle().await;
        assert_eq!(crowd.post(path, &[], &json!({"model": "nobody"})).await.status, 404, "it goes on");
        return;
    }
    let raw = Raw::posted(gateway.address, path, &body.to_string()).await;
    sent.await;
    if let Leaving::Resets = how { raw.reset() } else { drop(raw) }
}

#[tokio::test]
async fn h7_c_026_leaving_before_the_headers_closes_the_replicas_side() {
    let stubs = [Stub::with(|_| Script::new().stall()).await, Stub::with(|_| Script::new().stall()).await];
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    let seen = || stubs.iter().map(Stub::count).sum::<usize>();
    let mut left = 0;
    for path in [CHAT, "/v1/completions", "/v1/embeddings"] {
        for stream in [false, true] {
            for how in [Leaving::Closes, Leaving::Resets, Leaving::CancelsStream] {
                let body = json!({"model": "chat", "input": "x", "prompt": "x", "stream": stream});
                left += 1;
                // Counted by the gateway is not yet seen by the replica.
                let sent = eventually("a replica has it", async || match seen() {
                    found if found == left => Ok(()),
                    found => Err(format!("{found} of {left}")),
                });
                leave(&gateway, how, path, &body, sent).await;
                gateway.assert_idle().await;
                assert_eq!(seen(), left, "{path}, {how:?}: one attempt each");
            }
        }
    }
    for stub in &stubs {
        for index in 0..stub.count() {
            assert_eq!(stub.ended(index).await, End::PeerLeft);
        }
    }
    gateway.until_metric(metric::REQUESTS, &[("status", "499")], left as f64).await;
    assert_eq!(gateway.metrics().await.total(metric::RETRIES, &[]), 0.0);
}

#[tokio::test]
async fn c_026_a_client_that_leaves_by_either_door_leaves_nothing_behind() {
    let stub = Stub::with(|_| Script::new().stall()).await;
    everywhere(Config::of(Deployment::chat([&stub])), async |gateway, way| {
        let before = stub.count();
        let asking = tokio::spawn(async move { way.ask("hi").await.status });
        stub.request(before).await;
        asking.abort();
        assert_eq!(stub.ended(before).await, End::PeerLeft, "{way}");
        gateway.assert_idle().await;
        assert_eq!(stub.count(), before + 1, "{way}: one attempt");
        let metrics = gateway.metrics().await;
        let harm = [metric::RETRIES, metric::UPSTREAM_ERRORS, metric::EJECTIONS];
        assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 3], "{way}");
    })
    .await;
}

#[tokio::test]
async fn h7_leaving_in_the_middle_of_a_stream_closes_the_replicas_side() {
    let stub = Stub::with(|_| Script::sse().event(&delta("a")).stall()).await;
    let gateway = serve(&[&stub]).await;
    let body = chat_stream("chat", "hi").to_string();
    for reset in [false, true] {
        let mut raw = Raw::posted(gateway.address, CHAT, &body).await;
        let head = raw.head().await.expect("a head");
        let mut framing = head.framing(Framing::Close);
        assert!(raw.piece(&mut framing).await.expect("an event").is_some());
        if reset {
            raw.reset()
        } else {
            drop(raw)
        }
        assert_eq!(stub.ended(stub.count() - 1).await, End::PeerLeft);
    }
    let mut stream = gateway.h2().stream(CHAT, &chat_stream("chat", "hi")).await;
    assert!(stream.event().await.is_some());
    drop(stream);
    assert_eq!(stub.ended(2).await, End::PeerLeft, "HTTP/2");
    gateway.assert_idle().await;
    gateway.until_metric(metric::REQUESTS, &[("status", "499")], 3.0).await;
}

/// The line of the access log for the request with this id, without what varies.
async fn line(gateway: &Gateway, id: &str) -> Value {
    gateway
        .access_line("its line", |line| {
            (line["request_id"] == id)
                .then(|| json!([line["status"], line["outcome"], line["completion_tokens"], line["trouble"]]))
        })
        .await
}

#[tokio::test]
async fn h4_a_client_that_closes_at_the_last_event_was_served() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let responses =
        r#"{"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":2}}}"#;
    let messages = "event: message_delta\ndata: {\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}\n\n\
                    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let failed = r#"{"error":{"message":"out of memory"}}"#;
    let reported = "the replica reported an error inside its stream";
    let whole = json!([200, "complete", 2, null]);
    // The end of the transfer never comes.
    let cases = [
        (format!("data: {}\n\ndata: {usage}\n\ndata: [DONE]\n\n", delta("a")), whole.clone()),
        (messages.to_owned(), whole.clone()),
        (format!("event: response.completed\ndata: {responses}\n\n"), whole),
        (format!("data: {failed}\n\n"), json!([200, "failed_midway", null, reported])),
        (format!("data: {usage}\n\n"), json!([499, null, null, null])),
    ];
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for (index, (events, logged)) in cases.iter().enumerate() {
        let script = Script::sse().chunk(events).stall();
        stub.on_work(move |_| script.clone());
        for (protocol, client) in [("h1", gateway.client()), ("h2", gateway.h2())] {
            let (id, body) = (format!("{protocol}-{index}"), chat_stream("chat", "hi").to_string());
            let mut stream = client.open(Method::POST, CHAT, &[("x-request-id", &id)], body).await;
            stream.begins(events).await;
            drop(stream);
            assert_eq!(line(&gateway, &id).await, *logged, "{id}: {events}");
        }
    }
    gateway.assert_idle().await;
    gateway.until_metric(metric::REQUESTS, &[("status", "499")], 2.0).await;
    for index in 0..stub.count() {
        assert_eq!(stub.ended(index).await, End::PeerLeft);
    }
}

#[tokio::test]
async fn q5_many_clients_leave_at_every_stage_and_nothing_is_left() {
    let gate = Gate::closed();
    let open = gate.clone();
    let stub = Stub::with(move |request| match request.json()["messages"][0]["content"].as_str() {
        Some("headers") => Script::new().wait(&gate).then(Script::json(200, &json!({}))),
        _ => Script::sse().event(&delta("a")).wait(&gate).done(),
    })
    .await;
    let config =
        Config::of(Deployment::chat([&stub]).set("concurrency_limit", 30).set("queue.headroom", "5m"));
    let gateway = Gateway::start(config).await;
    for round in 0..3 {
        let mut clients = Vec::new();
        for index in 0..60 {
            let body = if index % 2 == 0 { chat("chat", "headers") } else { chat_stream("chat", "events") };
            clients.push(Raw::posted(gateway.address, CHAT, &body.to_string()).await);
            if index == 0 {
                // One that left half its head and one that never sent a byte.
                let mut half = Raw::connect(gateway.address).await;
                half.send("POST /v1/chat/comp").await;
                drop((half, Raw::connect(gateway.address).await));
            }
        }
        gateway.in_flight(30).await;
        gateway.queued(30).await;
        for (index, client) in clients.into_iter().enumerate() {
            if (index + round) % 3 == 0 { client.reset() } else { drop(client) }
        }
        gateway.assert_idle().await;
    }
    stub.until("the replica is idle", |log| (log.running() == 0).then_some(())).await;
    // A place is free when its client leaves, which the replica learns a moment later.
    assert!(stub.see(|log| log.most) <= 60, "never far beyond its limit");
    open.open();
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "headers")).await.status, 200);
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
}
