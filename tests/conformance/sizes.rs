//! How large a body may be and what happens when it is too large, or is cut (H4, C-022, C-111, C-136).

use bytes::Bytes;
use serde_json::json;
use tidegate_shared::names::metric;
use tidegate_tests::client::{Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat};
use tidegate_tests::partly::Partly;
use tidegate_tests::recipe::Doors;
use tidegate_tests::stub::Stub;
use tidegate_tests::wire::Head;

use crate::{CHAT, serve};

const MIB: usize = 1 << 20;

/// A chat request of exactly `size` bytes.
fn sized(size: usize) -> String {
    let empty = chat("chat", "").to_string().len();
    chat("chat", &"x".repeat(size - empty)).to_string()
}

/// The same with an image, which is nearly all of it.
fn pictured(size: usize) -> String {
    let body = |picture: &str| {
        let image =
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}});
        let content = json!([{"type": "text", "text": "What is this?"}, image]);
        json!({"model": "chat", "messages": [{"role": "user", "content": content}]}).to_string()
    };
    body(&"A".repeat(size - body("").len()))
}

/// Checks a refusal: 413, shape, and the limit in its message.
async fn assert_too_large(raw: &mut Raw, head: &Head, limit: usize) {
    assert_eq!(head.status(), 413);
    let error = assert_error_shape(&raw.body(head).await.0);
    let message = error["message"].as_str().unwrap_or_default();
    let limit = format!("over the limit of {}MiB", limit >> 20);
    assert!(message.ends_with(&limit), "{message}");
}

#[tokio::test]
async fn c_022_long_prompts_and_images_pass() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for (index, size) in [19 * MIB / 10, 21 * MIB / 10, 20 * MIB, 31 * MIB].into_iter().enumerate() {
        for (more, body) in [sized(size), pictured(size)].into_iter().enumerate() {
            assert_eq!(body.len(), size);
            let client = if (index + more) % 2 == 0 { gateway.client() } else { gateway.h2() };
            let answer = client.send(hyper::Method::POST, CHAT, &[], body.clone()).await;
            assert_eq!(answer.status, 200, "{size} bytes");
            assert!(
                stub.request(2 * index + more).await.body == body,
                "{size} bytes arrive as they were sent"
            );
        }
    }
    for (index, path) in ["/v1/completions", "/v1/embeddings", "/v1/responses"].into_iter().enumerate() {
        let answer = gateway.client().send(hyper::Method::POST, path, &[], sized(21 * MIB / 10)).await;
        assert_eq!((answer.status, stub.request(8 + index).await.path()), (200, path));
    }
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
}

#[tokio::test]
async fn h4_c_022_an_announced_65_mib_is_refused_before_it_is_sent() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(CHAT, &[&format!("content-length: {}", 65 * MIB), "x-request-id: c-022"])).await;
    let head = raw.head().await.expect("an answer");
    assert_too_large(&mut raw, &head, 64 * MIB).await;
    gateway.until_metric(metric::REQUESTS, &[("status", "413")], 1.0).await;
    let line =
        gateway.access_line("its line", |line| Some(line.to_string()).filter(|text| text.contains("c-022")));
    assert!(line.await.contains("413"));
    gateway.assert_idle().await;
    assert_eq!(stub.count(), 0);
}

/// Waits for the line of the access log with that id, which must say 413.
async fn assert_logged(gateway: &Gateway, id: &str) {
    let status = gateway.access_line("its line", |line| {
        (line["request_id"] == id).then(|| line["status"].as_u64().unwrap_or_default())
    });
    assert_eq!(status.await, 413, "{id}");
}

