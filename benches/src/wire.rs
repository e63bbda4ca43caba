//! One connection of the load or of the stand-in engine, over the gateway's own HTTP/1.1. Measures nothing.

use std::future::{Future, poll_fn};
use std::io;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tidegate::http1::body::Left;
use tidegate::http1::fields::Name;
use tidegate::http1::fill::poll_fill;
use tidegate::http1::head::{self, RequestHead};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};

/// See the module.
#[derive(Debug)]
pub struct Wire<S = TcpStream> {
    stream: S,
    ahead: BytesMut,
}

impl Wire {
    /// Over `stream`.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Over any stream that sends small pieces at once.
    pub fn over(stream: S) -> Self {
        Self { stream, ahead: BytesMut::new() }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The operating system's.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// The head of the next request; `None` at the end.
    ///
    /// # Errors
    /// What comes is no request, or the operating system's.
    pub async fn request(&mut self) -> io::Result<Option<RequestHead>> {
        loop {
            if let Some(head) = head::request(&mut self.ahead, 0).map_err(io::Error::other)? {
                return Ok(Some(head.message));
            }
            if self.more().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The status of the next answer, whether it is a stream of events, and its body.
    ///
    /// # Errors
    /// What comes is no answer, or the operating system's.
    pub async fn answer(&mut self) -> io::Result<(StatusCode, bool, Left)> {
        loop {
            if let Some(head) = head::response(&mut self.ahead, 0).map_err(io::Error::other)? {
                let kind = head.message.fields.get(Name::ContentType).unwrap_or_default();
                return Ok((head.message.status, kind.starts_with(b"text/event-stream"), head.body));
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next piece of a body; `None` at its end.
    ///
    /// # Errors
    /// The body is broken, or the operating system's.
    pub async fn piece(&mut self, left: &mut Left) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(piece) = left.take(&mut self.ahead).map_err(io::Error::other)? {
                return Ok(Some(piece));
            }
            if left.is_over() {
                return Ok(None);
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn more(&mut self) -> io::Result<usize> {
        poll_fn(|cx| poll_fill(&mut self.stream, cx, &mut self.ahead)).await
    }
}

/// Runs on this thread.
///
/// # Errors
/// Those of `main`, and the operating system's.
pub fn run(main: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tidegate::server::raise_descriptor_limit();
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?.block_on(main)
}

/// Resolves when whoever started this process is gone, as its standard input tells.
pub async fn until_orphaned() {
    let (gone, told) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(gone);
    });
    let _ = told.await;
}
