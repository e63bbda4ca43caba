//! Replicas that speak HTTP/2: many requests on one connection, and none is lost when the replica leaves it (C-115,
//! C-151).

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::{eventually, within};
use tidegate_tests::frames::{Act, Asked, Frames};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{self, Stub};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::CHAT;

/// One HTTP/2 connection to the gateway: all that is sent over it meets the same core, and so the same connections to
/// replicas.
struct OneCore {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl OneCore {
    async fn of(gateway: &Gateway) -> Self {
        let stream = TcpStream::connect(gateway.address).await.expect("connect");
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("handshake");
        tokio::spawn(async move { drop(connection.await) });
        Self { sender, authority: gateway.address.to_string() }
    }

    /// Posts a chat; gives the status and the body.
    fn post(&self, body: &Value) -> impl Future<Output = (u16, Bytes)> + use<> {
        let mut sender = self.sender.clone();
        let request = Request::post(format!("http://{}{CHAT}", self.authority))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a request");
        within("an answer", async move {
            let answer = sender.send_request(request).await.expect("an answer");
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.expect("a body").to_bytes())
        })
    }

    /// Posts so many chats at once; all must be answered with 200.
    async fn all_served(&self, count: usize) {
        let mut answers = JoinSet::new();
        for index in 0..count {
            answers.spawn(self.post(&chat("chat", &index.to_string())));
        }
        while let Some(answer) = answers.join_next().await {
            let (status, body) = answer.expect("an answer");
            assert_eq!(status, 200, "{body:?}");
        }
    }
}

async fn serve(replica: &Frames) -> Gateway {
    let deployment = Deployment::named("chat").replica(&replica.url(), 1).set("http2", true);
    Gateway::start(Config::of(deployment)).await
}

/// Answers each request as soon as it is there.
fn answer_all(here: &[Asked]) -> Vec<Act> {
    here.last().map(|last| Act::Answer(last.stream)).into_iter().collect()
}

/// How often each body was asked for.
fn times(replica: &Frames) -> Vec<usize> {
    let asked = replica.asked();
    let mut bodies: Vec<&Bytes> = asked.iter().map(|asked| &asked.body).collect();
    bodies.sort_unstable();
    bodies.chunk_by(|one, other| one == other).map(<[_]>::len).collect()
}

