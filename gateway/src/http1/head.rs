//! Heads of requests and of answers, from bytes.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::uri::InvalidUri;
use http::{Method, StatusCode, Uri, Version};
use memchr::memmem;
use thiserror::Error;

use super::body::Left;
use super::fields::{Fields, Name};

/// Largest head, in bytes. It is held outside of the memory that bodies may take, once for each connection. Of the same
/// order as what other proxies take: nginx four buffers of 8 KiB, HAProxy one of 16 KiB, Envoy 60 KiB.
pub const HEAD_MAX: usize = 64 << 10;
/// Most headers in one.
pub const HEADERS_MAX: usize = 100;
/// Longest name of a header, in bytes: what HTTP/2 can carry on.
const NAME_MAX: usize = 65_535;
/// Longest target of a request, in bytes: what [`Uri`] can hold.
const TARGET_MAX: usize = 65_534;

/// Longest target that is kept for the next request, in bytes.
const TARGET_KEPT: usize = 64;

thread_local! {
    static TARGET: RefCell<Uri> = RefCell::default();
}

/// Why one cannot know where a message ends (RFC 9112, 6.1 and 6.3).
const TWO_ENDS: BadHead =
    BadHead::Malformed("both content-length and transfer-encoding; only one is allowed");
const OLD_CODING: BadHead = BadHead::Malformed("HTTP/1.0 has no transfer-encoding");
const NO_END: BadHead = BadHead::Malformed("the transfer-encoding does not end in `chunked`, once");

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadHead {
    /// It is not HTTP/1.1.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is longer than [`HEAD_MAX`] or has over [`HEADERS_MAX`] headers.
    #[error("the head is over {HEAD_MAX} bytes or has over {HEADERS_MAX} headers")]
    TooLarge,
    /// Its target is over 65,534 bytes, or its first line alone over [`HEAD_MAX`].
    #[error("the URL is too long")]
    TargetTooLong,
    /// The body is in a transfer coding under the chunks.
    #[error("the only transfer-encoding that is understood is `chunked`")]
    Coding,
}

impl From<httparse::Error> for BadHead {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooLarge,
            httparse::Error::HeaderName => Self::Malformed("a header has no valid name"),
            httparse::Error::HeaderValue => Self::Malformed("a header has no valid value"),
            httparse::Error::NewLine => Self::Malformed("a line has no valid end"),
            httparse::Error::Status => Self::Malformed("the status is no number"),
            httparse::Error::Token => Self::Malformed("the first line is not one of HTTP"),
            httparse::Error::Version => Self::Malformed("the version is not HTTP/1.1"),
        }
    }
}

/// The head of a request.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub target: Uri,
    /// Its version.
    pub version: Version,
    /// Its fields.
    pub fields: Fields,
}

/// The head of an answer.
#[derive(Debug)]
pub struct ResponseHead {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub fields: Fields,
}

/// A head, and what it says of the bytes behind it.
#[derive(Debug)]
pub struct Head<T> {
    /// The request or the answer.
    pub message: T,
    /// Its body.
    pub body: Left,
    /// Whether the connection may carry another message after this one.
    pub keeps: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects: bool,
}

type Slots<'a> = [MaybeUninit<httparse::Header<'a>>; HEADERS_MAX];

/// The head of a request at the start of `bytes`, which it is taken from together with the empty lines before it; `None`
/// while it is not whole. `seen` bytes were there at the last call.
///
/// # Errors
/// See [`BadHead`].
pub fn request(bytes: &mut BytesMut, seen: usize) -> Result<Option<Head<RequestHead>>, BadHead> {
    let seen = seen.saturating_sub(skip_empty_lines(bytes));
    if !may_be_whole(bytes, seen).map_err(|_| crowded(bytes))? {
        return Ok(None);
    }
    let mut slots: Slots<'_> = [MaybeUninit::uninit(); HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let httparse::Status::Complete(length) = parsed.parse_with_uninit_headers(bytes, &mut slots)? else {
        return more(bytes).map_err(|_| crowded(bytes));
    };
    let target = parsed.path.unwrap_or_default();
    if target.len() > TARGET_MAX {
        return Err(BadHead::TargetTooLong);
    }
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes())
        .map_err(|_| BadHead::Malformed("the method is no word"))?;
    let version = version(parsed.version);
    bounded(length).map_err(|_| crowded(bytes))?;
    let target = uri(target).map_err(|_| BadHead::Malformed("the URL is malformed"))?;
    let fields = fields(bytes.get(..length).unwrap_or_default(), parsed.headers)?;
    bytes.advance(length);

    let body = request_body(&fields, version)?;
    let expects = version == Version::HTTP_11
        && fields.get(Name::Expect).is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    let keeps = keeps(&fields, version);
    let message = RequestHead { method, target, version, fields };
    Ok(Some(Head { message, body, keeps, expects }))
}

