//! Clients of HTTP/2 that hold a connection up or keep it busy with nothing: it ends, with the reason on record, and
//! those that do neither are served (H6).

use tidegate_shared::names::metric;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::chat;
use tidegate_tests::openai::reply;
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::streams::{END_STREAM, Streams, block, kind, post, reason};
use tidegate_tests::stub::Stub;

use crate::CHAT;

async fn given_up(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metrics().await.total(metric::GAVE_UP, &[("reason", reason)])
}

#[tokio::test]
async fn h6_connections_over_http_2_end_that_ask_nothing_or_do_not_end_a_head() {
    let gate = Gate::closed();
    let open = gate.clone();
    let stub = Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.header_read", "300ms");
    let gateway = Gateway::start(config).await;
    let mut waits = Streams::connect(gateway.address, &[]).await;
    waits.request(1, &post(CHAT), &chat("chat", "wait").to_string()).await;
    stub.request(0).await;

    // Nothing, or nothing but pings.
    let idle = given_up(&gateway, "idle").await;
    for pings in [0, 1000] {
        let mut silent = Streams::connect(gateway.address, &[]).await;
        for _ in 0..pings {
            silent.send(kind::PING, 0, 0, &[7; 8]).await;
        }
        assert_eq!(silent.farewell().await, Some(reason::NO_ERROR));
    }
    gateway.until_metric(metric::GAVE_UP, &[("reason", "idle")], idle + 2.0).await;

    let head = given_up(&gateway, "head").await;
    for more in [0, 1] {
        let mut slow = Streams::connect(gateway.address, &[]).await;
        // Nothing may come in between.
        slow.is_alive = false;
        assert!(slow.send(kind::HEADERS, END_STREAM, 1, &block(&post(CHAT))).await);
        for _ in 0..more {
            assert!(slow.send(kind::CONTINUATION, 0, 1, &block(&[("x-more", "1")])).await);
        }
        assert_eq!(slow.farewell().await, Some(reason::ENHANCE_YOUR_CALM));
    }
    gateway.until_metric(metric::GAVE_UP, &[("reason", "head")], head + 2.0).await;

    // It waited longer than either of them, for an answer.
    open.open();
    assert!(!waits.answer(1).await.is_empty());
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_h7_requests_that_are_reset_at_once_keep_no_replica_busy() {
    let stub = Stub::with(|_| Script::new().stall()).await;
    let one = Deployment::chat([&stub]).set("concurrency_limit", 4).set("queue.headroom", "10m");
    let gateway = Gateway::start(Config::of(one)).await;
    let mut client = Streams::connect(gateway.address, &[]).await;
    let (body, cancel) = (chat("chat", "hi").to_string(), reason::CANCEL.to_be_bytes());
    let (mut stream, mut is_open) = (1, true);
    while is_open && stream < 40_000 {
        let head = tidegate_tests::streams::head(stream, 0, &post(CHAT));
        is_open = client.offer(&head).await
            && client.send(kind::DATA, END_STREAM, stream, body.as_bytes()).await
            && client.send(kind::RST_STREAM, 0, stream, &cancel).await;
        stream += 2;
    }
    assert!(!is_open, "the connection ends");
    gateway.until_metric(metric::GAVE_UP, &[("reason", "flood")], 1.0).await;
    gateway.assert_idle().await;
    assert_eq!(gateway.h2().get("/v1/models").await.status, 200);
}
