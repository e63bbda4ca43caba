//! Kept HTTP/1.1 connections to replicas: one that dies while idle costs nobody an error, one that breaks the protocol
//! is never used again, and names are looked up.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::client::{Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Request, Stub};
use tokio::task::JoinSet;

use crate::{CHAT, serve};

/// A client that keeps its connection: all it sends meets the same core, and so the same connections to replicas.
struct Kept(Raw);

impl Kept {
    async fn to(gateway: &Gateway) -> Self {
        Self(Raw::connect(gateway.address).await)
    }

    /// The status and the body of the answer.
    async fn post(&mut self, body: &Value) -> (u16, bytes::Bytes) {
        let body = body.to_string();
        self.0.send(post(CHAT, &[&format!("content-length: {}", body.len())])).await;
        self.0.send(&body).await;
        let head = self.0.head().await.expect("an answer");
        let (body, end) = self.0.body(&head).await;
        end.expect("a whole answer");
        (head.status(), body)
    }
}

/// Two replicas, of which the first is so much larger that it gets all requests that it can take.
fn mostly(first: &Stub, second: &Stub) -> Deployment {
    Deployment::named("chat").replica(&first.url(), 1000).replica(&second.url(), 1)
}

/// A stub that answers its first request, and the later ones as `later` says, by their number from 1 on.
async fn after_the_first(later: impl Fn(usize, &Request) -> Script + Send + Sync + 'static) -> Stub {
    let asked = AtomicUsize::new(0);
    Stub::with(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => reply(request),
        number => later(number, request),
    })
    .await
}

#[tokio::test]
async fn connections_that_end_unannounced_after_their_nth_answer_cost_no_error_under_load() {
    const CLIENTS: usize = 20;
    const EACH: usize = 50;
    for most in [1, 3] {
        let served: Mutex<HashMap<usize, usize>> = Mutex::default();
        let stub = Stub::with(move |request| {
            let mut served = served.lock().expect("count");
            let here = served.entry(request.connection).or_default();
            *here += 1;
            if *here == most { reply(request).close() } else { reply(request) }
        })
        .await;
        let gateway = serve(&[&stub]).await;
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let mut kept = Kept::to(&gateway).await;
            clients.spawn(async move {
                for turn in 0..EACH {
                    let (status, body) = kept.post(&chat("chat", &format!("{client} {turn}"))).await;
                    assert_eq!(status, 200, "{body:?}");
                }
            });
        }
        while let Some(client) = clients.join_next().await {
            client.expect("every request is answered");
        }
        assert_eq!(stub.count(), CLIENTS * EACH, "each was worked on once");
        assert_eq!(gateway.metrics().await.total(metric::UPSTREAM_ERRORS, &[]), 0.0);
        gateway.assert_idle().await;
    }
}

#[tokio::test]
async fn a_kept_connection_that_is_reset_under_a_request_costs_one_second_try() {
    let stub = after_the_first(|number, request| match number {
        1 => Script::new().reset(),
        _ => reply(request),
    })
    .await;
    let gateway = serve(&[&stub]).await;
    let mut client = Kept::to(&gateway).await;
    for (index, asked) in [(0, 1), (1, 3)] {
        assert_eq!(client.post(&chat("chat", &index.to_string())).await.0, 200);
        assert_eq!(stub.count(), asked);
    }
    assert_eq!(gateway.metrics().await.total(metric::UPSTREAM_ERRORS, &[]), 0.0, "nobody's fault");
    gateway.until_metric(metric::RETRIES, &[("deployment", "chat")], 1.0).await;
    let attempts =
        gateway.access_line("the second line", |line| line["attempts"].as_u64().filter(|n| *n > 1));
    assert_eq!(attempts.await, 2, "the second try is told");
}

#[tokio::test]
async fn h4_a_lone_replica_whose_kept_connection_dies_gets_one_second_try_in_all() {
    let stub = after_the_first(|_, _| Script::new().reset()).await;
    let gateway = serve(&[&stub]).await;
    let mut client = Kept::to(&gateway).await;
    assert_eq!(client.post(&chat("chat", "one")).await.0, 200);
    assert_eq!(client.post(&chat("chat", "two")).await.0, 502);
    assert_eq!(stub.count(), 3, "once, and then twice");
    gateway.until_metric(metric::RETRIES, &[("deployment", "chat")], 1.0).await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn what_fails_twice_is_tried_elsewhere_and_what_was_begun_to_be_answered_is_not() {
    for (failure, asked, last) in [
        (Script::new().reset(), (3, 1), 200),
        (Script::new().close(), (3, 1), 200),
        (Script::new().raw("HTTP/1.1 200 OK\r\ncontent-le").reset(), (2, 0), 502),
        (Script::new().raw("HTTP/1.1 200 OK\r\ncontent-le").close(), (2, 0), 502),
    ] {
        let later = failure.clone();
        let stub = after_the_first(move |_, _| later.clone()).await;
        let sibling = Stub::start().await;
        let gateway = Gateway::start(Config::of(mostly(&stub, &sibling))).await;
        let mut client = Kept::to(&gateway).await;
        for (text, wanted) in [("one", 200), ("two", last)] {
            let mut turn = chat("chat", text);
            // One conversation: the second turn goes where the first went.
            turn["prompt_cache_key"] = "key".into();
            let (status, body) = client.post(&turn).await;
            assert_eq!(status, wanted, "{failure:?}: {body:?}");
        }
        assert_eq!((stub.count(), sibling.count()), asked, "{failure:?}");
        gateway.assert_idle().await;
    }
}

#[tokio::test]
async fn h4_wrong_framing_of_an_answer_gets_502_and_its_connection_is_never_used_again() {
    let both =
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let unequal = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ";
    let large = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 2\r\n\r\n{{}}", "x".repeat(1 << 20));
    // Two statements on the length are one that counts, and a connection that is not trusted (RFC 9112, 6.3).
    for (wrong, wanted) in [
        (both, 200),
        (unequal, 502),
        ("HTTP/1.1 20 OK\r\n\r\n", 502),
        ("HTTQ/1.1 200 OK\r\n\r\n", 502),
        (&large, 502),
    ] {
        let begin = &wrong[..wrong.len().min(80)];
        let wrong = Script::new().raw(wrong.to_owned());
        let asked = AtomicUsize::new(0);
        let stub = Stub::with(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => wrong.clone(),
            _ => reply(request),
        })
        .await;
        let gateway = serve(&[&stub]).await;
        let mut client = Kept::to(&gateway).await;
        let (status, body) = client.post(&chat("chat", "one")).await;
        assert_eq!(status, wanted, "{begin}: {body:?}");
        assert_eq!(stub.count(), 1, "{begin}");
        assert_eq!(client.post(&chat("chat", "two")).await.0, 200);
        stub.request(1).await;
        let [first, second] = [stub.request(0).await.connection, stub.request(1).await.connection];
        assert_ne!(first, second, "{begin}");
        gateway.assert_idle().await;
    }
}

#[tokio::test]
async fn a_name_is_looked_up_and_all_its_addresses_are_tried() {
    // It listens on 127.0.0.1 only; `localhost` may be ::1 as well.
    let stub = Stub::start().await;
    let url = format!("http://localhost:{}", stub.address().port());
    let gateway = Gateway::start(Config::of(Deployment::named("chat").replica(&url, 1))).await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200);
    let host = stub.request(0).await.head.header("host").map(str::to_owned);
    assert_eq!(host, url.strip_prefix("http://").map(str::to_owned));
}
