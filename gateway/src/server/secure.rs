//! The bytes of one client inside TLS, once hands are shaken.
//!
//! Reads from the socket as much at a time as in the clear, into memory that all connections of a core share, and keeps of
//! what is to be sent no more than was taken at once: while some of that waits for the client, nothing more is taken.
//! Says goodbye (close_notify) where the connection ends in order, and not where an answer was cut.

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::alpn::HTTP2;
use crate::http1::fill::READ;

/// Bytes that are taken at once to be sent.
pub(super) const TAKEN: usize = 32 << 10;

/// Bytes that are read beyond what there is room for: records are longer than what is in them.
const OVERHEAD: usize = 1 << 10;

thread_local! {
    /// For what comes, before it is deciphered.
    static CAME: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// See the module.
#[derive(Debug)]
pub(super) struct Secured {
    socket: TcpStream,
    session: ServerConnection,
    /// Came, and is not deciphered yet: whoever reads had no room.
    rest: Vec<u8>,
    /// An answer was cut: the end of the connection must not look like its end.
    torn: bool,
}

impl Secured {
    /// Over what has shaken hands.
    pub(super) fn new(socket: TcpStream, mut session: ServerConnection) -> Self {
        session.set_buffer_limit(Some(TAKEN));
        Self { socket, session, rest: Vec::new(), torn: false }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether HTTP/2 was agreed on; `None` where nothing was.
    pub(super) fn is_http2(&self) -> Option<bool> {
        self.session.alpn_protocol().map(|name| name == HTTP2)
    }

    /// From here on the connection ends without a goodbye.
    pub(super) fn tear(&mut self) {
        self.torn = true;
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        while !self.decipher(into)? && into.filled().len() == before {
            if self.rest.is_empty() {
                ready!(self.poll_receive(cx, into))?;
            } else {
                let rest = std::mem::take(&mut self.rest);
                self.feed(cx, &rest, into)?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Moves what is deciphered; whether the client has said goodbye, or there is no room.
    fn decipher(&mut self, into: &mut ReadBuf<'_>) -> io::Result<bool> {
        let before = into.filled().len();
        while into.remaining() > 0 {
            let mut reader = self.session.reader();
            let taken = match reader.into_first_chunk() {
                Ok([]) => return Ok(true),
                Ok(chunk) => {
                    let taken = chunk.len().min(into.remaining());
                    into.put_slice(chunk.get(..taken).unwrap_or_default());
                    taken
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // Told again to whoever reads next.
                Err(_) if into.filled().len() > before => return Ok(true),
                Err(error) => return Err(error),
            };
            reader = self.session.reader();
            io::BufRead::consume(&mut reader, taken);
        }
        Ok(true)
    }

    /// Reads from the socket once.
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut came = CAME.take();
        came.resize(READ, 0);
        // More than there is room for would have to be kept.
        let most = (into.remaining() + OVERHEAD).min(READ);
        let mut room = ReadBuf::new(came.get_mut(..most).unwrap_or_default());
        let read = match Pin::new(&mut self.socket).poll_read(cx, &mut room) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) if room.filled().is_empty() => {
                // Whoever reads next is told.
                Poll::Ready(self.session.read_tls(&mut io::empty()).map(drop))
            }
            Poll::Ready(Ok(())) => Poll::Ready(self.feed(cx, room.filled(), into)),
        };
        CAME.set(came);
        read
    }

    /// Deciphers what came, as far as there is room for it.
    fn feed(&mut self, cx: &mut Context<'_>, mut came: &[u8], into: &mut ReadBuf<'_>) -> io::Result<()> {
        while !came.is_empty() {
            if self.session.read_tls(&mut came as &mut dyn Read)? == 0 {
                // Nothing counts behind a goodbye.
                return Ok(());
            }
            let state = self.session.process_new_packets();
            if self.session.wants_write() {
                // An alert, or another key. What does not leave now goes with the next answer.
                let _ = self.poll_send(cx)?;
            }
            state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if self.decipher(into)? {
                self.rest = came.to_vec();
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let taken = self.session.writer().write_vectored(pieces)?;
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    /// Resolves when all that was taken is with the kernel.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = Socket { inner: &mut self.socket, cx: &mut *cx };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Says goodbye and sends no more.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.torn {
            // Says it once.
            self.session.send_close_notify();
            ready!(self.poll_send(cx))?;
        }
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// The socket for whoever writes and does not wait.
struct Socket<'a, 'c> {
    inner: &'a mut TcpStream,
    cx: &'a mut Context<'c>,
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.inner).poll_write_vectored(self.cx, pieces) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