#[tokio::test]
async fn h4_c_022_a_body_that_is_too_large_is_told_logged_and_counted_however_it_is_sent() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.body", "1MiB");
    let gateway = Gateway::start(config).await;
    let mut refused = 0.0;
    // Under the windows of HTTP/2, and far beyond them.
    for size in [MIB + 1, 12 * MIB] {
        let (body, length) = (Bytes::from(sized(size)), size.to_string());
        let pieces = || (0..size).step_by(1 << 16).map(|at| body.slice(at..size.min(at + (1 << 16))));
        for path in [CHAT, "/v1/completions", "/v1/embeddings"] {
            for (client, version) in [(gateway.client(), 1), (gateway.h2(), 2)] {
                for announced in [true, false] {
                    let id = format!("{size} {path} {version} {announced}");
                    let headers = [("x-request-id", id.as_str()), ("content-length", length.as_str())];
                    let headers = &headers[..1 + usize::from(announced)];
                    let answer = client.upload(path, headers, Partly::whole(pieces())).await;
                    let answer = answer.unwrap_or_else(|error| panic!("{id}: {error:?}")).whole().await;
                    assert_eq!((answer.status, answer.header("content-type")), (413, "application/json"));
                    let error = assert_error_shape(&answer.body);
                    assert!(
                        error["message"]
                            .as_str()
                            .is_some_and(|text| text.ends_with("over the limit of 1MiB")),
                        "{error}"
                    );
                    assert_logged(&gateway, &id).await;
                    refused += 1.0;
                }
            }
        }
    }
    gateway.until_metric(metric::REQUESTS, &[("status", "413")], refused).await;
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
    gateway.assert_idle().await;
    assert_eq!(
        stub.see(|log| (log.work.len(), log.incomplete.len())),
        (0, 0),
        "the replica saw nothing of it"
    );
}

#[tokio::test]
async fn c_111_a_chunked_upload_of_200_mib_is_refused_where_it_crosses_32() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.body", "32MiB");
    let gateway = Gateway::start(config).await;
    let before = most_memory(&gateway);
    let chunk = format!("{MIB:x}\r\n{}\r\n", "x".repeat(MIB));
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(CHAT, &["transfer-encoding: chunked"]) + "d\r\n{\"messages\":\"\r\n").await;
    for _ in 0..32 {
        raw.send(&chunk).await;
    }
    let head = raw.head().await.expect("an answer to 32 MiB and a few bytes");
    assert_too_large(&mut raw, &head, 32 * MIB).await;
    for _ in 32..200 {
        if !raw.offer(&chunk).await {
            break;
        }
    }
    gateway.assert_idle().await;
    let grown = most_memory(&gateway) - before;
    assert!(grown < 64, "{grown} MiB for a limit of 32 MiB");
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
    let seen = stub.see(|log| (log.work.len(), log.incomplete.len()));
    assert_eq!(seen, (0, 0), "the replica saw nothing of it");
}

#[tokio::test]
async fn c_111_an_upload_that_tells_no_length_is_refused_where_it_crosses_32_mib_however_it_comes() {
    let stub = Stub::start().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub])).set("limits.body", "32MiB")).await;
    let piece = Bytes::from(vec![b'x'; MIB]);
    let pieces = |count| {
        let start = Bytes::from_static(b"{\"model\":\"chat\",\"prompt\":\"");
        std::iter::once(start).chain(std::iter::repeat_n(piece.clone(), count))
    };
    let mut paths = [CHAT, "/v1/completions", "/v1/embeddings"].into_iter().cycle();
    for gateway in &doors.gateways {
        let before = most_memory(gateway);
        for client in [gateway.client(), gateway.h2()] {
            // A few bytes over the limit and no end: nothing more comes that could bring the refusal about. And all of it.
            for upload in [Partly::endless(pieces(32)), Partly::whole(pieces(200))] {
                let path = paths.next().expect("a path");
                let about = format!("{} {:?} {path}", gateway.base_url(), client.version());
                let answer = client.upload(path, &[], upload).await;
                let answer = answer.unwrap_or_else(|error| panic!("{about}: {error:?}")).whole().await;
                assert_eq!(
                    (answer.status, answer.header("content-type")),
                    (413, "application/json"),
                    "{about}"
                );
                let error = assert_error_shape(&answer.body);
                assert!(
                    error["message"].as_str().is_some_and(|text| text.ends_with("over the limit of 32MiB")),
                    "{error}"
                );
            }
        }
        gateway.until_metric(metric::REQUESTS, &[("status", "413")], 4.0).await;
        let grown = most_memory(gateway) - before;
        assert!(grown < 64, "{grown} MiB for a limit of 32 MiB");
    }
    doors.leave_nothing().await;
    let seen = stub.see(|log| (log.work.len(), log.incomplete.len()));
    assert_eq!(seen, (0, 0), "the replica saw nothing of it");
}

