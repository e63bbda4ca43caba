//! What an operator changes while the gateway runs: sizes and credit hold over restarts, faults are told all at once, and
//! nobody else may change anything.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::stub::Stub;

use super::serve;

const SIZING: &str = "/deployments/chat/sizing";

/// A fleet that starts nothing by itself.
async fn idle() -> Gateway {
    let deployment = Deployment::named("chat").engine(&["--model", "chat"]).set("max", 3);
    Gateway::launch(Config::of(deployment).set("budget.credit", 100.5)).await
}

async fn send(gateway: &Gateway, method: Method, path: &str, body: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    Client::h1(gateway.admin).send(method, path, &json, body.to_string()).await
}

async fn kill(gateway: &mut Gateway) {
    gateway.kill();
    gateway.restart().await;
}

fn message(answer: &Answer) -> String {
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error", "H4: {error}");
    error["message"].as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn a1_what_is_set_wins_over_the_file_and_holds_over_a_kill() {
    let mut gateway = idle().await;
    let answer = send(&gateway, Method::PUT, SIZING, &json!({"min": 1, "target_concurrency": 8})).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let sizing = &answer.json()["sizing"];
    assert_eq!((&sizing["min"]["value"], &sizing["min"]["from"]), (&1.into(), &"set".into()), "{sizing}");
    assert_eq!((&sizing["max"]["value"], &sizing["max"]["from"]), (&3.into(), &"configuration".into()));
    assert_eq!((&sizing["mode"]["value"], &sizing["mode"]["from"]), (&"flex".into(), &"default".into()));
    assert_eq!(answer.json()["unsaved"], Value::Null);
    gateway.ready_replicas(1).await;
    let limit = |status: &Value| status["deployments"][0]["replicas"][0]["limit"].clone();
    assert_eq!(limit(&gateway.status().await), 10, "Q1: the limit follows the target");

    kill(&mut gateway).await;
    gateway.ready_replicas(1).await;
    let status = gateway.status().await;
    let chat = &status["deployments"][0];
    assert_eq!((&chat["min"], &chat["sizing"]["min"]["from"]), (&1.into(), &"set".into()), "{chat}");
    assert_eq!(limit(&status), 10);
    assert_eq!(status["records"]["trouble"], Value::Null);

    let answer = send(&gateway, Method::PUT, SIZING, &json!({"min": null, "target_concurrency": null})).await;
    assert_eq!(answer.json()["sizing"]["min"], json!({"value": 0, "from": "default", "age_s": null}));
    kill(&mut gateway).await;
    assert_eq!(gateway.status().await["deployments"][0]["min"], 0, "unset for good");
}

#[tokio::test]
async fn h4_all_faults_of_a_size_are_told_at_once_and_nothing_changes() {
    let gateway = idle().await;
    let bad = json!({"min": 40, "mode": "warm", "colour": "red"});
    let answer = send(&gateway, Method::PUT, SIZING, &bad).await;
    assert_eq!(answer.status, 400);
    let text = message(&answer);
    for part in [
        "colour cannot be set",
        "min is 40, but must be a whole number from 0 to 32",
        "mode is \"warm\", but",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let answer = send(&gateway, Method::PUT, SIZING, &json!({"min": 4})).await;
    assert!(message(&answer).contains("must not be more than max, which is 3"), "{:?}", answer.body);
    for body in [json!([1]), json!("x")] {
        assert_eq!(send(&gateway, Method::PUT, SIZING, &body).await.status, 400);
    }
    let unknown = send(&gateway, Method::PUT, "/deployments/other/sizing", &json!({"min": 1})).await;
    assert_eq!(unknown.status, 404);
    assert!(message(&unknown).contains("there is `chat`"), "{:?}", unknown.body);
    let wrong = send(&gateway, Method::POST, SIZING, &json!({})).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, "GET, HEAD, PUT"));
    assert_eq!(gateway.status().await["deployments"][0]["sizing"]["min"]["from"], "default");
}

#[tokio::test]
async fn m3_a_top_up_counts_exactly_and_holds_over_a_kill() {
    let mut gateway = idle().await;
    let answer = send(&gateway, Method::POST, "/credit", &json!({"amount": 0.3})).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    for round in 0..2 {
        let credit = send(&gateway, Method::GET, "/credit", &Value::Null).await.json();
        let expected = json!({"configured": 100.5, "added": 0.3, "left": 100.8, "unsaved": null});
        assert_eq!(credit, expected, "round {round}");
        kill(&mut gateway).await;
    }
    for amount in [json!(0), json!("5"), json!(1e9), json!(null)] {
        let answer = send(&gateway, Method::POST, "/credit", &json!({"amount": amount})).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["param"].as_str()),
            (400, Some("amount")),
            "{amount}"
        );
    }
}

