//! The length that an answer tells is the length that it has (C-091): a replica's as it came, one of the gateway's own in
//! its place, and one that grows on its way.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::{Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, chat_stream, delta};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tidegate_tests::wire::Head;

use crate::{CHAT, serve};

/// A request of a method, with lines of its head and a body.
struct Ask<'a>(&'a str, &'a str, &'a [&'a str], String);

/// Sends it over a connection of its own that closes behind the answer; gives the head and all bytes behind it.
async fn ask(gateway: &Gateway, Ask(method, path, headers, body): Ask<'_>) -> (Head, Vec<u8>) {
    let length = format!("content-length: {}", body.len());
    let headers = [&[length.as_str(), "connection: close"], headers].concat();
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(path, &headers).replacen("POST", method, 1) + &body).await;
    let head = raw.head().await.expect("an answer");
    (head, raw.rest().await.to_vec())
}

/// The length that is told is the number of bytes up to the end of the connection, and they are JSON.
#[track_caller]
fn assert_whole(head: &Head, body: &[u8], about: &str) {
    let told = head.header("content-length").map(str::to_owned);
    assert_eq!(told, Some(body.len().to_string()), "{about}: {}", String::from_utf8_lossy(body));
    assert!(serde_json::from_slice::<Value>(body).is_ok(), "{about}: {}", String::from_utf8_lossy(body));
}

#[tokio::test]
async fn c_091_what_a_replica_answers_to_a_stream_is_as_long_as_it_tells() {
    let stub = Stub::start().await;
    let deployment = Deployment::chat([&stub]).set("aliases", vec!["a-much-longer-name-than-the-other"]);
    let gateway = Gateway::start(Config::of(deployment)).await;
    let keepalive: [&[&str]; 2] = [&[], &["x-tidegate-keepalive: 30"]];
    for (status, body) in [(400, "{\"error\":{\"message\":\"no\"}}"), (200, "{}"), (500, "{\"e\":\"é\"}")] {
        stub.on_work(move |_| Script::answer(status, &["content-type: application/json"], body));
        for model in ["chat", "a-much-longer-name-than-the-other"] {
            for headers in keepalive {
                let request = chat_stream(model, "hi").to_string();
                let (head, seen) = ask(&gateway, Ask("POST", CHAT, headers, request)).await;
                assert_eq!((head.status(), &seen[..]), (status, body.as_bytes()));
                assert_whole(&head, &seen, model);
            }
        }
    }
}

#[tokio::test]
async fn c_091_what_the_gateway_says_in_a_replicas_place_is_as_long_as_it_tells() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.body", "1MiB");
    let gateway = Gateway::start(config).await;
    // Its own length is another one than that of what comes in its place.
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: gzip\r\n\r\nabc";
    stub.on_work(move |_| Script::new().raw(broken).close());
    let good = || chat_stream("chat", "hi").to_string();
    let asks = [
        (502, Ask("POST", CHAT, &[], good())),
        (404, Ask("POST", CHAT, &[], chat("é😀 nobody", "hi").to_string())),
        (404, Ask("GET", "/v1/nowhere", &[], String::new())),
        (400, Ask("POST", CHAT, &[], "{\"model\":".to_owned())),
        (400, Ask("POST", CHAT, &["x-tidegate-keepalive: never"], good())),
        (405, Ask("PUT", CHAT, &[], good())),
        (413, Ask("POST", CHAT, &[], "x".repeat((1 << 20) + 1))),
        (200, Ask("GET", "/v1/models", &[], String::new())),
    ];
    for (status, request) in asks {
        let about = format!("{} {}: {status}", request.0, request.1);
        let (head, body) = ask(&gateway, request).await;
        assert_eq!(head.status(), status, "{about}");
        assert_whole(&head, &body, &about);
    }
}

#[tokio::test]
async fn c_091_an_answer_that_grows_on_its_way_tells_no_length() {
    let event = format!("data: {}\n\n", delta("a"));
    let told = format!("content-length: {}", 2 * event.len());
    let gate = Gate::closed();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{told}\r\n\r\n");
    let script = Script::new().raw(head).raw(event.clone()).wait(&gate).raw(event.clone());
    let stub = Stub::with(move |_| script.clone()).await;
    let gateway = serve(&[&stub]).await;
    for client in [gateway.client(), gateway.h2()] {
        let headers = [("x-tidegate-keepalive", "1")];
        let body = chat_stream("chat", "hi").to_string();
        let mut stream = client.open(Method::POST, CHAT, &headers, body).await;
        assert_eq!((stream.status, stream.header("content-length")), (200, ""));
        assert_eq!(stream.event().await.as_ref(), Some(&event));
        // What comes between the two is not in the length.
        assert_eq!(stream.event().await.as_deref(), Some(": keep-alive\n\n"));
        gate.pass();
        let rest = String::from_utf8(stream.whole().await.body.to_vec()).expect("text");
        assert_eq!(rest.replace(": keep-alive\n\n", ""), event, "all of the second");
    }
    // Without comments it stays as the replica told.
    gate.pass();
    let whole = gateway.client().post(CHAT, &json!({"model": "chat", "stream": true})).await;
    assert_eq!(whole.header("content-length"), (2 * event.len()).to_string());
    gateway.assert_idle().await;
}
