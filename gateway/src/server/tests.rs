//! A core in this process: what needs a shorter limit than the gateway has.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1 as client_http1, http2 as client_http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_gateway_core::config::Limits;
use tidegate_scaler::fleet::{Change, Fleet};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::names::metric;
use tidegate_shared::replica::Capacity;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use super::*;
use crate::deployment::Deployment;
use crate::openai::ApiError;
use crate::pool::{Pool, PoolFleet};
use crate::probe::Prober;
use crate::telemetry::access::AccessLog;
use crate::telemetry::meter::DeploymentMeter;
use crate::upstream::dial::Dialer;

mod secured;
mod trickle;

const BODY: &str = r#"{"model":"chat","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// An engine that is well and answers with a head and then what `answer` writes.
async fn engine<A: Future<Output = ()> + Send>(
    answer: impl Fn(TcpStream) -> A + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut head = vec![0; 64 << 10];
                let read = stream.read(&mut head).await.unwrap_or(0);
                if head.get(..read).is_some_and(|head| head.starts_with(b"GET")) {
                    let list = r#"{"data":[{"id":"chat"}]}"#;
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{list}", list.len());
                    return drop(stream.write_all(answer.as_bytes()).await);
                }
                answer(stream).await;
            });
        }
    });
    address
}

/// An engine whose answers never end; tells of each answer that is cut.
async fn endless(cut: mpsc::UnboundedSender<()>) -> SocketAddr {
    engine(move |mut stream| {
        let cut = cut.clone();
        async move {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
            let event = format!("data: {}\n\n", "x".repeat(10_000));
            while stream.write_all(event.as_bytes()).await.is_ok() {}
            let _ = cut.send(());
        }
    })
    .await
}

/// A gateway over one replica at `engine`, and a way to end it.
pub(super) async fn gateway(
    engine: SocketAddr,
    stall: Duration,
    access: Arc<AccessLog>,
) -> (Arc<Gateway>, Arc<Pool>, watch::Sender<Stage>) {
    let clock = Clock::start();
    let name = DeploymentName::new("chat");
    let pool = Pool::new(name.clone(), Limits::default(), false, clock);
    let dialer = Dialer { clock, limit: ServerLimits::default().connect, tls: None, http2: false };
    let fleet = PoolFleet::new(Arc::clone(&pool), Prober::new(clock, "chat"), dialer);
    let capacity = Capacity::new(1);
    fleet.announce(ReplicaId(1), Change::Up { url: format!("http://{engine}"), capacity });
    let meter = DeploymentMeter::new("chat");
    let deployment = Deployment {
        name,
        aliases: Vec::new(),
        model: "chat".to_owned(),
        conversation_headers: Vec::new(),
        pool: Arc::clone(&pool),
        meter: Arc::clone(&meter),
    };
    let (stage, seen) = watch::channel(Stage::Serving);
    let gateway = Gateway {
        clock,
        directory: Directory::new(vec![Arc::new(deployment)]),
        limits: ServerLimits::default(),
        budget: Budget::new(1 << 20),
        heads: crate::server::http2::heads::budget(1 << 20),
        sink: Arc::new(Sink { clock, access, nowhere: meter, cuts: false.into() }),
        created: 0,
        clients: Arc::new(Semaphore::new(10)),
        tls: None,
        stage: seen,
        stall,
    };
    (Arc::new(gateway), pool, stage)
}

#[tokio::test]
async fn h6_a_client_that_takes_nothing_of_its_answer_loses_its_place() {
    let (told, mut cut) = mpsc::unbounded_channel();
    let engine = endless(told).await;
    let (gateway, pool, stage) = gateway(engine, Duration::from_millis(20), AccessLog::off()).await;
    let address = bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0)).expect("bind");
    let to = address.local_addr().expect("address");
    let ended = spawn(gateway, 0, address).expect("a core");

    // Over HTTP/2, with a window for not one byte of an answer.
    let stream = TcpStream::connect(to).await.expect("connect");
    let (mut sender, connection) = client_http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .expect("handshake");
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://{to}/v1/chat/completions")).body(Full::<Bytes>::from(BODY));
    let mut answer = sender.send_request(request.expect("a request")).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    cut.recv().await.expect("the replica's side is closed");
    let end = answer.frame().await.expect("an end").expect_err("no proper one");
    let reset = end.source().and_then(|cause| cause.downcast_ref::<h2::Error>()).and_then(h2::Error::reason);
    assert_eq!(reset, Some(h2::Reason::CANCEL), "its stream is reset: {end:?}");
    let request = Request::head(format!("http://{to}/livez")).body(Full::default()).expect("a request");
    let other = sender.send_request(request).await.expect("the connection goes on");
    assert_eq!(other.status(), 200);

    // Over HTTP/1.1, by never reading.
    let mut lazy = TcpStream::connect(to).await.expect("connect");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    lazy.write_all(head.as_bytes()).await.expect("sent");
    cut.recv().await.expect("the replica's side is closed");

    assert_eq!(pool.observe().in_flight, 0, "the place is free, while both clients are still there");
    drop((answer, connection, lazy));
    stage.send_replace(Stage::Cutting);
    ended.await.expect("the core ends in peace");
}

