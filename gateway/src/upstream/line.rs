//! One HTTP/1.1 connection to a replica, which carries one request at a time, and the answer on it.
//!
//! Driven by whoever sends the request and then reads the answer: there is no task and no queue between. Dropped at any
//! moment before the answer was read to its end, it is closed. Opens no connection and sends nothing again.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::SizeHint;
use smallvec::SmallVec;
use thiserror::Error;
use tidegate_shared::time::Instant;
use tokio::io::AsyncWrite;

use super::Outgoing;
use super::wire::Wire;
use crate::clock::{Alarm, Clock};
use crate::http1::body::Left;
use crate::http1::chunks::BadChunk;
use crate::http1::fill::{is_quiet, poll_fill};
use crate::http1::head::{self, BadHead, ResponseHead};
use crate::http1::spare;
use crate::http1::turn::Turn;
use crate::http1::write;

/// A body up to this size is copied behind its head, so that both leave in one write.
const COPIED: u64 = 16 << 10;
/// Pieces of a request that are written at a time.
const PIECES: usize = 6;

/// Why there is no answer, or no more of it.
#[derive(Debug, Error)]
pub enum Broken {
    /// The connection failed.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// Nothing came in time.
    #[error("no answer came in time")]
    Late,
    /// It ended.
    #[error("the connection was closed before the end of the answer")]
    Ended,
    /// What came is no head of an answer.
    #[error("it is not HTTP/1.1: {0}")]
    Head(#[from] BadHead),
    /// What came is no chunk.
    #[error("it is not HTTP/1.1: {0}")]
    Chunk(#[from] BadChunk),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    wire: Wire,
    opened: Instant,
    /// For the limit on the time to the first byte of an answer.
    alarm: Alarm,
}

/// A request on its way out.
#[derive(Debug)]
struct Sending {
    /// The head, and a small body behind it.
    head: Vec<u8>,
    /// Bytes of it that were sent.
    sent: usize,
    /// The pieces of a large body.
    rest: Vec<Bytes>,
}

/// The answer on a line; whatever is left of the request goes out while it is read.
#[derive(Debug)]
pub(super) struct LineAnswer {
    line: Line,
    /// Came, and is not looked at yet.
    ahead: BytesMut,
    left: Left,
    keeps: bool,
    sending: Option<Box<Sending>>,
}

impl Line {
    pub(super) fn new(wire: Wire, opened: Instant) -> Self {
        Self { wire, opened, alarm: Alarm::default() }
    }

    /// When it was opened.
    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    /// Whether the replica has neither ended it nor said a word while it was at rest.
    pub(super) fn is_quiet(&mut self) -> bool {
        is_quiet(&mut self.wire)
    }

    /// Sends a request and waits for the head of the answer until `by`.
    ///
    /// # Errors
    /// What went wrong, and whether a byte of an answer had come.
    pub(super) async fn exchange(
        self,
        request: &Outgoing<'_>,
        clock: Clock,
        by: Instant,
    ) -> Result<(ResponseHead, LineAnswer), (Broken, bool)> {
        let mut turn = Turn::default();
        poll_fn(|cx| turn.poll(cx)).await;
        // Only now, so that requests that wait for their turn share one piece of memory for their heads.
        let mut sending = Some(Sending::new(request));
        let mut line = self;
        let mut ahead = BytesMut::new();
        let mut seen = 0;
        // Also when all of it was interim answers, of which nothing is left.
        let mut begun = false;
        let mut unsent = None;
        let answer = poll_fn(|cx| {
            if let Some(rest) = &mut sending {
                match rest.poll(&mut line.wire, cx) {
                    Poll::Ready(Ok(())) => sending = None,
                    // It may have answered before it closed.
                    Poll::Ready(Err(error)) => (sending, unsent) = (None, Some(error)),
                    Poll::Pending => {}
                }
            }
            loop {
                match poll_fill(&mut line.wire, cx, &mut ahead) {
                    Poll::Ready(Ok(1..)) => begun = true,
                    Poll::Ready(Ok(_)) => return Poll::Ready(Err(Broken::Ended)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => {
                        let late = line.alarm.is_late(cx, clock, by).then_some(Broken::Late);
                        let ended = unsent.take().map(Broken::from).or(late);
                        return ended.map_or(Poll::Pending, |broken| Poll::Ready(Err(broken)));
                    }
                }
                match head::response(&mut ahead, seen) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => seen = ahead.len(),
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
        });
        match answer.await {
            Ok(head) => {
                let keeps = head.keeps && unsent.is_none();
                let sending = sending.map(Box::new);
                let answer = LineAnswer { line, ahead, left: head.body, keeps, sending };
                Ok((head.message, answer))
            }
            Err(error) => Err((error, begun)),
        }
    }
}

impl LineAnswer {
    /// The next bytes of the answer; `None` at its end.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(rest) = &mut self.sending {
            match rest.poll(&mut self.line.wire, cx) {
                Poll::Ready(Ok(())) => self.sending = None,
                Poll::Ready(Err(_)) => (self.sending, self.keeps) = (None, false),
                Poll::Pending => {}
            }
        }
        loop {
            // Mostly nothing is ahead.
            let taken = if self.ahead.is_empty() { Ok(None) } else { self.left.take(&mut self.ahead) };
            match taken {
                Ok(Some(data)) => {
                    // What is empty would still keep the shared memory from its next use.
                    if self.ahead.is_empty() {
                        self.ahead = BytesMut::new();
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
                Ok(None) if self.left.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            match ready!(poll_fill(&mut self.line.wire, cx, &mut self.ahead)) {
                Ok(1..) => {}
                Ok(_) if self.left.ends_with_connection() => {
                    self.left = Left::NONE;
                    return Poll::Ready(None);
                }
                Ok(_) => return Poll::Ready(Some(Err(Broken::Ended))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    /// Whether all of the answer was read.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_over()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.left.size_hint()
    }

    /// The connection, if it can carry another request: all was said on both sides, and nothing more than that.
    pub(super) fn into_line(self) -> Option<Line> {
        let done = self.left.is_over() && self.ahead.is_empty() && self.sending.is_none();
        (done && self.keeps).then_some(self.line)
    }
}

impl Sending {
    fn new(request: &Outgoing<'_>) -> Self {
        let body = request.body;
        let length = body.length();
        let mut head = spare::take();
        let Outgoing { method, target, host, fields, .. } = request;
        write::request(&mut head, method, target, host, fields, length);
        let mut rest = Vec::new();
        if length <= COPIED {
            body.pieces().for_each(|piece| head.extend_from_slice(piece));
        } else {
            rest.extend(body.pieces().filter(|piece| !piece.is_empty()).cloned());
        }
        Self { head, sent: 0, rest }
    }

    fn poll(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let head = self.head.get(self.sent..).unwrap_or_default();
            let written = if self.rest.is_empty() {
                if head.is_empty() {
                    break;
                }
                ready!(Pin::new(&mut *wire).poll_write(cx, head))?
            } else {
                let pieces = std::iter::once(head).chain(self.rest.iter().map(|piece| &**piece));
                let slices: SmallVec<[IoSlice<'_>; PIECES]> = pieces.take(PIECES).map(IoSlice::new).collect();
                ready!(Pin::new(&mut *wire).poll_write_vectored(cx, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Pin::new(wire).poll_flush(cx)
    }

    fn advance(&mut self, written: usize) {
        let of_head = written.min(self.head.len() - self.sent);
        self.sent += of_head;
        let mut left = written - of_head;
        while let Some(first) = self.rest.first_mut() {
            if left < first.len() {
                return first.advance(left);
            }
            left -= first.len();
            self.rest.remove(0);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        spare::give(std::mem::take(&mut self.head));
    }
}
