//! Proves that the support tells the truth: a stub logs what really happened, a client sees what was really sent.

use std::io::ErrorKind;

use tidegate_tests::client::{Client, Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::openai::{chat, chat_stream, delta};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Stub};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn stub_logs_raw_bytes_and_answers_on_a_kept_connection() {
    let stub = Stub::start().await;
    let mut raw = Raw::connect(stub.address()).await;
    for turn in 0..2 {
        let body = chat("chat", "hi").to_string();
        let head = post("/v1/chat/completions?a=%2F+x&a=", &[&format!("Content-LENGTH:  {}", body.len())]);
        raw.send(head.clone() + &body).await;
        let answer = raw.head().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert!(raw.body(&answer).await.1.is_ok());
        let seen = stub.request(turn).await;
        assert_eq!(seen.head.raw, head);
        assert_eq!(seen.head.target(), "/v1/chat/completions?a=%2F+x&a=");
        assert_eq!(seen.path(), CHAT);
        assert_eq!(seen.body, body);
        assert_eq!(stub.ended(turn).await, End::Answered);
    }
    assert_eq!(stub.see(|log| (log.connections, log.open, log.most)), (1, 1, 1));
    drop(raw);
    stub.until("it closes", |log| (log.open == 0).then_some(())).await;
}

#[tokio::test]
async fn stub_sends_an_event_only_when_its_gate_opens() {
    let gate = Gate::closed();
    let script =
        Script::sse().wait(&gate).event(&delta("a")).wait(&gate).event(&delta("b")).wait(&gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let mut stream = Client::h1(stub.address()).stream(CHAT, &chat_stream("chat", "hi")).await;
    assert_eq!(stub.running(), 1);
    for wanted in [delta("a"), delta("b"), "[DONE]".to_owned()] {
        gate.pass();
        assert_eq!(stream.event().await, Some(format!("data: {wanted}\n\n")));
    }
    assert_eq!(stream.event().await, None);
    assert_eq!(stub.ended(0).await, End::Answered);
}

#[tokio::test]
async fn stub_notices_that_the_peer_left() {
    let gate = Gate::closed();
    let script = Script::new().stall();
    let held = Script::sse().event(&delta("a")).wait(&gate).done();
    let stub = Stub::with(
        move |request| if request.json()["stream"] == true { held.clone() } else { script.clone() },
    )
    .await;
    let closing = Raw::posted(stub.address(), CHAT, &chat("chat", "hi").to_string()).await;
    stub.request(0).await;
    drop(closing);
    assert_eq!(stub.ended(0).await, End::PeerLeft);
    let mut resetting = Raw::posted(stub.address(), CHAT, &chat_stream("chat", "hi").to_string()).await;
    resetting.head().await.expect("a head");
    resetting.reset();
    assert_eq!(stub.ended(1).await, End::PeerLeft);
    let leaving = Client::h1(stub.address()).stream(CHAT, &chat_stream("chat", "hi")).await;
    drop(leaving);
    assert_eq!(stub.ended(2).await, End::PeerLeft);
}

#[tokio::test]
async fn stub_cuts_in_the_middle_of_an_event() {
    let stub = Stub::with(|_| Script::sse().event("1").chunk("data: {\"x").reset()).await;
    let mut raw = Raw::posted(stub.address(), CHAT, "{}").await;
    let head = raw.head().await.expect("a head");
    let (body, end) = raw.body(&head).await;
    assert_eq!(body, "data: 1\n\ndata: {\"x");
    assert_eq!(end.expect_err("a cut").kind(), ErrorKind::ConnectionReset);
    assert_eq!(stub.ended(0).await, End::Cut);
}

#[tokio::test]
async fn stub_keeps_cut_uploads_apart() {
    let stub = Stub::start().await;
    let mut raw = Raw::connect(stub.address()).await;
    raw.send(post(CHAT, &["content-length: 10"]) + "12345").await;
    drop(raw);
    let cut = stub.until("a cut upload", |log| log.incomplete.first().cloned()).await;
    assert_eq!(cut, "12345");
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn stub_dies_and_comes_back_on_its_port() {
    let stub = Stub::with(|_| Script::new().stall()).await;
    let mut raw = Raw::posted(stub.address(), CHAT, "{}").await;
    stub.request(0).await;
    stub.kill().await;
    assert!(raw.head().await.is_none());
    assert_eq!(stub.ended(0).await, End::Cut);
    let refused = tokio::net::TcpStream::connect(stub.address()).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    stub.revive();
    assert_eq!(Client::h1(stub.address()).get("/health").await.status, 200);
    assert_eq!(stub.see(|log| log.probes.len()), 1);
}

#[test]
fn config_is_toml_with_what_was_set() {
    let config =
        Config::of(Deployment::named("chat").replica("http://127.0.0.1:9", 4).set("queue.requests", 3))
            .and(Deployment::named("cold").process(&["sh", "{port}"]))
            .set("limits.body", "1MiB");
    assert_eq!(config.static_replicas(), 1);
    let text = config.render(std::path::Path::new("dir"), 1, 2);
    let table: toml::Table = text.parse().expect("TOML");
    assert_eq!(table["listen"].as_str(), Some("127.0.0.1:1"));
    assert_eq!(table["limits"]["body"].as_str(), Some("1MiB"));
    assert_eq!(table["deployment"][0]["replica"][0]["capacity"].as_integer(), Some(4));
    assert_eq!(table["deployment"][0]["queue"]["requests"].as_integer(), Some(3));
    assert_eq!(table["deployment"][1]["process"]["command"][1].as_str(), Some("{port}"));
}
