//! What clients and operators trust the gateway with stays inside (C-080): at the most talkative level of the log, through
//! every kind of failure, no secret and no word of a prompt is in anything that the gateway writes.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::json;
use tidegate_tests::client::{Client, Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat_stream, delta};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{End, Request, Stub, healthy};

use crate::CHAT;

/// What each secret has in it, and nothing else has.
const CANARY: &str = "canary-7f3a";

/// A secret that is told apart from the others.
fn secret(place: &str) -> String {
    format!("{CANARY}-{place}")
}

/// Fails as the prompt says; what it answers repeats the prompt, as engines' errors do.
fn work(request: &Request) -> Script {
    let body = request.json();
    let text = body["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    match text.split(' ').next() {
        Some("refuse") => Script::json(400, &json!({"error": {"message": text}})),
        Some("garble") => Script::new().raw(format!("{text}\r\n\r\n")).close(),
        Some("headers") => Script::new().raw(format!("HTTP/1.1 200 OK\r\n{text}\r\n\r\n")).close(),
        Some("die") => Script::new().reset(),
        Some("break") => Script::sse().event(&delta(&text)).close(),
        Some("tear") => Script::sse().chunk(format!("data: {{\"{text}")).close(),
        Some("fail") => {
            Script::sse().event(&json!({"error": {"message": text, "code": 500}}).to_string()).end()
        }
        Some("stall" | "leave") => Script::sse().event(&delta(&text)).stall(),
        _ => Script::sse().event(&delta(&text)).done(),
    }
}

/// A gateway that is told secrets in every way it can be: by its configuration, its environment, and its engines'.
async fn told(stub: &Stub) -> Gateway {
    let engine = secret("engine");
    let command = ["sh", "-c", "exec false", "sh", "--port", "{port}"];
    let broken = Deployment::named("broken").process(&command).set("process.env.API_KEY", engine.as_str());
    let broken = broken.set("queue.cold_start", "2s").set("mode", "active").set("min", 1);
    let config = Config::of(Deployment::chat([stub])).and(broken).set("log.level", "trace");
    let config = config.set("limits.body", "64KiB").set("limits.between_bytes", "500ms");
    let gateway = Gateway::launch_with(config, &[("SECRET_TOKEN", &secret("env"))]).await;
    gateway.ready_replicas(1).await;
    gateway
}

/// One request with secrets wherever a client can put them; gives its status.
async fn ask(client: Client, prompt: &str) -> u16 {
    let (bearer, key, other) = (format!("Bearer {}", secret("bearer")), secret("key"), secret("other"));
    let headers = [
        ("authorization", bearer.as_str()),
        ("x-api-key", key.as_str()),
        ("api-key", other.as_str()),
        ("cookie", other.as_str()),
        ("x-conversation-id", other.as_str()),
    ];
    let path = format!("{CHAT}?key={}", secret("query"));
    let body = chat_stream("chat", &format!("{prompt} {}", secret("prompt"))).to_string();
    let mut stream = client.open(Method::POST, &path, &headers, body).await;
    let status = stream.status;
    if prompt == "leave" {
        stream.event().await;
    } else {
        stream.end().await;
    }
    status
}

