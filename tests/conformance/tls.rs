//! Clients that speak TLS (H6): the same guarantees as in the clear, over HTTP/1.1 and HTTP/2. Which certificates are
//! shown and asked for is in `tls_certificates`.

use std::net::SocketAddr;

use rustls::HandshakeKind;
use serde_json::json;
use tidegate_shared::names::metric;
use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::{Client, Raw};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::front::{Front, Trust};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, chat_stream, delta};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Request, Stub};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::CHAT;

type Secured = TlsStream<TcpStream>;

/// A gateway over this stub to which clients speak TLS.
async fn serve(stub: &Stub, front: &Front) -> Gateway {
    Gateway::start(Config::of(Deployment::chat([stub])).secured(front)).await
}

/// Sends a request of HTTP/1.1 over a connection of its own.
async fn posted(server: SocketAddr, trust: &Trust, headers: &str, body: &str) -> Secured {
    let mut stream = trust.connect(server).await.expect("a connection");
    post(&mut stream, headers, body).await;
    stream
}

async fn post(stream: &mut Secured, headers: &str, body: &str) {
    let length = body.len();
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: tidegate\r\n{headers}content-length: {length}\r\n\r\n{body}");
    within("it is sent", stream.write_all(head.as_bytes())).await.expect("sent");
    stream.flush().await.expect("sent");
}

/// What one read gives, as text; nothing at the end that was told.
async fn read(stream: &mut Secured) -> std::io::Result<String> {
    let mut bytes = vec![0; 64 << 10];
    let read = within("something comes, or the end", stream.read(&mut bytes)).await?;
    Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

/// Reads until `part` was seen.
async fn until(stream: &mut Secured, part: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(part) {
        let more = read(stream).await.expect("more");
        assert!(!more.is_empty(), "the end before {part:?}: {seen:?}");
        seen += &more;
    }
    seen
}

/// Sends back what came.
fn echo(request: &Request) -> Script {
    Script::answer(200, &["content-type: application/json"], &request.body)
}

#[tokio::test]
async fn h3_h6_bodies_of_every_size_pass_byte_for_byte_inside_tls() {
    let issuer = Issuer::new("ca");
    let stub = Stub::with(echo).await;
    let gateway = serve(&stub, &Front::of(&issuer)).await;
    let versions = [&rustls::version::TLS12, &rustls::version::TLS13];
    for trust in versions.map(|version| Trust::in_versions(&issuer, None, &[version])) {
        for client in [Client::h1(gateway.address), Client::h2(gateway.address)] {
            // Around the size of a record, of a read, and of what is taken at once.
            for size in [1, 16_000, 16_384, 16_500, 32_768, 65_536, 100_000, 3_000_000] {
                let body = chat("chat", &"x".repeat(size));
                let answer = client.inside(Some(trust)).post(CHAT, &body).await;
                assert_eq!(answer.status, 200, "{size}");
                assert!(answer.body == body.to_string(), "{size}");
            }
        }
    }
    gateway.assert_idle().await;
    assert_eq!(gateway.metrics().await.total(metric::TLS_FAILURES, &[]), 0.0);
}

#[tokio::test]
async fn h6_a_connection_carries_many_requests_and_a_session_is_taken_up_again() {
    let issuer = Issuer::new("ca");
    let stub = Stub::with(echo).await;
    let gateway = serve(&stub, &Front::of(&issuer)).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let trust = Trust::in_versions(&issuer, None, &[version]);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = trust.connect(gateway.address).await.expect("a connection");
            for turn in 0..3 {
                post(&mut stream, "", &chat("chat", &format!("turn {turn}")).to_string()).await;
                until(&mut stream, &format!("turn {turn}\"")).await;
            }
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(kind), "{version:?}");
        }
    }
}