/// A connection with so little room in the kernel that an answer soon waits for who takes it.
async fn narrow(listener: SocketAddr) -> TcpStream {
    let client = TcpSocket::new_v4().expect("a socket");
    client.set_recv_buffer_size(1).expect("the least");
    client.connect(listener).await.expect("connect")
}

#[tokio::test]
async fn h6_a_client_of_http_2_that_makes_room_and_reads_nothing_loses_its_connection() {
    let (told, mut cut) = mpsc::unbounded_channel();
    let engine = endless(told).await;
    let (gateway, pool, stage) = gateway(engine, Duration::from_millis(20), AccessLog::off()).await;
    let listener =
        bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0)).expect("bind");
    socket2::SockRef::from(&listener).set_send_buffer_size(1).expect("the least");
    let to = listener.local_addr().expect("address");
    let ended = spawn(gateway, 0, listener).expect("a core");
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    // POST and http from the static table; the path and the authority are written out.
    let path = b"/v1/chat/completions";
    let block = [&[0x83, 0x86, 0x04, 20][..], path, &[0x01, 1], b"x"].concat();
    let most = (1_u32 << 31) - 1;
    let request = [
        http2::PREFACE.to_vec(),
        frame(4, 0, 0, &[&[0, 4], &most.to_be_bytes()[..]].concat()),
        frame(8, 0, 0, &(most - 65_535).to_be_bytes()),
        frame(1, 4, 1, &block),
        frame(0, 1, 1, BODY.as_bytes()),
    ];
    let mut lazy = narrow(to).await;
    lazy.write_all(&request.concat()).await.expect("sent");
    cut.recv().await.expect("the replica's side is closed");
    let reset = lazy.ready(Interest::ERROR);
    tokio::time::timeout(Duration::from_secs(30), reset)
        .await
        .expect("its connection ends")
        .expect("the end");
    assert_eq!(pool.observe().in_flight, 0);
    stage.send_replace(Stage::Cutting);
    ended.await.expect("the core ends in peace");
}

#[tokio::test]
async fn h6_a_client_that_takes_nothing_of_a_complete_answer_is_given_up_counted_and_logged() {
    let render = meter::install().expect("nobody else counts here");
    let engine = engine(async |mut stream: TcpStream| {
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(30_000));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(answer.as_bytes()).await;
        // It stays for another request.
        let _ = stream.read(&mut [0]).await;
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    let access = AccessLog::file(file.path()).expect("a log");
    let (gateway, pool, stage) = gateway(engine.await, Duration::from_millis(20), Arc::clone(&access)).await;
    let listener =
        bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0)).expect("bind");
    socket2::SockRef::from(&listener).set_send_buffer_size(1).expect("the least");
    let to = listener.local_addr().expect("address");
    let ended = spawn(gateway, 0, listener).expect("a core");

    let mut lazy = narrow(to).await;
    lazy.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut some = vec![0; 100];
    lazy.read_exact(&mut some).await.expect("an answer");
    let length = BODY.len();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    lazy.write_all(format!("{head}{BODY}").as_bytes()).await.expect("sent");
    // It takes nothing and hears nothing but the end, which comes after the line is written.
    let given_up = lazy.ready(Interest::ERROR);
    tokio::time::timeout(Duration::from_secs(30), given_up).await.expect("it is given up").expect("the end");
    access.flush();
    let log = std::fs::read_to_string(file.path()).expect("the log");
    let line = log.lines().find(|line| line.contains("completions")).expect("a line");
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&line["status"], &line["outcome"]), (&499.into(), &"complete".into()), "{line}");
    assert!(line["trouble"].as_str().is_some_and(|why| why.contains("took")), "{line}");
    assert_eq!(pool.observe().in_flight, 0);
    let mut rest = Vec::new();
    let end = lazy.read_to_end(&mut rest).await.expect_err("what it had not taken is thrown away");
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
    let page = render.render();
    // Others in this process are given up as well.
    let counted = format!("{}{{reason=\"answer\"}} ", metric::GAVE_UP);
    assert!(page.contains(&counted), "{page}");
    stage.send_replace(Stage::Cutting);
    ended.await.expect("the core ends in peace");
}

