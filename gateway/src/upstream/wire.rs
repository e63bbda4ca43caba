//! The bytes between the gateway and one replica: in the clear or inside TLS, behind one type without a box or a
//! virtual call in the clear.
//!
//! Notes whether anything came, and nothing else: it never looks at what came, and never decides what follows from it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// What is spoken over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time.
    Http1,
    /// HTTP/2: many at a time.
    Http2,
}

/// Whether the replica sent a byte since the last [`Heard::forget`]. Tells a connection that was closed while idle
/// from an answer that broke off.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<AtomicBool>);

impl Heard {
    /// From now on.
    pub fn forget(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether a byte came.
    pub fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Kind {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection to a replica.
#[derive(Debug)]
pub struct Wire {
    kind: Kind,
    heard: Heard,
}

impl Wire {
    /// In the clear.
    pub(super) fn clear(stream: TcpStream) -> Self {
        Self { kind: Kind::Clear(stream), heard: Heard::default() }
    }

    /// Inside TLS.
    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { kind: Kind::Tls(Box::new(stream)), heard: Heard::default() }
    }

    /// Its note of what came.
    pub fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = match &mut this.kind {
            Kind::Clear(stream) => Pin::new(stream).poll_read(cx, into),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, into),
        };
        if into.filled().len() > before {
            this.heard.0.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Clear(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Clear(stream) => stream.is_write_vectored(),
            Kind::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
