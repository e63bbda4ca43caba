//! Heads between HTTP/2 and the rest of the gateway: of a request, as HTTP/1.1 would carry it, and of an answer, as HTTP/2
//! allows it.
//!
//! The library has refused by then what is malformed in a head by itself (RFC 9113, 8.2 and 8.3): upper case, fields of a
//! connection, `te` other than `trailers`, pseudo-fields that are missing, unknown, twice or late, lengths that differ. It
//! resets such a stream with PROTOCOL_ERROR. Decides nothing about a request.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_LENGTH, COOKIE, DATE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version};

use crate::http1::fields::{Fields, Name, Names};
use crate::http1::head::RequestHead;

/// What an answer over HTTP/2 must not have (RFC 9113, 8.2.2).
const OF_CONNECTION: Names = Names::of(&[
    Name::Connection,
    Name::KeepAlive,
    Name::ProxyConnection,
    Name::Te,
    Name::TransferEncoding,
    Name::Upgrade,
]);

/// Bytes of a head, as HTTP/2 counts them (RFC 9113, 6.5.2), whatever it took on the wire.
pub(super) fn size<B>(request: &Request<B>) -> usize {
    let target = request.uri();
    let path = target.path_and_query().map(|path| path.as_str());
    let authority = target.authority().map(Authority::as_str);
    let told = [Some(request.method().as_str()), path, authority].into_iter().flatten();
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    told.map(str::len).chain(fields).map(|bytes| bytes + 32).sum()
}

/// The head of a request. The crumbs of a cookie become one field again: HTTP/1.1 has no other way to say that they
/// belong together (RFC 9113, 8.2.3).
pub(super) fn request(parts: Parts) -> RequestHead {
    let mut fields = Fields::default();
    let mut crumbs = parts.headers.get_all(COOKIE).iter();
    if let Some(first) = crumbs.next() {
        let mut cookie = first.as_bytes().to_vec();
        for crumb in crumbs {
            cookie.extend_from_slice(b"; ");
            cookie.extend_from_slice(crumb.as_bytes());
        }
        fields.add(COOKIE.as_str().as_bytes(), &cookie);
    }
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != COOKIE) {
        fields.add(name.as_str().as_bytes(), value.as_bytes());
    }
    RequestHead { method: parts.method, target: parts.uri, version: Version::HTTP_2, fields }
}

/// The length of the body that a head tells. The library has seen that it is a number, and one.
pub(super) fn announced(fields: &HeaderMap) -> Option<u64> {
    fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The head of an answer of `length` bytes, where that is known, sent at `now`.
pub(super) fn response(
    status: StatusCode,
    mut fields: Fields,
    length: Option<u64>,
    now: SystemTime,
) -> http::Response<()> {
    fields.remove(OF_CONNECTION);
    let mut map = fields.to_map();
    match length {
        // It tells of a body that is not sent.
        _ if status == StatusCode::NOT_MODIFIED => {}
        Some(length) if status != StatusCode::NO_CONTENT => {
            map.insert(CONTENT_LENGTH, length.into());
        }
        _ => drop(map.remove(CONTENT_LENGTH)),
    }
    if !map.contains_key(DATE) {
        map.insert(DATE, date(now));
    }
    let mut response = http::Response::new(());
    (*response.status_mut(), *response.headers_mut()) = (status, map);
    response
}

thread_local! {
    /// The date, and which second of Unix time it is of.
    static TODAY: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

fn date(now: SystemTime) -> HeaderValue {
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    TODAY.with_borrow_mut(|(of, value)| {
        if *of != second || value.is_empty() {
            let text = httpdate::fmt_http_date(now);
            (*of, *value) =
                (second, HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("")));
        }
        value.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of_request(lines: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut request = http::Request::new(());
        for (name, value) in lines {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        let head = super::request(request.into_parts().0);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        head.fields.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn h3_the_crumbs_of_a_cookie_become_one_field() {
        let crumbs =
            [("cookie", "a=1"), ("x-a", "1"), ("cookie", "b=2"), ("x-a", "2"), ("cookie", "c=\"3; d\"")];
        let wanted = [("cookie", "a=1; b=2; c=\"3; d\""), ("x-a", "1"), ("x-a", "2")];
        assert_eq!(of_request(&crumbs), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(of_request(&[]).is_empty());
    }

    #[test]
    fn h5_c_091_an_answer_tells_its_length_and_nothing_of_a_connection() {
        let of = |status: u16, length| {
            let mut fields = Fields::default();
            for (name, value) in
                [("connection", "close"), ("content-length", "7"), ("transfer-encoding", "chunked")]
            {
                fields.add(name.as_bytes(), value.as_bytes());
            }
            let status = StatusCode::from_u16(status).expect("a status");
            let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
            let response = super::response(status, fields, length, now);
            assert_eq!(response.headers()[DATE], "Sun, 06 Nov 1994 08:49:37 GMT");
            let left = response.headers().len();
            let length = response.headers().get(CONTENT_LENGTH).cloned();
            assert_eq!(left, 1 + usize::from(length.is_some()));
            length.map(|length| length.to_str().expect("digits").to_owned())
        };
        assert_eq!(of(200, Some(3)), Some("3".to_owned()));
        assert_eq!((of(200, None), of(204, Some(0))), (None, None));
        assert_eq!(of(304, Some(0)), Some("7".to_owned()));
    }
}
