//! What is shown to clients that speak TLS and what is asked of them (H6): their own certificates, new ones that take the
//! place of old ones while requests run, and what `tidegate check` says of them.

use std::net::SocketAddr;
use std::process::Command;

use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;
use tidegate_shared::names::metric;
use tidegate_tests::certificates::{Identity, Issuer};
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::front::{Front, HOSTS, Trust};
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::openai::{chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::CHAT;

/// The certificate that a new client is shown.
async fn shown(server: SocketAddr, trust: &Trust) -> Option<CertificateDer<'static>> {
    let stream = trust.connect(server).await.ok()?;
    let (_, session) = stream.get_ref();
    session.peer_certificates().and_then(<[_]>::first).map(|certificate| certificate.clone().into_owned())
}

/// What `/status` says of the certificate.
async fn trouble(gateway: &Gateway) -> String {
    gateway.status().await["tls"]["trouble"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn h6_clients_must_show_a_certificate_of_the_issuer_that_is_asked_for() {
    let (ours, theirs, stranger) = (Issuer::new("ours"), Issuer::new("theirs"), Issuer::new("stranger"));
    let stub = Stub::with(reply).await;
    let front = Front::of(&ours);
    // The second is shown by its client as it stands there.
    let (own, unlisted) = (Identity::own_issuer(&["client"]), Identity::own_issuer(&["client"]));
    front.write("clients.pem", &format!("{}{}", theirs.pem(), own.cert));
    // The harness asks as a client that may.
    let may = Trust::of(&ours, Some(&theirs.issue(&["client"])));
    let front = Front { trust: may, ..front };
    let config = Config::of(Deployment::chat([&stub])).secured(&front);
    let gateway = Gateway::start(config.set("tls.client_ca", front.path("clients.pem"))).await;
    for client in [gateway.client(), gateway.h2()] {
        assert_eq!(client.post(CHAT, &chat("chat", "hi")).await.status, 200);
        let own = Trust::of(&ours, Some(&own));
        assert_eq!(client.inside(Some(own)).post(CHAT, &chat("chat", "hi")).await.status, 200);
    }
    // A connection that answers has brought what tickets there are.
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let may = Trust::in_versions(&ours, Some(&theirs.issue(&["client"])), &[version]);
        for _ in 0..2 {
            let mut stream = may.connect(gateway.address).await.expect("a connection");
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost: tidegate\r\n\r\n").await.expect("sent");
            assert_ne!(stream.read(&mut [0; 64]).await.expect("an answer"), 0);
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "{version:?}");
        }
    }
    let before = stub.count();
    let nothing = Trust::of(&ours, None);
    let wrong = Trust::of(&ours, Some(&stranger.issue(&["client"])));
    let old = Trust::of(&ours, Some(&theirs.issue_expired(&["client"])));
    let unlisted = Trust::of(&ours, Some(&unlisted));
    for trust in [nothing, wrong, old, unlisted] {
        for client in [Client::h1(gateway.address), Client::h2(gateway.address)] {
            let body = chat("chat", "hi").to_string();
            let answer = client.inside(Some(trust)).attempt(hyper::Method::POST, CHAT, body).await;
            assert!(answer.is_none(), "{answer:?}");
        }
        let mut stream = trust.connect(gateway.address).await.expect("TLS 1.3 refuses after the handshake");
        let refusal = stream.read(&mut [0]).await.expect_err("an alert").to_string();
        assert!(refusal.contains("alert"), "{refusal}");
    }
    assert_eq!(stub.count(), before, "no request of theirs");
    gateway.until_metric(metric::TLS_FAILURES, &[("reason", "certificate")], 12.0).await;
}

#[tokio::test]
async fn h6_a_new_certificate_is_shown_without_a_cut_and_a_bad_one_is_not() {
    let gate = Gate::closed();
    let script = Script::sse().event(&delta("a")).wait(&gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let issuer = Issuer::new("ca");
    let front = Front::of(&issuer);
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub])).secured(&front)).await;
    let first = shown(gateway.address, front.trust).await.expect("a certificate");
    let mut running = gateway.chat(&chat_stream("chat", "hi")).await;
    running.event().await.expect("an event");

    front.write("cert.pem", "no certificate");
    eventually("the status says what is wrong", async || {
        let trouble = trouble(&gateway).await;
        if trouble.contains("tls.cert = ") && trouble.contains("must be a file in PEM") {
            Ok(())
        } else {
            Err(trouble)
        }
    })
    .await;
    assert!(gateway.log().contains("clients still get the old certificate"), "{}", gateway.log());
    let why = Client::h1(gateway.admin).get("/deployments/chat/why").await.json();
    let first_told = &why["findings"][0];
    assert_eq!(first_told["line"], "certificate", "{why}");
    assert!(first_told["text"].as_str().is_some_and(|text| text.contains("tls.cert = ")), "{why}");
    assert_eq!(shown(gateway.address, front.trust).await.as_ref(), Some(&first));

    let next = issuer.issue(HOSTS);
    front.show(&next);
    eventually("the next one is shown", async || {
        let now = shown(gateway.address, Trust::of(&issuer, None)).await;
        if now.as_ref() == Some(&next.der().0[0]) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    assert_eq!(trouble(&gateway).await, "");
    gate.pass();
    assert_eq!(running.event().await.as_deref(), Some("data: [DONE]\n\n"), "nothing was cut");
    assert_eq!(running.event().await, None);
}

#[tokio::test]
async fn h6_an_expired_certificate_is_a_warning_of_check_of_the_log_and_of_the_status() {
    let issuer = Issuer::new("ca");
    let front = Front::of(&issuer);
    front.show(&issuer.issue_expired(HOSTS));
    let stub = Stub::with(reply).await;
    let config = Config::of(Deployment::chat([&stub])).secured(&front);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tidegate.toml");
    std::fs::write(&file, config.render(folder.path(), 8080, 8081)).expect("write");
    let mut check = Command::new(binary());
    let output = check.arg("check").arg("--config").arg(&file).output().expect("check");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("https://127.0.0.1:8080"), "{printed}");
    let expired = format!("the certificate in {} expired at 2001-01-01T00:00:00Z", front.path("cert.pem"));
    assert!(printed.contains(&format!("warning: {expired}")), "{printed}");

    front.show(&issuer.issue(HOSTS));
    let gateway = Gateway::start(config).await;
    let left = gateway.status().await["tls"]["expires_in_s"].as_f64().expect("an end");
    assert!(left > 0.0, "{left}");
    assert!(gateway.metrics().await.total(metric::TLS_EXPIRES, &[]) > 1.7e9);
    assert!(gateway.log().contains("serving on https://"), "{}", gateway.log());
    front.show(&issuer.issue_expired(HOSTS));
    eventually("an expired one does not take its place", async || {
        let trouble = trouble(&gateway).await;
        if trouble.contains("expired at 2001") { Ok(()) } else { Err(trouble) }
    })
    .await;
    assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200);
}
