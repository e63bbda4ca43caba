//! The socket of a client, in the clear or inside TLS: notices that the client has left also while nobody reads from it
//! (H7).
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
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use super::http2::Socket;
use super::secure::Secured;
use crate::layer::read::THROWN_WITHIN;

/// How often a connection that nobody reads from is asked whether its client is still there; half of what H7 allows.
const LOOK: Duration = Duration::from_millis(500);

/// Virtual calls, a box or another type of everything around it in the clear would cost more than to ask each time.
#[derive(Debug)]
enum Kind {
    Clear(TcpStream),
    Tls(Box<Secured>),
}

impl Kind {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Clear(inner) => inner,
            Self::Tls(inner) => inner.socket(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ClientStream {
    inner: Kind,
    /// When to look next; kept from one request to the next.
    look: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    /// In the clear.
    pub(super) fn new(inner: TcpStream) -> Self {
        Self { inner: Kind::Clear(inner), look: None }
    }

    /// Inside TLS.
    pub(super) fn secured(inner: Box<Secured>) -> Self {
        Self { inner: Kind::Tls(inner), look: None }
    }

    /// Whether HTTP/2 was agreed on; `None` where only what comes can tell.
    pub(super) fn is_http2(&self) -> Option<bool> {
        match &self.inner {
            Kind::Clear(_) => None,
            Kind::Tls(inner) => inner.is_http2(),
        }
    }

    /// Dropped from here on, it is reset: what the kernel holds for a client that does not take it is thrown away.
    pub(super) fn forsake(&self) {
        // An error says that it is gone already.
        let _ = self.inner.socket().set_zero_linger();
    }

    /// An answer is cut: inside TLS, the end of the connection must not look like its end.
    pub(super) fn tear(&mut self) {
        if let Kind::Tls(inner) = &mut self.inner {
            inner.tear();
        }
    }

    /// Says goodbye where that takes a word, and sends no more. Waits until the client has room for that, for 30 s at
    /// most: dropped then, the connection ends without a goodbye.
    ///
    /// # Errors
    /// The client has made no room in time, or has left.
    pub(super) async fn end(&mut self) -> io::Result<()> {
        timeout(THROWN_WITHIN, self.shutdown()).await?
    }

    /// Ends a connection on which nothing is on its way, and which is dropped then: that is enough in the clear.
    pub(super) async fn goodbye(&mut self) {
        if matches!(self.inner, Kind::Tls(_)) {
            // Whether it was told or not is the same: the connection goes.
            let _ = self.end().await;
        }
    }

    /// Resolves when the client has left, seen within half a second though nobody reads.
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { inner, look } = self;
        let look = look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        loop {
            ready!(look.as_mut().poll(cx));
            let state = inner.socket().ready(Interest::READABLE).now_or_never();
            if matches!(state, Some(Ok(state)) if state.is_read_closed()) {
                return Poll::Ready(());
            }
            look.as_mut().set(sleep(LOOK));
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Kind::Clear(inner) => Pin::new(inner).poll_read(cx, buf),
            Kind::Tls(inner) => inner.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().inner {
            Kind::Clear(inner) => Pin::new(inner).poll_write(cx, buf),
            Kind::Tls(inner) => inner.poll_write(cx, &[io::IoSlice::new(buf)]),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().inner {
            Kind::Clear(inner) => Pin::new(inner).poll_write_vectored(cx, bufs),
            Kind::Tls(inner) => inner.poll_write(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Kind::Clear(inner) => Pin::new(inner).poll_flush(cx),
            Kind::Tls(inner) => inner.poll_send(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Kind::Clear(inner) => Pin::new(inner).poll_shutdown(cx),
            Kind::Tls(inner) => inner.poll_shutdown(cx),
        }
    }
}

/// A client's socket, of which some bytes were read already: whoever reads gets them first.
#[derive(Debug)]
pub(super) struct Reread {
    ahead: BytesMut,
    inner: ClientStream,
}

impl Reread {
    pub(super) fn new(ahead: BytesMut, inner: ClientStream) -> Self {
        Self { ahead, inner }
    }
}

impl Socket for Reread {
    fn forsake(&mut self) {
        self.inner.forsake();
    }
}

impl AsyncRead for Reread {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
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
