//! What clients and operators trust the gateway with stays inside (C-080): at the most talkative level of the log, through
//! every kind of failure, no secret and no word of a prompt is in anything that the gateway writes or its commands print.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::json;
use tidegate_shared::names::metric;
use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::{Client, Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::front::Front;
use tidegate_tests::gateway::{Gateway, binary};
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

/// A gateway that is told secrets in every way it can be: by its configuration, its environment, and its engines', and on
/// the command lines of what it starts.
async fn told(stub: &Stub, config: Config) -> Gateway {
    let (engine, word) = (secret("engine"), secret("word"));
    let command = ["sh", "-c", "exec false", "sh", "--port", "{port}", "--api-key", word.as_str()];
    let broken = Deployment::named("broken").process(&command).set("process.env.API_KEY", engine.as_str());
    let broken = broken.set("queue.cold_start", "2s").set("mode", "active").set("min", 1);
    let own = |script: &str| ["sh", "-c", script, "sh", &word].map(toml::Value::from).to_vec();
    let broken_too = Deployment::named("own")
        .set("exec.start", own("exit 1"))
        .set("exec.stop", own("exit 0"))
        .set("exec.list", own("echo '{\"version\":1,\"replicas\":[]}'"))
        .set("exec.env.TOKEN", engine.as_str())
        .set("mode", "active")
        .set("min", 1);
    let runs = Deployment::named("runs").engine(&["--model", "runs", "--load-time", "0s"]);
    let runs = runs.set("process.env.API_KEY", engine.as_str()).set("min", 1).set("max", 1);
    let config = config.and(Deployment::chat([stub])).and(broken).and(broken_too).and(runs);
    let config = config.set("log.level", "trace");
    let config = config.set("limits.body", "64KiB").set("limits.between_bytes", "500ms");
    let gateway = Gateway::launch_with(config, &[("SECRET_TOKEN", &secret("env"))]).await;
    gateway.ready_replicas(2).await;
    gateway
}

/// What commands print of the gateway and of files with secrets in them, whether these are good or not.
async fn commands(gateway: &Gateway) -> Vec<(String, String)> {
    let (word, prompt) = (secret("word"), secret("prompt"));
    let faulty = gateway.dir().join("tidegate.toml.faulty");
    let text = format!(
        "state_dir = \"s\"\ntoken = \"{word}\"\n[[deployment]]\nname = \"a\"\napi_key = \"{word}\"\n\
         process.command = [\"e\", \"{word}\\u0000\"]\nprocess.env.KEY = [\"{word}\"]\n\
         [[deployment]]\nname = \"b\"\nreplica = [{{ url = \"http://me:{word}@h:1/?key={word}\" }}]\n\
         [[deployment]]\nname = \"c\"\nexec.start = \"{word}\"\nexec.stop = [7]\nexec.list = [\"{word}\\u0000\"]\n"
    );
    std::fs::write(&faulty, text).expect("a file");
    let torn = gateway.dir().join("tidegate.toml.torn");
    std::fs::write(&torn, format!("[[deployment]]\nname = \"a\"\napi_key = \"{word}\n")).expect("a file");
    let (faulty, torn) = (faulty.display().to_string(), torn.display().to_string());
    let lines: [&[&str]; 9] = [
        &["check"],
        &["check", "--config", &faulty],
        &["check", "--config", &torn],
        &["serve", "--config", &faulty],
        &["status"],
        &["why", "chat"],
        &["why", "broken"],
        &["why", "own"],
        &["route", "--explain", "-m", "chat", "-H", &format!("authorization: {word}"), &prompt],
    ];
    let mut printed = Vec::new();
    for line in lines {
        let mut command = tokio::process::Command::new(binary());
        let output = command.current_dir(gateway.dir()).args(line).output().await.expect("it runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!text.is_empty(), "tidegate {line:?} says something");
        printed.push((format!("tidegate {}", line[0]), text));
    }
    printed
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
        } else if path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with("tidegate.toml")) {
            let text = std::fs::read(&path).unwrap_or_default();
            found.push((path.display().to_string(), String::from_utf8_lossy(&text).into_owned()));
        }
    }
}