/// The most memory that the gateway ever had resident, in MiB.
fn most_memory(gateway: &Gateway) -> u64 {
    let pid = gateway.pid().expect("it runs").as_raw_nonzero().get();
    let status = procfs::process::Process::new(pid).and_then(|process| process.status()).expect("its status");
    status.vmhwm.expect("a peak") >> 10
}

#[tokio::test]
async fn h4_exactly_the_limit_passes_and_one_byte_more_does_not() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.body", "1MiB");
    let gateway = Gateway::start(config).await;
    let status = async |size| gateway.client().send(hyper::Method::POST, CHAT, &[], sized(size)).await.status;
    assert_eq!(status(MIB).await, 200);
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(CHAT, &[&format!("content-length: {}", MIB + 1)])).await;
    assert_eq!(raw.head().await.map(|head| head.status()), Some(413));
    assert_eq!(status(MIB).await, 200);
    assert_eq!(stub.count(), 2);
}

#[tokio::test]
async fn c_136_a_cut_upload_is_never_forwarded() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let half = sized(500_000);
    let announced = post(CHAT, &["content-length: 1000000"]) + &half;
    let chunked = post(CHAT, &["transfer-encoding: chunked"]) + &format!("{:x}\r\n{half}\r\n", half.len());
    for upload in [announced, chunked] {
        let mut leaving = Raw::connect(gateway.address).await;
        leaving.send(&upload).await;
        drop(leaving);
        let mut resetting = Raw::connect(gateway.address).await;
        resetting.send(&upload).await;
        resetting.reset();
        let mut listening = Raw::connect(gateway.address).await;
        listening.send(&upload).await;
        listening.finish().await;
        let head = listening.head().await.expect("an answer: it still listens");
        assert_eq!(head.status(), 400);
        assert_error_shape(&listening.body(&head).await.0);
    }
    assert_only_the_next(&gateway, &stub).await;
}

#[tokio::test]
async fn c_136_an_upload_that_is_cut_over_http_2_is_never_forwarded() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let half = Bytes::from(sized(500_000));
    let pieces = || [half.slice(..250_000), half.slice(250_000..)];
    for headers in [&[("content-length", "1000000")][..], &[]] {
        // The stream is reset when half of it is here.
        let client = gateway.h2();
        let headers_of_it = headers.to_vec();
        let body = Partly::endless(pieces());
        let leaving = tokio::spawn(async move { client.upload(CHAT, &headers_of_it, body).await.map(drop) });
        gateway.until_metric(metric::BUFFERED_BYTES, &[], 500_000.0).await;
        leaving.abort();
        gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
    }
    // It ends before the length that it has told: HTTP/2 calls that malformed, and nothing is expected of the answer.
    let short = gateway.h2().upload(CHAT, &[("content-length", "1000000")], Partly::whole(pieces())).await;
    let status = short.ok().map(|answer| answer.status);
    assert!(status.is_none_or(|status| status == 400), "{status:?}");
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
    assert_only_the_next(&gateway, &stub).await;
}

/// A whole request arrives at the replica, and nothing that was cut before it.
async fn assert_only_the_next(gateway: &Gateway, stub: &Stub) {
    // What was cut can only arrive before this one.
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "whole")).await.status, 200);
    gateway.assert_idle().await;
    gateway.until_metric(metric::BUFFERED_BYTES, &[], 0.0).await;
    assert_eq!(stub.count(), 1, "only the whole request");
    assert!(stub.see(|log| log.incomplete.is_empty()), "and no part of another");
    assert_eq!(gateway.metrics().await.total(metric::ROUTES, &[]), 1.0);
    assert_eq!(stub.request(0).await.json(), chat("chat", "whole"));
}
