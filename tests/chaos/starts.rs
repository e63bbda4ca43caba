//! Engines that do not start (C1, H4): clients are told at once that it is no use to wait, and the operator is told
//! why, in the status, on the command line and in the log.

use std::path::Path;

use serde_json::Value;
use tidegate_tests::client::Answer;
use tidegate_tests::config::Deployment;
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::gateway::binary;
use tidegate_tests::openai::assert_error_shape;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::fleet::{Fleet, engines};

/// A deployment whose replicas are a shell that runs `script`; it is told its port as `$0`.
fn shell(script: &str) -> Deployment {
    Deployment::named("chat")
        .process(&["/bin/sh", "-c", script, "{port}"])
        .set("min", 1)
        .set("queue.headroom", "200ms")
}

/// A deployment whose engines get a second to become ready.
fn slow(arguments: &[&str]) -> Deployment {
    engines(arguments).set("process.start_limit", "1s").set("min", 1).set("queue.headroom", "200ms")
}

/// The words that `tidegate status` prints.
async fn table(fleet: &Fleet) -> String {
    let mut command = Command::new(binary());
    command.args(["status", "--admin", &format!("http://{}", fleet.admin)]);
    let output = within("the status", command.output()).await.expect("run `tidegate status`");
    assert!(output.status.success(), "{output:?}");
    // It breaks long lines.
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Waits until the status names all of `parts` as the trouble, beside a pause that says how long it is.
async fn troubled(fleet: &Fleet, parts: &[&str]) -> String {
    fleet
        .until_status(&format!("the trouble says {parts:?}, and it backs off"), |chat| {
            let trouble = chat["trouble"].as_str()?;
            let reason = &chat["decision"]["reason"];
            (parts.iter().all(|part| trouble.contains(part)) && reason == "backing_off")
                .then(|| chat["decision"]["text"].as_str().unwrap_or_default().to_owned())
        })
        .await
}

#[track_caller]
fn assert_start_failed(answer: &Answer) {
    assert_refused(answer, "start_failed");
}

#[track_caller]
fn assert_refused(answer: &Answer, code: &str) {
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    let error = assert_error_shape(&answer.body);
    assert_eq!(error["code"], code, "{error}");
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    assert!(!error.to_string().contains("/bin/sh"), "clients learn nothing of the machine: {error}");
}

#[tokio::test]
async fn c1_an_engine_binary_that_is_missing() {
    let missing = "/nowhere/llama-server";
    let deployment = Deployment::named("chat").process(&[missing, "--port", "{port}"]);
    let fleet = Fleet::launch(deployment.set("min", 1).set("queue.headroom", "200ms")).await;
    assert_start_failed(&fleet.ask("hi").await);
    let why = troubled(&fleet, &[missing, "No such file"]).await;
    assert!(why.contains("fail") && why.contains(" s"), "{why}");
    let table = table(&fleet).await;
    assert!(table.contains(missing) && table.contains("No such file"), "{table}");
    let log = fleet.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(missing)), "{log}");
    assert_start_failed(&fleet.ask("again").await);
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c1_an_engine_that_ends_with_a_message() {
    let fleet = Fleet::launch(shell("echo loading; echo 'CUDA out of memory' >&2; exit 3")).await;
    assert_start_failed(&fleet.ask("hi").await);
    troubled(&fleet, &["exit status: 3", "loading\nCUDA out of memory"]).await;
    let table = table(&fleet).await;
    assert!(table.contains("CUDA out of memory"), "{table}");
    assert!(fleet.log().contains("CUDA out of memory"));
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c1_an_engine_that_never_gets_healthy() {
    let arguments = ["--model", "chat", "--load-time", "1h"];
    let deployment = slow(&arguments);
    let fleet = Fleet::launch(deployment).await;
    assert_start_failed(&fleet.ask("hi").await);
    troubled(&fleet, &["not ready within the start limit of 1s", "/health answers 503", "its last lines:\n"])
        .await;
    let pauses = |chat: &Value| {
        let words = chat["decision"]["text"].as_str()?.to_owned();
        words.contains("3 starts in a row have failed").then_some(())
    };
    fleet.until_status("a third failure", pauses).await;
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c1_an_engine_of_another_model() {
    let arguments = ["--model", "other", "--load-time", "0s"];
    let deployment = slow(&arguments);
    let fleet = Fleet::launch(deployment).await;
    assert_refused(&fleet.ask("hi").await, "other_model");
    troubled(&fleet, &["not ready within the start limit of 1s", "lists `other`, and not `chat`"]).await;
}

#[tokio::test]
async fn c_005_a_port_that_a_stranger_took() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display();
    let fleet = Fleet::launch(shell(&format!("echo $0 > {path}; exec tail -f /dev/null"))).await;
    let client = fleet.client();
    let asking = tokio::spawn(async move { client.post(crate::CHAT, &crate::fleet::brief("hi")).await });
    let mut strangers = Vec::new();
    let own = format!("process {}", std::process::id());
    eventually("the status names the stranger", async || {
        if let Some(port) = told(file.path()) {
            strangers.extend(TcpListener::bind(("127.0.0.1", port)).await.ok());
        }
        let status = fleet.status().await;
        let trouble = status["deployments"][0]["trouble"].as_str().unwrap_or_default();
        let named = trouble.contains("was taken by") && trouble.contains(&own);
        if named { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    eventually("the engine without a port is ended", async || {
        let ports: Vec<_> = strangers.iter().map(|one| one.local_addr().expect("address").port()).collect();
        let status = fleet.status().await;
        let shown = tidegate_tests::shown::replicas(&status);
        let wrong = shown.iter().any(|replica| replica["phase"] == "ready");
        assert!(!wrong, "a stranger's port is never ready: {status}");
        if fleet.engines().len() <= 1 {
            Ok(())
        } else {
            Err(format!("{:?} beside {ports:?}", fleet.engines()))
        }
    })
    .await;
    asking.abort();
}

/// The port that an engine wrote down.
fn told(path: &Path) -> Option<u16> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
