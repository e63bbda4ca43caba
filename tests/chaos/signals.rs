//! SIGTERM, SIGINT and SIGHUP: what runs is finished, then the engines are stopped and nothing is left; a second signal
//! cuts what runs, a third ends it where it stands. Nothing else holds up the end.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tidegate_tests::client::{Raw, Stream};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::{chat, chat_stream, delta};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::CHAT;
use crate::fleet::{Fleet, brief, engines, long};

/// Engines that take a while over an answer.
const SLOW: &[&str] = &["--model", "chat", "--load-time", "0s", "--step-us", "20000"];

fn hangup_is_ignored() -> bool {
    let status = procfs::process::Process::myself().and_then(|myself| myself.status()).expect("/proc");
    status.sigign & 1 != 0
}

/// Reads a stream to its end; the last event.
async fn last(mut stream: Stream) -> String {
    let mut last = String::new();
    while let Some(event) = stream.event().await {
        last = event;
    }
    last
}

#[tokio::test]
async fn what_runs_is_finished_and_nothing_is_left() {
    for signal in ["SIGTERM", "SIGINT", "SIGHUP"] {
        // Who is started with it ignored (`nohup`) passes that on, and the gateway then outlives its terminal as it should.
        if signal == "SIGHUP" && hangup_is_ignored() {
            continue;
        }
        let mut fleet = Fleet::launch(
            engines(SLOW).set("min", 1).set("max", 1).set("concurrency_limit", 2).set("queue.headroom", "5m"),
        )
        .await;
        fleet.settled(1).await;
        let mut streams = [fleet.chat(&long("h1", 80)).await, fleet.h2().stream(CHAT, &long("h2", 80)).await];
        for stream in &mut streams {
            assert!(stream.event().await.is_some(), "it runs");
        }
        let client = fleet.client();
        let waiting = tokio::spawn(async move { client.post(CHAT, &brief("in the queue")).await });
        fleet.queued(1).await;
        let idle = tidegate_tests::client::Raw::connect(fleet.address).await;
        match signal {
            "SIGTERM" => fleet.terminate(),
            "SIGHUP" => fleet.hang_up(),
            _ => fleet.interrupt(),
        }
        for stream in streams {
            assert_eq!(last(stream).await, "data: [DONE]\n\n", "{signal}");
        }
        assert_eq!(waiting.await.expect("an answer").status, 200, "{signal}: also what was in the queue");
        assert_eq!(fleet.ended().await.code(), Some(0), "{signal}");
        assert_eq!(fleet.engines(), [], "{signal}: nothing is left");
        drop(idle);
    }
}

