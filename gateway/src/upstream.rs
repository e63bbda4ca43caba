//! Connections to replicas: one set per core, kept for reuse, each used by one request at a time.
//!
//! Knows addresses only. Which replica a request goes to is decided before, and whether a failure is tried elsewhere
//! after; here one thing is transparent: a connection that the replica closed while it was idle costs a second try on
//! a fresh one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tidegate_shared::time::Instant;
use tokio::net::TcpStream;

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::layer::body::RequestBody;
use crate::local::is_local;

/// How long an idle connection is kept: below the 5 s after which uvicorn, the shortest-lived server among engines,
/// closes its side.
const IDLE: Duration = Duration::from_secs(4);
/// Idle connections kept per replica and core.
const IDLE_MAX: usize = 256;
/// Largest head and read buffer of a response.
const BUFFER: usize = 512 * 1024;

/// Why no response came.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// No connection: nothing listens, the name is unknown, or it took longer than the limit.
    #[error("cannot connect: {why}")]
    Connect {
        /// What was tried and what came of it.
        why: String,
        /// Nothing listens there.
        refused: bool,
    },
    /// No connection, and the replica is not to blame: this machine has no descriptor or no port left.
    #[error("cannot connect from here: {0}")]
    Local(String),
    /// The connection broke, or what came over it is not HTTP, before a response head was read.
    #[error("{0}")]
    Broken(String),
    /// No response head within the limit.
    #[error("no answer within {0:?}")]
    Silent(Duration),
}

/// A connection that carries a response; give it back when the response is read to its end.
#[derive(Debug)]
pub struct Carrier {
    sender: SendRequest<RequestBody>,
    upstream: Rc<Upstream>,
    endpoint: Arc<Endpoint>,
}

impl Carrier {
    /// The response was read to its end: the connection can carry the next request.
    pub fn give_back(self) {
        let Self { sender, upstream, endpoint } = self;
        if sender.is_closed() || endpoint.is_closed() {
            return;
        }
        let since = upstream.clock.now();
        let key = Arc::as_ptr(&endpoint) as usize;
        let mut idle = upstream.idle.borrow_mut();
        let kept = idle.entry(key).or_insert_with(|| Kept { endpoint, connections: Vec::new() });
        if kept.connections.len() < IDLE_MAX {
            kept.connections.push((since, sender));
        }
    }
}

#[derive(Debug)]
struct Kept {
    /// Held, so that its address, the key, is not reused while the entry lives.
    endpoint: Arc<Endpoint>,
    connections: Vec<(Instant, SendRequest<RequestBody>)>,
}

/// The connections of one core.
#[derive(Debug)]
pub struct Upstream {
    clock: Clock,
    connect: Duration,
    idle: RefCell<HashMap<usize, Kept>>,
}

impl Upstream {
    /// No connections yet. `connect` bounds how long making one may take.
    pub fn new(clock: Clock, connect: Duration) -> Rc<Self> {
        Rc::new(Self { clock, connect, idle: RefCell::new(HashMap::new()) })
    }

    /// Sends a request and waits for the head of its response, at most `first_byte`. `make` builds the request; it is
    /// called again when an idle connection turns out to be dead.
    ///
    /// # Errors
    /// See [`UpstreamError`]; in each case no byte of a response was read.
    pub async fn send(
        self: &Rc<Self>,
        endpoint: &Arc<Endpoint>,
        first_byte: Duration,
        make: impl Fn() -> Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Carrier), UpstreamError> {
        if let Some(mut sender) = self.idle_connection(endpoint) {
            match self.exchange(&mut sender, first_byte, make()).await {
                Ok(response) => return Ok((response, self.carrier(sender, endpoint))),
                Err(UpstreamError::Silent(limit)) => return Err(UpstreamError::Silent(limit)),
                Err(_closed_while_idle) => {}
            }
        }
        let mut sender = self.connection(endpoint).await?;
        let response = self.exchange(&mut sender, first_byte, make()).await?;
        Ok((response, self.carrier(sender, endpoint)))
    }

    /// Closes connections that were idle for too long or whose replica is gone; for ever.
    pub async fn sweep(self: Rc<Self>) {
        let mut tick = tokio::time::interval(IDLE / 2);
        loop {
            tick.tick().await;
            let now = self.clock.now();
            self.idle.borrow_mut().retain(|_, kept| {
                let closed = kept.endpoint.is_closed();
                kept.connections
                    .retain(|(since, sender)| !closed && now.since(*since) < IDLE && !sender.is_closed());
                !kept.connections.is_empty()
            });
        }
    }

    fn carrier(self: &Rc<Self>, sender: SendRequest<RequestBody>, endpoint: &Arc<Endpoint>) -> Carrier {
        Carrier { sender, upstream: Rc::clone(self), endpoint: Arc::clone(endpoint) }
    }

    /// The connection that was used last, so that the others grow old and go.
    fn idle_connection(&self, endpoint: &Arc<Endpoint>) -> Option<SendRequest<RequestBody>> {
        let now = self.clock.now();
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(&(Arc::as_ptr(endpoint) as usize))?;
        while let Some((since, sender)) = kept.connections.pop() {
            if now.since(since) < IDLE && !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    async fn connection(&self, endpoint: &Endpoint) -> Result<SendRequest<RequestBody>, UpstreamError> {
        let failed = |why: String| UpstreamError::Connect { why, refused: false };
        let connecting = TcpStream::connect(endpoint.address());
        let stream = match tokio::time::timeout(self.connect, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if is_local(&error) => return Err(UpstreamError::Local(error.to_string())),
            Ok(Err(error)) => {
                let refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
                return Err(UpstreamError::Connect { why: error.to_string(), refused });
            }
            Err(_) => return Err(failed(format!("no connection within {:?}", self.connect))),
        };
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        tokio::task::spawn_local(async move {
            // Its error is the error of the request that it carries, and is told there.
            let _ = connection.await;
        });
        Ok(sender)
    }

    async fn exchange(
        &self,
        sender: &mut SendRequest<RequestBody>,
        first_byte: Duration,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let broken = |error: hyper::Error| UpstreamError::Broken(chain(&error));
        let exchange = async {
            sender.ready().await.map_err(broken)?;
            sender.send_request(request).await.map_err(broken)
        };
        tokio::time::timeout(first_byte, exchange).await.unwrap_or(Err(UpstreamError::Silent(first_byte)))
    }
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