#[tokio::test]
async fn c_151_what_a_leaving_replica_has_not_taken_is_sent_again_once_on_a_new_connection() {
    let replica = Frames::start(None, |here| match here {
        // Ten are there: the first three are worked on, the others were never taken.
        [first, second, third, ..] if first.connection == 0 && here.len() == 10 => vec![
            Act::GoAway(third.stream),
            Act::Answer(first.stream),
            Act::Answer(second.stream),
            Act::Answer(third.stream),
        ],
        [.., last] if last.connection > 0 => vec![Act::Answer(last.stream)],
        _ => Vec::new(),
    })
    .await;
    let gateway = serve(&replica).await;
    OneCore::of(&gateway).await.all_served(10).await;
    let mut times = times(&replica);
    times.sort_unstable();
    assert_eq!(times, [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
    let second = replica.asked().iter().filter(|asked| asked.connection == 1).count();
    assert_eq!(second, 7, "all on one new connection");
    assert_eq!(gateway.metrics().await.total(metric::UPSTREAM_ERRORS, &[]), 0.0, "nobody's fault");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_151_a_request_that_meets_a_goodbye_is_served_elsewhere() {
    let replica = Frames::start(None, |here| match here {
        [.., last] => vec![Act::Answer(last.stream), Act::GoAway(last.stream)],
        [] => Vec::new(),
    })
    .await;
    let gateway = serve(&replica).await;
    let client = OneCore::of(&gateway).await;
    for _ in 0..10 {
        client.all_served(1).await;
    }
    assert_eq!(replica.asked().len(), 10, "each was taken once");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_151_a_refused_stream_is_sent_again_once() {
    let refuses = Frames::start(None, |here| match here {
        [only] if only.connection == 0 => vec![Act::Refuse(only.stream)],
        _ => answer_all(here),
    })
    .await;
    let gateway = serve(&refuses).await;
    OneCore::of(&gateway).await.all_served(1).await;
    assert_eq!(times(&refuses), [2]);
    gateway.assert_idle().await;

    let always = |here: &[Asked]| here.last().map(|last| Act::Refuse(last.stream)).into_iter().collect();
    let (always, sibling) = (Frames::start(None, always).await, Frames::start(None, answer_all).await);
    // The large one first: it gets the first request.
    let deployment = Deployment::named("chat").replica(&always.url(), 1000).replica(&sibling.url(), 1);
    let gateway = Gateway::start(Config::of(deployment.set("http2", true))).await;
    OneCore::of(&gateway).await.all_served(1).await;
    assert_eq!((times(&always), times(&sibling)), (vec![2], vec![1]), "twice, and then elsewhere");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h4_an_answer_that_breaks_http2_gets_502_and_no_second_try() {
    let replica = Frames::start(None, |here| match here {
        [only] => vec![Act::Malform(only.stream)],
        _ => answer_all(here),
    })
    .await;
    let gateway = serve(&replica).await;
    let client = OneCore::of(&gateway).await;
    assert_eq!(client.post(&chat("chat", "one")).await.0, 502);
    client.all_served(1).await;
    assert_eq!(replica.asked().len(), 2, "once each");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn a_replica_that_closes_its_idle_connection_without_a_goodbye_costs_no_error() {
    let replica = Frames::start(None, |here| match here {
        [only] => vec![Act::Answer(only.stream)],
        // The second request on a connection finds it dead.
        _ => vec![Act::Close],
    })
    .await;
    let gateway = serve(&replica).await;
    let client = OneCore::of(&gateway).await;
    for _ in 0..6 {
        client.all_served(1).await;
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn a_full_connection_gets_a_sibling() {
    let replica = Frames::start(Some(3), |here| match here {
        [.., last] if last.connection > 0 => vec![Act::Answer(last.stream)],
        _ => Vec::new(),
    })
    .await;
    let gateway = serve(&replica).await;
    let client = OneCore::of(&gateway).await;
    let mut held = JoinSet::new();
    for index in 0..3 {
        held.spawn(client.post(&chat("chat", &format!("held {index}"))));
    }
    replica.until_asked(3).await;
    client.all_served(5).await;
    let connections: Vec<usize> = replica.asked().iter().map(|asked| asked.connection).collect();
    assert_eq!(connections[..3], [0; 3]);
    assert!(connections[3..].iter().all(|connection| *connection > 0), "{connections:?}");
    held.shutdown().await;
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_115_http1_is_spoken_to_replicas_unless_told_otherwise() {
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    // Whatever their clients speak: these speak HTTP/2.
    OneCore::of(&gateway).await.all_served(100).await;
    for index in 0..100 {
        assert_eq!(gateway.client().post(CHAT, &chat("chat", &format!("h1 {index}"))).await.status, 200);
    }
    let start = |request: &stub::Request| request.head.start.clone();
    let (work, probes): (Vec<String>, Vec<String>) = stub.see(|log| {
        let work = log.work.iter().map(|exchange| start(&exchange.request));
        (work.collect(), log.probes.iter().map(start).collect())
    });
    assert_eq!(work.len(), 200, "once each");
    assert!(work.iter().chain(&probes).all(|start| start.ends_with(" HTTP/1.1")), "{work:?} {probes:?}");
    assert_eq!(gateway.metrics().await.total(metric::UPSTREAM_ERRORS, &[]), 0.0);
}

#[tokio::test]
async fn c_115_http2_to_a_replica_without_it_shows_as_a_protocol_error() {
    let answers_in_http1 =
        Stub::with(|_| Script::answer(400, &["connection: close"], "Bad Request").close()).await;
    let closes = Stub::with(|_| Script::new().close()).await;
    let talks_on = Stub::with(reply).await;
    for stub in [answers_in_http1, closes, talks_on] {
        let deployment = Deployment::chat([&stub]).set("http2", true);
        let gateway = Gateway::launch(Config::of(deployment)).await;
        eventually("the status says why", async || {
            let status = gateway.status().await.to_string();
            if status.contains("protocol_error") { Ok(()) } else { Err(status) }
        })
        .await;
        gateway.ready_replicas(0).await;
    }
}
