//! What blocks growth (C2): each cause is told in the status, by `why` and as a metric, while it holds; once it is
//! removed, on the admin port where that is the way, the fleet grows by itself at the next evaluation.

use std::path::Path;

use hyper::Method;
use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat};
use tokio::task::JoinHandle;

use crate::CHAT;

use super::why::{QUICK, busy, finding, text};

/// One replica for each request, from one to three.
fn fleet() -> Deployment {
    let deployment = Deployment::named("chat").engine(QUICK).set("min", 1).set("max", 3);
    deployment.set("rule", "concurrency").set("target_concurrency", 1)
}

async fn send(gateway: &Gateway, method: Method, path: &str, body: &Value) -> Answer {
    let answer = Client::h1(gateway.admin).send(method, path, &[], body.to_string()).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    answer
}

/// Changes the size; gives what it warns of.
async fn resize(gateway: &Gateway, change: Value) -> Value {
    send(gateway, Method::PUT, "/deployments/chat/sizing", &change).await.json()["warning"].clone()
}

/// Waits until status, `why` and metrics all say that `reason` blocks growth; gives what `why` says at `line`.
async fn blocked(gateway: &Gateway, reason: &str, line: &str) -> String {
    eventually(&format!("{reason} is the decision"), async || {
        let chat = gateway.status().await["deployments"][0].clone();
        if chat["decision"]["reason"] == reason { Ok(()) } else { Err(chat.to_string()) }
    })
    .await;
    // The loop counts it when it looks next.
    let labels = [("deployment", "chat"), ("reason", reason)];
    eventually(&format!("{reason} is counted"), async || {
        let counted = gateway.metrics().await.total(metric::DECISIONS, &labels);
        if counted >= 1.0 { Ok(()) } else { Err(format!("{reason} is counted {counted} times")) }
    })
    .await;
    text(&finding(gateway, line, "now").await).to_owned()
}

/// Waits until `count` replicas are ready; what was decided next after the last `reason` is to grow.
async fn resumes(gateway: &Gateway, reason: &str, count: usize, clients: Vec<JoinHandle<Answer>>) {
    gateway.ready_replicas(count).await;
    let past = Client::h1(gateway.admin).get("/deployments/chat/decisions?limit=100").await.json();
    let past = past["decisions"].as_array().cloned().unwrap_or_default();
    let at = past.iter().position(|decision| decision["reason"] == reason).expect("it was blocked");
    let next = at.checked_sub(1).and_then(|at| past.get(at)).expect("something was decided since");
    let grows = ["demand", "queue_stalled", "on_their_way", "from_zero", "below_min"];
    assert!(grows.iter().any(|grow| next["reason"] == *grow), "{next} comes after {reason}");
    clients.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn c2_max_blocks_growth_until_it_is_raised() {
    let gateway = Gateway::launch(Config::of(fleet().set("max", 1))).await;
    gateway.ready_replicas(1).await;
    let clients = busy(&gateway, 2);
    let told = blocked(&gateway, "at_max", "at_max").await;
    assert!(told.starts_with("max is 1 and 1 is there, while "), "{told}");
    resize(&gateway, json!({"max": 2})).await;
    resumes(&gateway, "at_max", 2, clients).await;
}

#[tokio::test]
async fn c2_m1_a_price_cap_below_every_offer_blocks_growth_until_it_is_raised() {
    let gateway = Gateway::launch(Config::of(fleet().set("process.price", 2))).await;
    gateway.ready_replicas(1).await;
    let warned = resize(&gateway, json!({"price_cap": 1.5})).await;
    let begins = "the price cap of $1.50/h is below the cheapest offer, $2.00/h";
    assert!(warned.as_str().is_some_and(|warned| warned.starts_with(begins)), "{warned}");
    let clients = busy(&gateway, 2);
    let told = blocked(&gateway, "price_cap", "blocked").await;
    assert!(told.contains("$1.50/h") && told.contains("$2.00/h"), "{told}");
    assert_eq!(gateway.status().await["deployments"][0]["replicas"].as_array().map(Vec::len), Some(1));
    assert_eq!(resize(&gateway, json!({"price_cap": 2})).await, Value::Null);
    resumes(&gateway, "price_cap", 2, clients).await;
}

#[tokio::test]
async fn c2_m3_no_credit_blocks_growth_until_there_is_some() {
    // A headroom that nobody sits out.
    let fleet = fleet().set("min", 0).set("process.price", 1).set("queue.headroom", "10m");
    let config = Config::of(fleet).set("budget.credit", 0);
    let gateway = Gateway::launch(config).await;
    // Nobody is held for what cannot be started, nor told to come back soon; and who only looks is told so.
    text(&finding(&gateway, "nothing_starts", "now").await);
    assert_eq!(gateway.status().await["deployments"][0]["trouble"], Value::Null, "nobody asks");
    let asked = send(&gateway, Method::POST, "/route", &chat("chat", "hi")).await.json();
    let no = json!({"kind": "refuse", "reason": "cannot_start", "retry_after_s": 60.0});
    assert_eq!(asked["verdict"], no, "as the request itself, below: {asked}");
    assert_eq!(asked["text"], "there is no replica, and none can be started: the credit is used up");
    let refused = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "60"), "{:?}", refused.body);
    let error = assert_error_shape(&refused.body);
    assert_eq!(error["code"], "cannot_start");
    let text = error["message"].as_str().unwrap_or_default();
    assert!(text.ends_with("; try again in 60 s"), "{text}");
    let trouble = gateway.status().await["deployments"][0]["trouble"].clone();
    let refuses = "requests get 503, since no replica runs and none can be started: the credit is used up";
    assert_eq!(trouble, refuses, "the client that was refused is told of");
    let clients = busy(&gateway, 1);
    let told = blocked(&gateway, "no_credit", "no_credit").await;
    assert!(told.starts_with("the credit is used up"), "{told}");
    send(&gateway, Method::POST, "/credit", &json!({"amount": 5})).await;
    // For this client and for the one that was told to come back.
    resumes(&gateway, "no_credit", 2, clients).await;
}

