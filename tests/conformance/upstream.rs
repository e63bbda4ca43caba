//! Replicas that fail before their first byte, say no, or die all at once (C-032, C-036, C-078, C-121): what a client
//! sees, and how often a replica was asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidegate_shared::names::metric;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, chat_stream, reply};
use tidegate_tests::recipe::everywhere;
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Request, Stub};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::{CHAT, serve};

/// Two stubs of which the first to be asked fails as scripted, and everyone later answers.
async fn first_fails(failure: Script) -> [Stub; 2] {
    let asked = Arc::new(AtomicUsize::new(0));
    let stub = async || {
        let (asked, failure) = (Arc::clone(&asked), failure.clone());
        Stub::with(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => failure.clone(),
            _ => reply(request),
        })
        .await
    };
    [stub().await, stub().await]
}

#[tokio::test]
async fn r5_an_attempt_that_failed_leaves_its_place_to_the_next() {
    let [stub, _] = first_fails(Script::new().reset()).await;
    let deployment = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.requests", 0);
    let gateway = Gateway::start(Config::of(deployment)).await;
    let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(stub.count(), 2, "one place, and no line to wait for it in");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn r5_a_replica_that_dies_before_its_first_byte_costs_a_retry_not_an_error() {
    for failure in [Script::new().reset(), Script::new().close()] {
        let stubs = first_fails(failure.clone()).await;
        let gateway = serve(&[&stubs[0], &stubs[1]]).await;
        let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
        assert_eq!(answer.status, 200, "{failure:?}: {:?}", answer.body);
        assert_eq!(
            [stubs[0].count(), stubs[1].count()],
            [1, 1],
            "the second try goes elsewhere: {failure:?}"
        );
        let one = stubs[0].request(0).await;
        assert_eq!(one.body, stubs[1].request(0).await.body, "the same body again");
        gateway.until_metric(metric::RETRIES, &[("deployment", "chat")], 1.0).await;
        gateway.assert_idle().await;
    }
}

#[tokio::test]
async fn h4_a_replica_that_has_begun_to_answer_and_breaks_the_protocol_gets_502_and_no_second_try() {
    let failures = [
        Script::new().raw("HTTP/1.1 200 OK\r\ncontent-le").reset(),
        Script::new().raw("HTTP/1.1 200 OK\r\ncontent-le").close(),
        Script::new().raw("no HTTP at all\r\n\r\n").close(),
        Script::new().raw("HTTP/1.1 102 Processing\r\n\r\n").close(),
    ];
    for failure in failures {
        let stubs = first_fails(failure.clone()).await;
        let gateway = serve(&[&stubs[0], &stubs[1]]).await;
        for (index, body) in [chat("chat", "hi"), chat_stream("chat", "hi")].into_iter().enumerate() {
            let answer = gateway.client().post(CHAT, &body).await;
            assert_eq!(answer.status, if index == 0 { 502 } else { 200 }, "{failure:?}");
            assert_eq!(stubs[0].count() + stubs[1].count(), index + 1, "once each: {failure:?}");
            if index == 0 {
                let error = assert_error_shape(&answer.body);
                assert_eq!(error["code"], "bad_gateway", "{failure:?}");
                for port in stubs.each_ref().map(|stub| stub.address().port().to_string()) {
                    assert!(!error.to_string().contains(&port), "no address in an error: {error}");
                }
            }
        }
        assert_eq!(gateway.metrics().await.total(metric::RETRIES, &[]), 0.0);
        gateway.assert_idle().await;
    }
}

#[tokio::test]
async fn h4_a_lone_replica_gets_the_same_request_twice_at_most() {
    for failure in [Script::new().reset(), Script::new().close()] {
        let stub = Stub::with(move |_| failure.clone()).await;
        let gateway = serve(&[&stub]).await;
        let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
        assert_eq!((answer.status, stub.count()), (502, 2));
        assert_error_shape(&answer.body);
        gateway.until_metric(metric::RETRIES, &[("deployment", "chat")], 1.0).await;
        gateway.assert_idle().await;
    }
}

#[tokio::test]
async fn r5_no_replica_gets_the_same_request_more_than_twice() {
    let stubs = [Stub::with(|_| Script::new().reset()).await, Stub::with(|_| Script::new().close()).await];
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!(answer.status, 502);
    let counts = stubs.each_ref().map(Stub::count);
    assert!(counts.iter().all(|count| (1..=2).contains(count)), "{counts:?}");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h4_a_replica_that_sends_nothing_gets_504() {
    let stub = Stub::with(|_| Script::new().stall()).await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.first_byte", "200ms");
    let gateway = Gateway::start(config).await;
    let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!(answer.status, 504);
    assert_error_shape(&answer.body);
    assert_eq!(stub.ended(0).await, End::PeerLeft);
    gateway.assert_idle().await;
}

/// The status of the only request in the access log, which the metrics must tell too.
async fn counted(gateway: &Gateway) -> u64 {
    let status = gateway.access_line("the request's line", |line| line["status"].as_u64()).await;
    gateway.until_metric(metric::REQUESTS, &[("status", &status.to_string())], 1.0).await;
    status
}

#[tokio::test]
async fn h4_what_the_gateway_answers_for_a_replica_is_logged_and_counted_as_it_is() {
    let silent = Stub::with(|_| Script::new().stall()).await;
    let config = Config::of(Deployment::chat([&silent])).set("limits.first_byte", "200ms");
    let gateway = Gateway::start(config).await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 504);
    assert_eq!(counted(&gateway).await, 504);

    let broken = Stub::with(|_| Script::new().raw("no HTTP at all\r\n\r\n").close()).await;
    let gateway = serve(&[&broken]).await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 502);
    assert_eq!(counted(&gateway).await, 502);

    let dead = Stub::start().await;
    let deployment = Deployment::chat([&dead]).set("queue.headroom", "200ms");
    let gateway = Gateway::start(Config::of(deployment)).await;
    dead.kill().await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 503);
    assert_eq!(counted(&gateway).await, 503);
}

