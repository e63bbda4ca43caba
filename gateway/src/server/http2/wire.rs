//! The bytes of an HTTP/2 connection on their way to and from the library that understands them, and what must be known of
//! them that it does not tell: whether a block of headers is open, how large the connection's window is, how much
//! of what comes brings nothing.
//!
//! Reads the heads of frames alone (RFC 9113, 4.1) and changes no byte. What is no HTTP/2 is for the library to say.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tidegate_shared::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Bytes of the head of a frame, and of the increment behind the head of a WINDOW_UPDATE.
const HEAD: usize = 9;
const INCREMENT: usize = 4;
/// The window that a connection begins with, in bytes (RFC 9113, 6.9.2).
const WINDOW: u64 = 65_535;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A client's socket under HTTP/2.
pub(in crate::server) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Dropped from here on, it is reset: what the kernel holds for a client that does not take it is thrown away.
    fn forsake(&mut self);
}

/// What the parts of one connection know of it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bytes that came.
    pub(super) received: Cell<u64>,
    /// Frames that came and bring nothing: neither headers nor data nor room, or a head for which there is no room.
    pub(super) idle_frames: Cell<u64>,
    /// Blocks of headers that were begun.
    blocks: Cell<u64>,
    block_open: Cell<bool>,
    /// Bytes by which the client has widened the connection's window.
    granted: Cell<u64>,
    /// Bytes of data that have left, and frames of them.
    pub(super) sent: Cell<u64>,
    pub(super) sent_frames: Cell<u64>,
    /// The socket takes nothing at present.
    blocked: Cell<bool>,
    /// The socket is to be reset.
    forsaken: Cell<bool>,
    /// Requests that are served or answered.
    pub(super) open: Cell<usize>,
    /// Bytes of their heads, as HTTP/2 counts them.
    pub(super) heads: Cell<usize>,
    /// When the last of them ended.
    pub(super) ended: Cell<Option<Instant>>,
    /// An answer was given up for which the whole connection had no room.
    pub(super) stuck: Cell<bool>,
    /// That it is stuck.
    pub(super) told: Notify,
}

impl Tally {
    /// Which block of headers is open: one that was begun and has not come to its end.
    pub(super) fn block(&self) -> Option<u64> {
        self.block_open.get().then(|| self.blocks.get())
    }

    /// Whether the socket is to be reset, so that no farewell can leave.
    pub(super) fn is_forsaken(&self) -> bool {
        self.forsaken.get()
    }

    /// Whether the connection has room for no byte of any answer.
    pub(super) fn is_shut(&self) -> bool {
        self.blocked.get() || WINDOW + self.granted.get() <= self.sent.get()
    }

    /// There is no room for a head that came.
    pub(super) fn note_refused(&self) {
        add(&self.idle_frames, 1);
    }

    /// Nothing leaves the connection any more. Where the socket takes nothing, what waits there is thrown away with it.
    pub(super) fn note_stuck(&self) {
        self.stuck.set(true);
        self.forsaken.set(self.blocked.get());
        self.told.notify_one();
    }
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get().saturating_add(more));
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
}

impl Frame {
    /// Whether it brings neither headers nor data nor room.
    fn is_idle(self) -> bool {
        match self.kind {
            HEADERS | CONTINUATION | WINDOW_UPDATE => false,
            DATA => self.length == 0 && self.flags & END_STREAM == 0,
            _ => true,
        }
    }
}

/// Finds the frames in bytes that come in any pieces.
#[derive(Debug, Default)]
struct Scan {
    /// The head of a frame, and the increment of a WINDOW_UPDATE.
    start: [u8; HEAD + INCREMENT],
    have: usize,
    /// Bytes of the present frame that are not in `start` and still to come.
    left: usize,
}

impl Scan {
    /// Looks at `bytes`; tells of each frame when its head is there, and again when all of it is.
    fn push(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Frame, Part)) {
        loop {
            if self.have >= HEAD && self.have == self.wanted() && self.left == 0 {
                tell(self.frame(), Part::Whole(self.increment()));
                self.have = 0;
            }
            if bytes.is_empty() {
                return;
            }
            let (had, wanted) = (self.have, self.wanted());
            if had == wanted {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let more = (wanted - had).min(bytes.len());
            self.start.iter_mut().skip(had).zip(bytes.iter().take(more)).for_each(|(to, from)| *to = *from);
            self.have += more;
            bytes = bytes.get(more..).unwrap_or_default();
            if had < HEAD && self.have == HEAD {
                let frame = self.frame();
                tell(frame, Part::Head);
                self.left = frame.length + HEAD - self.wanted();
            }
        }
    }

    /// Bytes that are kept of the present frame.
    fn wanted(&self) -> usize {
        if self.have < HEAD {
            return HEAD;
        }
        let frame = self.frame();
        if frame.kind == WINDOW_UPDATE { HEAD + frame.length.min(INCREMENT) } else { HEAD }
    }

    fn frame(&self) -> Frame {
        let [a, b, c, kind, flags, d, e, f, g, ..] = self.start;
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Frame { kind, flags, stream, length }
    }

    fn increment(&self) -> u64 {
        let [.., a, b, c, d] = self.start;
        u64::from(u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff)
    }
}