/// A target, parsed. Most requests of a core ask for what the last one asked for: that is parsed once.
fn uri(target: &str) -> Result<Uri, InvalidUri> {
    TARGET.with_borrow_mut(|last| {
        let path = last.path_and_query().filter(|_| last.authority().is_none());
        if path.is_some_and(|path| path.as_str() == target) {
            return Ok(last.clone());
        }
        let uri = Uri::from_maybe_shared(Bytes::copy_from_slice(target.as_bytes()))?;
        if target.len() <= TARGET_KEPT {
            last.clone_from(&uri);
        }
        Ok(uri)
    })
}

/// The head of the answer to a request that may have a body, at the start of `bytes`, which it is taken from together
/// with the interim answers before it; `None` while it is not whole.
///
/// # Errors
/// See [`BadHead`].
pub fn response(bytes: &mut BytesMut, seen: usize) -> Result<Option<Head<ResponseHead>>, BadHead> {
    let mut seen = seen;
    loop {
        if !may_be_whole(bytes, std::mem::take(&mut seen))? {
            return Ok(None);
        }
        let mut slots: Slots<'_> = [MaybeUninit::uninit(); HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let httparse::Status::Complete(length) =
            config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut slots)?
        else {
            return more(bytes);
        };
        let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(BadHead::Malformed("the status is no number"))?;
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            bytes.advance(length);
            continue;
        }
        bounded(length)?;
        let version = version(parsed.version);
        let fields = fields(bytes.get(..length).unwrap_or_default(), parsed.headers)?;
        bytes.advance(length);
        let body = response_body(&fields, status, version)?;
        // Where a length or a coding tells of a body behind a status that has none, it may come after all.
        let bodyless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let told = fields.has(Name::TransferEncoding)
            || fields.get(Name::ContentLength).is_some_and(|length| length != b"0");
        let doubtful = has_two_ends(&fields) || (bodyless && told);
        let switches = status == StatusCode::SWITCHING_PROTOCOLS;
        let keeps = keeps(&fields, version) && !doubtful && !switches && body != Left::Close;
        let message = ResponseHead { status, fields };
        return Ok(Some(Head { message, body, keeps, expects: false }));
    }
}

/// Drops the empty lines at the start of `bytes`, which some clients send after a body (RFC 9112, 2.2); gives how many
/// bytes that were. However many come, none of them is kept or looked at twice.
pub fn skip_empty_lines(bytes: &mut BytesMut) -> usize {
    let mut length = 0;
    while let Some(rest) = bytes.get(length..) {
        length += match rest {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => break,
        };
    }
    bytes.advance(length);
    length
}

/// What is there is the beginning of a head, unless it is too long for that.
fn more<T>(bytes: &[u8]) -> Result<Option<T>, BadHead> {
    if bytes.len() > HEAD_MAX { Err(BadHead::TooLarge) } else { Ok(None) }
}

/// Whether the end of a head can be in `bytes`, of which `seen` were looked at before. Keeps a head that comes byte by
/// byte from being parsed as often.
fn may_be_whole(bytes: &[u8], seen: usize) -> Result<bool, BadHead> {
    let new = bytes.get(seen.saturating_sub(3)..).unwrap_or_default();
    let whole = match seen {
        0 => !bytes.is_empty(),
        _ => memmem::find(new, b"\n\r\n").is_some() || memmem::find(new, b"\n\n").is_some(),
    };
    if !whole && bytes.len() > HEAD_MAX {
        return Err(BadHead::TooLarge);
    }
    Ok(whole)
}

/// A whole head of this length may have come in one piece.
fn bounded(length: usize) -> Result<(), BadHead> {
    if length > HEAD_MAX { Err(BadHead::TooLarge) } else { Ok(()) }
}