#[tokio::test]
async fn failures_of_a_replica_are_counted_from_zero_on() {
    let stubs = first_fails(Script::new().reset()).await;
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    assert_eq!(gateway.metrics().await.sum(metric::UPSTREAM_ERRORS, &[]), Some(0.0));
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200);
    let metrics = gateway.metrics().await;
    let failed = |replica| metrics.sum(metric::UPSTREAM_ERRORS, &[("replica", replica)]);
    let both = [failed("chat-1"), failed("chat-2")];
    assert!([[Some(1.0), Some(0.0)], [Some(0.0), Some(1.0)]].contains(&both), "{both:?}");
}

#[tokio::test]
async fn a_kept_connection_that_the_replica_closed_is_no_error() {
    let stub = Stub::with(|request| reply(request).close()).await;
    let gateway = serve(&[&stub]).await;
    for index in 0..30 {
        let answer = gateway.client().post(CHAT, &chat("chat", &format!("{index}"))).await;
        assert_eq!(answer.status, 200, "request {index}: {:?}", answer.body);
    }
    assert_eq!(stub.count(), 30);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_036_refusals_of_bad_prompts_are_neutral_and_final() {
    let work = |request: &Request| {
        let text = request.json()["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        match text.strip_prefix("bad ").and_then(|status| status.parse().ok()) {
            Some(status) => Script::json(status, &json!({"error": {"message": "bad prompt"}})),
            None => reply(request),
        }
    };
    let stubs = [Stub::with(work).await, Stub::with(work).await];
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    let bad = [400, 404, 422, 400, 413, 415];
    for index in 0..1000 {
        let status = bad[index / 4 % bad.len()];
        let (text, wanted) =
            if index % 2 == 0 { (format!("bad {status}"), status) } else { (format!("good {index}"), 200) };
        let body = if index % 4 < 2 { chat("chat", &text) } else { chat_stream("chat", &text) };
        let client = if index % 8 < 4 { gateway.client() } else { gateway.h2() };
        assert_eq!(client.post(CHAT, &body).await.status, wanted);
    }
    assert_eq!(stubs[0].count() + stubs[1].count(), 1000, "one attempt each");
    assert_eq!(gateway.metrics().await.total(metric::EJECTIONS, &[]), 0.0);
    assert_eq!(gateway.metrics().await.total(metric::UPSTREAM_ERRORS, &[]), 0.0);
    assert_eq!(gateway.metrics().await.total(metric::REPLICAS, &[("phase", "ready")]), 2.0);
}

#[tokio::test]
async fn c_036_refusals_of_bad_prompts_are_neutral_by_every_way_in() {
    let work = |request: &Request| {
        let body = request.json().to_string();
        let bad =
            [400_u16, 404, 413, 415, 422].into_iter().find(|status| body.contains(&format!("bad {status}")));
        bad.map_or_else(
            || reply(request),
            |status| Script::json(status, &json!({"error": {"message": "bad prompt"}})),
        )
    };
    let stubs = [Stub::with(work).await, Stub::with(work).await];
    everywhere(Config::of(Deployment::chat(&stubs)), async |gateway, way| {
        let asked = || stubs[0].count() + stubs[1].count();
        let before = asked();
        for index in 0..4 {
            for status in [400, 404, 413, 415, 422] {
                assert_eq!(way.ask(&format!("bad {status}")).await.status, status, "{way}");
                assert_eq!(way.ask(&format!("good {index}")).await.status, 200, "{way}");
            }
        }
        assert_eq!(asked() - before, 40, "{way}: one attempt each");
        let metrics = gateway.metrics().await;
        let harm = [metric::EJECTIONS, metric::UPSTREAM_ERRORS, metric::RETRIES];
        assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 3], "{way}");
        assert_eq!(metrics.total(metric::REPLICAS, &[("phase", "ready")]), 2.0, "{way}");
    })
    .await;
}