/// Requests that fail before they come to a replica.
async fn misuse(gateway: &Gateway) {
    let auth = format!("authorization: Bearer {}", secret("bearer"));
    let prompt = secret("prompt");
    let bodies = [
        format!("{{\"model\":\"chat\",\"messages\":[{{\"content\":\"{prompt}\"}}"),
        format!("{{\"model\":7,\"messages\":[{{\"content\":\"{prompt}\"}}]}}"),
        format!("{{\"model\":\"nobody\",\"messages\":[{{\"content\":\"{prompt}\"}}]}}"),
        format!("{prompt} {prompt}"),
        format!("{{\"model\":\"chat\",\"messages\":\"{}\"}}", prompt.repeat(10_000)),
    ];
    for body in bodies {
        let length = format!("content-length: {}", body.len());
        let mut raw = Raw::connect(gateway.address).await;
        raw.offer(post(&format!("{CHAT}?key={prompt}"), &[&auth, &length]) + &body).await;
        let head = raw.head().await.expect("an answer");
        assert!((400..500).contains(&head.status()), "{}", head.start);
        let text = String::from_utf8_lossy(&raw.body(&head).await.0).into_owned();
        assert!(!text.contains(CANARY), "an error repeats nothing of it: {text}");
    }
    // A head that is no HTTP, a client that leaves in its body, and one that leaves in the middle of its answer.
    let mut raw = Raw::connect(gateway.address).await;
    raw.offer(format!("POST {CHAT} HTTP/1.1\r\nauthorization {prompt}\r\n{prompt}\r\n\r\n")).await;
    raw.head().await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send(post(CHAT, &[&auth, "content-length: 1000"]) + &prompt).await;
    drop(raw);
}

/// Every file below a folder, its configuration excepted.
fn files(folder: &std::path::Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.file_name().is_some_and(|name| name != "tidegate.toml") {
            let text = std::fs::read(&path).unwrap_or_default();
            found.push((path.display().to_string(), String::from_utf8_lossy(&text).into_owned()));
        }
    }
}

#[tokio::test]
async fn c_080_no_secret_and_no_prompt_is_in_anything_that_the_gateway_writes() {
    let stub = Stub::with(work).await;
    let gateway = told(&stub).await;
    let cases =
        ["serve", "refuse", "garble", "headers", "die", "break", "tear", "fail", "stall", "leave", "serve"];
    let mut statuses = BTreeSet::new();
    for prompt in cases {
        statuses.insert(ask(gateway.client(), prompt).await);
        // A stream that is torn at once is cut by a reset over HTTP/2, which may overtake its head.
        if prompt != "tear" {
            statuses.insert(ask(gateway.h2(), prompt).await);
        }
    }
    assert!(statuses.is_superset(&BTreeSet::from([200, 400, 502])), "it failed in many ways: {statuses:?}");
    misuse(&gateway).await;
    // Figures that are none, and a replica that cannot be started. What an engine says of its own health is told on
    // purpose: an operator needs it, and it is no client's.
    stub.on_probe(|request| match request.path() {
        "/health" => Script::answer(500, &[], "out of memory"),
        "/metrics" => Script::answer(200, &[], format!("vllm:num_requests_running {}", secret("page"))),
        _ => healthy(request),
    });
    gateway.ready_replicas(0).await;
    let refused = gateway.client().post(CHAT, &chat_stream("broken", &secret("prompt"))).await;
    assert_eq!(refused.status, 503);
    gateway.assert_idle().await;
    let last = stub.count() - 1;
    assert_ne!(stub.ended(last).await, End::Running);

    let mut written =
        vec![("standard error".to_owned(), gateway.log()), ("the access log".to_owned(), gateway.printed())];
    for path in ["/metrics", "/status", "/"] {
        let page = Client::h1(gateway.admin).get(path).await;
        assert_eq!(page.status, 200, "{path}");
        written.push((path.to_owned(), String::from_utf8_lossy(&page.body).into_owned()));
    }
    files(gateway.dir(), &mut written);
    for (place, text) in &written {
        let leak =
            text.find(CANARY).map(|at| text[at.saturating_sub(200)..].chars().take(400).collect::<String>());
        assert_eq!(leak, None, "{place} holds a secret");
    }
    // It did look: the log is at its most talkative, and every request is in the access log.
    assert!(gateway.log().contains("TRACE") || gateway.log().contains("DEBUG"), "{}", gateway.log());
    eventually("the access log is written", async || match gateway.printed().lines().count() {
        lines if lines >= 2 * cases.len() + 5 => Ok(()),
        lines => Err(format!("{lines} lines")),
    })
    .await;
    assert!(!gateway.printed().contains(CANARY));
}