/// Every page of the admin port, and what it says to questions with secrets in them.
async fn pages(gateway: &Gateway) -> Vec<(String, String)> {
    let admin = Client::h1(gateway.admin);
    let mut pages = Vec::new();
    let of = |name: &str| ["sizing", "tuned", "decisions"].map(|part| format!("/deployments/{name}/{part}"));
    let paths = ["/metrics", "/status", "/", "/credit"].map(str::to_owned).into_iter();
    for path in paths.chain(["chat", "broken", "own", "runs"].iter().flat_map(|name| of(name))) {
        let page = admin.get(&path).await;
        assert!((200..500).contains(&page.status), "{path}: {}", page.status);
        pages.push((path, String::from_utf8_lossy(&page.body).into_owned()));
    }
    let (key, body) = (secret("key"), chat_stream("chat", &secret("prompt")).to_string());
    let headers = [("authorization", key.as_str()), ("x-session-id", key.as_str())];
    let told = admin.send(Method::POST, "/route", &headers, body).await;
    assert_eq!(told.status, 200);
    pages.push(("/route".to_owned(), String::from_utf8_lossy(&told.body).into_owned()));
    let refused =
        admin.send(Method::PUT, &format!("/deployments/chat/sizing?key={key}"), &[], key.clone()).await;
    assert!(refused.status >= 400, "{}", refused.status);
    pages.push(("a refusal".to_owned(), String::from_utf8_lossy(&refused.body).into_owned()));
    pages
}

#[tokio::test]
async fn c_080_no_secret_and_no_prompt_is_in_anything_that_the_gateway_writes() {
    leaks_nothing(Config::default()).await;
}

#[tokio::test]
async fn c_080_no_secret_and_no_prompt_gets_out_inside_tls() {
    leaks_nothing(Config::default().secured(&Front::of(&Issuer::new("ca")))).await;
}

async fn leaks_nothing(config: Config) {
    let in_the_clear = !config.is_secured();
    let stub = Stub::with(work).await;
    let gateway = told(&stub, config).await;
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
    if in_the_clear {
        misuse(&gateway).await;
    }
    // Figures that are none, and a replica that cannot be started. What an engine says of its own health is told on
    // purpose: an operator needs it, and it is no client's.
    stub.on_probe(|request| match request.path() {
        "/health" => Script::answer(500, &[], "out of memory"),
        "/metrics" => Script::answer(200, &[], format!("vllm:num_requests_running {}", secret("page"))),
        _ => healthy(request),
    });
    gateway.ready_replicas(1).await;
    let refused = gateway.client().post(CHAT, &chat_stream("broken", &secret("prompt"))).await;
    assert_eq!(refused.status, 503);
    gateway.assert_idle().await;
    let last = stub.count() - 1;
    assert_ne!(stub.ended(last).await, End::Running);

    let mut written =
        vec![("standard error".to_owned(), gateway.log()), ("the access log".to_owned(), gateway.printed())];
    written.extend(pages(&gateway).await);
    written.extend(commands(&gateway).await);
    files(gateway.dir(), &mut written);
    for (place, text) in &written {
        let leak =
            text.find(CANARY).map(|at| text[at.saturating_sub(200)..].chars().take(400).collect::<String>());
        assert_eq!(leak, None, "{place} holds a secret");
    }
    // It did look: the log is at its most talkative, and every request is in the access log.
    assert!(gateway.log().contains("TRACE") || gateway.log().contains("DEBUG"), "{}", gateway.log());
    eventually("the access log is written", async || match gateway.printed().lines().count() {
        lines if lines >= 2 * cases.len() - 1 + if in_the_clear { 5 } else { 0 } => Ok(()),
        lines => Err(format!("{lines} lines")),
    })
    .await;
    assert!(!gateway.printed().contains(CANARY));
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
}
