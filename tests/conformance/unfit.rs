//! Replicas that are there and cannot serve: an engine that lists another model (C-028), a URL where nobody answers (Q2,
//! R5). What clients are told, what operators see, and that both end by themselves.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Request, Stub, healthy};

use crate::CHAT;

/// Well, and lists `model`.
fn lists(model: &'static str) -> impl Fn(&Request) -> Script {
    move |request| match request.path() {
        "/v1/models" => Script::json(200, &json!({"object": "list", "data": [{"id": model}]})),
        _ => healthy(request),
    }
}

/// Waits until the replicas of the only deployment are unfit in this way, or not; gives them.
async fn until_unfit(gateway: &Gateway, kinds: &[Option<&str>]) -> Vec<Value> {
    eventually("the replicas are unfit as expected", async || {
        let status = gateway.status().await;
        let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
        let seen: Vec<Option<&str>> = replicas.iter().map(|one| one["unfit"]["kind"].as_str()).collect();
        if seen == kinds { Ok(replicas.clone()) } else { Err(format!("{status}")) }
    })
    .await
}

/// Asks until the answer is a refusal with this code, as it is once the headroom has passed; gives its message.
async fn refused(gateway: &Gateway, code: &str) -> String {
    eventually(&format!("refused: {code}"), async || {
        let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
        assert_eq!(answer.status, 503);
        assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
        let error = answer.json()["error"].clone();
        match error["code"] == code {
            true => Ok(error["message"].as_str().unwrap_or_default().to_owned()),
            false => Err(error.to_string()),
        }
    })
    .await
}

/// What `GET /deployments/chat/why` says of replicas that fail.
async fn why(gateway: &Gateway) -> Value {
    let answer = Client::h1(gateway.admin).get("/deployments/chat/why").await.json();
    let findings = answer["findings"].as_array().cloned().unwrap_or_default();
    findings.into_iter().find(|one| one["line"] == "replicas_out").unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn c_028_an_engine_that_lists_another_model_is_told_once_and_nobody_waits_for_it() {
    let deployment = Deployment::named("chat").set("queue.headroom", "100ms").set("max", 1);
    let gateway = Gateway::launch(Config::of(deployment.engine(&["--model", "llama"]))).await;
    let message = refused(&gateway, "other_model").await;
    assert!(message.contains("no replica serves model `chat`"), "{message}");
    let replicas = until_unfit(&gateway, &[Some("other_model")]).await;
    assert_eq!(replicas[0]["why"], "/v1/models lists `llama`, and not `chat`");
    let found = why(&gateway).await;
    assert!(found["details"][0].as_str().is_some_and(|text| text.contains("lists `llama`, and not `chat`")));
    assert!(found["advice"].as_str().is_some_and(|text| text.contains("`model`")), "{found}");
    for n in 0..5 {
        refused(&gateway, "other_model").await;
        let log = gateway.log();
        let warned = log.lines().filter(|line| line.contains("chat-1 serves another model: "));
        let told: Vec<&str> = warned.collect();
        assert!(matches!(&*told, [one] if one.contains("WARN") && one.contains("`llama`")), "{n}: {log}");
    }
}

#[tokio::test]
async fn c_028_replicas_that_serve_the_model_go_on_and_one_that_lists_it_later_joins() {
    let stubs = [Stub::with(reply).await, Stub::with(reply).await];
    stubs[0].on_probe(lists("llama"));
    let gateway = Gateway::launch(Config::of(Deployment::chat(&stubs))).await;
    until_unfit(&gateway, &[Some("other_model"), None]).await;
    gateway.ready_replicas(1).await;
    for n in 0..8 {
        let answer = gateway.client().post(CHAT, &chat("chat", &format!("question {n}"))).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!((stubs[0].count(), stubs[1].count()), (0, 8));
    stubs[0].on_probe(healthy);
    gateway.ready_replicas(2).await;
    until_unfit(&gateway, &[None, None]).await;
}

#[tokio::test]
async fn c_028_an_engine_that_began_anew_as_another_one_between_two_looks_gets_nothing() {
    let stub = Stub::with(reply).await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]).set("queue.headroom", "100ms"))).await;
    // One look finds it unwell. At the next it is well, lists another model, and answers whatever it is asked.
    let (looks, other) = (AtomicUsize::new(0), lists("llama"));
    stub.on_probe(move |request| match request.path() {
        "/health" if looks.fetch_add(1, Ordering::Relaxed) == 0 => Script::json(500, &json!({})),
        _ => other(request),
    });
    eventually("it gets no request", async || {
        let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
        let code = answer.json()["error"]["code"].clone();
        if code == "other_model" { Ok(()) } else { Err(format!("{}: {code}", answer.status)) }
    })
    .await;
    let replicas = until_unfit(&gateway, &[Some("other_model")]).await;
    assert_eq!(replicas[0]["why"], "/v1/models lists `llama`, and not `chat`");
    stub.on_probe(healthy);
    gateway.ready_replicas(1).await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200);
}

#[tokio::test]
async fn c_028_what_an_engine_does_not_tell_is_no_trouble() {
    let stubs = [Stub::with(reply).await, Stub::with(reply).await];
    stubs[0].on_probe(|request| match request.path() {
        "/v1/models" => Script::json(404, &json!({"detail": "Not Found"})),
        _ => healthy(request),
    });
    stubs[1].on_probe(|request| match request.path() {
        "/v1/models" => Script::json(200, &json!({"data": [{"id": "big.gguf", "aliases": ["chat"]}]})),
        _ => healthy(request),
    });
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
}

#[tokio::test]
async fn r5_q2_a_static_fleet_that_cannot_be_reached_is_named_so_and_comes_back() {
    let stub = Stub::with(reply).await;
    stub.kill().await;
    let nowhere = "http://no-such-host.invalid:80";
    let deployment = Deployment::chat([&stub]).replica(nowhere, 1).set("queue.headroom", "100ms");
    let gateway = Gateway::launch(Config::of(deployment)).await;
    let replicas = until_unfit(&gateway, &[Some("unreachable"); 2]).await;
    let texts: Vec<&str> = replicas.iter().filter_map(|one| one["why"].as_str()).collect();
    assert!(texts[0].starts_with("cannot connect: Connection refused"), "{texts:?}");
    assert!(texts[1].starts_with("cannot connect: "), "{texts:?}");
    let message = refused(&gateway, "unreachable").await;
    assert!(message.contains("model `chat` can be reached"), "{message}");
    assert!(!message.contains("127.0.0.1") && !message.contains("no-such-host"), "no address: {message}");
    let found = why(&gateway).await.to_string();
    assert!(found.contains("chat-1: unreachable for") && found.contains("Connection refused"), "{found}");
    for name in ["chat-1", "chat-2"] {
        assert_eq!(gateway.log().matches(&format!("{name} cannot be reached at ")).count(), 1);
    }
    stub.revive();
    gateway.ready_replicas(1).await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200);
    until_unfit(&gateway, &[None, Some("unreachable")]).await;
}
