//! Which headers go on and which end here (H5).

use std::time::Duration;

use smallvec::SmallVec;

use crate::http1::fields::{Fields, Name, Names, text};
use crate::openai::ApiError;

/// Those that belong to one connection.
const HOP_BY_HOP: Names = Names::of(&[
    Name::Connection,
    Name::KeepAlive,
    Name::ProxyAuthenticate,
    Name::ProxyAuthorization,
    Name::ProxyConnection,
    Name::Te,
    Name::Trailer,
    Name::TransferEncoding,
    Name::Upgrade,
]);

/// Those of a client's that are for the gateway and not for a replica: credentials, and what is set when the request is
/// sent.
const FOR_GATEWAY: Names = Names::of(&[
    Name::ApiKey,
    Name::Authorization,
    Name::ContentLength,
    Name::Expect,
    Name::Host,
    Name::XApiKey,
]);

/// Turns a replica's headers into those for a client. A length beside a transfer coding says nothing (RFC 9112, 6.3)
/// and would cut the answer short (C-091).
pub fn for_client(fields: &mut Fields) {
    if fields.has(Name::TransferEncoding) {
        fields.remove(Names::of(&[Name::ContentLength]));
    }
    drop_fields(fields, HOP_BY_HOP);
}

/// When a replica says to come again: in milliseconds, or in seconds. A date is not understood: it is of a clock that may
/// be another one.
pub fn retry_after(fields: &Fields) -> Option<Duration> {
    let number = |name| text(fields.get(name)?)?.trim().parse().ok();
    let seconds = || number(Name::RetryAfter).map(Duration::from_secs);
    number(Name::RetryAfterMs).map(Duration::from_millis).or_else(seconds)
}

/// Turns a client's headers into those for a replica; `host` and the length of the body are set when it is sent.
pub fn for_replica(fields: &mut Fields) {
    drop_fields(fields, HOP_BY_HOP.and(FOR_GATEWAY));
}

/// The value of one of Tidegate's own headers. One that is there twice may mean either to whoever reads it.
///
/// # Errors
/// 400 for a header that is there twice.
pub fn only(fields: &Fields, name: Name) -> Result<Option<&[u8]>, ApiError> {
    let mut values = fields.all(name);
    match (values.next(), values.next()) {
        (_, Some(second)) => Err(ApiError::bad_header(name.as_str(), second, "there once")),
        (first, None) => Ok(first),
    }
}

/// Names in `connection` that are looked for.
const NAMED_MAX: usize = 100;

/// Drops those that are `unwanted`, and those that `connection` names.
fn drop_fields(fields: &mut Fields, unwanted: Names) {
    if fields.has(Name::Connection) {
        let mut named: SmallVec<[u8; 64]> = SmallVec::new();
        for names in fields.all(Name::Connection) {
            named.extend_from_slice(names);
            named.push(b',');
        }
        let names = named.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        // No head has more fields than that, so whoever names more names what is not there.
        names.filter(|name| !name.is_empty()).take(NAMED_MAX).for_each(|name| fields.remove_named(name));
    }
    fields.remove(unwanted);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        lines.iter().for_each(|(name, value)| fields.add(name.as_bytes(), value.as_bytes()));
        fields
    }

    #[test]
    fn c_091_a_length_beside_a_transfer_coding_is_dropped() {
        let mut answer = fields(&[("content-length", "3")]);
        for_client(&mut answer);
        assert!(answer.has(Name::ContentLength));
        answer.set(Name::TransferEncoding, "chunked");
        for_client(&mut answer);
        assert!(answer.is_empty());
    }

    #[test]
    fn h5_fields_that_connection_names_go_whatever_else_it_holds() {
        let mut request = fields(&[("connection", " ,, X-Mine ,\u{e9}"), ("x-mine", "1"), ("x-other", "2")]);
        for_replica(&mut request);
        assert_eq!(
            request.iter().collect::<Vec<_>>(),
            fields(&[("x-other", "2")]).iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn c_032_a_replica_says_when_to_come_again_in_either_unit() {
        let said = |lines: &[(&str, &str)]| retry_after(&fields(lines));
        assert_eq!(said(&[("retry-after", " 7 ")]), Some(Duration::from_secs(7)));
        let both = [("retry-after", "7"), ("retry-after-ms", "250")];
        assert_eq!(said(&both), Some(Duration::from_millis(250)));
        for wrong in ["-1", "1.5", "", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(said(&[("retry-after", wrong)]), None, "{wrong:?}");
        }
    }

    #[test]
    fn h5_hop_by_hop_and_named_headers_and_credentials_end_here() {
        let mut request = fields(&[
            ("Connection", "close, X-Secret-Hop"),
            ("x-secret-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("Authorization", "Bearer sk"),
            ("x-api-key", "sk"),
            ("api-key", "sk"),
            ("host", "gateway"),
            ("content-length", "5"),
            ("x-kept", "yes"),
            ("connection", "x-other"),
            ("X-Other", "1"),
        ]);
        for_replica(&mut request);
        let left: Vec<_> = request.iter().collect();
        assert_eq!(left, [(&b"x-kept"[..], &b"yes"[..])]);
    }
}
