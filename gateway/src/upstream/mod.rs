//! Connections to replicas: one set per core, kept for reuse; over HTTP/1.1 each carries one request at a time, over
//! HTTP/2 many.
//!
//! Knows addresses only. Which replica a request goes to is decided before, and whether a failure is tried elsewhere
//! after; here two things are transparent: a connection that the replica closed while it was idle, and a replica that
//! says it has not taken the request (GOAWAY, REFUSED_STREAM). Each costs one second try on another connection, and
//! only while no byte of an answer was seen. Whoever sends sees that it was sent again: `make` is called again.

pub mod dial;
mod lane;
mod name;
mod room;
pub mod tls;
pub mod wire;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tidegate_shared::time::Instant;
use tokio::sync::watch;

pub(crate) use lane::protocol_error;

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::layer::body::RequestBody;
use dial::{Fault, NoConnection};
use lane::{Lane, Lease};
use room::{IDLE, Line, Room};
use wire::{Protocol, Wire};

/// Largest head and read buffer of a response.
const BUFFER: usize = 512 * 1024;

/// Why no response came.
#[derive(Clone, Debug, Error)]
pub enum UpstreamError {
    /// No connection: nothing listens, the name is unknown, TLS fails, or it took longer than the limit.
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
    #[error("{why}")]
    Broken {
        /// What came instead.
        why: String,
        /// Bytes of an answer came: the replica has worked on the request, and broke the protocol.
        begun: bool,
    },
    /// No response head within the limit.
    #[error("no answer within {0:?}")]
    Silent(Duration),
}

impl From<NoConnection> for UpstreamError {
    fn from(none: NoConnection) -> Self {
        match none.fault {
            Fault::Local => Self::Local(none.why),
            fault => Self::Connect { why: none.why, refused: fault == Fault::Refused },
        }
    }
}

/// What carries one request.
#[derive(Debug)]
enum Link {
    Http1(Line),
    Http2(Lease),
}

/// A link, and whether it carried requests before.
struct Found {
    link: Link,
    reused: bool,
}

/// A failed try, and whether a second one is due.
struct Failure {
    error: UpstreamError,
    again: bool,
}

/// How opening a connection that others wait for has ended; `None` until then.
type Opening = watch::Receiver<Option<Result<(), UpstreamError>>>;

/// A connection that carries a response; give it back when the response is read to its end. Dropped, the connection is
/// closed, or the stream on it reset.
#[derive(Debug)]
pub struct Carrier {
    link: Link,
    upstream: Rc<Upstream>,
    endpoint: Arc<Endpoint>,
}

impl Carrier {
    /// The response was read to its end: the connection can carry the next request.
    pub fn give_back(self) {
        let Self { link, upstream, endpoint } = self;
        if let Link::Http1(line) = link
            && !endpoint.is_closed()
        {
            upstream.keep(line, &endpoint);
        }
    }
}

/// The connections of one core.
#[derive(Debug)]
pub struct Upstream {
    clock: Clock,
    /// By the address of the endpoint, which the room keeps from being reused.
    rooms: RefCell<HashMap<usize, Room>>,
}

impl Upstream {
    /// No connections yet.
    pub fn new(clock: Clock) -> Rc<Self> {
        Rc::new(Self { clock, rooms: RefCell::new(HashMap::new()) })
    }

    /// Sends a request and waits for the head of its response, at most `first_byte`. `make` builds the request, once each
    /// time that it is sent: a second time when an idle connection turns out to be dead or the replica has not taken the
    /// request (C-151). A replica that `had_it` before gets it once, and over no connection that may have died.
    ///
    /// # Errors
    /// See [`UpstreamError`]; in each case no whole head of a response was read.
    pub async fn send(
        self: &Rc<Self>,
        endpoint: &Arc<Endpoint>,
        first_byte: Duration,
        had_it: bool,
        mut make: impl FnMut() -> Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Carrier), UpstreamError> {
        let mut second = had_it;
        loop {
            let Found { mut link, reused } = self.link(endpoint, second).await?;
            let exchange = link.exchange(endpoint, reused, make());
            let silent = |_| Err(Failure { error: UpstreamError::Silent(first_byte), again: false });
            match tokio::time::timeout(first_byte, exchange).await.unwrap_or_else(silent) {
                Ok(response) => {
                    let (upstream, endpoint) = (Rc::clone(self), Arc::clone(endpoint));
                    return Ok((response, Carrier { link, upstream, endpoint }));
                }
                Err(Failure { again: true, .. }) if !second => second = true,
                Err(Failure { error, .. }) => return Err(error),
            }
        }
    }

    /// Closes connections that were idle for too long or whose replica is gone; for ever.
    pub async fn sweep(self: Rc<Self>) {
        let mut tick = tokio::time::interval(IDLE / 2);
        loop {
            tick.tick().await;
            let now = self.clock.now();
            self.rooms.borrow_mut().retain(|_, room| room.sweep(now));
        }
    }

