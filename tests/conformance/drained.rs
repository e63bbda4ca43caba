//! A replica that an operator takes out (C5): it gets no new request, its conversations move, it is told everywhere, it
//! stays out over restarts, and it comes back when that is undone.

use hyper::Method;
use serde_json::Value;
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::{assert_error_shape, chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::process::Command;

use super::why::{finding, text};
use crate::CHAT;

async fn send(gateway: &Gateway, method: Method, what: &str) -> Answer {
    Client::h1(gateway.admin).send(method, &format!("/deployments/{what}"), &[], "").await
}

async fn say(gateway: &Gateway, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.arg("drain").args(arguments).arg(format!("--admin={}", gateway.admin));
    let output = command.output().await.expect("run `tidegate drain`");
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

async fn replica(gateway: &Gateway, at: usize) -> Value {
    gateway.status().await["deployments"][0]["replicas"][at].clone()
}

/// A turn of conversation `name`: its status, where it went, and how.
async fn turn(gateway: &Gateway, name: &str) -> (u16, String, String) {
    let answer = gateway.client().post_with(CHAT, &[("x-conversation-id", name)], &chat("chat", "hi")).await;
    let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    (answer.status, header("x-tidegate-replica").to_owned(), header("x-tidegate-route").to_owned())
}

#[tokio::test]
async fn c5_r5_a_fixed_replica_finishes_and_stays_out_until_that_is_undone() {
    let (gate, stubs) = (Gate::closed(), [Stub::start().await, Stub::start().await]);
    for stub in &stubs {
        let gate = gate.clone();
        stub.on_work(move |request| match request.json()["user"] == "long" {
            true => Script::new().wait(&gate).then(reply(request)),
            false => reply(request),
        });
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let home = turn(&gateway, "one").await.1;
    let at = if home == "chat-1" { 0 } else { 1 };
    let other = if home == "chat-1" { "chat-2" } else { "chat-1" };
    let mut long = chat("chat", "hi");
    long["user"] = "long".into();
    let client = gateway.client();
    let running =
        tokio::spawn(async move { client.post_with(CHAT, &[("x-conversation-id", "one")], &long).await });
    gateway.in_flight(1).await;

    for _ in 0..2 {
        let answer = send(&gateway, Method::POST, &format!("chat/drain/{home}")).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let answer = answer.json();
        assert_eq!((&answer["state"], &answer["in_flight"]), (&"draining".into(), &1.into()), "{answer}");
        let follows = "it takes no new request, and the 1 request that runs there ends by itself; 1 other replica \
                       takes requests";
        assert_eq!(answer["follows"], follows);
        assert_eq!(answer["unsaved"], "nothing is kept where every replica is given by the configuration");
    }
    assert_eq!(turn(&gateway, "one").await, (200, other.to_owned(), "rehomed".to_owned()), "R5");
    for n in 0..8 {
        assert_eq!(turn(&gateway, &format!("new {n}")).await.1, other);
    }
    gate.open();
    let answer = running.await.expect("an answer");
    assert_eq!((answer.status, answer.header("x-tidegate-replica")), (200, home.as_str()), "it was not cut");

    let told = replica(&gateway, at).await;
    assert_eq!((&told["phase"], &told["drained"]), (&"draining".into(), &true.into()), "{told}");
    assert_eq!(told["drain"], "drained", "{told}");
    let why = told["why"].as_str().expect("why");
    assert!(why.contains("nothing runs there, and it takes no request until the drain is undone"), "{why}");
    let found = finding(&gateway, "drained", "now").await;
    assert_eq!(text(&found), format!("{home} is taken out by an operator"));
    assert_eq!(found["advice"], format!("`tidegate drain chat {home} --undo` takes it back"));
    let status = Command::new(binary()).args(["status", &format!("--admin={}", gateway.admin)]).output();
    let status = String::from_utf8(status.await.expect("run `tidegate status`").stdout).expect("text");
    assert!(status.contains(" drained ") && !status.contains("draining"), "{status}");
    let number = home.trim_start_matches("chat-");
    let back = say(&gateway, &["chat", number, "--undo"]).await;
    assert!(back.starts_with(&format!("{home} is in: it takes requests")), "{back}");
    assert_eq!(replica(&gateway, at).await["phase"], "ready");
    assert_eq!(send(&gateway, Method::DELETE, &format!("chat/drain/{home}")).await.json()["state"], "in");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c5_a_fixed_replica_is_still_out_after_a_kill_unless_another_has_taken_its_number() {
    let stubs = [Stub::start().await, Stub::start().await];
    let elastic = Deployment::named("elastic").engine(&["--model", "elastic"]);
    let mut gateway = Gateway::launch(Config::of(Deployment::chat(&stubs)).and(elastic)).await;
    gateway.ready_replicas(2).await;
    let answer = send(&gateway, Method::POST, "chat/drain/chat-2").await.json();
    assert_eq!((&answer["state"], &answer["unsaved"]), (&"drained".into(), &Value::Null), "{answer}");
    gateway.kill();
    gateway.restart().await;
    gateway.ready_replicas(1).await;
    for n in 0..4 {
        assert_eq!(turn(&gateway, &format!("after {n}")).await.1, "chat-1");
    }
    assert_eq!(replica(&gateway, 1).await["drained"], true);
    gateway.kill();
    gateway.ended().await;
    let file = gateway.dir().join("tidegate.toml");
    let written = std::fs::read_to_string(&file).expect("the configuration");
    let swapped = written.replace(&stubs[0].url(), "first").replace(&stubs[1].url(), &stubs[0].url());
    std::fs::write(&file, swapped.replace("first", &stubs[1].url())).expect("swap the two");
    gateway.restart().await;
    gateway.ready_replicas(2).await;
    assert_eq!(replica(&gateway, 1).await["drained"], false, "it has another URL: it is another one");
}

#[tokio::test]
async fn c5_the_last_one_may_be_drained_and_what_follows_is_said() {
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let said = say(&gateway, &["chat", "chat-1"]).await;
    let follows = "chat-1 is drained: nothing runs there, and it takes no request until the drain is undone; no other \
                   replica takes requests: they are refused with 503 until one does\n";
    assert!(said.starts_with(follows), "{said}");
    let refused = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "60"), "{:?}", refused.body);
    let error = assert_error_shape(&refused.body);
    let text = "every replica of model `chat` is being drained; try again in 60 s";
    assert_eq!((&error["code"], &error["message"]), (&"drained".into(), &text.into()));
    let shut = "requests get 503, since every replica is drained by an operator";
    assert_eq!(gateway.status().await["deployments"][0]["trouble"], shut);
    assert!(self::text(&finding(&gateway, "drained", "now").await).ends_with(&format!(": {shut}")));
    assert_eq!(send(&gateway, Method::DELETE, "chat/drain/1").await.status, 200);
    assert_eq!(turn(&gateway, "one").await.0, 200);
}

/// The body of a drain after which conversations stay.
const STAY: &str = r#"{"conversations": "stay"}"#;

#[tokio::test]
async fn c_129_one_that_is_left_to_its_conversations_says_so_everywhere_and_is_taken_back() {
    let stubs = [Stub::start().await, Stub::start().await];
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let home = turn(&gateway, "one").await.1;
    let at = if home == "chat-1" { 0 } else { 1 };
    let said = say(&gateway, &["chat", &home, "--keep-conversations"]).await;
    let follows =
        "it takes no new conversation, and the 1 conversation that is at home there stays until it ends";
    let head = format!("{home} keeps its conversations: {follows}; 1 other replica takes requests\n");
    assert!(said.starts_with(&head), "{said}");
    assert_eq!(turn(&gateway, "one").await, (200, home.clone(), "home".to_owned()));
    for n in 0..8 {
        assert_ne!(turn(&gateway, &format!("new {n}")).await.1, home);
    }
    let told = replica(&gateway, at).await;
    let shown = (&told["phase"], &told["own_only"], &told["drained"]);
    assert_eq!(shown, (&"ready".into(), &true.into(), &false.into()), "{told}");
    assert!(told["why"].as_str().is_some_and(|why| why.contains(follows)), "{told}");
    assert_eq!(
        text(&finding(&gateway, "drained", "now").await),
        format!("{home} is taken out by an operator")
    );
    let route = Client::h1(gateway.admin).post("/route", &chat("chat", "hello")).await.json();
    assert_eq!(route["replicas"][at]["standing"], "own_only", "{route}");
    let back = say(&gateway, &["chat", &home, "--undo"]).await;
    assert!(back.starts_with(&format!("{home} is in: ")), "{back}");
    assert_eq!(replica(&gateway, at).await["own_only"], false);
    let homes: Vec<_> = (0..8).map(|n| format!("later {n}")).collect();
    let mut there = 0;
    for name in &homes {
        there += usize::from(turn(&gateway, name).await.1 == home);
    }
    assert!((4..=5).contains(&there), "its half again, and at most one for having waited: {there}");
}

#[tokio::test]
async fn c_129_conversations_stay_only_where_the_replica_does_and_only_what_there_is_can_be_said() {
    let stubs = [Stub::start().await, Stub::start().await];
    let elastic = Deployment::named("elastic").engine(&["--model", "elastic", "--load-time", "0s"]);
    let gateway = Gateway::launch(Config::of(Deployment::chat(&stubs)).and(elastic.set("min", 1))).await;
    gateway.ready_replicas(3).await;
    let post = async |what: &str, body: &'static str| {
        let path = format!("/deployments/{what}");
        let answer = Client::h1(gateway.admin).send(Method::POST, &path, &[], body).await;
        let error = answer.json()["error"].clone();
        (answer.status, error["message"].as_str().unwrap_or_default().to_owned())
    };
    let (status, why) = post("elastic/drain/1", STAY).await;
    assert!(status == 409 && why.contains("its conversations cannot stay"), "{status} {why}");
    for wrong in [r#"{"conversations": "go"}"#, r#"{"weight": 0}"#, "0"] {
        let (status, why) = post("chat/drain/1", wrong).await;
        assert!(status == 400 && why.contains(r#"or {"conversations": "stay"}"#), "{wrong}: {status} {why}");
    }
    assert_eq!(post("chat/drain/1", r#"{"conversations": "move"}"#).await.0, 200);
    assert_eq!(replica(&gateway, 0).await["drained"], true);
    let (status, why) = post("chat/drain/1", STAY).await;
    assert!(status == 409 && why.contains("undo that first"), "{status} {why}");
    // What was left to its own may still be taken out altogether.
    assert_eq!(post("chat/drain/2", STAY).await.0, 200);
    assert_eq!(post("chat/drain/2", "").await.0, 200);
    let out = replica(&gateway, 1).await;
    assert_eq!((&out["phase"], &out["drained"]), (&"draining".into(), &true.into()), "{out}");
    for at in [1, 2] {
        assert_eq!(send(&gateway, Method::DELETE, &format!("chat/drain/{at}")).await.json()["state"], "in");
    }
    gateway.ready_replicas(3).await;
    assert_eq!(replica(&gateway, 1).await["own_only"], false);
}

#[tokio::test]
async fn h4_c5_unknown_names_are_told_with_those_that_there_are() {
    let stubs = [Stub::start().await, Stub::start().await];
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    for (what, there) in [
        ("chat/drain/chat-3", "the replica `chat-3` does not exist; there are `chat-1`, `chat-2`"),
        ("other/drain/chat-1", "the model `other` does not exist; there is `chat`"),
    ] {
        for method in [Method::POST, Method::DELETE] {
            let answer = send(&gateway, method, what).await;
            assert_eq!((answer.status, &answer.json()["error"]["message"]), (404, &there.into()), "{what}");
        }
    }
    let wrong = send(&gateway, Method::GET, "chat/drain/chat-1").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, "POST, DELETE"));
    let said = say(&gateway, &["chat", "7"]).await;
    assert_eq!(said, "error: the replica `7` does not exist; there are `chat-1`, `chat-2`\n");
}
