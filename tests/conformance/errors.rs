//! Errors that the gateway makes itself (H4, C-062): right status, OpenAI's shape, one schema for all.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Answer, Raw, post};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat};
use tidegate_tests::stub::Stub;

use crate::{CHAT, serve};

/// Checks an error's status, type of content and shape; returns its inside.
#[track_caller]
fn assert_error(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{:?}", answer.body);
    assert!(answer.header("content-type").starts_with("application/json"), "{:?}", answer.headers);
    assert_error_shape(&answer.body)
}

/// Sends a body to the chat route over both versions; both answers must be the same error. Returns its inside.
async fn refused(gateway: &Gateway, body: &'static str, status: u16) -> Value {
    let one = gateway.client().send(Method::POST, CHAT, &[], body).await;
    let two = gateway.h2().send(Method::POST, CHAT, &[], body).await;
    let error = assert_error(&one, status);
    assert_eq!(assert_error(&two, status), error, "{body}");
    error
}

#[tokio::test]
async fn h4_c_062_bodies_that_are_no_request_get_400() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let bodies = [
        "",
        "hello",
        "{\"model\":\"chat\"",
        "{\"model\":\"chat\",\"messages\":[}",
        "{\"model\":\"chat\"} x",
        "[]",
        "\"chat\"",
        "null",
        "{'model':'chat'}",
    ];
    for body in bodies {
        let error = refused(&gateway, body, 400).await;
        assert_eq!(error["type"], "invalid_request_error", "{body}");
    }
    assert_eq!(stub.count(), 0);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h4_c_062_a_model_that_is_missing_or_no_string_gets_400() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let bodies = [
        "{\"messages\":[]}",
        "{\"model\":7,\"messages\":[]}",
        "{\"model\":null}",
        "{\"model\":[\"chat\"]}",
        "{\"model\":{\"id\":\"chat\"}}",
        "{\"messages\":[{\"model\":\"chat\"}]}",
    ];
    for body in bodies {
        let error = refused(&gateway, body, 400).await;
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("model")), "{body}: {error}");
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h4_an_unknown_model_gets_404_by_name() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for route in [CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses"] {
        let error = assert_error(&gateway.client().post(route, &chat("gpt-9 \"x\"\n", "hi")).await, 404);
        assert_eq!(error["code"], "model_not_found", "{route}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("gpt-9")), "{error}");
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h4_a_wrong_method_gets_405_with_allow() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let cases = [
        (Method::GET, CHAT, "POST"),
        (Method::PUT, "/v1/completions", "POST"),
        (Method::DELETE, "/embeddings", "POST"),
        (Method::POST, "/v1/models", "GET"),
        (Method::POST, "/v1/models/chat", "GET"),
        (Method::POST, "/readyz", "GET"),
    ];
    for (method, path, allowed) in cases {
        for client in [gateway.client(), gateway.h2()] {
            let answer = client.send(method.clone(), path, &[], "").await;
            assert_error(&answer, 405);
            let allow = answer.header("allow");
            assert!(allow.split(',').any(|word| word.trim() == allowed), "{method} {path}: {allow:?}");
        }
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn h4_an_unknown_path_gets_404() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in [
        "/",
        "/v1",
        "/v2/chat/completions",
        "/v1/chat/completions/",
        "/v1//chat/completions",
        "/%2e%2e/status",
    ] {
        for method in [Method::GET, Method::POST] {
            let answer = gateway.client().send(method, path, &[], chat("chat", "hi").to_string()).await;
            let error = assert_error(&answer, 404);
            assert_ne!(error["code"], "model_not_found", "{path}");
        }
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn c_142_the_longest_query_is_forwarded_as_it_came_and_a_longer_one_gets_414() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let rest = format!(" HTTP/1.1\r\nhost:\r\ncontent-length: {}\r\n\r\n", body.len());
    let room = (64 << 10) - rest.len() - "POST ".len();
    let path = format!("{:%<room$}", format!("{CHAT}?q=+&q="));
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(format!("POST {path}{rest}{body}")).await;
    assert_eq!(raw.head().await.map(|head| head.status()), Some(200));
    assert_eq!(stub.request(0).await.head.target(), path);

    let mut raw = Raw::connect(gateway.address).await;
    raw.send(format!("POST {CHAT}?{}{rest}{body}", "x".repeat(64 << 10))).await;
    let head = raw.head().await.expect("an answer");
    assert_eq!(head.status(), 414);
    assert_error_shape(&raw.body(&head).await.0);
    assert_eq!(stub.count(), 1);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h4_admin_pages_are_not_on_the_port_of_requests() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/status", "/metrics"] {
        assert_error(&gateway.client().get(path).await, 404);
    }
}

#[tokio::test]
async fn h6_content_length_with_transfer_encoding_smuggles_nothing() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let hidden = post("/v1/completions", &["content-length: 2"]) + "{}";
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n{hidden}", body.len());
    for length in [body.len(), chunked.len()] {
        let mut raw = Raw::connect(gateway.address).await;
        let headers = [&format!("content-length: {length}"), "transfer-encoding: chunked"];
        raw.offer(post(CHAT, &headers) + &chunked).await;
        let mut statuses = BTreeMap::new();
        while let Some(head) = raw.head().await {
            *statuses.entry(head.status()).or_insert(0) += 1;
            let (_, _) = raw.body(&head).await;
        }
        let (all, served) = (statuses.values().sum::<i32>(), statuses.get(&200).copied().unwrap_or(0));
        assert!(all == 1, "one answer, then the connection is closed: {statuses:?}");
        assert!(served == 1 || statuses.contains_key(&400), "{statuses:?}");
    }
    gateway.assert_idle().await;
    stub.see(|log| {
        for exchange in &log.work {
            let head = &exchange.request.head;
            let framings = ["content-length", "transfer-encoding"].map(|name| head.all(name).count());
            assert_eq!(framings.iter().sum::<usize>(), 1, "one framing: {head:?}");
            assert_eq!((exchange.request.path(), &exchange.request.body[..]), (CHAT, body.as_bytes()));
        }
    });
}

#[tokio::test]
async fn h6_ambiguous_framing_is_refused() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let framings: [&[&str]; 6] = [
        &["content-length: 5", "content-length: 6"],
        &["content-length: +5"],
        &["content-length: 5x"],
        &["transfer-encoding: gzip"],
        &["transfer-encoding: chunked, identity"],
        &["transfer-encoding : chunked"],
    ];
    for framing in framings {
        let mut raw = Raw::connect(gateway.address).await;
        raw.offer(post(CHAT, framing) + "{\"a\":").await;
        let status = raw.head().await.map(|head| head.status());
        assert!(status.is_none_or(|status| (400..=501).contains(&status)), "{framing:?}: {status:?}");
    }
    gateway.assert_idle().await;
    assert_eq!(stub.count(), 0);
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
}