/// Waits until status, metrics and the history say that exactly these block growth, and `why` says it at their lines.
async fn all_blocked(gateway: &Gateway, blocks: &[(&str, &str)]) {
    let mut expected: Vec<&str> = blocks.iter().map(|(reason, _)| *reason).collect();
    expected.sort_unstable();
    eventually(&format!("{expected:?} block growth"), async || {
        let chat = gateway.status().await["deployments"][0].clone();
        let told = chat["decision"]["blocked"].as_array().cloned().unwrap_or_default();
        let mut told: Vec<&str> = told.iter().filter_map(Value::as_str).collect();
        told.sort_unstable();
        if told == expected { Ok(()) } else { Err(chat.to_string()) }
    })
    .await;
    let page = gateway.metrics().await;
    for reason in ["at_max", "price_cap", "no_capacity", "no_credit", "gateway_cap", "provider_error"] {
        let labels = [("deployment", "chat"), ("reason", reason)];
        let told = page.total(metric::GROWTH_BLOCKED, &labels) > 0.0;
        assert_eq!(told, expected.contains(&reason), "{reason} beside {expected:?}");
    }
    for (_, line) in blocks {
        text(&finding(gateway, line, "now").await);
    }
    // Status tells what would be decided now; the loop enters it when it looks next.
    eventually(&format!("{expected:?} is in the history"), async || {
        let past = Client::h1(gateway.admin).get("/deployments/chat/decisions?limit=1").await.json();
        let told = past["decisions"][0]["blocked"].as_array().cloned().unwrap_or_default();
        let mut told: Vec<&str> = told.iter().filter_map(Value::as_str).collect();
        told.sort_unstable();
        if told == expected { Ok(()) } else { Err(past.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn c2_each_of_several_that_block_growth_is_told_until_it_alone_is_removed() {
    let config = Config::of(fleet().set("process.price", 2).set("max", 1)).set("budget.credit", 0.0001);
    let gateway = Gateway::launch(config.set("budget.replicas", 1)).await;
    gateway.ready_replicas(1).await;
    resize(&gateway, json!({"price_cap": 1.5})).await;
    let clients = busy(&gateway, 2);
    let (max, dear) = (("at_max", "at_max"), ("price_cap", "blocked"));
    let (poor, full) = (("no_credit", "no_credit"), ("gateway_cap", "blocked"));
    all_blocked(&gateway, &[max, dear, poor, full]).await;
    resize(&gateway, json!({"max": 3})).await;
    all_blocked(&gateway, &[dear, poor, full]).await;
    resize(&gateway, json!({"price_cap": 2})).await;
    all_blocked(&gateway, &[poor, full]).await;
    send(&gateway, Method::POST, "/credit", &json!({"amount": 5})).await;
    all_blocked(&gateway, &[full]).await;
    clients.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn c2_the_last_of_several_that_is_removed_lets_the_fleet_grow_at_the_next_evaluation() {
    let config = Config::of(fleet().set("process.price", 2)).set("budget.credit", 0.0001);
    let gateway = Gateway::launch(config).await;
    gateway.ready_replicas(1).await;
    resize(&gateway, json!({"price_cap": 1.5})).await;
    let clients = busy(&gateway, 2);
    all_blocked(&gateway, &[("price_cap", "blocked"), ("no_credit", "no_credit")]).await;
    send(&gateway, Method::POST, "/credit", &json!({"amount": 5})).await;
    all_blocked(&gateway, &[("price_cap", "blocked")]).await;
    resize(&gateway, json!({"price_cap": 2})).await;
    resumes(&gateway, "price_cap", 2, clients).await;
}

#[tokio::test]
async fn c2_a6_where_all_replicas_of_the_gateway_are_held_by_others_nobody_waits_until_one_is_let_go() {
    let other = Deployment::named("other").engine(&["--model", "other", "--load-time", "0s"]);
    let other = other.set("min", 2).set("max", 2);
    let chat_fleet = fleet().set("min", 0).set("queue.headroom", "10m");
    let gateway = Gateway::launch(Config::of(other).and(chat_fleet).set("budget.replicas", 2)).await;
    gateway.ready_replicas(2).await;
    let full =
        "the gateway has its 2 replicas of `budget.replicas`, and no other deployment has one to spare";
    let found = finding(&gateway, "nothing_starts", "now").await;
    assert!(text(&found).contains(full), "{found}");
    assert_eq!(gateway.status().await["deployments"][1]["startless"], full);
    let refused = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "60"), "{:?}", refused.body);
    assert_eq!(assert_error_shape(&refused.body)["code"], "cannot_start");
    let told = finding(&gateway, "blocked", "now").await;
    assert!(text(&told).ends_with("and has them; no other deployment has one to spare"), "{told}");
    let labels = [("deployment", "chat"), ("reason", "gateway_cap")];
    assert_eq!(gateway.metrics().await.total(metric::GROWTH_BLOCKED, &labels), 1.0);
    send(&gateway, Method::PUT, "/deployments/other/sizing", &json!({"min": 1, "max": 1})).await;
    eventually("one is let go", async || {
        let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
        if answer.status == 200 { Ok(()) } else { Err(format!("{:?}", answer.body)) }
    })
    .await;
}

#[tokio::test]
async fn c2_a_provider_that_is_down_blocks_growth_until_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker/exec/local.py");
    let (script, down) = (script.display().to_string(), folder.path().join("down"));
    let list = format!(
        "if [ -e '{}' ]; then echo in maintenance >&2; exit 1; fi; exec '{script}' list",
        down.display()
    );
    let words = |words: &[&str]| words.iter().map(|word| toml::Value::from(*word)).collect::<Vec<_>>();
    let binary = tidegate_tests::gateway::binary().display().to_string();
    let start = [&[script.as_str(), "start", &binary, "engine", "--port", "{port}"], QUICK].concat();
    let deployment = Deployment::named("chat")
        .set("exec.start", words(&start))
        .set("exec.stop", words(&[&script, "stop"]))
        .set("exec.list", words(&["/bin/sh", "-c", &list]))
        .set("exec.env.EXEC_LOGS", folder.path().display().to_string())
        .set("exec.list_every", "100ms")
        .set("max", 1);
    let gateway = Gateway::launch(Config::of(deployment)).await;
    std::fs::write(&down, "").expect("take it down");
    let trouble = |chat: &Value| chat["trouble"].as_str().unwrap_or_default().contains("in maintenance");
    eventually("the provider is down", async || {
        let chat = gateway.status().await["deployments"][0].clone();
        if trouble(&chat) { Ok(()) } else { Err(chat.to_string()) }
    })
    .await;
    let clients = busy(&gateway, 1);
    let told = blocked(&gateway, "provider_error", "provider_down").await;
    assert!(told.contains("does not answer"), "{told}");
    // Max is told beside it, and what is set meanwhile counts.
    resize(&gateway, json!({"max": 0})).await;
    all_blocked(&gateway, &[("provider_error", "provider_down"), ("at_max", "at_max")]).await;
    resize(&gateway, json!({"max": 1})).await;
    all_blocked(&gateway, &[("provider_error", "provider_down")]).await;
    std::fs::remove_file(&down).expect("bring it back");
    resumes(&gateway, "provider_error", 1, clients).await;
    assert!(!trouble(&gateway.status().await["deployments"][0]), "and it is told no more");
    gateway.leaves_nothing().await;
}
