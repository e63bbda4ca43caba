//! What people paste does what it says, and an installed llama.cpp is used.

use std::fs;
use std::process::{Command, Output};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::{HelloError, banner, hello, prepare_in};
use super::{World, heard};

fn shell(world: &World, line: &str) -> String {
    let path = world.place().search;
    let output: Output = Command::new("sh")
        .args(["-c", line])
        .env("PATH", path)
        .env("PYTHONPATH", world.programs())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_banner_is_two_lines_for_a_shell_and_one_for_a_browser() {
    let world = World::new();
    world.program("curl", "for part; do last=$part; done; echo \"$2 $last\"");
    let openai = "\
class OpenAI:
    def __init__(self, base_url, api_key):
        self.base_url = base_url
        self.chat = self.completions = self
    def create(self, model, messages):
        self.message, self.choices = self, [self]
        self.content = f'{self.base_url} {model} {messages[0][\"content\"]}'
        return self
";
    fs::write(world.programs().join("openai.py"), openai).unwrap();
    let text = banner("http://127.0.0.1:8080", "http://127.0.0.1:8081");
    let lines: Vec<&str> = text.lines().collect();
    let [_, curl, _, _, sdk, _, _, status] = lines[..] else { panic!("{text}") };

    let sent = shell(&world, curl);
    let (url, body) = sent.split_once(' ').unwrap();
    assert_eq!(url, "http://127.0.0.1:8080/v1/chat/completions");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["model"], "smollm2");
    assert_eq!(body["messages"][0]["role"], "user");
    assert_eq!(shell(&world, sdk), "http://127.0.0.1:8080/v1 smollm2 What is a tide?\n");
    assert_eq!(status, "http://127.0.0.1:8081/");
}

#[tokio::test]
async fn llama_server_on_path_is_used_with_the_fetched_model() {
    let world = World::new();
    world.program("llama-server", "exit 0");
    let (progress, lines) = heard();
    let engine = prepare_in(&world.place(), &world.pins(), &progress).await.unwrap();
    assert_eq!(engine.command[0], world.programs().join("llama-server").display().to_string());
    assert!(engine.command.contains(&world.model().display().to_string()));
    assert!(engine.command.contains(&"{port}".to_owned()));
    let said = lines.lock().unwrap().join("\n");
    assert!(said.contains("tidemodel") && !said.contains("tideengine"), "{said}");
}

/// Answers one request on one connection.
async fn answers(answer: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            stream.read_buf(&mut request).await.unwrap();
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    address
}

#[tokio::test]
async fn the_first_chat_tells_answer_replica_and_route() {
    let address = answers(
        "HTTP/1.1 200 OK\r\nx-tidegate-replica: smollm2-1\r\nx-tidegate-route: placed\r\nconnection: close\r\n\r\n\
         {\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\" The sea, moving. \"}}]}",
    );
    let answer = hello(address.await).await.unwrap();
    assert_eq!(
        (&*answer.text, &*answer.replica, &*answer.route),
        ("The sea, moving.", "smollm2-1", "placed")
    );
}

#[tokio::test]
async fn the_first_chat_shows_a_refusal_and_a_cut() {
    let refused = answers("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nfull").await;
    let error = hello(refused).await.unwrap_err();
    assert!(
        matches!(&error, HelloError::Refused { status, body } if *status == 503 && body == "full"),
        "{error}"
    );
    let cut = answers("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{").await;
    let error = hello(cut).await.unwrap_err();
    assert!(matches!(error, HelloError::Broken { .. }), "{error}");
}