#[tokio::test]
async fn e1_past_decisions_are_told_over_restarts_newest_first() {
    let mut gateway = idle().await;
    send(&gateway, Method::PUT, SIZING, &json!({"min": 1})).await;
    gateway.ready_replicas(1).await;
    let past = "/deployments/chat/decisions";
    let reasons = |answer: Answer| -> Vec<String> {
        let answer = answer.json();
        let decisions = answer["decisions"].as_array().expect("a list").iter();
        decisions.map(|one| one["reason"].as_str().expect("a reason").to_owned()).collect()
    };
    let before = reasons(send(&gateway, Method::GET, past, &Value::Null).await);
    assert!(before.contains(&"below_min".to_owned()), "{before:?}");
    kill(&mut gateway).await;
    let after = reasons(send(&gateway, Method::GET, past, &Value::Null).await);
    assert!(after.ends_with(&before), "{after:?} after {before:?}");
    assert_eq!(reasons(send(&gateway, Method::GET, &format!("{past}?limit=1"), &Value::Null).await).len(), 1);
    for query in ["limit=0", "limit=x", "limit=5001", "since=3"] {
        let answer = send(&gateway, Method::GET, &format!("{past}?{query}"), &Value::Null).await;
        assert!(message(&answer).contains("limit=N with N from 1 to 5000"), "{query}");
    }
}

#[tokio::test]
async fn a_fixed_fleet_keeps_its_size_and_without_credit_none_is_added() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let answer = send(&gateway, Method::PUT, SIZING, &json!({"min": 1})).await;
    assert_eq!(answer.status, 409);
    assert!(message(&answer).contains("are fixed by the configuration"));
    let answer = send(&gateway, Method::POST, "/credit", &json!({"amount": 5})).await;
    assert_eq!(answer.status, 409);
    assert!(message(&answer).contains("budget.credit"));
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let gateway = idle().await;
    let body = json!({"amount": 5}).to_string();
    for header in [("origin", "https://elsewhere.example"), ("host", "rebound.example")] {
        let answer = Client::h1(gateway.admin).send(Method::POST, "/credit", &[header], body.clone()).await;
        assert_eq!(answer.status, if header.0 == "host" { 421 } else { 403 });
    }
    assert_eq!(send(&gateway, Method::GET, "/credit", &Value::Null).await.json()["added"], 0);
}

#[tokio::test]
async fn a1_what_was_tuned_is_the_target_until_another_is_set() {
    let deployment = Deployment::named("chat").engine(&["--model", "chat"]).set("max", 2);
    let mut gateway = Gateway::launch(Config::of(deployment)).await;
    let put = async |gateway: &Gateway, body: Value| {
        send(gateway, Method::PUT, "/deployments/chat/tuned", &body).await
    };
    let curve = json!([{"concurrency": 8, "rate": 100}, {"concurrency": 24, "rate": 220}]);
    let answer = put(&gateway, json!({"target": 24, "kind": "L4", "curve": curve})).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    kill(&mut gateway).await;
    let answer = send(&gateway, Method::GET, "/deployments/chat/tuned", &Value::Null).await.json();
    let tuned = &answer["tuned"];
    assert_eq!(
        (&tuned["curve"], &tuned["in_force"], &tuned["model"]),
        (&curve, &true.into(), &"chat".into())
    );
    let target = gateway.status().await["deployments"][0]["sizing"]["target_concurrency"].clone();
    assert_eq!(
        (&target["value"], &target["from"], &target["on"]),
        (&24.into(), &"tuned".into(), &"L4".into())
    );
    send(&gateway, Method::PUT, SIZING, &json!({"target_concurrency": 9})).await;
    assert_eq!(
        send(&gateway, Method::GET, "/deployments/chat/tuned", &Value::Null).await.json()["tuned"]["in_force"],
        false
    );
    for (body, part) in [
        (json!({"target": 24}), "missing field `kind`"),
        (json!({"target": 0, "kind": "L4", "curve": []}), "target_concurrency is 0, but must be"),
        (json!({"target": 4, "kind": "", "curve": []}), "kind has 0 characters"),
        (json!({"target": 4, "kind": "L4", "curve": [], "model": "x"}), "model is x, but must be the model"),
    ] {
        let answer = put(&gateway, body).await;
        let text = answer.json()["error"]["message"].to_string();
        assert!(answer.status == 400 && text.contains(part), "{text}");
    }
}