#[tokio::test]
async fn a_core_that_cannot_start_says_so() {
    let (told, _cut) = mpsc::unbounded_channel();
    let (gateway, ..) = gateway(endless(told).await, Duration::from_secs(1), AccessLog::off()).await;
    let file = OwnedFd::from(tempfile::tempfile().expect("a file"));
    assert!(spawn(gateway, 0, file.into()).is_err(), "a file is no listener");
}

#[tokio::test]
async fn a_client_that_has_sent_nothing_does_not_keep_the_gateway_from_stopping() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let to = listener.local_addr().expect("address");
    let hour = Duration::from_secs(3600);
    let closing = Closing::default();
    let _client = TcpStream::connect(to).await.expect("connect");
    let (stream, _) = listener.accept().await.expect("accept");
    let mut silent = std::pin::pin!(opening(&closing, client::ClientStream::new(stream), hour));
    assert!(silent.as_mut().now_or_never().is_none(), "it may send something yet");
    let mut client = TcpStream::connect(to).await.expect("connect");
    client.write_all(b"P").await.expect("sent");
    let (stream, _) = listener.accept().await.expect("accept");
    stream.readable().await.expect("readable");
    let mut begun = std::pin::pin!(opening(&closing, client::ClientStream::new(stream), hour));
    assert!(begun.as_mut().now_or_never().is_none(), "either protocol may follow");

    closing.begin();
    assert!(matches!(silent.now_or_never(), Some(Opening::Silent)));
    client.write_all(b"OST").await.expect("sent");
    assert!(matches!(begun.await, Opening::Http1(_)), "a request that has begun is read");
}

/// Asking for this panics, in these tests: nothing that a client can send does.
const PANICS: &str = "/v1/panics";

pub(super) fn panics_if_asked(path: &str) {
    assert_ne!(path, PANICS, "at sixes and sevens");
}

#[tokio::test]
async fn c_062_a_panic_is_answered_in_openais_shape_over_either_protocol_and_the_connection_goes_on() {
    let (told, _cut) = mpsc::unbounded_channel();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let access = AccessLog::file(file.path()).expect("a log");
    let engine = endless(told).await;
    let (gateway, _, stage) = gateway(engine, Duration::from_secs(1), Arc::clone(&access)).await;
    let listener =
        bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0)).expect("bind");
    let to = listener.local_addr().expect("address");
    let ended = spawn(gateway, 0, listener).expect("a core");

    let stream = TcpStream::connect(to).await.expect("connect");
    let (mut two, connection) =
        client_http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("h2");
    let second = tokio::spawn(connection);
    let stream = TcpStream::connect(to).await.expect("connect");
    let (mut one, connection) = client_http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    let first = tokio::spawn(connection);
    for _ in 0..2 {
        let ask = |path: &str| {
            let request = Request::post(format!("http://{to}{path}")).header("host", to.to_string());
            request.body(Full::<Bytes>::default()).expect("a request")
        };
        let answers = [
            one.send_request(ask(PANICS)).await.expect("one"),
            two.send_request(ask(PANICS)).await.expect("two"),
        ];
        for answer in answers {
            let kind = answer.headers().get("content-type").expect("a type").clone();
            assert_eq!(
                (answer.status(), kind.as_bytes()),
                (StatusCode::INTERNAL_SERVER_ERROR, &b"application/json"[..])
            );
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, ApiError::internal().body());
            assert!(!String::from_utf8_lossy(&body).contains("at sixes and sevens"));
        }
    }
    access.flush();
    let log = std::fs::read_to_string(file.path()).expect("the log");
    assert_eq!(log.matches("\"status\":500").count(), 4, "{log}");
    drop((one, two));
    stage.send_replace(Stage::Cutting);
    ended.await.expect("the core ends in peace");
    drop((first, second));
}
