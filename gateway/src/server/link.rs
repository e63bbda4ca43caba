//! One HTTP/1.1 connection to a client: what came and is not used yet, and the body that is being read.
//!
//! Reads when asked, says when the client has left, and knows when it has been silent for too long. Understands no
//! request.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use hyper::body::Incoming;
use thiserror::Error;
use tidegate_shared::time::Instant;
use tokio::io::AsyncWrite;

use super::client::ClientStream;
use crate::clock::{Alarm, Clock};
use crate::http1::body::Left;
use crate::http1::chunks::BadChunk;
use crate::http1::fill::{poll_fill, poll_read_into, settle};
use crate::http1::head::{self, BadHead, Head, RequestHead};
use crate::layer::read::{self, Source};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: ClientStream,
    /// Came, and is not used yet.
    pub(super) ahead: BytesMut,
    /// How much of it was looked at for a head.
    seen: usize,
    /// The body of the present request.
    body: Left,
    /// What of `100 Continue` is to be sent before the body is read.
    expected: &'static [u8],
    /// For the limit on silence.
    alarm: Alarm,
}

/// What reading for a request came to.
#[expect(clippy::large_enum_variant, reason = "taken apart where it is made, once for each request")]
pub(super) enum Next {
    Request(Head<RequestHead>),
    Bad(BadHead),
    /// The client has left.
    End,
}

impl Link {
    pub(super) fn new(stream: ClientStream, ahead: BytesMut) -> Self {
        Self { stream, ahead, seen: 0, body: Left::NONE, expected: &[], alarm: Alarm::default() }
    }

    /// Whether nothing of a next request has come. The empty lines that some clients send after a body are dropped.
    pub(super) fn is_idle(&mut self) -> bool {
        self.seen = self.seen.saturating_sub(head::skip_empty_lines(&mut self.ahead));
        self.ahead.is_empty()
    }

    /// The next request. Its body is to be read from here on.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            match head::request(&mut self.ahead, self.seen) {
                Ok(Some(head)) => {
                    self.seen = 0;
                    self.body = head.body.clone();
                    self.expected = if head.expects { CONTINUE } else { &[] };
                    if self.ahead.is_empty() {
                        self.ahead = BytesMut::new();
                    }
                    return Poll::Ready(Next::Request(head));
                }
                Ok(None) => self.seen = self.ahead.len(),
                Err(bad) => return Poll::Ready(Next::Bad(bad)),
            }
            match ready!(poll_fill(&mut self.stream, cx, &mut self.ahead)) {
                Ok(1..) => {}
                Ok(_) | Err(_) => return Poll::Ready(Next::End),
            }
        }
    }

    /// Whether the moment `by` has passed; else the task is woken when it has.
    pub(super) fn is_late(&mut self, cx: &mut Context<'_>, clock: Clock, by: Instant) -> bool {
        self.alarm.is_late(cx, clock, by)
    }

    /// Resolves when the client has left, while its request is served or answered (H7).
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.body.is_over() {
            // Whoever reads the body sees it.
            return Poll::Pending;
        }
        if self.ahead.is_empty() {
            match ready!(poll_fill(&mut self.stream, cx, &mut self.ahead)) {
                Ok(1..) => settle(&mut self.ahead),
                Ok(_) | Err(_) => return Poll::Ready(()),
            }
        }
        self.stream.poll_left(cx)
    }

    /// Whether all of the present request was read, or the rest of it has come and is dropped here.
    pub(super) fn is_read(&mut self) -> bool {
        while !self.body.is_over() {
            match self.body.take(&mut self.ahead) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.body.is_over()
    }

    /// More of the body; 0 at its end.
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, BodyError>> {
        ready!(self.poll_go_on(cx))?;
        loop {
            if self.body.is_over() {
                return Poll::Ready(Ok(0));
            }
            if let (Left::Length(left), true) = (&mut self.body, self.ahead.is_empty()) {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let read = ready!(poll_read_into(&mut self.stream, cx, into, most))?;
                *left -= read as u64;
                return Poll::Ready(if read == 0 { Err(BodyError::Ended) } else { Ok(read) });
            }
            let (mut read, before) = (0, self.ahead.len());
            while let Some(data) = self.body.take(&mut self.ahead)? {
                into.extend_from_slice(&data);
                read += data.len();
            }
            if read > 0 {
                settle(&mut self.ahead);
                return Poll::Ready(Ok(read));
            }
            debug_assert!(before == 0 || self.ahead.is_empty() || self.body.is_over());
            if !self.body.is_over() && ready!(poll_fill(&mut self.stream, cx, &mut self.ahead))? == 0 {
                return Poll::Ready(Err(BodyError::Ended));
            }
        }
    }

    /// Tells a client that waits for it to go on, unless it has not waited.
    fn poll_go_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.expected.is_empty() {
            if self.expected.len() == CONTINUE.len() && !self.ahead.is_empty() {
                self.expected = &[];
                break;
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, self.expected))?;
            self.expected = self.expected.get(written..).unwrap_or_default();
        }
        Poll::Ready(Ok(()))
    }
}

/// Why a body has no end.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended in the middle.
    #[error("the connection ended in the middle of the body")]
    Ended,
    /// It is not chunked as it should be.
    #[error(transparent)]
    Chunk(#[from] BadChunk),
    /// Over HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

/// The body of a client's request.
#[derive(Debug)]
pub struct ClientBody(Kind);

#[derive(Debug)]
enum Kind {
    Http1(Rc<RefCell<Link>>),
    Http2(Incoming),
}

impl ClientBody {
    /// The body that `link` is about to read.
    pub(super) fn http1(link: &Rc<RefCell<Link>>) -> Self {
        Self(Kind::Http1(Rc::clone(link)))
    }

    pub(super) fn http2(body: Incoming) -> Self {
        Self(Kind::Http2(body))
    }

    /// It will not be read to its end: what is left of it is thrown away, within bounds, so that the client gets to see
    /// its answer. Over HTTP/1.1 the connection does that, when it has answered.
    pub fn discard(self) {
        if let Kind::Http2(body) = self.0 {
            tokio::task::spawn_local(read::discard(body));
        }
    }
}

impl Source for ClientBody {
    type Error = BodyError;

    fn announced(&self) -> Option<u64> {
        match &self.0 {
            Kind::Http1(link) => link.borrow().body.size_hint().exact(),
            Kind::Http2(body) => body.announced(),
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, BodyError>> {
        match &mut self.0 {
            Kind::Http1(link) => link.borrow_mut().poll_body(cx, into),
            Kind::Http2(body) => body.poll_more(cx, into).map_err(Into::into),
        }
    }
}
