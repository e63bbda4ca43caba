//! HTTP/1.1 as bytes on a socket, read just far enough to find heads and bodies; for both sides of a connection.
//!
//! Never corrects what it reads: the raw bytes are kept, so that a test can compare them.

use std::io::{self, ErrorKind};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest head that is read, in bytes.
const MAX_HEAD: usize = 1 << 20;

/// The head of a request or of a response.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Every byte, up to and including the empty line.
    pub raw: Bytes,
    /// The first line, without its end.
    pub start: String,
    /// Names in lower case and trimmed values, in order of appearance.
    pub headers: Vec<(String, String)>,
}

impl Head {
    fn parse(raw: Bytes) -> Self {
        let text = String::from_utf8_lossy(&raw).into_owned();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { raw, start, headers }
    }

    /// The first header of that name (given in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// Every header of that name (given in lower case).
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The word at `index` of the first line; empty when there is none.
    fn word(&self, index: usize) -> &str {
        self.start.split(' ').nth(index).unwrap_or_default()
    }

    /// Method of a request.
    pub fn method(&self) -> &str {
        self.word(0)
    }

    /// Target of a request as written: path and query.
    pub fn target(&self) -> &str {
        self.word(1)
    }

    /// Status of a response; 0 when the line holds none.
    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// How the body that follows this head is framed; `otherwise` when the head does not say.
    pub fn framing(&self, otherwise: Framing) -> Framing {
        if self.all("transfer-encoding").any(|value| value.eq_ignore_ascii_case("chunked")) {
            return Framing::Chunked;
        }
        let length = self.header("content-length").and_then(|value| value.parse().ok());
        length.map_or(otherwise, Framing::Length)
    }
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunks, up to an empty one.
    Chunked,
    /// Until the peer closes.
    Close,
}

/// A connection and what was read ahead of it.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    ahead: BytesMut,
}

impl Wire {
    /// A connection of which nothing was read yet. Small writes leave at once.
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("no delay");
        Self { stream, ahead: BytesMut::new() }
    }

    /// Reads some bytes more; 0 when the peer has closed.
    async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.ahead).await
    }

    /// Reads some bytes more; an error when the peer has closed.
    async fn need(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The next head; `None` when the peer closed before its first byte.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n") {
                return Ok(Some(Head::parse(self.ahead.split_to(at + 4).freeze())));
            }
            if self.ahead.len() > MAX_HEAD {
                return Err(ErrorKind::InvalidData.into());
            }
            if self.fill().await? == 0 {
                return if self.ahead.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// The next bytes of a body; `None` at its proper end; an error when the transfer is cut.
    ///
    /// With [`Framing::Chunked`] it is one chunk, as the peer cut it.
    pub async fn piece(&mut self, framing: &mut Framing) -> io::Result<Option<Bytes>> {
        match framing {
            Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                if self.ahead.is_empty() {
                    self.need().await?;
                }
                let take = self.ahead.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= take as u64;
                Ok(Some(self.ahead.split_to(take).freeze()))
            }
            Framing::Chunked => {
                let piece = self.chunk().await?;
                if piece.is_none() {
                    *framing = Framing::Length(0);
                }
                Ok(piece)
            }
            Framing::Close => {
                if self.ahead.is_empty() && self.fill().await? == 0 {
                    return Ok(None);
                }
                Ok(Some(self.ahead.split().freeze()))
            }
        }
    }

    /// One chunk; `None` for the last one, its trailers skipped.
    async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
        if size == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        while self.ahead.len() < size + 2 {
            self.need().await?;
        }
        let piece = self.ahead.split_to(size).freeze();
        self.ahead.advance(2);
        Ok(Some(piece))
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n") {
                let line = self.ahead.split_to(at + 2);
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.need().await?;
        }
    }

    /// The rest of a body and how it ended.
    pub async fn body(&mut self, mut framing: Framing) -> (Bytes, io::Result<()>) {
        let mut body = BytesMut::new();
        loop {
            match self.piece(&mut framing).await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => return (body.freeze(), Ok(())),
                Err(error) => {
                    body.extend_from_slice(&self.ahead.split());
                    return (body.freeze(), Err(error));
                }
            }
        }
    }

    /// Writes all of `bytes`.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Runs `work` unless the peer leaves first: `None` then. What the peer sends meanwhile is kept.
    pub async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                output = &mut work => return Some(output),
                read = self.stream.read_buf(&mut self.ahead) => if !matches!(read, Ok(1..)) {
                    return None;
                },
            }
        }
    }

    /// Writes all of `bytes` unless the peer leaves first: `false` then. What the peer sends meanwhile is kept.
    pub async fn send_unless_gone(&mut self, bytes: &[u8]) -> bool {
        let (mut reader, mut writer) = self.stream.split();
        let write = writer.write_all(bytes);
        tokio::pin!(write);
        loop {
            tokio::select! {
                written = &mut write => return written.is_ok(),
                read = reader.read_buf(&mut self.ahead) => if !matches!(read, Ok(1..)) {
                    return false;
                },
            }
        }
    }

    /// Closes this side's half; the peer may go on sending.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Closes the connection by a reset, as a crashed machine's kernel would.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("linger");
    }
}

/// Where `needle` begins in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}
