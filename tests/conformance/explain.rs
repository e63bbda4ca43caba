//! Where a request would go (E3): told on the admin port and in a terminal, and what happens to it when it is sent.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::process::Command;

use crate::{CHAT, serve};

/// A turn of a conversation about `topic` that holds `answers` answers of a model already.
fn turn(topic: &str, answers: usize) -> Value {
    let mut messages = vec![json!({"role": "user", "content": topic})];
    for number in 0..answers {
        messages.push(json!({"role": "assistant", "content": format!("answer {number}")}));
        messages.push(json!({"role": "user", "content": format!("and {number}?")}));
    }
    json!({"model": "chat", "messages": messages})
}

async fn told(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    Client::h1(gateway.admin).post_with(&format!("/route{path}"), headers, body).await
}

/// Asks, sends, and compares; gives what was told.
async fn as_told(gateway: &Gateway, headers: &[(&str, &str)], body: &Value) -> Value {
    let told = told(gateway, "", headers, body).await;
    assert_eq!((told.status, told.header("content-type")), (200, "application/json"), "{:?}", told.body);
    let told = told.json();
    let done = gateway.client().post_with(CHAT, headers, body).await;
    assert_eq!(done.status, 200);
    let verdict = &told["verdict"];
    assert_eq!(
        (verdict["kind"].as_str(), verdict["replica"].as_str(), verdict["route"].as_str()),
        (Some("forward"), Some(done.header("x-tidegate-replica")), Some(done.header("x-tidegate-route"))),
        "{told}"
    );
    told
}

#[tokio::test]
async fn e3_what_is_told_is_what_happens_and_nothing_is_sent_or_remembered() {
    let stubs = [Stub::start().await, Stub::start().await, Stub::start().await];
    let gateway = serve(&stubs.iter().collect::<Vec<_>>()).await;
    for _ in 0..20 {
        told(&gateway, "", &[], &turn("never sent", 1)).await;
    }
    let sent: usize = stubs.iter().map(Stub::count).sum();
    assert_eq!(sent, 0, "nothing went to a replica");
    assert_eq!(gateway.status().await["deployments"][0]["conversations"], 0, "and nothing is remembered");
    for topic in ["tides", "gates", "locks", "weirs"] {
        let first = as_told(&gateway, &[], &turn(topic, 0)).await;
        assert_eq!(
            (&first["verdict"]["route"], &first["identity"]["by"]),
            (&"placed".into(), &"prefix".into())
        );
        let second = as_told(&gateway, &[], &turn(topic, 1)).await;
        let identity = &second["identity"];
        assert_eq!((&identity["boundaries"], &identity["known_at"]), (&3.into(), &1.into()), "{second}");
        assert_eq!(identity["home"], second["verdict"]["replica"]);
        assert_eq!(second["text"], "the conversation is at home there");
    }
    let named = [("x-session-id", "7")];
    assert_eq!(as_told(&gateway, &named, &turn("by name", 0)).await["verdict"]["route"], "placed");
    let again = as_told(&gateway, &named, &turn("by name", 0)).await;
    assert_eq!(
        (&again["identity"]["by"], &again["identity"]["header"]),
        (&"header".into(), &named[0].0.into())
    );
    assert_eq!(
        (&again["verdict"]["route"], &again["verdict"]["chosen_by"]),
        (&"home".into(), &"home".into())
    );
}

#[tokio::test]
async fn e3_the_path_after_route_says_what_is_asked_about() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let embedding = json!({"model": "chat", "input": "some text"});
    let answer = told(&gateway, "/v1/embeddings", &[], &embedding).await.json();
    assert_eq!((&answer["operation"], &answer["verdict"]["route"]), (&"embeddings".into(), &"any".into()));
    assert_eq!(answer["identity"]["by"], "none");
    let keyed = json!({"model": "chat", "prompt": "x", "metadata": {"conversation_id": "c"}});
    let answer = told(&gateway, "/completions", &[], &keyed).await.json();
    assert_eq!(answer["identity"]["by"], "metadata.conversation_id");
    let answer = told(&gateway, "/v1/nothing", &[], &keyed).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &"unknown_url".into()));
    let get = Client::h1(gateway.admin).get("/route").await;
    assert_eq!((get.status, get.header("allow")), (405, "POST"));
}

