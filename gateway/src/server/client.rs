//! The socket of a client: notices that the client has left also while nobody reads from it (H7).
//!
//! While a request is served, bytes of a next one may have come, be it the stray line end that some clients send after a
//! body. They are not read, and so the end of the stream behind them cannot be seen. The kernel can. Never reads or
//! drops a byte by itself.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How often a connection that nobody reads from is asked whether its client is still there; half of what H7 allows.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes that one connection over HTTP/2 reads before others have their turn, those who take its bodies among them:
/// what they have not taken yet is counted nowhere (C-072).
const TURN: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct ClientStream {
    inner: TcpStream,
    /// When to look next; kept from one request to the next.
    look: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    pub(super) fn new(inner: TcpStream) -> Self {
        Self { inner, look: None }
    }

    /// Dropped from here on, it is reset: what the kernel holds for a client that does not take it is thrown away.
    pub(super) fn forsake(&self) {
        // An error says that it is gone already.
        let _ = self.inner.set_zero_linger();
    }

    /// Resolves when the client has left, seen within half a second though nobody reads.
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        loop {
            ready!(look.as_mut().poll(cx));
            let state = self.inner.ready(Interest::READABLE).now_or_never();
            if matches!(state, Some(Ok(state)) if state.is_read_closed()) {
                return Poll::Ready(());
            }
            look.as_mut().set(sleep(LOOK));
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

/// A client's socket, of which some bytes were read already: whoever reads gets them first.
#[derive(Debug)]
pub(super) struct Reread {
    ahead: BytesMut,
    inner: ClientStream,
    /// Bytes read in this turn.
    read: usize,
}

impl Reread {
    pub(super) fn new(ahead: BytesMut, inner: ClientStream) -> Self {
        Self { ahead, inner, read: 0 }
    }
}

impl AsyncRead for Reread {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            if this.read >= TURN {
                this.read = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let before = buf.filled().len();
            let read = Pin::new(&mut this.inner).poll_read(cx, buf);
            this.read = if read.is_ready() { this.read + buf.filled().len() - before } else { 0 };
            return read;
        }
        let size = buf.remaining().min(this.ahead.len());
        buf.put_slice(this.ahead.get(..size).unwrap_or_default());
        this.ahead.advance(size);
        if this.ahead.is_empty() {
            // Empty, it would still hold memory that it shares.
            this.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Reread {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
