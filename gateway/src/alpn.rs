//! Which protocols are offered inside TLS, to clients and to replicas alike. Says nothing of what was agreed on.

/// HTTP/2, as it is named there.
pub(crate) const HTTP2: &[u8] = b"h2";

/// What is offered, best first.
pub(crate) fn offered() -> Vec<Vec<u8>> {
    vec![HTTP2.to_vec(), b"http/1.1".to_vec()]
}