#[tokio::test]
async fn c_011_inside_tls_headers_and_each_event_are_relayed_when_they_come() {
    let gate = Gate::closed();
    let mut script = Script::sse();
    for index in 0..20 {
        script = script.wait(&gate).event(&delta(&index.to_string()));
    }
    let script = script.wait(&gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let front = Front::of(&Issuer::new("ca"));
    let gateway = serve(&stub, &front).await;
    for client in [gateway.client(), gateway.h2()] {
        let mut stream = client.stream(CHAT, &chat_stream("chat", "hi")).await;
        assert_eq!((stream.status, stream.header("x-accel-buffering")), (200, "no"));
        for index in 0..20 {
            gate.pass();
            assert_eq!(stream.event().await, Some(format!("data: {}\n\n", delta(&index.to_string()))));
        }
        gate.pass();
        assert_eq!(stream.event().await.as_deref(), Some("data: [DONE]\n\n"));
        assert_eq!(stream.event().await, None);
    }
    // As bytes: the head alone, then one event in each read.
    let body = chat_stream("chat", "hi").to_string();
    let mut raw = posted(gateway.address, front.trust, "", &body).await;
    let head = read(&mut raw).await.expect("a head");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head:?}");
    for index in 0..20 {
        gate.pass();
        let event = format!("data: {}\n\n", delta(&index.to_string()));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        assert_eq!(read(&mut raw).await.expect("an event"), chunk);
    }
    gate.pass();
    until(&mut raw, "0\r\n\r\n").await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h7_a_client_that_leaves_inside_tls_is_noticed_however_it_leaves() {
    let stub = Stub::start().await;
    let front = Front::of(&Issuer::new("ca"));
    let gateway = serve(&stub, &front).await;
    let body = chat_stream("chat", "hi").to_string();
    let mut left = 0;
    for begun in [false, true] {
        let script = if begun { Script::sse().event(&delta("a")) } else { Script::new() };
        stub.on_work(move |_| script.clone().stall());
        for how in ["says goodbye", "closes", "resets", "has begun its next request and closes"] {
            let mut stream = posted(gateway.address, front.trust, "", &body).await;
            stub.request(left).await;
            if begun {
                until(&mut stream, "data: ").await;
            }
            match how {
                "says goodbye" => stream.shutdown().await.expect("goodbye"),
                "resets" => stream.get_ref().0.set_zero_linger().expect("linger"),
                "closes" => {}
                _ => {
                    stream.write_all(b"\r\nPOST").await.expect("sent");
                    stream.flush().await.expect("sent");
                }
            }
            if how != "says goodbye" {
                // Without a word of TLS.
                drop(stream);
            }
            assert_eq!(stub.ended(left).await, End::PeerLeft, "{how}");
            left += 1;
        }
    }
    for answer in [gateway.h2().stream(CHAT, &chat_stream("chat", "hi")).await] {
        drop(answer);
        assert_eq!(stub.ended(left).await, End::PeerLeft, "HTTP/2");
        left += 1;
    }
    gateway.assert_idle().await;
    gateway.until_metric(metric::REQUESTS, &[("status", "499")], left as f64).await;
}

#[tokio::test]
async fn h6_an_orderly_end_says_goodbye_and_a_cut_does_not() {
    let stub = Stub::with(echo).await;
    let front = Front::of(&Issuer::new("ca"));
    let gateway = serve(&stub, &front).await;
    let body = chat("chat", "hi").to_string();
    let mut asked = posted(gateway.address, front.trust, "connection: close\r\n", &body).await;
    until(&mut asked, &body).await;
    assert_eq!(read(&mut asked).await.expect("a goodbye"), "");

    let mut bad = front.trust.connect(gateway.address).await.expect("a connection");
    bad.write_all(b"no request\r\n\r\n").await.expect("sent");
    until(&mut bad, "invalid_request").await;
    assert_eq!(read(&mut bad).await.expect("a goodbye"), "");

    // Nothing but the end of the connection ends this answer.
    let old = format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for (end, whole) in [("0\r\n\r\n", true), ("", false)] {
        let gate = Gate::closed();
        let script = Script::new()
            .raw("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
            .chunk("some of it")
            .wait(&gate)
            .raw(end);
        stub.on_work(move |_| script.clone().close());
        let mut stream = front.trust.connect(gateway.address).await.expect("a connection");
        stream.write_all(old.as_bytes()).await.expect("sent");
        until(&mut stream, "some of it").await;
        gate.pass();
        assert_eq!(read(&mut stream).await.is_ok(), whole, "a cut must not look like the end");
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_124_clients_that_shake_no_hands_hold_up_nobody_and_fill_no_log() {
    let stub = Stub::with(echo).await;
    let front = Front::of(&Issuer::new("ca"));
    let config = Config::of(Deployment::chat([&stub])).secured(&front).set("limits.header_read", "2s");
    let gateway = Gateway::start(config).await;
    let mut silent = Vec::new();
    for index in 0..50 {
        let mut raw = Raw::connect(gateway.address).await;
        if index % 2 == 0 {
            // The head of a record, and no more.
            raw.send(b"\x16\x03\x01\x02\x00").await;
        }
        silent.push(raw);
    }
    for client in [gateway.client(), gateway.h2()] {
        assert_eq!(client.post(CHAT, &chat("chat", "hi")).await.status, 200);
    }
    for raw in &mut silent {
        assert!(raw.rest().await.is_empty());
    }
    gateway.until_metric(metric::TLS_FAILURES, &[("reason", "slow")], 25.0).await;
    gateway.until_metric(metric::GAVE_UP, &[("reason", "idle")], 25.0).await;
    let before = gateway.log().len();
    for _ in 0..20 {
        let mut garbage = Raw::connect(gateway.address).await;
        garbage.send(b"\x00\x01\x02\x03").await;
        assert!(garbage.rest().await.is_empty());
        let mut broken = Raw::connect(gateway.address).await;
        broken.send(b"\x16garbage that is no record of TLS at all").await;
        broken.rest().await;
        drop(Raw::connect(gateway.address).await);
    }
    gateway.until_metric(metric::TLS_FAILURES, &[("reason", "clear")], 20.0).await;
    gateway.until_metric(metric::TLS_FAILURES, &[("reason", "protocol")], 20.0).await;
    assert_eq!(gateway.log().len(), before, "{}", gateway.log());
}

#[tokio::test]
async fn h6_http_in_the_clear_is_told_that_tls_is_spoken_here() {
    let stub = Stub::with(echo).await;
    let gateway = serve(&stub, &Front::of(&Issuer::new("ca"))).await;
    let mut raw = Raw::connect(gateway.address).await;
    // In one piece: the answer, and the end behind it, may come before the second.
    raw.send(format!("POST {CHAT} HTTP/1.1\r\nhost: tidegate\r\ncontent-length: 2\r\n\r\n{{}}")).await;
    let head = raw.head().await.expect("an answer in the clear");
    assert_eq!(head.status(), 400);
    let (body, end) = raw.body(&head).await;
    end.expect("a whole answer");
    let message = assert_error_shape(&body);
    assert!(message.to_string().contains("https://"), "{message}");
    let told = |line: &serde_json::Value| line["reason"].as_str().map(str::to_owned);
    let reason = gateway.access_line("why", told).await;
    assert_eq!(reason, "TLS is spoken here: the URL must begin with https://");
    gateway.until_metric(metric::TLS_FAILURES, &[("reason", "clear")], 1.0).await;
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h6_what_was_agreed_on_inside_tls_is_what_is_spoken() {
    let stub = Stub::with(echo).await;
    let front = Front::of(&Issuer::new("ca"));
    let gateway = serve(&stub, &front).await;
    let mut stream = front.trust.connect(gateway.address).await.expect("a connection");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h6_the_gateway_stops_in_order_with_clients_inside_tls() {
    let gate = Gate::closed();
    let script = Script::sse().event(&delta("a")).wait(&gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let front = Front::of(&Issuer::new("ca"));
    let mut gateway = serve(&stub, &front).await;
    let body = chat_stream("chat", "hi").to_string();
    let mut one = posted(gateway.address, front.trust, "", &body).await;
    until(&mut one, "data: ").await;
    let mut two = gateway.h2().stream(CHAT, &chat_stream("chat", "hi")).await;
    two.event().await.expect("an event");
    let mut idle = front.trust.connect(gateway.address).await.expect("a connection");
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: tidegate\r\n\r\n").await.expect("sent");
    until(&mut idle, "ok").await;
    let mut half = Raw::connect(gateway.address).await;
    half.send(b"\x16\x03\x01").await;
    gateway.terminate();
    assert_eq!(read(&mut idle).await.expect("a goodbye"), "");
    assert!(half.rest().await.is_empty(), "nothing was asked for there");
    eventually("no new client", async || match TcpStream::connect(gateway.address).await {
        Err(_) => Ok(()),
        Ok(_) => Err("one more".to_owned()),
    })
    .await;
    gate.open();
    until(&mut one, "data: [DONE]").await;
    assert_eq!(two.event().await.as_deref(), Some("data: [DONE]\n\n"));
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn h6_openais_sdk_speaks_tls_with_an_operators_own_issuer() {
    let stub = Stub::with(|request| match request.json()["stream"].as_bool() {
        Some(true) => Script::sse().event(&delta("one")).event(&delta("two")).done(),
        _ => Script::json(200, &json!({"id": "c", "object": "chat.completion", "created": 1, "model": "chat",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "onetwo"}}]})),
    })
    .await;
    let front = Front::of(&Issuer::new("ca"));
    let gateway = serve(&stub, &front).await;
    let url = gateway.base_url();
    let Some(told) = tidegate_tests::sdk::python("secure.py", &[&url, &front.path("ca.pem")]).await else {
        return;
    };
    assert_eq!(told, json!({"whole": "onetwo", "streamed": "onetwo", "stranger": "APIConnectionError"}));
    gateway.until_metric(metric::TLS_FAILURES, &[("reason", "refused")], 1.0).await;
}
