//! A client that speaks HTTP/2 in the clear at the level of frames, so that a test can send what no library sends
//! (RFC 9113), and leave out what each does by itself.
//!
//! Answers to settings and to pings come by themselves unless a test says otherwise. Of heads it reads that they came.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::deadline::within;
use crate::frame::PREFACE;
pub use crate::frame::{ACK, END_HEADERS, END_STREAM, Frame, frame, kind, reason};

/// The largest payload that every side takes, in bytes.
const LARGEST: usize = 16 << 10;

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an answer that has this body.
    Answered(Vec<u8>),
    /// By a reset, for this reason.
    Reset(u32),
    /// With the connection, for the reason of its last farewell, should there be one.
    Gone(Option<u32>),
}

/// See the module. Dropped, it closes the connection.
#[derive(Debug)]
pub struct Streams {
    wire: TcpStream,
    /// Whether settings and pings are answered.
    pub is_alive: bool,
    farewell: Option<u32>,
}

impl Streams {
    /// A connection on which the preface and these settings were sent.
    pub async fn connect(server: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut wire = within("a connection", TcpStream::connect(server)).await.expect("connect");
        wire.set_nodelay(true).expect("no delay");
        let setting = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let settings: Vec<u8> = settings.iter().flat_map(setting).collect();
        let start = [PREFACE, &frame(kind::SETTINGS, 0, 0, &settings)].concat();
        wire.write_all(&start).await.expect("the server listens");
        Self { wire, is_alive: true, farewell: None }
    }

    /// Sends bytes; `false` when the server has closed.
    pub async fn offer(&mut self, bytes: &[u8]) -> bool {
        within("the server takes bytes", self.wire.write_all(bytes)).await.is_ok()
    }

    /// Sends a frame; `false` when the server has closed.
    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.offer(&frame(kind, flags, stream, payload)).await
    }

    /// Sends the head of a request in as many frames as it takes.
    pub async fn head(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        assert!(self.offer(&head(stream, flags, fields)).await, "the server takes a head");
    }

    /// Sends a whole request.
    pub async fn request(&mut self, stream: u32, fields: &[(&str, &str)], body: &str) {
        self.head(stream, 0, fields).await;
        assert!(self.send(kind::DATA, END_STREAM, stream, body.as_bytes()).await, "the server takes a body");
    }

    /// The next frame that is no matter of the connection; `None` at its end.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = within("a frame, or the end", Frame::read(&mut self.wire)).await.ok()?;
            match frame.kind {
                kind::SETTINGS if frame.flags == 0 && self.is_alive => {
                    self.send(kind::SETTINGS, ACK, 0, &[]).await;
                }
                kind::PING if frame.flags == 0 && self.is_alive => {
                    self.send(kind::PING, ACK, 0, &frame.payload).await;
                }
                kind::SETTINGS | kind::PING | kind::WINDOW_UPDATE => {}
                kind::GOAWAY => self.farewell = number(&frame.payload, 4),
                _ => return Some(frame),
            }
        }
    }

    /// How a stream ends; what comes for others meanwhile is passed over.
    pub async fn ended(&mut self, stream: u32) -> Ended {
        let mut body = Vec::new();
        while let Some(frame) = self.next().await {
            match frame.kind {
                _ if frame.stream != stream => {}
                kind::RST_STREAM => return Ended::Reset(number(&frame.payload, 0).expect("a reason")),
                kind::DATA => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if frame.stream == stream && frame.flags & END_STREAM != 0 {
                return Ended::Answered(body);
            }
        }
        Ended::Gone(self.farewell)
    }

    /// The body of the answer on a stream.
    pub async fn answer(&mut self, stream: u32) -> Vec<u8> {
        match self.ended(stream).await {
            Ended::Answered(body) => body,
            ended => panic!("stream {stream} is not answered: {ended:?}"),
        }
    }

    /// Reads to the end of the connection: the reason of its last farewell, should there be one.
    pub async fn farewell(&mut self) -> Option<u32> {
        while self.next().await.is_some() {}
        self.farewell
    }
}

fn number(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// The fields that begin the head of a POST of JSON.
pub fn post(path: &str) -> Vec<(&str, &str)> {
    let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "tidegate")];
    [&pseudo[..], &[("content-type", "application/json")]].concat()
}

/// The head of a request, in as many frames as it takes.
pub fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let block = block(fields);
    let last = block.len().div_ceil(LARGEST).max(1) - 1;
    let pieces = block.chunks(LARGEST).enumerate().map(|(index, piece)| {
        let (kind, flags) = if index == 0 { (kind::HEADERS, flags) } else { (kind::CONTINUATION, 0) };
        frame(kind, if index == last { flags | END_HEADERS } else { flags }, stream, piece)
    });
    pieces.flatten().collect()
}

/// A block of fields, each a literal that no table keeps (RFC 7541, 6.2.2), whatever it is.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A length of seven bits, and more where that is not enough (RFC 7541, 5.1).
fn length(into: &mut Vec<u8>, length: usize) {
    let byte = |number: usize| u8::try_from(number).expect("a byte");
    let Some(mut rest) = length.checked_sub(127) else { return into.push(byte(length)) };
    into.push(127);
    while rest >= 128 {
        into.push(byte(rest % 128) | 128);
        rest /= 128;
    }
    into.push(byte(rest));
}
