//! One HTTP/2 connection to a replica and the requests that share it.
//!
//! Knows how many more the replica takes on it, and tells which failed requests the replica has certainly not worked
//! on. Opens no other connection and sends nothing again.

use std::cell::{Cell, RefCell};
use std::error::Error as _;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HOST;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, Connection, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_shared::time::Instant;
use tokio::sync::Notify;

use super::dial::{NoConnection, Site};
use super::wire::{Heard, Wire};
use crate::clock::Clock;
use crate::layer::body::RequestBody;

/// Requests at a time on one connection, whatever the replica allows.
const STREAMS: u32 = 256;
/// Bytes that a replica may send ahead of one slow client.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all streams together: so much that a slow client never stops the answers of others.
const WINDOW: u32 = STREAM_WINDOW * STREAMS;
/// Largest list of headers in an answer, in bytes.
const HEADERS: u32 = 64 << 10;
/// A ping after this long without a byte, while requests run.
const PING: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take: an engine in a long prefill may be slow to answer (C-006).
const PONG: Duration = Duration::from_secs(60);

type Http2 = Connection<TokioIo<Wire>, RequestBody, Executor>;

/// Shared by the task that drives it and those who ask it for room; gone once it has ended, and with it all requests that
/// it had not sent.
#[derive(Clone, Debug)]
struct Driven(Rc<RefCell<Option<Http2>>>);

impl Driven {
    /// Streams at a time that the replica takes; none before its settings have come, `None` after the end.
    fn streams(&self) -> Option<usize> {
        self.0.borrow().as_ref().map(Connection::current_max_send_streams)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut connection = self.0.borrow_mut();
        match connection.as_mut().map(|connection| Pin::new(connection).poll(cx)) {
            Some(Poll::Pending) => Poll::Pending,
            // Its error is the error of the requests that it carries, and is told there.
            Some(Poll::Ready(_)) | None => {
                *connection = None;
                Poll::Ready(())
            }
        }
    }
}

/// See the module. Dropped by all who use it, the connection is closed when its last stream has ended.
#[derive(Debug)]
pub(super) struct Lane {
    sender: SendRequest<RequestBody>,
    connection: Driven,
    heard: Heard,
    clock: Clock,
    opened: Instant,
    /// Requests that run on it.
    streams: Cell<usize>,
    /// Whether it has ever carried one.
    used: Cell<bool>,
    /// When the last one ended.
    idle_since: Cell<Instant>,
    retired: Cell<bool>,
}

impl Lane {
    /// Speaks HTTP/2 over `wire` and waits until the replica has said how many streams it takes.
    ///
    /// # Errors
    /// The other side does not speak HTTP/2.
    pub(super) async fn open(wire: Wire, clock: Clock) -> Result<Rc<Self>, NoConnection> {
        let heard = wire.heard();
        let executor = Executor::default();
        let progress = Rc::clone(&executor.progress);
        let (sender, connection) = http2::Builder::new(executor)
            .timer(TokioTimer::new())
            // None before its settings have come.
            .initial_max_send_streams(0)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HEADERS)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|error| NoConnection::new(protocol_error(&error)))?;
        let connection = Driven(Rc::new(RefCell::new(Some(connection))));
        let driven = connection.clone();
        let driver = Rc::clone(&progress);
        tokio::task::spawn_local(async move {
            poll_fn(|cx| driven.poll(cx)).await;
            driver.notify_one();
        });
        loop {
            match connection.streams() {
                Some(0) => progress.notified().await,
                Some(_) => break,
                None => {
                    let nothing = "it ended the connection before it sent HTTP/2 settings";
                    return Err(NoConnection::new(protocol_error(&nothing)));
                }
            }
        }
        let opened = clock.now();
        Ok(Rc::new(Self {
            sender,
            connection,
            heard,
            clock,
            opened,
            streams: Cell::new(0),
            used: Cell::new(false),
            idle_since: Cell::new(opened),
            retired: Cell::new(false),
        }))
    }

    /// A place for one more request, if there is one.
    pub(super) fn lease(self: &Rc<Self>) -> Option<Lease> {
        let most = self.connection.streams()?.min(STREAMS as usize);
        let streams = self.streams.get();
        if self.is_over() || streams >= most {
            return None;
        }
        self.streams.set(streams + 1);
        Some(Lease { lane: Rc::clone(self), alone: streams == 0 })
    }

    /// Whether it takes no more requests. Those that run on it run to their end.
    pub(super) fn is_over(&self) -> bool {
        self.retired.get() || self.sender.is_closed()
    }

    /// When it was opened.
    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    /// Since when it has carried nothing; `None` while it carries something.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.streams.get() == 0).then(|| self.idle_since.get())
    }
}

/// A request's place on a [`Lane`], until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    lane: Rc<Lane>,
    /// Nothing else ran on the connection when the request came.
    alone: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// What went wrong.
    pub(super) error: hyper::Error,
    /// The replica has not worked on the request, or closed the connection while it was idle: it may be sent again.
    pub(super) again: bool,
    /// An answer came that breaks the protocol.
    pub(super) begun: bool,
}

impl Lease {
    /// Sends a request, whose target is a path, and waits for the head of the answer.
    ///
    /// # Errors
    /// See [`Unanswered`]. Where the request may be sent again, this connection takes no more.
    pub(super) async fn exchange(
        &self,
        site: &Site,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Unanswered> {
        if let Some(target) = site.absolute(request.uri().path_and_query()) {
            *request.uri_mut() = target;
        }
        // The target says it.
        request.headers_mut().remove(HOST);
        let rested = self.alone && self.lane.used.get();
        self.lane.used.set(true);
        if rested {
            self.lane.heard.forget();
        }
        self.lane.sender.clone().send_request(request).await.map_err(|error| {
            let again = is_untouched(&error) || (rested && !self.lane.heard.anything());
            if again {
                self.lane.retired.set(true);
            }
            let begun = is_malformed(&error);
            Unanswered { error, again, begun }
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lane.streams.set(self.lane.streams.get().saturating_sub(1));
        self.lane.idle_since.set(self.lane.clock.now());
    }
}

/// Whether the replica has not worked on the request that failed so: it never left, the replica goes away and its last
/// stream came before (RFC 9113, 6.8), or it refused the stream (8.7).
fn is_untouched(error: &hyper::Error) -> bool {
    if error.is_canceled() {
        return true;
    }
    let refuses =
        |inner: &h2::Error| inner.is_go_away() || inner.reason() == Some(h2::Reason::REFUSED_STREAM);
    cause(error).is_some_and(|inner| inner.is_remote() && refuses(inner))
}

/// Whether frames came for the request that make no answer, so that its stream was reset from here. A connection that
/// breaks as a whole says nothing of whose answers had begun.
fn is_malformed(error: &hyper::Error) -> bool {
    cause(error).is_some_and(|inner| inner.is_library() && inner.is_reset())
}

fn cause(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

/// What is wrong with the other side's HTTP/2, for an operator.
pub(crate) fn protocol_error(error: &dyn fmt::Display) -> String {
    format!("protocol_error: {error}; does it speak HTTP/2?")
}

/// Runs the tasks of a connection on its own core, and tells after each step that something may have changed.
#[derive(Clone, Debug, Default)]
struct Executor {
    progress: Rc<Notify>,
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: 'static> + 'static,
{
    fn execute(&self, task: F) {
        let progress = Rc::clone(&self.progress);
        tokio::task::spawn_local(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                let done = task.as_mut().poll(cx);
                progress.notify_one();
                done
            })
            .await;
        });
    }
}