#[tokio::test]
async fn h4_a_chunk_that_is_none_is_called_so() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.offer(post(CHAT, &["transfer-encoding: chunked"]) + "1\r\n{\r\n0x5\r\n").await;
    let head = raw.head().await.expect("an answer");
    let (body, _) = raw.body(&head).await;
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(head.status() == 400 && text.contains("bad chunk: its size is no number"), "{text}");
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn c_157_a_method_of_any_length_is_cut_in_the_answer_and_in_the_log() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let method = Method::from_bytes("X".repeat(5000).as_bytes()).expect("a method");
    let answer = gateway.client().send(method, "/nowhere", &[], "").await;
    assert_error(&answer, 404);
    assert!(answer.body.len() < 1000, "{}", answer.body.len());
    let logged = gateway.access_line("the line", |line| line["method"].as_str().map(str::len)).await;
    assert!(logged < 1000, "{logged}");
}

#[tokio::test]
async fn c_157_a_strange_model_name_makes_one_line_of_log() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = json!({"model": "x\n2026 INFO fake\u{1b}[31m", "messages": []});
    let headers = [("x-request-id", "c-157")];
    assert_error(&gateway.client().post_with(CHAT, &headers, &body).await, 404);
    assert_error(&gateway.h2().post_with(CHAT, &headers, &body).await, 404);
    let long = json!({"model": "x\n".repeat(5000), "messages": []});
    assert_error(&gateway.client().post_with(CHAT, &headers, &long).await, 404);
    let last = [("x-request-id", "the-last")];
    assert_error(&gateway.client().post_with(CHAT, &last, &body).await, 404);
    gateway.access_line("the last line", |line| (line["request_id"] == "the-last").then_some(())).await;
    let printed = gateway.printed();
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines.len(), 4, "each request is one line: {printed}");
    assert!(lines.iter().all(|line| line["status"] == 404), "{printed}");
    assert!(lines.iter().all(|line| line["model"].as_str().is_some_and(|name| name.starts_with("x\n"))));
    let sent = body.to_string().len();
    for line in lines.iter().filter(|line| line["request_id"] == "the-last") {
        assert_eq!(line["bytes_in"], sent, "{line}");
        let reason = line["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("does not exist; GET /v1/models lists those that do"), "{line}");
    }
    assert!(printed.len() < 4 * 1000 && !printed.contains('\u{1b}'), "cut and without controls: {printed}");
    assert!(!gateway.log().lines().any(|line| line.starts_with("2026 INFO fake")), "{}", gateway.log());
}

#[tokio::test]
async fn c_157_nothing_of_a_head_forges_a_line_of_the_log() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let length = format!("content-length: {}", body.len());
    let heads = [
        ("/v1/x%0a2026%20INFO%20fake", "user-agent: plain", 404),
        (CHAT, "user-agent: \u{1b}[31mred\u{1b}[0m", 400),
        ("/v1/chat/completions?q=%0d%0a2026%20INFO%20fake", "user-agent: plain", 200),
        (CHAT, "x-request-id: c-157%0a2026 INFO fake", 200),
    ];
    for (target, header, wanted) in heads {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(post(target, &[&length, header]) + &body).await;
        let status = raw.head().await.expect("an answer").status();
        // A control character in a header is no HTTP: the parser refuses it, and then nothing was asked.
        assert_eq!(status, wanted, "{target} {header:?}");
    }
    let after = [("x-request-id", "c-157-last")];
    assert_eq!(gateway.client().post_with(CHAT, &after, &chat("chat", "hi")).await.status, 200);
    gateway.access_line("the last line", |line| (line["request_id"] == "c-157-last").then_some(())).await;
    let printed = gateway.printed();
    for line in printed.lines() {
        let parsed: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert!(parsed["status"].is_u64() && !line.contains('\u{1b}'), "{line:?}");
    }
    assert_eq!(printed.lines().count(), heads.len() + 1, "one line each: {printed}");
    for line in gateway.log().lines() {
        assert!(!line.starts_with("2026 INFO fake") && !line.contains('\u{1b}'), "{line:?}");
    }
}
