//! Replicas behind TLS (H6): whom the gateway trusts, what it shows, which name it asks for, and that a probe fails
//! where traffic would (C-115).

use hyper::Version;
use tidegate_tests::certificates::{Identity, Issuer};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::chat;
use tidegate_tests::secure::{Manner, Secure};
use tidegate_tests::stub::Stub;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::CHAT;

const BOTH: &[&str] = &["h2", "http/1.1"];
const LOOPBACK: &[&str] = &["127.0.0.1", "localhost"];

/// A folder with the files of `[deployment.tls]`.
struct Files(tempfile::TempDir);

impl Files {
    fn new(ca: &Issuer) -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        files.write("ca.pem", &ca.pem());
        files
    }

    fn client(self, identity: &Identity) -> Self {
        self.write("client.pem", &identity.cert);
        self.write("client.key", &identity.key);
        self
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("write");
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The deployment `chat` at `url` with these files.
    fn deployment(&self, url: &str) -> Deployment {
        let mut deployment = Deployment::named("chat").replica(url, 1).set("tls.ca", self.path("ca.pem"));
        if self.0.path().join("client.pem").exists() {
            deployment = deployment.set("tls.cert", self.path("client.pem"));
            deployment = deployment.set("tls.key", self.path("client.key"));
        }
        deployment
    }
}

async fn replica(identity: Identity) -> Secure {
    Secure::start(Manner { identity, speaks: BOTH, clients_of: None }).await
}

