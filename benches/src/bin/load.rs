//! Asks a gateway from many connections at a time, and counts.
//!
//!     load ADDRESS PATH --body FILE --connections N --seconds S [--hold] [--conversations M] [--issuer FILE]
//!
//! Each connection sends its next request when the answer is whole, or, with `--hold`, keeps its stream open to the end.
//! Requests belong to M conversations in turns, or each connection is one. A second after the start, when each
//! conversation was there once and, with `--hold`, all have the first bytes of their answer, it prints `begin`;
//! `--seconds` later one line of JSON: answers, events, failures, and the middle and 99th of a hundred latencies in
//! microseconds. With `--issuer` it speaks TLS to who shows a certificate of that issuer's for 127.0.0.1, a handshake for each
//! connection. Whatever is no answer with status 200 and, of a stream, `[DONE]`, is a failure.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_benches::wire::Wire;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

/// How long the load runs before it is counted.
const WARM: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Counts {
    counting: Cell<bool>,
    /// Connections that have the first bytes of an answer.
    begun: Cell<usize>,
    /// Requests that were sent.
    asked: Cell<usize>,
    answers: Cell<u64>,
    events: Cell<u64>,
    failures: Cell<u64>,
    micros: RefCell<Vec<u64>>,
}

impl Counts {
    fn add(&self, cell: &Cell<u64>, more: u64) {
        if self.counting.get() {
            cell.set(cell.get() + more);
        }
    }
}

struct Plan {
    address: SocketAddr,
    path: String,
    body: Vec<u8>,
    connections: usize,
    seconds: u64,
    hold: bool,
    tls: Option<TlsConnector>,
    /// How many, in turns; 0: each connection is one.
    conversations: usize,
}

impl Plan {
    /// Writes the next request into `request`, which holds the last one or nothing.
    fn request(&self, connection: usize, counts: &Counts, request: &mut Vec<u8>) {
        let asked = counts.asked.replace(counts.asked.get() + 1);
        let conversation = asked.checked_rem(self.conversations).unwrap_or(connection);
        let Self { path, body, .. } = self;
        request.clear();
        // Writing to memory cannot fail.
        let _ = write!(
            request,
            "POST {path} HTTP/1.1\r\nhost: bench\r\naccept: application/json\r\ncontent-type: application/json\r\n\
             authorization: Bearer sk-bench\r\nx-session-id: session-{conversation}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        request.extend_from_slice(body);
    }
}

/// Whoever speaks TLS to this issuer's certificates.
fn connector(issuer: &str) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(issuer).map_err(io::Error::other)? {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One request after the other over a new connection; an error ends it.
async fn connect(plan: &Plan, connection: usize, counts: &Counts) -> io::Result<()> {
    let stream = TcpStream::connect(plan.address).await?;
    match &plan.tls {
        None => ask(plan, connection, counts, Wire::new(stream)?).await,
        Some(tls) => {
            stream.set_nodelay(true)?;
            let name = ServerName::IpAddress(plan.address.ip().into());
            ask(plan, connection, counts, Wire::over(tls.connect(name, stream).await?)).await
        }
    }
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    plan: &Plan,
    connection: usize,
    counts: &Counts,
    mut wire: Wire<S>,
) -> io::Result<()> {
    let mut request = Vec::new();
    let mut first = true;
    loop {
        plan.request(connection, counts, &mut request);
        let since = Instant::now();
        wire.send(&request).await?;
        let (status, is_stream, mut left) = wire.answer().await?;
        let (mut events, mut done) = (0, !is_stream);
        while let Some(piece) = wire.piece(&mut left).await? {
            if std::mem::take(&mut first) {
                counts.begun.set(counts.begun.get() + 1);
            }
            if is_stream {
                let news = piece.windows(6).filter(|part| *part == b"data: ").count() as u64;
                events += news;
                counts.add(&counts.events, news);
                done |= piece.windows(6).any(|part| part == b"[DONE]");
            }
        }
        if status != StatusCode::OK || !done || (is_stream && events == 0) {
            return Err(io::Error::other(format!("status {status}, {events} events")));
        }
        counts.add(&counts.answers, 1);
        if counts.counting.get() {
            counts.micros.borrow_mut().push(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
    }
}

/// Asks again after a failure, in a while.
async fn client(plan: Rc<Plan>, connection: usize, counts: Rc<Counts>) {
    loop {
        if connect(&plan, connection, &counts).await.is_err() {
            counts.add(&counts.failures, 1);
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The value below which so many of a hundred are.
fn centile(sorted: &[u64], hundredths: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * hundredths / 100).copied().unwrap_or(0)
}

async fn run(plan: Plan) -> io::Result<()> {
    let (plan, counts) = (Rc::new(plan), Rc::new(Counts::default()));
    for connection in 0..plan.connections {
        tokio::task::spawn_local(client(Rc::clone(&plan), connection, Rc::clone(&counts)));
        // A burst beyond the backlog would measure retransmissions.
        sleep(Duration::from_micros(200)).await;
    }
    sleep(WARM).await;
    let begins = || plan.hold && counts.begun.get() < plan.connections;
    while begins() || counts.asked.get() < plan.conversations {
        sleep(Duration::from_millis(10)).await;
    }
    tidegate_benches::say("begin");
    counts.counting.set(true);
    let since = Instant::now();
    sleep(Duration::from_secs(plan.seconds)).await;
    counts.counting.set(false);
    let seconds = since.elapsed().as_secs_f64();
    let mut micros = counts.micros.take();
    micros.sort_unstable();
    let figures = serde_json::json!({
        "seconds": seconds,
        "answers": counts.answers.get(),
        "events": counts.events.get(),
        "failures": counts.failures.get(),
        "p50": centile(&micros, 50),
        "p99": centile(&micros, 99),
    });
    tidegate_benches::say(&figures.to_string());
    Ok(())
}

fn main() -> io::Result<()> {
    let wrong =
        |word: &str| io::Error::other(format!("{word}: see the head of the source for what is wanted"));
    let mut words = std::env::args().skip(1);
    let mut word = || words.next();
    let address = word().and_then(|word| word.parse().ok()).ok_or_else(|| wrong("ADDRESS"))?;
    let path = word().ok_or_else(|| wrong("PATH"))?;
    let (body, connections, seconds, hold, conversations) = (Vec::new(), 1, 1, false, 0);
    let mut plan = Plan { address, path, body, connections, seconds, hold, conversations, tls: None };
    while let Some(option) = word() {
        let mut value = || word().ok_or_else(|| wrong(&option));
        match option.as_str() {
            "--body" => plan.body = std::fs::read(value()?)?,
            "--connections" => plan.connections = value()?.parse().map_err(|_| wrong(&option))?,
            "--seconds" => plan.seconds = value()?.parse().map_err(|_| wrong(&option))?,
            "--conversations" => plan.conversations = value()?.parse().map_err(|_| wrong(&option))?,
            "--hold" => plan.hold = true,
            "--issuer" => plan.tls = Some(connector(&value()?)?),
            _ => return Err(wrong(&option)),
        }
    }
    tidegate_benches::wire::run(run(plan))
}