    /// Something to send a request over. For a `second` try no connection that rested serves.
    async fn link(self: &Rc<Self>, endpoint: &Arc<Endpoint>, second: bool) -> Result<Found, UpstreamError> {
        loop {
            let now = self.clock.now();
            let shares = endpoint.site().may_speak_http2();
            if let Some(room) = self.rooms.borrow_mut().get_mut(&key(endpoint)) {
                if let Some(lease) = room.lease(now) {
                    return Ok(Found { link: Link::Http2(lease), reused: true });
                }
                if !second && let Some(line) = room.line(now) {
                    return Ok(Found { link: Link::Http1(line), reused: true });
                }
            }
            if !shares {
                return self.open(endpoint).await.map(|link| Found { link, reused: false });
            }
            let mut opening = self.opening(endpoint);
            let ended = opening.wait_for(Option::is_some).await.map(|ended| ended.clone());
            ended.ok().flatten().unwrap_or_else(|| Err(NoConnection::new("cut off").into()))?;
        }
    }

    /// The connection that is being opened for all who want to share it.
    fn opening(self: &Rc<Self>, endpoint: &Arc<Endpoint>) -> Opening {
        if let Some(opening) = self.room(endpoint, |room| room.opening.clone()) {
            return opening;
        }
        let (ended, opening) = watch::channel(None);
        self.room(endpoint, |room| room.opening = Some(opening.clone()));
        let (upstream, endpoint) = (Rc::clone(self), Arc::clone(endpoint));
        tokio::task::spawn_local(async move {
            let opened = upstream.open(&endpoint).await;
            upstream.room(&endpoint, |room| room.opening = None);
            let kept = opened.map(|link| match link {
                Link::Http1(line) => upstream.keep(line, &endpoint),
                Link::Http2(lease) => drop(lease),
            });
            ended.send_replace(Some(kept));
        });
        opening
    }

    /// A new connection. One that can be shared is in the room as well.
    async fn open(&self, endpoint: &Arc<Endpoint>) -> Result<Link, UpstreamError> {
        let site = endpoint.site();
        let end = site.limit_from_now();
        let (wire, protocol) = site.dial_until(end).await?;
        match protocol {
            Protocol::Http1 => Ok(Link::Http1(line(wire, self.clock.now()).await?)),
            Protocol::Http2 => {
                let lane = site.step("HTTP/2 settings", end, Lane::open(wire, self.clock)).await?;
                let lease = lane.lease().ok_or_else(|| NoConnection::new("it takes no streams"))?;
                self.room(endpoint, |room| room.share(lane));
                Ok(Link::Http2(lease))
            }
        }
    }

    /// A line that rests from now on.
    fn keep(&self, line: Line, endpoint: &Arc<Endpoint>) {
        let now = self.clock.now();
        self.room(endpoint, |room| room.keep(line, now));
    }

    fn room<T>(&self, endpoint: &Arc<Endpoint>, visit: impl FnOnce(&mut Room) -> T) -> T {
        let mut rooms = self.rooms.borrow_mut();
        visit(rooms.entry(key(endpoint)).or_insert_with(|| Room::new(Arc::clone(endpoint))))
    }
}

fn key(endpoint: &Arc<Endpoint>) -> usize {
    Arc::as_ptr(endpoint) as usize
}

async fn line(wire: Wire, opened: Instant) -> Result<Line, NoConnection> {
    let heard = wire.heard();
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(|error| NoConnection::new(chain(&error)))?;
    tokio::task::spawn_local(async move {
        // Its error is the error of the request that it carries, and is told there.
        let _ = connection.await;
    });
    Ok(Line { sender, heard, opened, spent: false })
}

impl Link {
    async fn exchange(
        &mut self,
        endpoint: &Endpoint,
        reused: bool,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Failure> {
        match self {
            Self::Http1(line) => {
                line.heard.forget();
                let answer = async {
                    line.sender.ready().await?;
                    line.sender.send_request(request).await
                };
                let response = match answer.await {
                    Ok(response) => response,
                    Err(error) => {
                        let begun = line.heard.anything();
                        return Err(broken(&error, begun, reused && !begun));
                    }
                };
                line.spent = has_two_lengths(response.headers());
                Ok(response)
            }
            Self::Http2(lease) => lease
                .exchange(endpoint.site(), request)
                .await
                .map_err(|unanswered| broken(&unanswered.error, unanswered.begun, unanswered.again)),
        }
    }
}

fn broken(error: &hyper::Error, begun: bool, again: bool) -> Failure {
    Failure { error: UpstreamError::Broken { why: chain(error), begun }, again }
}

/// Two statements on where an answer ends may be an attempt to hide a second answer in the first: the transfer coding
/// counts, and nothing else is read from that connection (RFC 9112, 6.3).
fn has_two_lengths(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
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
