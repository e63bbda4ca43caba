//! An answer on its way to a client of HTTP/1.1: its head and each piece of its body leave as soon as they are there
//! (C-011), together where they are there by then; the last of it in the next turn of the task, in a burst with others.
//!
//! Holds what the client has not taken yet, within bounds, asks for no more of the answer beyond them, and says until
//! when the client may take what waits (H6). Makes no answer by itself.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::Body;
use tidegate_shared::time::Instant;
use tokio::io::AsyncWrite;

use crate::clock::Clock;
use crate::http1::spare;
use crate::http1::turn::Turn;
use crate::http1::write::{self, Framing};
use crate::layer::body::ResponseBody;
use crate::layer::relay::Pauses;

/// A piece up to this size is copied behind what waits before it.
const COPIED: usize = 16 << 10;
/// With so many bytes that wait, the body is not asked for more.
const ENOUGH: usize = 32 << 10;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it was sent.
    Whole,
    /// It broke off, or the client left.
    Cut,
}

/// See the module.
pub(super) struct Reply {
    waiting: Waiting,
    framing: Framing,
    /// Bytes of the body to come, where its length was told.
    left: u64,
    /// Kept to the end: with it goes the record of the request.
    body: Option<ResponseBody>,
    /// There is no more of the body.
    over: bool,
    cut: bool,
    /// What has come leaves when it is over.
    turn: Turn,
    pauses: Pauses,
}

impl Reply {
    /// `head` writes the head. A `body` of `None` is not sent, whatever the head says of it.
    pub(super) fn new(head: impl FnOnce(&mut Vec<u8>), framing: Framing, body: Option<ResponseBody>) -> Self {
        let mut waiting = Waiting::default();
        head(waiting.small());
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        let over = body.is_none();
        let (turn, pauses) = (Turn::default(), Pauses::new());
        Self { waiting, framing, left, body, over, cut: false, turn, pauses }
    }

    /// Sends what there is, until all is sent.
    pub(super) fn poll<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<Sent> {
        loop {
            let pending = self.gather(cx);
            // A token is waited for, and nothing is saved where its reader is up to date.
            if self.over && !self.waiting.is_empty() {
                ready!(self.turn.poll(cx));
            }
            if ready!(self.waiting.poll(stream, cx)).is_err() {
                return Poll::Ready(Sent::Cut);
            }
            self.turn = Turn::default();
            if self.over {
                return Poll::Ready(if self.cut { Sent::Cut } else { Sent::Whole });
            }
            if pending {
                return Poll::Pending;
            }
        }
    }

    /// Whether it waits for its turn only.
    pub(super) fn is_next(&self) -> bool {
        self.turn == Turn::Next
    }

    /// When the client is given up, if it takes nothing until then; `None` while nothing waits for it. The same limits as
    /// for answers of replicas in general: here they count also when the replica has done its part.
    pub(super) fn until(&mut self, clock: Clock, limit: Duration) -> Option<Instant> {
        let waits = !self.waiting.is_empty();
        if !waits && !self.pauses.is_pausing() {
            return None;
        }
        self.pauses.until(clock.now(), (waits, self.waiting.taken), limit, ())
    }

    /// The client is too slow. Whether this is new: an answer may have been taken away before.
    pub(super) fn give_up(&mut self) -> bool {
        self.body.as_mut().is_none_or(ResponseBody::give_up)
    }

    /// Takes what the body has, up to a bound; whether it has nothing at present.
    fn gather(&mut self, cx: &mut Context<'_>) -> bool {
        while self.waiting.has_room()
            && !self.over
            && let Some(body) = &mut self.body
        {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok(frame))) => {
                    let over = body.is_end_stream();
                    if let Ok(data) = frame.into_data() {
                        self.push(data);
                    }
                    if over {
                        self.end();
                    }
                }
                Poll::Ready(Some(Err(_))) => (self.over, self.cut) = (true, true),
                Poll::Ready(None) => self.end(),
            }
        }
        false
    }

    fn push(&mut self, mut data: Bytes) {
        match self.framing {
            // A chunk of nothing would be the last.
            Framing::Chunked if !data.is_empty() => self.waiting.push_chunk(data),
            Framing::Length(_) => {
                data.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= data.len() as u64;
                self.waiting.push(data);
            }
            Framing::Close => self.waiting.push(data),
            Framing::Chunked | Framing::None => {}
        }
    }

    fn end(&mut self) {
        self.over = true;
        match self.framing {
            Framing::Chunked => self.waiting.push_end(),
            Framing::Length(_) => self.cut = self.left > 0,
            Framing::Close | Framing::None => {}
        }
    }
}

/// Bytes that wait for the client, in this order.
#[derive(Default)]
struct Waiting {
    small: Vec<u8>,
    /// Bytes of `small` that were sent.
    sent: usize,
    large: Bytes,
    tail: &'static [u8],
    /// What was given to the stream is still there: inside TLS that happens.
    in_stream: bool,
    /// Bytes that the client has taken so far.
    taken: u64,
}

impl Waiting {
    fn small(&mut self) -> &mut Vec<u8> {
        if self.small.capacity() == 0 {
            self.small = spare::take();
        }
        &mut self.small
    }

    fn is_empty(&self) -> bool {
        self.sent >= self.small.len() && self.large.is_empty() && self.tail.is_empty() && !self.in_stream
    }

    fn has_room(&self) -> bool {
        self.large.is_empty() && self.tail.is_empty() && self.small.len() < ENOUGH
    }

    fn push(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            self.small().extend_from_slice(&data);
        } else {
            self.large = data;
        }
    }

    fn push_chunk(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            write::chunk(self.small(), &data);
        } else {
            write::chunk_size(self.small(), data.len());
            (self.large, self.tail) = (data, b"\r\n");
        }
    }

    fn push_end(&mut self) {
        if self.large.is_empty() && self.tail.is_empty() {
            self.small().extend_from_slice(b"0\r\n\r\n");
        } else {
            self.tail = b"\r\n0\r\n\r\n";
        }
    }

    fn poll<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let small = self.small.get(self.sent..).unwrap_or_default();
            if small.is_empty() && self.large.is_empty() && self.tail.is_empty() {
                break;
            }
            let mut stream = Pin::new(&mut *stream);
            let written = if self.large.is_empty() && self.tail.is_empty() {
                ready!(stream.as_mut().poll_write(cx, small))?
            } else {
                let slices = [IoSlice::new(small), IoSlice::new(&self.large), IoSlice::new(self.tail)];
                ready!(stream.as_mut().poll_write_vectored(cx, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        // One that waits for its replica holds no memory, not even by an empty piece of it.
        (self.sent, self.large) = (0, Bytes::new());
        spare::give(std::mem::take(&mut self.small));
        let flushed = Pin::new(stream).poll_flush(cx);
        self.in_stream = flushed.is_pending();
        flushed
    }

    fn advance(&mut self, written: usize) {
        self.taken += written as u64;
        let of_small = written.min(self.small.len() - self.sent);
        self.sent += of_small;
        let of_large = (written - of_small).min(self.large.len());
        self.large.advance(of_large);
        self.tail = self.tail.get(written - of_small - of_large..).unwrap_or_default();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        spare::give(std::mem::take(&mut self.small));
    }
}
