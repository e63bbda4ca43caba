//! Why a deployment is as it is (E2), told by the real gateway of its live state, on the admin port and in a terminal.

use serde_json::Value;
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::{CHAT, serve};

/// A stand-in engine that is ready at once.
pub(super) const QUICK: &[&str] = &["--model", "chat", "--load-time", "0s"];

async fn ask(gateway: &Gateway, model: &str) -> Answer {
    Client::h1(gateway.admin).get(&format!("/deployments/{model}/why")).await
}

/// The finding of that line, once it stands as it should.
pub(super) async fn finding(gateway: &Gateway, line: &str, standing: &str) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{line} is {standing}"), async || {
        let answer = ask(gateway, "chat").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
        let answer = answer.json();
        let all = answer["findings"].as_array().expect("findings");
        found = all.iter().find(|finding| finding["line"] == line).cloned().unwrap_or_default();
        if found["standing"] == standing { Ok(()) } else { Err(format!("{answer:#}")) }
    })
    .await;
    found
}

pub(super) fn text(finding: &Value) -> &str {
    finding["text"].as_str().expect("a sentence")
}

/// So many requests that take long.
pub(super) fn busy(gateway: &Gateway, count: usize) -> Vec<JoinHandle<Answer>> {
    let mut body = chat("chat", "hi");
    body["max_tokens"] = 4000.into();
    body["ignore_eos"] = true.into();
    let one = |_| {
        let (client, body) = (gateway.client(), body.clone());
        tokio::spawn(async move {
            loop {
                let answer = client.post(CHAT, &body).await;
                if answer.status != 503 {
                    return answer;
                }
            }
        })
    };
    (0..count).map(one).collect()
}

