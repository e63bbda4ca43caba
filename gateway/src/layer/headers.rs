//! Which headers go on and which end here (H5).

use std::time::Duration;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;
use tidegate_shared::names::header;

use crate::openai::ApiError;

/// Whether a header belongs to one connection.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    match *name {
        CONNECTION | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION | TE | TRAILER | TRANSFER_ENCODING
        | UPGRADE => true,
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection"),
    }
}

/// Whether a header of a client's is for the gateway and not for a replica: credentials, and what is set when the
/// request is sent.
fn is_for_gateway(name: &HeaderName) -> bool {
    match *name {
        AUTHORIZATION | HOST | CONTENT_LENGTH | EXPECT => true,
        _ => matches!(name.as_str(), "x-api-key" | "api-key"),
    }
}

/// Turns a replica's headers into those for a client. A length beside a transfer coding says nothing (RFC 9112, 6.3)
/// and would cut the answer short (C-091).
pub fn for_client(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    drop_headers(headers, is_hop_by_hop);
}

/// When a replica says to come again: in milliseconds, or in seconds. A date is not understood: it is of a clock that may
/// be another one.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse().ok();
    let seconds = || number(RETRY_AFTER.as_str()).map(Duration::from_secs);
    number(header::RETRY_AFTER_MS).map(Duration::from_millis).or_else(seconds)
}

/// Turns a client's headers into those for a replica; `host` and the length of the body are set when it is sent.
pub fn for_replica(headers: &mut HeaderMap) {
    drop_headers(headers, |name| is_hop_by_hop(name) || is_for_gateway(name));
}

/// The value of one of Tidegate's own headers. One that is there twice may mean either to whoever reads it.
///
/// # Errors
/// 400 for a header that is there twice.
pub fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(second)) => Err(ApiError::bad_header(name, second.as_bytes(), "there once")),
        (first, None) => Ok(first),
    }
}

/// Drops the headers that are `unwanted`, and those that `connection` names.
fn drop_headers(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok());
    let unwanted = headers.keys().filter(|name| unwanted(name)).cloned();
    let dropped: SmallVec<[HeaderName; 8]> = named.chain(unwanted).collect();
    for name in dropped {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_091_a_length_beside_a_transfer_coding_is_dropped() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, 3.into());
        for_client(&mut headers);
        assert!(headers.contains_key(CONTENT_LENGTH));
        headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        for_client(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn c_032_a_replica_says_when_to_come_again_in_either_unit() {
        let said = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a header value")));
            retry_after(&pairs.collect())
        };
        assert_eq!(said(&[("retry-after", " 7 ")]), Some(Duration::from_secs(7)));
        let both = [("retry-after", "7"), ("retry-after-ms", "250")];
        assert_eq!(said(&both), Some(Duration::from_millis(250)));
        for wrong in ["-1", "1.5", "", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(said(&[("retry-after", wrong)]), None, "{wrong:?}");
        }
    }

    #[test]
    fn h5_hop_by_hop_and_named_headers_and_credentials_end_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Secret-Hop"),
            ("x-secret-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer sk"),
            ("x-api-key", "sk"),
            ("host", "gateway"),
            ("content-length", "5"),
            ("x-kept", "yes"),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        for_replica(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-kept"]);
    }
}
