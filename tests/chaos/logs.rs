//! Logs that cannot be written: nobody reads them, nobody is there any more, the disk is full, the file was moved away.
//! Requests are served all the same.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::stub::Stub;
use tokio::process::Command;

use crate::CHAT;

/// Requests that are served while each is logged at the most talkative level: more than a pipe holds.
const REQUESTS: usize = 200;

fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// A gateway whose standard error is `log` is served by, and ends in peace.
async fn serves(log: impl Into<Stdio>) {
    let stub = Stub::with(reply).await;
    let dir = tempfile::TempDir::with_prefix("tidegate-test-").expect("a folder");
    let (listen, admin) = (free_port(), free_port());
    let config = Config::of(Deployment::chat([&stub])).set("log.level", "trace").set("log.access", "off");
    let text = config.render(dir.path(), listen.port(), admin.port());
    std::fs::write(dir.path().join("tidegate.toml"), text).expect("write the configuration");
    let program = tokio::task::spawn_blocking(binary).await.expect("the binary");
    let mut command = Command::new(program);
    command.arg("serve").current_dir(dir.path()).stdin(Stdio::null()).stderr(log).kill_on_drop(true);
    let mut child = command.spawn().expect("start it");
    let body = chat("chat", "hi");
    eventually("it serves", async || {
        if let Some(status) = child.try_wait().expect("wait") {
            panic!("it ended: {status}");
        }
        match Client::h1(listen).attempt(Method::POST, CHAT, body.to_string()).await {
            Some(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for _ in 0..REQUESTS {
        assert_eq!(within("an answer", Client::h1(listen).post(CHAT, &body)).await.status, 200);
    }
    let page = within("the metrics", Client::h1(admin).get("/metrics")).await;
    let text = String::from_utf8_lossy(&page.body);
    let panicked = text.lines().find(|line| line.starts_with(metric::PANICS));
    assert!(panicked.is_none_or(|line| line.ends_with(" 0")), "{panicked:?}");
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    kill_process(pid.expect("it runs"), Signal::TERM).expect("signal");
    let status = within("it ends", child.wait()).await.expect("wait");
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn e4_a_log_that_nobody_reads_holds_up_no_request() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    serves(writer).await;
    drop(reader);
}

#[tokio::test]
async fn e4_a_log_whose_reader_has_gone_stops_nothing() {
    let (_, writer) = std::io::pipe().expect("a pipe");
    serves(writer).await;
}

#[tokio::test]
async fn e4_a_log_on_a_full_disk_stops_nothing() {
    serves(std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it")).await;
}

#[tokio::test]
async fn e4_an_access_log_that_is_moved_away_is_made_anew() {
    let stub = Stub::with(reply).await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub])).set("log.access", "access.log")).await;
    let (path, moved) = (gateway.dir().join("access.log"), gateway.dir().join("access.log.1"));
    for count in 1..=3 {
        assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200);
        eventually("a line, in the file of that name", async || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.lines().count() == 1 { Ok(()) } else { Err(format!("{count}: {text}")) }
        })
        .await;
        std::fs::rename(&path, &moved).expect("moved");
    }
}
