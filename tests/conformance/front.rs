//! A common proxy in front of the gateway, set up as it comes, buffers nothing of a stream (C-011): it is told not to.

use std::path::Path;
use std::process::Stdio;

use tidegate_tests::client::Client;
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat_stream, delta};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::sdk;
use tidegate_tests::stub::Stub;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::{CHAT, serve};

/// Starts nginx in front of the gateway with nothing set that has to do with buffering; `None`, said aloud, where there
/// is none.
async fn nginx(gateway: &Gateway, folder: &Path) -> Option<(Child, Client)> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
    let Some(program) = program.into_iter().find(|program| Path::new(program).exists()) else {
        sdk::missing("nginx (tests/setup.sh installs it)");
        return None;
    };
    let port =
        TcpListener::bind("127.0.0.1:0").await.and_then(|free| free.local_addr()).expect("a free port");
    let here = folder.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String = paths.iter().map(|name| format!("{name}_temp_path {here}/{name};\n")).collect();
    let text = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {here}/pid;\nerror_log {here}/error.log;\n\
         events {{}}\nhttp {{\naccess_log off;\n{paths}server {{\nlisten {port};\nlocation / {{\n\
         proxy_pass http://{};\nproxy_http_version 1.1;\n}}\n}}\n}}\n",
        gateway.address
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).expect("write its configuration");
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(&file).arg("-e").arg(folder.join("error.log"));
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().expect("nginx");
    let client = Client::h1(port);
    eventually("nginx listens", async || {
        tokio::net::TcpStream::connect(port).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    Some((child, client))
}

#[tokio::test]
async fn c_011_each_event_comes_through_a_proxy_that_buffers_by_default() {
    let gate = Gate::closed();
    let mut script = Script::sse();
    for index in 0..20 {
        script = script.wait(&gate).event(&delta(&index.to_string()));
    }
    let script = script.wait(&gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let gateway = serve(&[&stub]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_nginx, client)) = nginx(&gateway, folder.path()).await else { return };
    // The head is there before the first event is written, and each event before the next.
    let mut stream = client.stream(CHAT, &chat_stream("chat", "hi")).await;
    assert_eq!((stream.status, stream.header("content-type")), (200, "text/event-stream"));
    assert!(stream.header("server").contains("nginx"), "{:?}", stream.headers);
    for index in 0..20 {
        gate.pass();
        assert_eq!(stream.event().await, Some(format!("data: {}\n\n", delta(&index.to_string()))));
    }
    gate.pass();
    assert_eq!(stream.event().await.as_deref(), Some("data: [DONE]\n\n"));
    assert_eq!(stream.event().await, None);
    gateway.assert_idle().await;
}