/// Waits for a line of the gateway's log.
async fn says(fleet: &Gateway, what: &str) {
    eventually(what, async || {
        let log = fleet.log();
        log.contains(what).then_some(()).ok_or(log)
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_cuts_what_runs_and_a_third_leaves_at_once() {
    // An engine whose shell does not stop for as long as the gateway has patience.
    let engine = format!(
        "trap '' TERM; {} engine --port {{port}} {} & wait; exec sleep 600",
        binary().display(),
        SLOW.join(" ")
    );
    let deployment =
        Deployment::named("chat").process(&["/bin/sh", "-c", &engine]).set("min", 1).set("max", 1);
    let mut fleet = Fleet::launch(deployment).await;
    fleet.ready_replicas(1).await;
    let mut stream = fleet.chat(&long("for ever", 8000)).await;
    assert!(stream.event().await.is_some());
    fleet.terminate();
    says(&fleet, "stopping: running requests are finished").await;
    fleet.interrupt();
    says(&fleet, "a third signal leaves at once").await;
    stream.cut().await;
    fleet.interrupt();
    assert!(fleet.ended().await.success());
    assert!(!fleet.engines().is_empty(), "it did not wait for the engine");
}

#[tokio::test]
async fn h4_what_a_second_signal_cuts_is_not_put_down_to_its_client() {
    let gate = Gate::closed();
    let script = Script::sse().event(&delta("a")).stall();
    let silent = Script::new().wait(&gate);
    let stub = Stub::with(move |request| match request.json()["stream"] == true {
        true => script.clone(),
        false => silent.clone(),
    })
    .await;
    let mut gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let mut stream = gateway.chat(&chat_stream("chat", "hi")).await;
    assert!(stream.event().await.is_some());
    let waits = Raw::posted(gateway.address, CHAT, &chat("chat", "hi").to_string()).await;
    gateway.in_flight(2).await;
    gateway.terminate();
    says(&gateway, "stopping: running requests are finished").await;
    // Status and log say what is left, and until when it may run.
    says(&gateway, "stopping: no new connection is taken; 2 requests are left, and what runs in ").await;
    let stopping = gateway.status().await["stopping"].clone();
    assert_eq!(
        (&stopping["left"], stopping["cut_in_s"].as_f64() > Some(60.0)),
        (&json!(2), true),
        "{stopping}"
    );
    gateway.interrupt();
    stream.cut().await;
    assert!(gateway.ended().await.success());
    drop(waits);
    for (stream, status) in [(true, 200), (false, 503)] {
        let found = gateway.access_line("its line", |line| {
            (line["stream"] == stream).then(|| (line["status"].clone(), line["outcome"].clone()))
        });
        assert_eq!(found.await, (json!(status), json!("gateway_stopped")), "{}", gateway.printed());
    }
}

#[tokio::test]
async fn a_second_signal_asks_the_engines_to_stop() {
    let mut fleet = Fleet::launch(engines(SLOW).set("min", 2).set("max", 2)).await;
    fleet.settled(2).await;
    let mut stream = fleet.chat(&long("for ever", 8000)).await;
    assert!(stream.event().await.is_some());
    fleet.terminate();
    says(&fleet, "stopping: running requests are finished").await;
    fleet.interrupt();
    fleet.ended().await;
    assert_eq!(fleet.engines(), [], "nothing is left");
}

#[tokio::test]
async fn an_access_log_that_nobody_reads_does_not_hold_up_the_end() {
    let dir = tempfile::TempDir::with_prefix("tidegate-test-").expect("a folder");
    let stub = Stub::start().await;
    let text = Config::of(Deployment::chat([&stub])).render(dir.path(), 0, 0);
    std::fs::write(dir.path().join("tidegate.toml"), text).expect("write the configuration");
    let program = tokio::task::spawn_blocking(binary).await.expect("the binary");
    let mut command = Command::new(program);
    command
        .arg("serve")
        .current_dir(dir.path())
        .kill_on_drop(true)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("start it");
    let mut log = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let line = within("it serves", log.next_line()).await.expect("a line").expect("it runs");
    let address = line.split_once("serving on http://").and_then(|(_, rest)| rest.split_once(';'));
    let address = address.and_then(|(address, _)| address.parse().ok()).expect("an address");
    let mut raw = Raw::connect(address).await;
    // Far more than a pipe takes.
    for index in 0..500 {
        let id = format!("{index:0>120}");
        raw.send(format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\n\r\n")).await;
        let head = raw.head().await.expect("an answer");
        raw.body(&head).await.1.expect("a body");
    }
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
    kill_process(pid, Signal::TERM).expect("signal");
    assert!(within("it ends", child.wait()).await.expect("wait").success());
}

#[tokio::test]
async fn h6_connections_that_have_said_nothing_do_not_hold_up_the_end() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.header_read", "10m");
    let mut gateway = Gateway::start(config).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(Raw::connect(gateway.address).await);
    }
    // What was accepted behind them is answered.
    for _ in 0..8 {
        assert_eq!(gateway.client().get("/livez").await.status, 200);
    }
    gateway.terminate();
    assert_eq!(gateway.ended().await.code(), Some(0));
    for mut raw in silent {
        assert!(raw.head().await.is_none());
    }
}