#[tokio::test]
async fn e3_h4_what_cannot_be_understood_is_answered_as_by_the_endpoint() {
    let stub = Stub::start().await;
    let config =
        Config::of(Deployment::chat([&stub]).set("aliases", vec!["gpt-4o"])).set("limits.body", "2KiB");
    let gateway = Gateway::start(config).await;
    let error = |answer: &Answer| answer.json()["error"].clone();
    let unknown = told(&gateway, "", &[], &chat("nobody; GET ", "hi")).await;
    assert_eq!((unknown.status, &error(&unknown)["code"]), (404, &"model_not_found".into()));
    assert_eq!(
        error(&unknown)["message"],
        "the model `nobody; GET ` does not exist; there are `chat`, `gpt-4o`",
    );
    let bad = Client::h1(gateway.admin).send(Method::POST, "/route", &[], "{\"model\": ").await;
    assert_eq!((bad.status, &error(&bad)["code"]), (400, &"invalid_json".into()));
    let large = told(&gateway, "", &[], &chat("chat", &"x".repeat(3000))).await;
    assert_eq!((large.status, &error(&large)["code"]), (413, &"request_too_large".into()));
}

#[tokio::test]
async fn e3_who_would_wait_and_who_would_be_refused_is_told() {
    let gate = Gate::closed();
    let stub = Stub::start().await;
    let held = gate.clone();
    stub.on_work(move |request| Script::new().wait(&held).then(reply(request)));
    let deployment = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.requests", 1);
    let gateway = Gateway::start(Config::of(deployment.set("queue.headroom", "5m"))).await;
    let post = |topic: &'static str| {
        let client = gateway.client();
        tokio::spawn(async move { client.post(CHAT, &turn(topic, 0)).await })
    };
    let first = post("one");
    gateway.in_flight(1).await;
    let wait = told(&gateway, "", &[], &turn("two", 0)).await.json();
    assert_eq!((&wait["verdict"]["kind"], &wait["verdict"]["before"]), (&"wait".into(), &0.into()), "{wait}");
    assert_eq!(wait["replicas"][0]["standing"], "full");
    let second = post("two");
    gateway.queued(1).await;
    let refused = told(&gateway, "", &[], &turn("three", 0)).await.json();
    assert_eq!(
        (&refused["verdict"]["kind"], &refused["verdict"]["reason"]),
        (&"refuse".into(), &"queue_full".into())
    );
    let third = gateway.client().post(CHAT, &turn("three", 0)).await;
    assert_eq!(third.status, 503);
    gate.open();
    assert_eq!((first.await.expect("one").status, second.await.expect("two").status), (200, 200));
    gateway.assert_idle().await;
}

async fn command(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(binary()).args(arguments).output().await.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn e3_the_command_tells_it_in_a_line_in_a_table_and_as_json() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let admin = format!("--admin={}", gateway.admin);
    let (code, out, err) = command(&["route", &admin, "-m", "chat", "What is a tide?"]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, "chat-1  placed: a new conversation; chat-1 is the least loaded\n");
    let file = gateway.dir().join("request.json");
    std::fs::write(&file, turn("tides", 0).to_string()).expect("a file");
    let file = file.display().to_string();
    let (_, out, _) = command(&["route", "--explain", &admin, "-H", "x-session-id: 7", &file]).await;
    for part in
        ["  conversation  named by the header x-session-id; not known yet\n", "  chat-1 ", "  goes here\n"]
    {
        assert!(out.contains(part), "{out}");
    }
    let (_, out, _) = command(&["route", &admin, "--json", &file]).await;
    assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON")["verdict"]["replica"], "chat-1");
    let (code, _, err) = command(&["route", &admin, "-m", "nobody", "hi"]).await;
    assert_eq!(
        (code, err.as_str()),
        (Some(1), "error: the model `nobody` does not exist; there is `chat`\n")
    );
    let (code, _, err) = command(&["route", &admin, "What is a tide?"]).await;
    assert!(code == Some(1) && err.contains("needs --model NAME"), "{err}");
}
