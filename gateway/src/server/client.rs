//! The socket of a client: notices that the client has left also while nobody reads from it (H7), and ends a
//! connection that does not even say which protocol it speaks (H6).
//!
//! The HTTP/1.1 machinery reads ahead. Once it holds a byte of a next request, be it the stray line end that some
//! clients send after a body, it stops reading until the present request is answered, and so cannot see the end of
//! the stream. The kernel can. Never reads or drops a byte by itself.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How often a connection that nobody reads from is asked whether its client is still there; half of what H7 allows.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of HTTP/2's preface: with as many, the protocol of a connection is known.
const PREFACE: usize = 24;

/// See the module.
#[derive(Debug)]
pub(super) struct ClientStream {
    inner: TcpStream,
    /// The last read found nothing: the reader is told of whatever comes, the client's end included.
    reading: bool,
    /// When to look next; kept from one request to the next.
    look: Option<Pin<Box<Sleep>>>,
    /// Until when the first bytes must have come, and how many came.
    opening: Option<(Pin<Box<Sleep>>, usize)>,
}

impl ClientStream {
    /// The first bytes must come within `opening`.
    pub(super) fn new(inner: TcpStream, opening: Duration) -> Self {
        let opening = Some((Box::pin(sleep(opening)), 0));
        Self { inner, reading: false, look: None, opening }
    }

    /// Notes a read that gave `bytes`, or found nothing; an error when the first bytes are overdue.
    fn note(&mut self, cx: &mut Context<'_>, bytes: Option<usize>) -> io::Result<()> {
        self.reading = bytes.is_none();
        let Some((limit, seen)) = &mut self.opening else { return Ok(()) };
        match bytes {
            Some(bytes) => {
                *seen += bytes;
                if *seen >= PREFACE {
                    self.opening = None;
                }
            }
            None if limit.as_mut().poll(cx).is_ready() => return Err(io::ErrorKind::TimedOut.into()),
            None => {}
        }
        Ok(())
    }

    /// An error when the client has left. While nobody reads, the task is woken to look again.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.reading {
            return Ok(());
        }
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        while look.as_mut().poll(cx).is_ready() {
            let state = self.inner.ready(Interest::READABLE).now_or_never();
            if matches!(state, Some(Ok(state)) if state.is_read_closed()) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            look.as_mut().set(sleep(LOOK));
        }
        Ok(())
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        this.note(cx, read.is_ready().then(|| buf.filled().len() - before))?;
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// The HTTP machinery flushes whenever it has done what it can, so this is where a quiet connection is looked at.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
