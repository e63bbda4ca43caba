//! The records file, seen from outside: a file that goes, is replaced, is emptied or holds a bad row is told where an
//! operator looks, and what was set is lost to nobody who was told that it is saved.

use std::fs;
use std::path::PathBuf;

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::{Gateway, binary};
use tokio::process::Command;

const SIZING: &str = "/deployments/chat/sizing";

async fn idle() -> Gateway {
    let deployment = Deployment::named("chat").engine(&["--model", "chat"]).set("max", 3);
    Gateway::launch(Config::of(deployment).set("budget.credit", 100.5)).await
}

fn file(gateway: &Gateway) -> PathBuf {
    gateway.dir().join("state/.tidegate.db")
}

async fn send(gateway: &Gateway, method: Method, path: &str, body: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    Client::h1(gateway.admin).send(method, path, &json, body.to_string()).await
}

async fn unsaved(gateway: &Gateway, path: &str) -> Value {
    Client::h1(gateway.admin).get(path).await.json()["unsaved"].clone()
}

/// Runs SQL on the file of a gateway that does not run.
async fn sql(gateway: &Gateway, text: &str) {
    let program =
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.commit()";
    let mut python = Command::new("python3");
    let done = python.args(["-c", program]).arg(file(gateway)).arg(text).status().await.expect("python3");
    assert!(done.success(), "{text}");
}

#[tokio::test]
async fn what_is_told_as_saved_holds_though_the_file_was_deleted_while_the_gateway_ran() {
    let mut gateway = idle().await;
    assert_eq!(send(&gateway, Method::PUT, SIZING, &json!({"min": 0, "max": 2})).await.status, 200);
    assert_eq!(send(&gateway, Method::POST, "/credit", &json!({"amount": 25.5})).await.status, 200);
    for ending in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{ending}", file(&gateway).display())).expect("a file of the records");
    }
    assert_eq!(unsaved(&gateway, "/credit").await, Value::Null, "it is made anew");
    let answer = send(&gateway, Method::PUT, SIZING, &json!({"target_concurrency": 5})).await;
    assert_eq!(answer.json()["unsaved"], Value::Null);

    gateway.kill();
    gateway.restart().await;
    let chat = gateway.status().await["deployments"][0].clone();
    let set = |key: &str| (chat["sizing"][key]["value"].clone(), chat["sizing"][key]["from"].clone());
    assert_eq!((set("max"), set("target_concurrency")), ((2.into(), "set".into()), (5.into(), "set".into())));
    assert_eq!(Client::h1(gateway.admin).get("/credit").await.json()["added"], 25.5);
}

#[tokio::test]
async fn m3_what_is_not_on_the_disk_is_told_to_who_only_looks_and_costs_the_exit_code() {
    let mut gateway = idle().await;
    let path = file(&gateway);
    fs::rename(&path, gateway.dir().join("away.db")).expect("move it away");
    fs::write(&path, "another file").expect("another one");
    let told = "another file lies there since";
    let answer = send(&gateway, Method::POST, "/credit", &json!({"amount": 5})).await.json();
    assert!(answer["unsaved"].as_str().is_some_and(|why| why.starts_with(told)), "{answer}");
    for path in ["/credit", SIZING, "/deployments/chat/tuned"] {
        let why = unsaved(&gateway, path).await;
        assert!(why.as_str().is_some_and(|why| why.starts_with(told)), "{path}: {why}");
    }
    let status = gateway.status().await;
    let problem = status["records"]["problem"].as_str().unwrap_or_default().to_owned();
    assert!(problem.contains(told) && problem.contains("a top-up of the credit"), "{status}");

    gateway.terminate();
    let exit = gateway.ended().await;
    assert_eq!(exit.code(), Some(1));
    let last = eventually("its last words", async || {
        let log = gateway.log();
        log.lines().find(|line| line.starts_with("error: ")).map(str::to_owned).ok_or(log)
    })
    .await;
    for part in ["does not hold everything: another file", "lost with this process: a top-up of the credit"] {
        assert!(last.contains(part), "{part} in {last}");
    }
}

#[tokio::test]
async fn a_file_that_was_emptied_keeps_the_gateway_from_starting() {
    let mut gateway = idle().await;
    gateway.kill();
    gateway.ended().await;
    fs::write(file(&gateway), "").expect("empty it");
    let mut serve = Command::new(binary());
    serve.args(["serve", "--config"]).arg(gateway.dir().join("tidegate.toml")).current_dir(gateway.dir());
    let output = serve.output().await.expect("run `tidegate serve`");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("are damaged: it is empty"), "{text}");
    assert_eq!(output.status.code(), Some(1));

    fs::remove_file(file(&gateway)).expect("move it away");
    gateway.restart().await;
}

#[tokio::test]
async fn e1_bad_rows_are_told_with_their_table_and_key_and_good_ones_are_there() {
    let mut gateway = idle().await;
    assert_eq!(send(&gateway, Method::PUT, SIZING, &json!({"max": 2, "min": 1})).await.status, 200);
    gateway.ready_replicas(1).await;
    gateway.kill();
    gateway.ended().await;
    sql(
        &gateway,
        "UPDATE setting SET value = '{x' WHERE key = 'max'; UPDATE setting SET key = 'mon' WHERE key = 'min';
         UPDATE decision SET body = CAST(x'7b22ff22' AS TEXT) WHERE id = 1;",
    )
    .await;
    gateway.restart().await;
    let past = Client::h1(gateway.admin).get("/deployments/chat/decisions").await;
    assert_eq!(past.status, 200, "{:?}", past.body);
    assert!(past.json()["decisions"].as_array().is_some_and(|found| !found.is_empty()), "{:?}", past.body);
    let status = gateway.status().await;
    let earlier = |decision: &Value| decision["text"].as_str().is_some_and(|text| text.contains("min is 1"));
    let decisions = status["deployments"][0]["decisions"].as_array().cloned().unwrap_or_default();
    assert!(decisions.iter().any(earlier), "what the earlier run decided is told: {decisions:?}");
    let records = status["records"].clone();
    let problem = records["problem"].as_str().unwrap_or_default();
    for part in ["setting chat max: ", "setting chat mon: there is no such setting", "decision chat 1: "] {
        assert!(problem.contains(part), "{part} in {records}");
    }
    assert_eq!(records["trouble"], Value::Null, "it can be written");
}
