//! The bytes of an HTTP/2 connection on their way to and from the library that understands them, and what must be known of
//! them that it does not tell: whether a block of headers is open and what came of it, how large the connection's window
//! is, how much of what comes brings nothing. Ends the turn of a connection that has read enough.
//!
//! Changes no byte. What is no HTTP/2 is for the library to say.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tidegate_shared::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::frame::{END_HEADERS, Frame, Part, Scan, kind};

/// The window that a connection begins with, in bytes (RFC 9113, 6.9.2).
const WINDOW: u64 = 65_535;

/// Bytes that a connection reads in one turn, before others have theirs, those who take its bodies and heads among them: what
/// they have not taken yet is counted nowhere (C-072).
const TURN: usize = 64 << 10;
/// As how many each byte of a block of headers counts there: it may stand for a field that takes a hundred in memory.
const HEADS_COUNT: usize = 8;

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
    /// Bytes of the open block that the library has, and the newest stream that one was for.
    block_bytes: Cell<u64>,
    newest: Cell<u32>,
    /// Bytes of blocks behind bodies, of this turn: whoever reads the body throws them away in the next one.
    trailers: Cell<u64>,
    /// What was read in this turn, as [`TURN`] counts it.
    read: Cell<usize>,
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

    /// A turn of the connection begins.
    pub(super) fn begin_turn(&self) {
        self.read.set(0);
        self.trailers.set(0);
    }

    /// Whether it has something to do in its next turn, which nobody else wakes it for.
    pub(super) fn has_next_turn(&self) -> bool {
        self.is_turn_over() || self.trailers.get() > 0
    }

    fn is_turn_over(&self) -> bool {
        self.read.get() >= TURN
    }

    /// Bytes on the wire of blocks of headers that the library holds and that are no request's.
    pub(super) fn loose_bytes(&self) -> u64 {
        self.block_bytes.get() + self.trailers.get()
    }

    /// A block of headers goes on with a frame.
    fn note_block(&self, frame: Frame) {
        self.read.set(self.read.get() + HEADS_COUNT * frame.length);
        if frame.kind == kind::HEADERS {
            add(&self.blocks, 1);
            self.block_open.set(true);
            self.block_bytes.set(0);
        }
    }

    /// The library has all of that frame.
    fn note_block_part(&self, frame: Frame) {
        add(&self.block_bytes, frame.length as u64);
        if frame.flags & END_HEADERS == 0 {
            return;
        }
        self.block_open.set(false);
        let bytes = self.block_bytes.take();
        if frame.stream <= self.newest.get() {
            add(&self.trailers, bytes);
        }
        self.newest.set(frame.stream.max(self.newest.get()));
    }

    /// Whether the socket takes nothing at present.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.get()
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
        tally.read.set(tally.read.get() + bytes.len());
        let skipped = bytes.len().min(*preface);
        *preface -= skipped;
        incoming.push(bytes.get(skipped..).unwrap_or_default(), |frame, part| match (frame.kind, part) {
            (kind::HEADERS | kind::CONTINUATION, Part::Head) => tally.note_block(frame),
            (kind::HEADERS | kind::CONTINUATION, Part::Whole(_)) => tally.note_block_part(frame),
            (kind::WINDOW_UPDATE, Part::Whole(increment)) if frame.stream == 0 => {
                add(&tally.granted, increment)
            }
            (_, Part::Head) => add(&tally.idle_frames, u64::from(frame.is_idle())),
            _ => {}
        });
    }

    fn left(&mut self, bytes: &[u8]) {
        let Self { outgoing, tally, .. } = self;
        outgoing.push(bytes, |frame, part| {
            if (frame.kind, part) == (kind::DATA, Part::Head) {
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
        if this.tally.is_turn_over() {
            // Whoever began the turn begins another.
            return Poll::Pending;
        }
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
    use std::future::poll_fn;

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::super::frame::of;
    use super::*;

    /// Bytes that a turn reads, in pieces of 4 KiB.
    fn turn(wire: &mut Wire<DuplexStream>, tally: &Tally) -> usize {
        tally.begin_turn();
        let mut piece = [0; 4 << 10];
        let mut read = 0;
        while let Some(more) = wire.read(&mut piece).now_or_never() {
            read += more.expect("it is open");
        }
        read
    }

    #[tokio::test]
    async fn c_072_a_turn_reads_less_the_more_of_it_are_heads() {
        for (kind, most) in [(kind::DATA, TURN), (kind::HEADERS, TURN / HEADS_COUNT)] {
            let (ours, mut theirs) = duplex(1 << 20);
            let tally = Rc::new(Tally::default());
            let mut wire = Wire::new(ours, 0, Rc::clone(&tally));
            let frames: Vec<u8> =
                (0..100).flat_map(|number| of(kind, END_HEADERS, 2 * number + 1, &[1; 1000])).collect();
            theirs.write_all(&frames).await.expect("room");
            let mut left = frames.len();
            while left > 0 {
                let read = turn(&mut wire, &tally);
                assert!(read == left || (most / 2..=most + (4 << 10)).contains(&read), "{read} of {kind}");
                left -= read;
                assert_eq!(tally.has_next_turn(), read >= most / 2 && left > 0 || tally.is_turn_over());
            }
            assert_eq!(turn(&mut wire, &tally), 0, "nothing is there");
            assert!(!tally.has_next_turn(), "and what comes wakes it");
            theirs.write_all(&frames[..10]).await.expect("room");
            assert!(
                poll_fn(|cx| Pin::new(&mut wire).poll_read(cx, &mut ReadBuf::new(&mut [0; 10])))
                    .await
                    .is_ok()
            );
        }
    }
}