/// The gateway serves over this deployment, and answers.
async fn works(deployment: Deployment) -> Gateway {
    let gateway = Gateway::start(Config::of(deployment)).await;
    let answer = gateway.client().post(CHAT, &chat("chat", "hi")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    gateway.assert_idle().await;
    gateway
}

/// The replica of this deployment never gets ready, and the status says why.
async fn shows(deployment: Deployment, parts: &[&str]) {
    let gateway = Gateway::launch(Config::of(deployment)).await;
    eventually("the status says why", async || {
        let status = gateway.status().await.to_string();
        if parts.iter().any(|part| status.contains(part)) { Ok(()) } else { Err(status) }
    })
    .await;
    gateway.ready_replicas(0).await;
}

#[tokio::test]
async fn h6_http2_is_negotiated_and_one_connection_of_a_core_serves_all() {
    let ca = Issuer::new("ca");
    let replica = replica(ca.issue(LOOPBACK)).await;
    let gateway = works(Files::new(&ca).deployment(&replica.url("127.0.0.1"))).await;
    for index in 0..20 {
        let answer = gateway.client().post(CHAT, &chat("chat", &index.to_string())).await;
        assert_eq!(answer.status, 200);
        let answer = answer.json();
        let echo = answer["echo"].as_str().expect("echo");
        assert_eq!(echo, chat("chat", &index.to_string()).to_string(), "byte for byte (H3)");
    }
    let seen = replica.seen();
    assert!(seen.work.iter().all(|(_, version)| *version == Version::HTTP_2), "{:?}", seen.work);
    let mut connections: Vec<usize> = seen.work.iter().map(|(connection, _)| *connection).collect();
    connections.sort_unstable();
    connections.dedup();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(connections.len() <= cores, "{connections:?} on {cores} cores");
    assert!(seen.names.iter().all(Option::is_none), "no name is asked for by address: {:?}", seen.names);
}

#[tokio::test]
async fn c_142_a_query_reaches_a_replica_of_http2_as_it_came() {
    let ca = Issuer::new("ca");
    let replica = replica(ca.issue(LOOPBACK)).await;
    let gateway = Gateway::start(Config::of(Files::new(&ca).deployment(&replica.url("127.0.0.1")))).await;
    let targets = ["?a=1&a=2&b=%2F+x&c=", "?", "?x=%zz;'&y=/../"].map(|query| format!("{CHAT}{query}"));
    for client in [gateway.client(), gateway.h2()] {
        for target in &targets {
            assert_eq!(client.post(target, &chat("chat", "hi")).await.status, 200, "{target}");
        }
    }
    let seen = replica.seen();
    assert!(seen.work.iter().all(|(_, version)| *version == Version::HTTP_2), "{:?}", seen.work);
    assert_eq!(seen.targets, [&targets[..], &targets[..]].concat());
}

#[tokio::test]
async fn h6_a_replica_without_http2_is_spoken_to_in_http1() {
    let ca = Issuer::new("ca");
    for speaks in [&["http/1.1"][..], &[]] {
        let manner = Manner { identity: ca.issue(LOOPBACK), speaks, clients_of: None };
        let replica = Secure::start(manner).await;
        let _gateway = works(Files::new(&ca).deployment(&replica.url("localhost"))).await;
        let seen = replica.seen();
        assert_eq!(seen.work.iter().map(|(_, version)| *version).collect::<Vec<_>>(), [Version::HTTP_11]);
        assert!(seen.names.iter().all(|name| name.as_deref() == Some("localhost")), "{:?}", seen.names);
    }
}

#[tokio::test]
async fn h6_the_name_to_expect_can_be_set() {
    let ca = Issuer::new("ca");
    let replica = replica(ca.issue(&["engine.internal"])).await;
    let files = Files::new(&ca);
    let named = |name: &str| files.deployment(&replica.url("127.0.0.1")).set("tls.server_name", name);
    let _gateway = works(named("engine.internal")).await;
    let seen = replica.seen();
    assert!(seen.names.iter().all(|name| name.as_deref() == Some("engine.internal")), "{:?}", seen.names);
    shows(
        files.deployment(&replica.url("127.0.0.1")),
        &["its certificate is for engine.internal, and not for", "tls.server_name"],
    )
    .await;
    shows(
        named("other.internal"),
        &["its certificate is for engine.internal, and not for", "tls.server_name"],
    )
    .await;
}

#[tokio::test]
async fn h6_certificates_that_are_not_to_be_trusted_keep_a_replica_out() {
    let (ca, stranger) = (Issuer::new("ca"), Issuer::new("stranger"));
    let expired = replica(ca.issue_expired(LOOPBACK)).await;
    shows(Files::new(&ca).deployment(&expired.url("127.0.0.1")), &["expired", "Expired"]).await;
    let foreign = replica(stranger.issue(LOOPBACK)).await;
    shows(Files::new(&ca).deployment(&foreign.url("127.0.0.1")), &["UnknownIssuer"]).await;
    let untold = Deployment::named("chat").replica(&foreign.url("127.0.0.1"), 1);
    shows(untold, &["UnknownIssuer"]).await;
    assert!(expired.seen().work.is_empty() && foreign.seen().work.is_empty());
}

#[tokio::test]
async fn h6_a_replicas_own_certificate_may_be_the_trusted_one() {
    let own = Identity::own_issuer(LOOPBACK);
    let its = replica(own.clone()).await;
    let files = Files::new(&Issuer::new("ca"));
    shows(files.deployment(&its.url("127.0.0.1")), &["an issuer's own (CA:TRUE)"]).await;
    files.write("ca.pem", &own.cert);
    let _gateway = works(files.deployment(&its.url("127.0.0.1"))).await;
    let other = replica(Identity::own_issuer(LOOPBACK)).await;
    shows(files.deployment(&other.url("127.0.0.1")), &["an issuer's own (CA:TRUE)"]).await;
    assert!(other.seen().work.is_empty());
}

#[tokio::test]
async fn h6_a_client_certificate_is_shown_to_a_replica_that_asks() {
    let (ca, stranger) = (Issuer::new("ca"), Issuer::new("stranger"));
    for speaks in [BOTH, &["http/1.1"]] {
        let manner = Manner { identity: ca.issue(LOOPBACK), speaks, clients_of: Some(&ca) };
        let replica = Secure::start(manner).await;
        let url = replica.url("127.0.0.1");
        let _gateway = works(Files::new(&ca).client(&ca.issue(&["gateway"])).deployment(&url)).await;
        shows(Files::new(&ca).deployment(&url), &["CertificateRequired"]).await;
        let wrong = Files::new(&ca).client(&stranger.issue(&["gateway"]));
        shows(wrong.deployment(&url), &["UnknownCA", "DecryptError", "BadCertificate"]).await;
    }
}

#[tokio::test]
async fn c_115_tls_and_clear_mistaken_for_each_other_show_as_such() {
    let ca = Issuer::new("ca");
    let secure = replica(ca.issue(LOOPBACK)).await;
    let clear = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("https://{}", clear.local_addr().expect("address"));
    // Answers whatever comes, as engines do.
    let life = tokio::spawn(async move {
        while let Ok((mut stream, _)) = clear.accept().await {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
        }
    });
    shows(Files::new(&ca).deployment(&url), &["what it sends is no TLS"]).await;
    life.abort();
    let silent = Stub::start().await;
    let url = silent.url().replace("http:", "https:");
    shows(Files::new(&ca).deployment(&url), &["no TLS handshake within 1s"]).await;
    assert_eq!(silent.count(), 0, "no request went there");
    let url = secure.url("127.0.0.1").replace("https:", "http:");
    shows(Deployment::named("chat").replica(&url, 1), &["/health: "]).await;
    assert!(secure.seen().work.is_empty());
}
