//! The table of descriptors fills up: by clients, who then wait their turn while those that are connected are served;
//! by connections to replicas, for which no replica is to blame.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use tidegate_tests::client::{Client, Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::Script;
use tidegate_tests::stub::Stub;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::CHAT;
use crate::fleet::descriptors;
use crate::limited::Limited;

/// The address in a line of the log: `… {before}{address} …`.
fn address(line: &str, before: &str) -> SocketAddr {
    let rest = line.split_once(before).expect("an address").1;
    rest.split([';', '/', ' ']).next().and_then(|text| text.parse().ok()).expect("an address")
}

#[tokio::test]
async fn h6_clients_that_fill_the_table_take_no_descriptor_from_requests() {
    let stub = Stub::start().await;
    let mut gateway = Limited::start(&stub, "-n 160").await;
    let serving = gateway.until("serving on").await;
    let (listen, admin) = (address(&serving, "serving on http://"), address(&serving, "status on http://"));
    gateway.until("is ready").await;
    let mut early = Raw::connect(listen).await;
    early.send("GET /livez HTTP/1.1\r\nhost: tidegate\r\n\r\n").await;
    let head = early.head().await.expect("an answer");
    early.body(&head).await.1.expect("a body");
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(Raw::connect(listen).await);
    }
    gateway.until("new clients wait").await;
    let body = chat("chat", "hi").to_string();
    early.send(post(CHAT, &[&format!("content-length: {}", body.len())]) + &body).await;
    assert_eq!(early.head().await.expect("an answer").status(), 200, "who is in is served");
    assert_eq!(Client::h1(admin).get("/status").await.status, 200, "and so is the operator");
    let late = tokio::spawn(async move { Client::h1(listen).post(CHAT, &chat("chat", "late")).await });
    drop(crowd);
    assert_eq!(within("room again", late).await.expect("an answer").status, 200, "the others wait");
}

type Answer = JoinHandle<Result<Response<hyper::body::Incoming>, hyper::Error>>;

/// Sends a request over a connection that is there already.
fn ask(sender: &SendRequest<Full<Bytes>>, to: SocketAddr, text: &str) -> Answer {
    let request = Request::post(format!("http://{to}{CHAT}")).header("content-type", "application/json");
    let request = request.body(Full::from(chat("chat", text).to_string())).expect("a request");
    let mut sender = sender.clone();
    tokio::spawn(async move { sender.send_request(request).await })
}

/// The status of an answer and the code of the error in it.
async fn refusal(answer: Answer) -> (u16, Value) {
    let answer = within("an answer", answer).await.expect("it runs").expect("an answer");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice::<Value>(&body).expect("JSON")["error"]["code"].clone())
}

#[tokio::test]
async fn r5_no_replica_is_blamed_for_a_full_table() {
    let stub = Stub::with(|_| Script::new().stall()).await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]).set("concurrency_limit", 1000))).await;
    let stream = within("a connection", TcpStream::connect(gateway.address)).await.expect("connect");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("h2");
    let mut connections = JoinSet::new();
    connections.spawn(async move { drop(connection.await) });
    let mut running = vec![ask(&sender, gateway.address, "first")];
    stub.request(0).await;
    let limit = getrlimit(Resource::Nofile);
    let few = Rlimit { current: Some(descriptors(&gateway) as u64 + 4), ..limit };
    prlimit(gateway.pid(), Resource::Nofile, few).expect("a lower limit");
    let refused = loop {
        let mut answer = ask(&sender, gateway.address, "one more");
        tokio::select! {
            _ = stub.request(running.len()) => running.push(answer),
            early = &mut answer => break tokio::spawn(async { early.expect("it runs") }),
        }
        assert!(running.len() < 100, "the limit is reached");
    };
    assert_eq!(refusal(refused).await, (503, "no_socket".into()));
    // A suspect would get no request, and this one would wait for it.
    assert_eq!(refusal(ask(&sender, gateway.address, "again")).await, (503, "no_socket".into()));
    prlimit(gateway.pid(), Resource::Nofile, limit).expect("the limit as it was");
    stub.on_work(reply);
    assert_eq!(
        within("an answer", ask(&sender, gateway.address, "after")).await.unwrap().unwrap().status(),
        200
    );
    running.iter().for_each(Answer::abort);
    gateway.assert_idle().await;
    eventually("its descriptors are closed", async || match descriptors(&gateway) {
        now if now <= 64 => Ok(()),
        now => Err(now.to_string()),
    })
    .await;
    assert!(!gateway.log().contains("does not answer"), "{}", gateway.log());
}