/// What has come of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    /// All of it; with the increment, should it be a WINDOW_UPDATE.
    Whole(u64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Wire<S: Socket> {
    inner: S,
    /// Bytes of the preface that are still to come.
    preface: usize,
    incoming: Scan,
    outgoing: Scan,
    tally: Rc<Tally>,
}

impl<S: Socket> Wire<S> {
    /// A connection of which a preface of so many bytes is to be read first.
    pub(super) fn new(inner: S, preface: usize, tally: Rc<Tally>) -> Self {
        Self { inner, preface, incoming: Scan::default(), outgoing: Scan::default(), tally }
    }

    fn came(&mut self, bytes: &[u8]) {
        let Self { incoming, tally, preface, .. } = self;
        add(&tally.received, bytes.len() as u64);
        let skipped = bytes.len().min(*preface);
        *preface -= skipped;
        incoming.push(bytes.get(skipped..).unwrap_or_default(), |frame, part| match (frame.kind, part) {
            (HEADERS, Part::Head) => {
                add(&tally.blocks, 1);
                tally.block_open.set(true);
            }
            (HEADERS | CONTINUATION, Part::Whole(_)) if frame.flags & END_HEADERS != 0 => {
                tally.block_open.set(false);
            }
            (WINDOW_UPDATE, Part::Whole(increment)) if frame.stream == 0 => add(&tally.granted, increment),
            (_, Part::Head) => add(&tally.idle_frames, u64::from(frame.is_idle())),
            _ => {}
        });
    }

    fn left(&mut self, bytes: &[u8]) {
        let Self { outgoing, tally, .. } = self;
        outgoing.push(bytes, |frame, part| {
            if (frame.kind, part) == (DATA, Part::Head) {
                add(&tally.sent, frame.length as u64);
                add(&tally.sent_frames, 1);
            }
        });
    }

    fn wrote<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.tally.blocked.set(written.is_pending());
        written
    }
}

impl<S: Socket> Drop for Wire<S> {
    fn drop(&mut self) {
        if self.tally.forsaken.get() {
            self.inner.forsake();
        }
    }
}

impl<S: Socket> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        this.came(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, buf);
        let written = ready!(this.wrote(written))?;
        this.left(buf.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        let written = ready!(this.wrote(written))?;
        let mut rest = written;
        for buf in bufs {
            let of_this = rest.min(buf.len());
            this.left(buf.get(..of_this).unwrap_or_default());
            rest -= of_this;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        // Inside TLS what was written may still wait.
        this.wrote(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    #[test]
    fn h6_frames_are_found_in_bytes_that_come_in_any_pieces() {
        let frames = [
            frame(4, 0, 0, &[0; 6]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
            frame(HEADERS, 0, 1, &[7; 5]),
            frame(CONTINUATION, END_HEADERS, 1, &[]),
            frame(DATA, END_STREAM, 1, &[8; 300]),
            frame(WINDOW_UPDATE, 0, 5, &[0x80, 0, 0, 2]),
            // Malformed: the library says so.
            frame(WINDOW_UPDATE, 0, 0, &[0, 1]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 3, 9, 9]),
            frame(6, 1, 0, &[1; 8]),
        ]
        .concat();
        let found = |step: usize| {
            let (mut scan, mut found) = (Scan::default(), Vec::new());
            frames.chunks(step).for_each(|piece| {
                scan.push(piece, |frame, part| {
                    let part =
                        if frame.kind == WINDOW_UPDATE || part == Part::Head { Some(part) } else { None };
                    found.push((frame.kind, frame.flags, frame.stream, frame.length, part));
                });
            });
            assert_eq!((scan.have, scan.left), (0, 0), "in pieces of {step}");
            found
        };
        let whole = found(frames.len());
        assert_eq!(whole.len(), 18, "the head and the end of each");
        assert_eq!(whole[3], (WINDOW_UPDATE, 0, 0, 4, Some(Part::Whole(256))));
        assert_eq!(whole[11], (WINDOW_UPDATE, 0, 5, 4, Some(Part::Whole(2))));
        assert_eq!(whole[15], (WINDOW_UPDATE, 0, 0, 6, Some(Part::Whole(3))));
        for step in 1..frames.len() {
            assert_eq!(found(step), whole, "in pieces of {step}");
        }
    }
}
