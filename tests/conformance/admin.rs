//! The operator's side, seen from outside: the page for people, what else is there, and who is not answered.

use std::path::Path;

use hyper::Method;
use serde_json::Value;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::chat;
use tidegate_tests::stub::Stub;
use tokio::process::Command;

use super::why::QUICK;
use crate::CHAT;

use super::serve;

#[tokio::test]
async fn e1_the_status_page_runs_only_its_own_script() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let page = Client::h1(gateway.admin).get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.body.starts_with(b"<!doctype html>"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn e1_the_status_tells_what_the_page_shows() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    gateway.ready_replicas(1).await;
    let status = gateway.status().await;
    let replica = &status["deployments"][0]["replicas"][0];
    assert_eq!((&replica["id"], &replica["phase"]), (&"chat-1".into(), &"ready".into()), "{status}");
    assert_eq!((&replica["in_flight"], &replica["limit"]), (&0.into(), &40.into()), "Q1: {status}");
}

/// Requests come and go all the time, several between two evaluations.
#[tokio::test]
async fn e1_the_decision_in_the_status_agrees_with_the_figures_beside_it() {
    let deployment = Deployment::named("chat").engine(QUICK).set("min", 1).set("max", 1);
    let gateway = Gateway::launch(Config::of(deployment.set("rule", "concurrency"))).await;
    gateway.ready_replicas(1).await;
    let clients: Vec<_> = (1..=6)
        .map(|tokens| {
            let client = gateway.client();
            tokio::spawn(async move {
                let mut body = chat("chat", "hi");
                body["max_tokens"] = (tokens * 7).into();
                loop {
                    client.post(CHAT, &body).await;
                }
            })
        })
        .collect();
    let admin = Client::h1(gateway.admin);
    for _ in 0..300 {
        let status = admin.get("/status").await.json();
        let chat = &status["deployments"][0];
        let decision = &chat["decision"];
        let figure = |of: &Value, name: &str| of[name].as_u64().expect(name);
        let here = ["in_flight", "queued", "promised"].map(|name| figure(chat, name));
        assert_eq!(figure(decision, "demand"), here.iter().sum::<u64>(), "{chat}");
        assert_eq!(decision["queued"], chat["queued"], "{chat}");
        assert!(decision["age_s"].as_f64().is_some_and(|age| age >= 0.0), "{chat}");
    }
    clients.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_unknown_path_is_told_what_there_is() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/state", "/v1/chat/completions"] {
        let answer = Client::h1(gateway.admin).get(path).await;
        assert_eq!(answer.status, 404);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains(path) && text.contains("/status") && text.contains("/metrics"), "{text}");
    }
}

#[tokio::test]
async fn the_admin_side_is_only_read() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/", "/status", "/metrics", "/livez"] {
        let head = Client::h1(gateway.admin).send(Method::HEAD, path, &[], "").await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        for method in [Method::POST, Method::DELETE] {
            let answer = Client::h1(gateway.admin).send(method, path, &[], "{}").await;
            assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{path}");
        }
    }
}

/// A page of another site cannot read the status by having its own name point here.
#[tokio::test]
async fn a_rebound_name_is_not_answered() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for path in ["/", "/status", "/metrics", "/nowhere"] {
        let answer =
            Client::h1(gateway.admin).send(Method::GET, path, &[("host", "rebound.example")], "").await;
        assert_eq!(answer.status, 421, "{path}");
    }
    let answer =
        Client::h1(gateway.admin).send(Method::GET, "/status", &[("host", "localhost:8081")], "").await;
    assert_eq!(answer.status, 200);
}

/// Runs the binary in `folder`; gives whether it succeeded, and what it printed.
async fn run(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(binary()).current_dir(folder).args(arguments).output().await.expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

#[tokio::test]
async fn e1_commands_find_the_admin_port_by_the_configuration() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let (here, elsewhere) = (gateway.dir(), tempfile::tempdir().expect("a folder"));
    let file = here.join("tidegate.toml").display().to_string();
    for command in [&["status"][..], &["why", "chat"], &["route", "-m", "chat", "hi"]] {
        let (done, text) = run(here, command).await;
        assert!(done && text.contains("chat"), "by ./tidegate.toml: {text}");
        let named = [command, &["--config", &file]].concat();
        let (done, text) = run(elsewhere.path(), &named).await;
        assert!(done && text.contains("chat"), "by the file that is named: {text}");
    }
    let broken = elsewhere.path().join("tidegate.toml");
    std::fs::write(&broken, format!("admin = \"{}\"\nnonsense = 1\n", gateway.admin)).expect("a file");
    let (done, text) = run(elsewhere.path(), &["status"]).await;
    assert!(done, "faults elsewhere in the file are none of its business: {text}");
    std::fs::write(&broken, "admin = 8081\n").expect("a file");
    let (done, text) = run(elsewhere.path(), &["status"]).await;
    assert!(!done && text.starts_with("tidegate.toml:1: admin = 8081: must be "), "{text}");
    std::fs::write(&broken, "admin = \"127.0.0.1:0\"\n").expect("a file");
    let (done, text) = run(elsewhere.path(), &["status"]).await;
    assert!(!done && text.contains("so the gateway chose a port"), "{text}");
    let (done, text) = run(elsewhere.path(), &["why", "chat", "-c", "none.toml"]).await;
    assert!(!done && text.starts_with("error: there is no none.toml\n"), "{text}");
}

#[tokio::test]
async fn e3_a_command_that_asks_the_port_for_requests_is_told_so() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let wrong = format!("--admin={}", gateway.address);
    for command in [&["status"][..], &["why", "chat"], &["route", "-m", "chat", "hi"]] {
        let (done, text) = run(gateway.dir(), &[command, &[&*wrong]].concat()).await;
        let expected = format!(
            "error: http://{} is where a gateway takes requests, and not its admin port\n",
            gateway.address
        );
        assert!(!done && text.starts_with(&expected) && text.contains("127.0.0.1:8081 unless set"), "{text}");
    }
    let answer = gateway.client().get("/status").await;
    let message = answer.json()["error"]["message"].to_string();
    assert!(
        answer.status == 404 && message.contains("another port, `admin` in the configuration"),
        "{message}"
    );
}
