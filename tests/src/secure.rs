//! A replica behind TLS: a small engine on hyper that speaks what its client chooses, and a log of who came how.
//!
//! Runs as tasks of the test's own runtime, on a port of 127.0.0.1 that the kernel chose.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Identity, Issuer};

/// What a [`Secure`] replica saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The names that clients asked for (SNI), in order; `None` where they asked for none.
    pub names: Vec<Option<String>>,
    /// Requests for work: the connection that carried it, counted from 0, and the version that was spoken.
    pub work: Vec<(usize, Version)>,
    /// Paths and queries of these, as they were sent.
    pub targets: Vec<String>,
}

/// How a [`Secure`] replica behaves.
pub struct Manner<'a> {
    /// Its certificate.
    pub identity: Identity,
    /// What it offers to speak, best first: `h2`, `http/1.1`.
    pub speaks: &'a [&'a str],
    /// Clients must show a certificate of this issuer's.
    pub clients_of: Option<&'a Issuer>,
}

/// A replica behind TLS. Dropped, it is killed.
pub struct Secure {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    life: JoinHandle<()>,
}

impl Secure {
    /// A healthy replica of the model `chat`.
    pub async fn start(manner: Manner<'_>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        let address = listener.local_addr().expect("address");
        let acceptor = TlsAcceptor::from(Arc::new(config(manner)));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let life = tokio::spawn(accept(listener, acceptor, Arc::clone(&seen)));
        Self { address, seen, life }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its base URL by this host.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.port())
    }

    /// What it saw so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().expect("log").clone()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.life.abort();
    }
}

fn config(manner: Manner<'_>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let builder = match manner.clients_of {
        None => builder.with_no_client_auth(),
        Some(issuer) => {
            let mut roots = RootCertStore::empty();
            roots.add(issuer.der()).expect("an issuer");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let (chain, key) = manner.identity.der();
    let mut config = builder.with_single_cert(chain, key).expect("an identity");
    config.alpn_protocols = manner.speaks.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Mutex<Seen>>) {
    let mut connections = tokio::task::JoinSet::new();
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        connections.spawn(serve(stream, acceptor.clone(), connection, Arc::clone(&seen)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, connection: usize, seen: Arc<Mutex<Seen>>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let name = stream.get_ref().1.server_name().map(str::to_owned);
    seen.lock().expect("log").names.push(name);
    let service = service_fn(|request| answer(request, connection, Arc::clone(&seen)));
    let builder = auto::Builder::new(TokioExecutor::new());
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    seen: Arc<Mutex<Seen>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (mut status, path) = (StatusCode::OK, head.uri.path());
    let answer = match path {
        "/health" => json!({"status": "ok"}),
        "/v1/models" => json!({"object": "list", "data": [{"id": "chat", "object": "model"}]}),
        // It tells nothing of itself.
        _ if head.method == Method::GET => {
            status = StatusCode::NOT_FOUND;
            json!({"error": {"message": format!("no {path} here")}})
        }
        _ => {
            let mut seen = seen.lock().expect("log");
            seen.work.push((connection, head.version));
            seen.targets.push(head.uri.path_and_query().map(ToString::to_string).unwrap_or_default());
            json!({"id": "c1", "object": "chat.completion", "echo": String::from_utf8_lossy(&body)})
        }
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::new(answer.to_string().into())).expect("an answer"))
}