/// An address that takes no connection and refuses none: whoever asks there hears nothing.
async fn black_hole() -> (SocketAddr, (TcpListener, Vec<JoinHandle<()>>)) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("bind");
    let listener = socket.listen(1).expect("listen");
    let address = listener.local_addr().expect("an address");
    // Nobody accepts, so the line of the kernel is full after a few, and from then on it does not even answer.
    let knock = move || async move {
        let knocking = TcpStream::connect(address).await;
        std::future::pending::<()>().await;
        drop(knocking);
    };
    let full = (0..8).map(|_| tokio::spawn(knock())).collect();
    (address, (listener, full))
}

#[tokio::test]
async fn c_121_dead_replicas_do_not_hold_up_the_start() {
    let (good, dead) = (Stub::start().await, Stub::start().await);
    dead.kill().await;
    let (hole, _kept) = black_hole().await;
    let deployment = Deployment::chat([&dead])
        .replica("http://no-such-host.invalid:9", 1)
        .replica(&good.url(), 1)
        .replica(&format!("http://{hole}"), 1);
    let gateway = Gateway::launch(Config::of(deployment)).await;
    gateway.ready_replicas(1).await;
    for index in 0..10 {
        let client = if index % 2 == 0 { gateway.client() } else { gateway.h2() };
        let body = if index % 4 < 2 { chat("chat", "hi") } else { chat_stream("chat", "hi") };
        let answer = client.post(CHAT, &body).await;
        assert_eq!((answer.status, answer.header("x-tidegate-replica")), (200, "chat-3"));
    }
    dead.revive();
    gateway.ready_replicas(2).await;
}

#[tokio::test]
async fn c_078_all_replicas_die_at_once_and_come_back() {
    let gate = Gate::closed();
    let mut stubs = Vec::new();
    for _ in 0..3 {
        let gate = gate.clone();
        stubs.push(Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await);
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs).set("queue.headroom", "5m"))).await;
    let mut clients = JoinSet::new();
    for index in 0..200 {
        let client = if index % 2 == 0 { gateway.client() } else { gateway.h2() };
        clients.spawn(async move { client.post(CHAT, &chat("chat", &index.to_string())).await });
    }
    gateway.queued(200 - 3 * 40).await;
    for stub in &stubs {
        stub.kill().await;
    }
    gate.open();
    gateway.ready_replicas(0).await;
    assert_eq!(gateway.client().get("/livez").await.status, 200);
    for stub in &stubs {
        stub.revive();
    }
    while let Some(answer) = clients.join_next().await {
        let answer = answer.expect("an answer, whatever it says");
        assert!([200, 502, 503].contains(&answer.status), "{}", answer.status);
        if answer.status != 200 {
            assert_error_shape(&answer.body);
        }
    }
    eventually("it recovers", async || {
        match gateway.client().post(CHAT, &chat("chat", "after")).await.status {
            200 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    gateway.ready_replicas(3).await;
    gateway.assert_idle().await;
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
}
