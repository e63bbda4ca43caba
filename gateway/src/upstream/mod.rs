//! Connections to replicas: one set per core, kept for reuse; over HTTP/1.1 each carries one request at a time, over
//! HTTP/2 many.
//!
//! Knows addresses only. Which replica a request goes to is decided before, and whether a failure is tried elsewhere
//! after; here two things are transparent: a connection that the replica closed while it was idle, and a replica that
//! says it has not taken the request (GOAWAY, REFUSED_STREAM). Each costs one second try on another connection, and
//! only while no byte of an answer was seen. Whoever sends is told how often it was sent.

mod answer;
pub mod dial;
mod lane;
mod line;
mod name;
mod room;
pub mod tls;
pub mod wire;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Uri};
use thiserror::Error;
use tokio::sync::watch;

pub use answer::{Answer, AnswerError};

pub(crate) use lane::protocol_error;

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::http1::fields::Fields;
use crate::http1::head::{BadHead, ResponseHead};
use crate::layer::body::RequestBody;
use dial::{Fault, NoConnection};
use lane::{Lane, Lease};
use line::{Broken, Line};
use room::{IDLE, Room};
use wire::Protocol;

/// A request as it goes to one replica.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its target, a path.
    pub target: &'a Uri,
    /// The host that the replica expects.
    pub host: &'a HeaderValue,
    /// Its fields; those that name the host and the length are added.
    pub fields: &'a Fields,
    /// Its body.
    pub body: &'a RequestBody,
}

impl Outgoing<'_> {
    /// For HTTP/2, where it is kept until it is sent.
    fn owned(&self) -> Request<RequestBody> {
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.fields.to_map();
        request
    }
}

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
    /// What came is no head of an answer, or not of one that can be read.
    #[error("it is not HTTP/1.1: {0}")]
    Head(BadHead),
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

/// The connections of one core.
#[derive(Debug)]
pub struct Upstream {
    clock: Clock,
    /// By the address of the endpoint, which the room keeps from being reused.
    rooms: RefCell<BTreeMap<usize, Room>>,
}

impl Upstream {
    /// No connections yet.
    pub fn new(clock: Clock) -> Rc<Self> {
        Rc::new(Self { clock, rooms: RefCell::default() })
    }

    /// Sends a request and waits for the head of its response, at most `first_byte`. It is sent a second time when an idle
    /// connection turns out to be dead or the replica has not taken the request (C-151); `sends` counts how often it was.
    /// A replica that `had_it` before gets it once, and over no connection that may have died.
    ///
    /// # Errors
    /// See [`UpstreamError`]; in each case no whole head of a response was read.
    pub async fn send(
        self: &Rc<Self>,
        endpoint: &Arc<Endpoint>,
        first_byte: Duration,
        had_it: bool,
        request: Outgoing<'_>,
        sends: &mut usize,
    ) -> Result<(ResponseHead, Answer), UpstreamError> {
        let mut second = had_it;
        loop {
            let Found { link, reused } = match self.at_hand(endpoint, second) {
                Some(found) => found,
                // Rare and large: kept out of what each request carries along.
                None => Box::pin(self.link(endpoint, second)).await?,
            };
            *sends += 1;
            match self.exchange(link, endpoint, reused, first_byte, &request).await {
                Ok(answer) => return Ok(answer),
                Err(Failure { again: true, .. }) if !second => second = true,
                Err(Failure { error, .. }) => return Err(error),
            }
        }
    }

    async fn exchange(
        self: &Rc<Self>,
        link: Link,
        endpoint: &Arc<Endpoint>,
        reused: bool,
        first_byte: Duration,
        request: &Outgoing<'_>,
    ) -> Result<(ResponseHead, Answer), Failure> {
        let silent = || Failure { error: UpstreamError::Silent(first_byte), again: false };
        match link {
            Link::Http1(line) => {
                match line.exchange(request, self.clock, self.clock.in_turn() + first_byte).await {
                    Ok((head, answer)) => Ok((head, Answer::http1(answer, self, endpoint))),
                    Err((Broken::Late, _)) => Err(silent()),
                    Err((Broken::Head(bad), _)) => {
                        Err(Failure { error: UpstreamError::Head(bad), again: false })
                    }
                    Err((error, begun)) => Err(broken(chain(&error), begun, reused && !begun)),
                }
            }
            Link::Http2(lease) => {
                let answer = Box::pin(lease.exchange(endpoint.site(), request.owned()));
                let answer = tokio::time::timeout(first_byte, answer).await.map_err(|_| silent())?;
                let answer = answer.map_err(|unanswered| {
                    broken(chain(&unanswered.error), unanswered.begun, unanswered.again)
                })?;
                let (head, body) = answer.into_parts();
                let head = ResponseHead { status: head.status, fields: Fields::from(&head.headers) };
                Ok((head, Answer::http2(body, lease)))
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

    /// A connection that is open already and can carry a request. For a `second` try none that rested serves.
    fn at_hand(&self, endpoint: &Arc<Endpoint>, second: bool) -> Option<Found> {
        let mut rooms = self.rooms.borrow_mut();
        let room = rooms.get_mut(&key(endpoint))?;
        let now = self.clock.in_turn();
        let shared = room.lease(now).map(Link::Http2);
        let link = shared.or_else(|| if second { None } else { room.line(now).map(Link::Http1) });
        link.map(|link| Found { link, reused: true })
    }

    /// Something to send a request over, opened if need be. For a `second` try no connection that rested serves.
    async fn link(self: &Rc<Self>, endpoint: &Arc<Endpoint>, second: bool) -> Result<Found, UpstreamError> {
        loop {
            let shares = endpoint.site().may_speak_http2();
            if let Some(found) = self.at_hand(endpoint, second) {
                return Ok(found);
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
            Protocol::Http1 => Ok(Link::Http1(Line::new(wire, self.clock.now()))),
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
        let now = self.clock.in_turn();
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

fn broken(why: String, begun: bool, again: bool) -> Failure {
    Failure { error: UpstreamError::Broken { why, begun }, again }
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
