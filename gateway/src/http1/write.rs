//! Heads of requests and of answers, to bytes.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Uri, Version};

use super::fields::{Fields, Name, Names};

/// What says where a request goes and how it ends.
const OF_REQUEST: Names = Names::of(&[Name::Host, Name::ContentLength, Name::TransferEncoding]);
/// What says how an answer ends and what becomes of the connection; and the same but for its length.
const OF_RESPONSE: Names = OF_BODYLESS.and(Names::of(&[Name::ContentLength]));
const OF_BODYLESS: Names = Names::of(&[Name::TransferEncoding, Name::Connection]);

/// How the end of an answer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length in bytes.
    Length(u64),
    /// By chunks.
    Chunked,
    /// By the end of the connection, to a client of HTTP/1.0.
    Close,
    /// It has none, whatever its head says.
    None,
}

/// What becomes of a client's connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It carries the next request, which needs no word.
    Keep,
    /// The same, for a client of HTTP/1.0 that asked for it.
    KeepAlive,
    /// It ends.
    Close,
}

/// Appends the head of a request with a body of `length` bytes. Of `fields`, those that say where the message goes and
/// how it ends are left out.
pub fn request(
    into: &mut Vec<u8>,
    method: &Method,
    target: &Uri,
    host: &HeaderValue,
    fields: &Fields,
    length: u64,
) {
    into.extend_from_slice(method.as_str().as_bytes());
    into.push(b' ');
    into.extend_from_slice(target.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    into.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    into.extend_from_slice(host.as_bytes());
    into.extend_from_slice(b"\r\n");
    fields.write_except(into, OF_REQUEST);
    into.extend_from_slice(b"content-length: ");
    decimal(into, length);
    into.extend_from_slice(b"\r\n\r\n");
}

/// Appends the head of an answer, sent at `now`. Of `fields`, those that say how the message ends are replaced, except
/// the length of an answer that has no body.
pub fn response(
    into: &mut Vec<u8>,
    (version, status): (Version, StatusCode),
    fields: &Fields,
    framing: Framing,
    after: After,
    now: SystemTime,
) {
    into.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    into.extend_from_slice(status.as_str().as_bytes());
    into.push(b' ');
    into.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    into.extend_from_slice(b"\r\n");
    let has_length = framing == Framing::None && status != StatusCode::NO_CONTENT;
    fields.write_except(into, if has_length { OF_BODYLESS } else { OF_RESPONSE });
    match framing {
        Framing::Length(length) => {
            into.extend_from_slice(b"content-length: ");
            decimal(into, length);
            into.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => into.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Close | Framing::None => {}
    }
    into.extend_from_slice(match after {
        After::Keep => b"",
        After::KeepAlive => b"connection: keep-alive\r\n",
        After::Close => b"connection: close\r\n",
    });
    if !fields.has(Name::Date) {
        date(into, now);
    }
    into.extend_from_slice(b"\r\n");
}

/// Appends the line before a chunk of `size` bytes.
pub fn chunk_size(into: &mut Vec<u8>, size: usize) {
    into.extend_from_slice(hex(&mut [0; 16], size as u64, 1));
    into.extend_from_slice(b"\r\n");
}

/// The digits of a number in hexadecimal, at least so many, at the end of `room`.
pub fn hex(room: &mut [u8; 16], number: u64, least: usize) -> &[u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (mut left, mut at) = (number, room.len());
    for (index, digit) in room.iter_mut().enumerate().rev() {
        *digit = DIGITS.get((left & 0xf) as usize).copied().unwrap_or(b'0');
        (left, at) = (left >> 4, index);
        if left == 0 && index + least <= 16 {
            break;
        }
    }
    room.get(at..).unwrap_or_default()
}

/// Appends a chunk.
pub fn chunk(into: &mut Vec<u8>, data: &Bytes) {
    chunk_size(into, data.len());
    into.extend_from_slice(data);
    into.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn decimal(into: &mut Vec<u8>, number: u64) {
    into.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

thread_local! {
    /// The line of the date, and which second of Unix time it is of.
    static DATE_LINE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

fn date(into: &mut Vec<u8>, now: SystemTime) {
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    DATE_LINE.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            *text = format!("date: {}\r\n", httpdate::fmt_http_date(now));
            *of = second;
        }
        into.extend_from_slice(text.as_bytes());
    });
}
