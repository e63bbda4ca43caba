//! Frames of HTTP/2 as they lie on the wire (RFC 9113, 4.1 and 6), for tests that are one side of a connection by themselves.
//!
//! Named here and not taken from the gateway: what a test expects must not change with what is tested.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Kinds of frames.
pub mod kind {
    #![expect(missing_docs, reason = "named as in RFC 9113, 6")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// The flag END_STREAM.
pub const END_STREAM: u8 = 1;
/// The flag ACK of settings and pings.
pub const ACK: u8 = 1;
/// The flag END_HEADERS.
pub const END_HEADERS: u8 = 4;

/// Reasons for which a stream or a connection ends.
pub mod reason {
    #![expect(missing_docs, reason = "named as in RFC 9113, 7")]
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// What a client of HTTP/2 sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The next one.
    ///
    /// # Errors
    /// The connection has ended, or fails.
    pub async fn read(wire: &mut TcpStream) -> io::Result<Self> {
        let mut head = [0; 9];
        wire.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        wire.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, payload })
    }
}

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
