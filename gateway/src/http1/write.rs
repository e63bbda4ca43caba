//! Heads of requests and of answers, to bytes.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};

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

/// Appends the head of a request with a body of `length` bytes. Of `headers`, those that say where the message goes and
/// how it ends are left out.
pub fn request(
    into: &mut Vec<u8>,
    method: &Method,
    target: &Uri,
    host: &HeaderValue,
    headers: &HeaderMap,
    length: u64,
) {
    into.extend_from_slice(method.as_str().as_bytes());
    into.push(b' ');
    into.extend_from_slice(target.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    into.extend_from_slice(b" HTTP/1.1\r\n");
    line(into, &HOST, host);
    for (name, value) in headers {
        if !matches!(*name, HOST | CONTENT_LENGTH | TRANSFER_ENCODING) {
            line(into, name, value);
        }
    }
    into.extend_from_slice(b"content-length: ");
    decimal(into, length);
    into.extend_from_slice(b"\r\n\r\n");
}

/// Appends the head of an answer, sent at `now`. Of `headers`, those that say how the message ends are replaced, except
/// the length of an answer that has no body.
pub fn response(
    into: &mut Vec<u8>,
    (version, status): (Version, StatusCode),
    headers: &HeaderMap,
    framing: Framing,
    after: After,
    now: SystemTime,
) {
    into.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    into.extend_from_slice(status.as_str().as_bytes());
    into.push(b' ');
    into.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    into.extend_from_slice(b"\r\n");
    let mut dated = false;
    for (name, value) in headers {
        match *name {
            CONTENT_LENGTH if framing != Framing::None || status == StatusCode::NO_CONTENT => continue,
            TRANSFER_ENCODING | CONNECTION => continue,
            DATE => dated = true,
            _ => {}
        }
        line(into, name, value);
    }
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
    if !dated {
        date(into, now);
    }
    into.extend_from_slice(b"\r\n");
}

/// Appends the line before a chunk of `size` bytes.
pub fn chunk_size(into: &mut Vec<u8>, size: usize) {
    hex(into, size as u64, 1);
    into.extend_from_slice(b"\r\n");
}

/// Appends a number in hexadecimal, with at least so many digits.
pub fn hex(into: &mut Vec<u8>, number: u64, least: u32) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(least);
    for at in (0..digits).rev() {
        into.push(DIGITS.get(((number >> (4 * at)) & 0xf) as usize).copied().unwrap_or(b'0'));
    }
}

/// Appends a chunk.
pub fn chunk(into: &mut Vec<u8>, data: &Bytes) {
    chunk_size(into, data.len());
    into.extend_from_slice(data);
    into.extend_from_slice(b"\r\n");
}

fn line(into: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    into.extend_from_slice(name.as_str().as_bytes());
    into.extend_from_slice(b": ");
    into.extend_from_slice(value.as_bytes());
    into.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn decimal(into: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut left = number;
    let mut at = digits.len();
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (left % 10) as u8;
        (left, at) = (left / 10, index);
        if left == 0 {
            break;
        }
    }
    into.extend_from_slice(digits.get(at..).unwrap_or_default());
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