async fn command(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(binary()).args(arguments).output().await.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn e2_a_full_fleet_at_max_says_who_waits_and_what_is_needed() {
    let slow = ["--slots", "1", "--step-us", "100000"];
    let deployment = Deployment::named("chat")
        .engine(&[QUICK, &slow].concat())
        .set("min", 1)
        .set("max", 1)
        .set("rule", "concurrency")
        .set("target_concurrency", 1)
        .set("concurrency_limit", 1)
        .set("queue.headroom", "10m");
    let gateway = Gateway::launch(Config::of(deployment)).await;
    gateway.ready_replicas(1).await;
    let clients = busy(&gateway, 3);
    gateway.queued(2).await;
    let needs = "max is 1 and 1 is there, while 3 in progress (2 of them queued) need 3 replicas; ";
    let mut found = Value::Null;
    eventually("the evaluation that follows has seen them", async || {
        found = finding(&gateway, "at_max", "now").await;
        if text(&found).starts_with(needs) { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let told = text(&found);
    assert!(told.contains("; 2 requests wait, the oldest for "), "{told}");
    assert_eq!(found["advice"], "raise max");
    let admin = format!("--admin={}", gateway.admin);
    let (code, out, err) = command(&["why", &admin, "chat"]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(
        out.starts_with("chat  1 replica ready, fixed at 1; 1 in flight, 2 queued, the oldest for "),
        "{out}"
    );
    assert!(
        out.contains("  now    Stuck at max while queues grow\n         max is 1 and 1 is there"),
        "{out}"
    );
    assert!(!out.contains("  no "), "{out}");
    let (_, all, _) = command(&["why", &admin, "chat", "--all"]).await;
    for question in [
        "Load spiked",
        "Scale-up blocked",
        "Scale-up stopped",
        "Won't drop",
        "Fewer replicas",
        "Occasional slow",
    ] {
        assert!(all.contains(question), "{question}: {all}");
    }
    clients.iter().for_each(JoinHandle::abort);
    gateway.assert_idle().await;
    finding(&gateway, "at_max", "no").await;
}

#[tokio::test]
async fn e2_a_fleet_cools_and_then_stays_at_min() {
    let deployment =
        Deployment::named("chat").engine(QUICK).set("min", 1).set("max", 2).set("rule", "concurrency");
    let gateway =
        Gateway::launch(Config::of(deployment.set("target_concurrency", 1).set("window", "5s"))).await;
    gateway.ready_replicas(1).await;
    let found = finding(&gateway, "wont_drop", "normal").await;
    assert_eq!(text(&found), "min is 1: nothing is in progress, so fewer would do");
    let clients = busy(&gateway, 2);
    gateway.ready_replicas(2).await;
    clients.iter().for_each(JoinHandle::abort);
    let mut told = String::new();
    eventually("it cools", async || {
        told = text(&finding(&gateway, "wont_drop", "normal").await).to_owned();
        if told.contains(", and 2 are there: it shrinks to 1 in ") { Ok(()) } else { Err(told.clone()) }
    })
    .await;
    assert!(told.ends_with(" s if it stays so"), "{told}");
    gateway.ready_replicas(1).await;
    eventually("it is at min again", async || {
        let told = text(&finding(&gateway, "wont_drop", "normal").await).to_owned();
        if told.starts_with("min is 1: ") { Ok(()) } else { Err(told) }
    })
    .await;
}

#[tokio::test]
async fn e2_growth_that_is_blocked_tells_by_what_and_what_would_be_next() {
    let deployment =
        Deployment::named("chat").engine(QUICK).set("min", 1).set("max", 2).set("process.price", 1.35);
    let deployment = deployment.set("rule", "concurrency").set("target_concurrency", 1);
    let gateway = Gateway::launch(Config::of(deployment).set("budget.replicas", 1)).await;
    gateway.ready_replicas(1).await;
    let found = finding(&gateway, "blocked", "no").await;
    assert_eq!(text(&found), "one more would be started on process at $1.35/h, weights there");
    let clients = busy(&gateway, 2);
    let found = finding(&gateway, "blocked", "now").await;
    assert_eq!(
        text(&found),
        "1 more replica is wanted beside the 1 there (2 in progress need 2 replicas), but the gateway may have 1 replica over all \
         deployments, and has it; no other deployment has one to spare"
    );
    assert_eq!(found["advice"], "raise budget.replicas, or lower min or max of another deployment");
    clients.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn e2_an_empty_credit_is_told_with_balance_and_spending() {
    let deployment =
        Deployment::named("chat").engine(QUICK).set("min", 1).set("max", 2).set("process.price", 3600.0);
    let config = Config::of(deployment).set("budget.credit", 0.01);
    let gateway = Gateway::launch(config).await;
    gateway.ready_replicas(1).await;
    let found = finding(&gateway, "no_credit", "ahead").await;
    let told = text(&found);
    assert!(told.starts_with("the credit is used up (balance -$"), "{told}");
    assert!(
        told.contains(" spent here): nothing new is started, and what runs is kept at $3600.00/h; "),
        "{told}"
    );
}

#[tokio::test]
async fn e2_starts_that_fail_are_told_with_the_last_words_of_the_engine() {
    let script = "echo weights.gguf: no such file >&2; exit 3";
    let deployment = Deployment::named("chat").process(&["sh", "-c", script, "{port}"]).set("min", 1);
    let gateway = Gateway::launch(Config::of(deployment)).await;
    let mut found = Value::Null;
    eventually("the pause is told", async || {
        found = finding(&gateway, "starts_fail", "now").await;
        if text(&found).contains(" failed, the next is tried in ") { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    assert!(text(&found).contains("did not start: the engine ended (exit status: 3)"), "{found}");
    assert_eq!(found["details"], serde_json::json!(["weights.gguf: no such file"]));
}

#[tokio::test]
async fn e2_detours_are_counted_with_the_home_that_sheds() {
    let gate = Gate::closed();
    let stubs = [Stub::start().await, Stub::start().await];
    for stub in &stubs {
        let gate = gate.clone();
        stub.on_work(move |request| match request.json()["user"] == "holds" {
            true => Script::new().wait(&gate).then(reply(request)),
            false => reply(request),
        });
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs).set("concurrency_limit", 2))).await;
    let name = [("x-conversation-id", "one")];
    let home = gateway
        .client()
        .post_with(CHAT, &name, &chat("chat", "hi"))
        .await
        .header("x-tidegate-replica")
        .to_owned();
    let found = finding(&gateway, "slow_first_token", "no").await;
    assert_eq!(text(&found), "the 1 request of the last 5 m was served where it belongs");
    let mut held = chat("chat", "hi");
    held["user"] = "holds".into();
    let holding: Vec<_> = (0..2)
        .map(|_| {
            let (client, held) = (gateway.client(), held.clone());
            tokio::spawn(async move { client.post_with(CHAT, &[("x-conversation-id", "one")], &held).await })
        })
        .collect();
    gateway.in_flight(2).await;
    let away = gateway.client().post_with(CHAT, &name, &chat("chat", "hi")).await;
    assert_eq!((away.status, away.header("x-tidegate-route")), (200, "detour"));
    let found = finding(&gateway, "slow_first_token", "now").await;
    let told = text(&found);
    assert!(
        told.starts_with(&format!(
            "1 of 4 requests in the last 5 m was served away from home (1 off {home}); "
        )),
        "{told}"
    );
    assert!(told.ends_with(&format!("; {home} is over its load limit now")), "{told}");
    gate.open();
    for answer in holding {
        assert_eq!(answer.await.expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn e2_an_unknown_model_names_those_that_there_are_and_an_alias_will_do() {
    let stub = Stub::start().await;
    let deployment = Deployment::chat([&stub]).set("aliases", vec!["org/gpt-4o"]);
    let gateway = Gateway::start(Config::of(deployment)).await;
    let unknown = ask(&gateway, "nobody").await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &"model_not_found".into()));
    let admin = format!("--admin={}", gateway.admin);
    let (code, _, err) = command(&["why", &admin, "nobody"]).await;
    assert_eq!(
        (code, err.as_str()),
        (Some(1), "error: the model `nobody` does not exist; there are `chat`, `org/gpt-4o`\n")
    );
    let (code, out, _) = command(&["why", &admin, "org/gpt-4o"]).await;
    assert_eq!(code, Some(0));
    assert!(
        out.starts_with(
            "chat  1 replica ready, a fixed fleet; 0 in flight, 0 queued\n\n  now    Nothing to do\n"
        ),
        "{out}"
    );
    let (code, out, _) = command(&["scale", &admin, "org/gpt-4o"]).await;
    let fixed = "chat  static: 1 replica, as the configuration lists them; its size is changed there";
    assert_eq!((code, out.lines().next()), (Some(0), Some(fixed)), "as other commands have it");
    let (code, all, _) = command(&["why", &admin]).await;
    assert_eq!(
        (code, all.lines().next()),
        (Some(0), Some("chat  1 replica ready, a fixed fleet; 0 in flight, 0 queued"))
    );
    let answer = serve(&[&stub]).await;
    let get = Client::h1(answer.admin).send(hyper::Method::POST, "/deployments/chat/why", &[], "{}").await;
    assert_eq!((get.status, get.header("allow")), (405, "GET, HEAD"));
}
