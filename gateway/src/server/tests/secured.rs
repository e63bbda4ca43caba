//! Inside TLS: a client that takes nothing is given up also where all of its answer is enciphered and waits, and is
//! waited for within bounds when the connection ends.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::server::certificate::{Front, FrontFiles, Shown};
use crate::server::client::ClientStream;

/// What is shown, and a client that trusts it.
fn pair() -> (Arc<Shown>, TlsConnector) {
    let folder = tempfile::tempdir().expect("a folder");
    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let made = made.self_signed(&key).expect("a certificate");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("cert"), made.pem()).expect("write");
    std::fs::write(path("key"), key.serialize_pem()).expect("write");
    let front = Front::load(FrontFiles { cert: path("cert"), key: path("key"), client_ca: None });
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(made.pem().as_bytes()).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Shown::new(front.expect("good files")), TlsConnector::from(Arc::new(config)))
}

#[tokio::test]
async fn h6_a_client_inside_tls_that_takes_nothing_of_a_complete_answer_is_given_up() {
    let (shown, connector) = pair();
    // One answer is taken by TLS at once and waits there, the other is not.
    for size in [secure::TAKEN - 2048, 10 * secure::TAKEN] {
        let engine = engine(move |mut stream: TcpStream| async move {
            let body = "x".repeat(size);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
            let _ = stream.write_all((head + &body).as_bytes()).await;
            // It stays for another request.
            let _ = stream.read(&mut [0]).await;
        });
        let file = tempfile::NamedTempFile::new().expect("a file");
        let access = AccessLog::file(file.path()).expect("a log");
        let (gateway, pool, stage) =
            gateway(engine.await, Duration::from_millis(20), Arc::clone(&access)).await;
        let mut gateway = Arc::into_inner(gateway).expect("nobody else has it");
        gateway.tls = Some(Arc::clone(&shown));
        let listener =
            bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0)).expect("bind");
        socket2::SockRef::from(&listener).set_send_buffer_size(1).expect("the least");
        let to = listener.local_addr().expect("address");
        let ended = spawn(Arc::new(gateway), 0, listener).expect("a core");

        let name = ServerName::try_from("localhost").expect("a name");
        let mut lazy = connector.connect(name, narrow(to).await).await.expect("a handshake");
        let length = BODY.len();
        let head =
            format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        lazy.write_all(format!("{head}{BODY}").as_bytes()).await.expect("sent");
        lazy.flush().await.expect("sent");
        // It takes nothing and hears nothing but the end, which comes after the line is written.
        let given_up = lazy.get_ref().0.ready(Interest::ERROR);
        tokio::time::timeout(Duration::from_secs(30), given_up)
            .await
            .expect("it is given up")
            .expect("the end");
        access.flush();
        let log = std::fs::read_to_string(file.path()).expect("the log");
        let line = log.lines().find(|line| line.contains("completions")).expect("a line");
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["status"], 499, "{line}");
        assert!(line["trouble"].as_str().is_some_and(|why| why.contains("took")), "{line}");
        assert_eq!(pool.observe().in_flight, 0);
        let mut rest = Vec::new();
        lazy.read_to_end(&mut rest).await.expect_err("it is reset");
        stage.send_replace(Stage::Cutting);
        ended.await.expect("the core ends in peace");
    }
}

#[tokio::test]
async fn c_124_so_many_that_only_begin_to_shake_hands_keep_nobody_out() {
    let (shown, connector) = pair();
    let engine = engine(|_| async {}).await;
    let (gateway, _, stage) = gateway(engine, Duration::from_secs(60), AccessLog::off()).await;
    let mut gateway = Arc::into_inner(gateway).expect("nobody else has it");
    gateway.clients = Arc::new(Semaphore::new(2 * handshake::AT_A_TIME));
    gateway.tls = Some(shown);
    let listener = bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0));
    let listener = listener.expect("bind");
    let to = listener.local_addr().expect("address");
    let ended = spawn(Arc::new(gateway), 0, listener).expect("a core");

    let mut silent = Vec::new();
    for _ in 0..handshake::AT_A_TIME {
        let mut stream = TcpStream::connect(to).await.expect("connect");
        stream.write_all(b"\x16\x03\x01\x02\x00").await.expect("the head of a record");
        silent.push(stream);
    }
    let name = ServerName::try_from("localhost").expect("a name");
    let client = TcpStream::connect(to).await.expect("connect");
    let shaken = tokio::time::timeout(Duration::from_secs(30), connector.connect(name, client)).await;
    shaken.expect("an end").expect("hands are shaken");
    // For one that came, one went. Had their time run out, all would have gone.
    let gone = silent.iter().filter(|one| one.try_read(&mut [0]).is_ok()).count();
    assert!((1..=handshake::AT_A_TIME / 2).contains(&gone), "{gone} were sent away");
    stage.send_replace(Stage::Cutting);
    ended.await.expect("the core ends in peace");
}