/// What is too large about the head of a request that is.
fn crowded(bytes: &[u8]) -> BadHead {
    let line = bytes.get(..HEAD_MAX).unwrap_or(bytes);
    if line.contains(&b'\n') { BadHead::TooLarge } else { BadHead::TargetTooLong }
}

fn version(minor: Option<u8>) -> Version {
    if minor == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 }
}

fn fields(head: &[u8], parsed: &[httparse::Header<'_>]) -> Result<Fields, BadHead> {
    if parsed.iter().any(|header| header.name.len() > NAME_MAX) {
        return Err(BadHead::Malformed("a header has no valid name"));
    }
    Ok(Fields::found(head, parsed.iter().map(|header| (header.name.as_bytes(), header.value))))
}

/// Whether a message says twice where it ends, which may be an attempt to hide a second one in it. A request is refused
/// then; of an answer the transfer coding counts, and nothing else is read from that connection (RFC 9112, 6.3).
fn has_two_ends(fields: &Fields) -> bool {
    fields.has(Name::TransferEncoding) && fields.has(Name::ContentLength)
}

/// Whether the connection may be used again, as far as `connection` says.
fn keeps(fields: &Fields, version: Version) -> bool {
    let mut keep_alive = false;
    for value in fields.all(Name::Connection) {
        for word in value.split(|byte| *byte == b',') {
            let word = word.trim_ascii();
            if word.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    version == Version::HTTP_11 || keep_alive
}

/// The body of a request (RFC 9112, 6.3).
fn request_body(fields: &Fields, version: Version) -> Result<Left, BadHead> {
    let length = length(fields, false)?;
    let chunked = is_chunked(fields, version)?;
    if chunked && length.is_some() {
        return Err(TWO_ENDS);
    }
    Ok(if chunked { Left::chunked() } else { length.map_or(Left::NONE, Left::Length) })
}

/// The body of the answer to a request that is neither HEAD nor CONNECT (RFC 9112, 6.3).
fn response_body(fields: &Fields, status: StatusCode, version: Version) -> Result<Left, BadHead> {
    let chunked = is_chunked(fields, version)?;
    if status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Left::NONE);
    }
    if chunked {
        return Ok(Left::chunked());
    }
    Ok(length(fields, true)?.map_or(Left::Close, Left::Length))
}

/// Whether the body is in chunks, which is the one transfer coding that is understood: the headers that tell of it end
/// here, so a body in another one under the chunks would be relayed as what it is not.
fn is_chunked(fields: &Fields, version: Version) -> Result<bool, BadHead> {
    let mut codings = fields.all(Name::TransferEncoding);
    let Some(first) = codings.next() else { return Ok(false) };
    if version != Version::HTTP_11 {
        return Err(OLD_CODING);
    }
    let is_chunked = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
    if is_chunked(first) && codings.next().is_none() {
        return Ok(true);
    }
    let (mut times, mut at_the_end) = (0, false);
    for value in fields.all(Name::TransferEncoding) {
        for coding in value.split(|byte| *byte == b',') {
            at_the_end = is_chunked(coding);
            times += u32::from(at_the_end);
        }
    }
    Err(if at_the_end && times == 1 { BadHead::Coding } else { NO_END })
}

/// The length that is told, by however many headers, and in lists where those are allowed: all must agree.
fn length(fields: &Fields, lists: bool) -> Result<Option<u64>, BadHead> {
    const BAD: BadHead = BadHead::Malformed("the content-length is no number, or they differ");
    let mut length = None;
    for value in fields.all(Name::ContentLength) {
        let told = match number(value) {
            Some(told) => told,
            None => listed(value, lists).ok_or(BAD)?,
        };
        if length.is_some_and(|length| length != told) {
            return Err(BAD);
        }
        length = Some(told);
    }
    Ok(length)
}

/// The number that is told in a list, where those are allowed: all must agree.
fn listed(value: &[u8], lists: bool) -> Option<u64> {
    let mut all = value.split(|byte| lists && *byte == b',').map(|digits| number(digits.trim_ascii()));
    let first = all.next()??;
    all.all(|told| told == Some(first)).then_some(first)
}

/// A number of decimal digits alone: no sign, no space.
fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}