/// A client and its stream here, which takes little at a time.
async fn shaken() -> (TlsStream<TcpStream>, ClientStream) {
    let (shown, connector) = pair();
    let listener =
        bind(([127, 0, 0, 1], 0).into(), 1).map(|mut listeners| listeners.remove(0)).expect("bind");
    socket2::SockRef::from(&listener).set_send_buffer_size(1).expect("the least");
    let listener = TcpListener::from_std(listener).expect("a listener");
    let to = listener.local_addr().expect("address");
    let name = ServerName::try_from("localhost").expect("a name");
    let client = async { connector.connect(name, narrow(to).await).await.expect("a handshake") };
    let accepted = async {
        let (socket, _) = listener.accept().await.expect("a client");
        TlsAcceptor::from(shown.config()).accept(socket).await.expect("a handshake")
    };
    let (client, accepted) = tokio::join!(client, accepted);
    let (socket, session) = accepted.into_inner();
    (client, ClientStream::secured(Box::new(secure::Secured::new(socket, session))))
}

/// The same, to which was written until neither the kernel nor TLS had room; and how much.
async fn full() -> (TlsStream<TcpStream>, ClientStream, usize) {
    let (client, mut stream) = shaken().await;
    let mut written = 0;
    while let Some(more) = stream.write(&[b'x'; secure::TAKEN]).now_or_never() {
        written += more.expect("written");
    }
    (client, stream, written)
}

#[tokio::test]
async fn h6_a_goodbye_waits_until_a_client_has_room_for_it() {
    let (mut client, mut stream, written) = full().await;
    let mut answer = Vec::new();
    let end = async move {
        stream.goodbye().await;
        drop(stream);
    };
    let ((), read) = tokio::join!(end, client.read_to_end(&mut answer));
    assert_eq!(read.expect("an end that was told"), written);
}

#[tokio::test]
async fn h6_a_client_without_room_for_a_goodbye_is_waited_for_within_bounds() {
    let (client, mut stream, _) = full().await;
    tokio::time::pause();
    let error = stream.end().await.expect_err("there is no room");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(client);
}

/// How many times a client sends a byte a second apart, `times` at most, before the connection is ended under it after its
/// answer; and that it hears the goodbye.
async fn dripped(times: usize) -> usize {
    let (client, stream) = shaken().await;
    client.get_ref().0.set_nodelay(true).expect("each drop leaves at once");
    let (mut hears, mut says) = tokio::io::split(client);
    tokio::time::pause();
    // It has sent more than was read of it.
    let link = Link::new(stream, BytesMut::from(&b"more"[..]));
    let mut dripped = 0;
    let drips = async {
        while dripped < times && says.write_all(b"x").await.is_ok() && says.flush().await.is_ok() {
            dripped += 1;
            // The paused clock jumps once nobody is awake, also over what a socket has just brought.
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // From here on it is silent, and there.
        std::future::pending::<()>().await;
    };
    let heard = async {
        let mut heard = Vec::new();
        hears.read_to_end(&mut heard).await.expect("an end that was told");
        assert!(heard.is_empty());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = http1::linger(link) => {}
        () = drips => {}
        () = heard => {}
    }
    tokio::time::resume();
    dripped
}

#[tokio::test]
async fn h6_a_client_inside_tls_that_drips_after_its_answer_is_waited_for_within_bounds() {
    assert_eq!(dripped(5).await, 5, "what comes is thrown away, until none comes");
    assert!((25..=31).contains(&dripped(usize::MAX).await), "and for half a minute in all");
}
