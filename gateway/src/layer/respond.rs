//! The only place that makes an error response to a client's request (H4). The event that ends a broken stream is made in
//! [`super::stream`]; the operator's side answers by itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tidegate_shared::decision::Refusal;
use tidegate_shared::names::header;

use super::body::ResponseBody;
use crate::openai::ApiError;
use crate::telemetry::record::Record;

/// `x-request-id`, `x-tidegate-replica`, `x-tidegate-route`.
pub const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
/// See [`REQUEST_ID`].
pub const REPLICA: HeaderName = HeaderName::from_static(header::REPLICA);
/// See [`REQUEST_ID`].
pub const ROUTE: HeaderName = HeaderName::from_static(header::ROUTE);
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static(header::RETRY_AFTER_MS);

/// Answers with an error; the record ends here.
pub fn error(mut record: Record, error: &ApiError) -> Response<ResponseBody> {
    if error.status >= 500 {
        record.trouble(&error.error.message);
    }
    json(&mut record, error.status, error.body())
}

/// 503 with the time to come again: whole seconds rounded up, and milliseconds (Q2).
pub fn refusal(record: Record, refused: &ApiError, retry_after: Duration) -> Response<ResponseBody> {
    let millis = u64::try_from(retry_after.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    let mut response = error(record, refused);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000).max(1)));
    headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
    response
}

/// 405 with the methods that the path has.
pub fn method_not_allowed(
    record: Record,
    refused: &ApiError,
    allowed: &'static str,
) -> Response<ResponseBody> {
    let mut response = error(record, refused);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Answers with JSON.
pub fn json(record: &mut Record, status: u16, body: Bytes) -> Response<ResponseBody> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    record.own(status.as_u16(), body.len());
    let mut response = Response::new(ResponseBody::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(REQUEST_ID, record.request_id().clone());
    response
}

/// 200 with a stream of events that the gateway begins by itself.
pub fn events(body: ResponseBody, id: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(REQUEST_ID, id);
    unbuffered(headers);
    response
}

/// Tells proxies in front of this one not to collect events (C-011).
pub fn unbuffered(headers: &mut HeaderMap) {
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
}

/// Whether a body cannot be read here because it is compressed.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_ENCODING)
}

/// 503: the bodies in memory take all that they may; some of it is free as soon as a request ends.
pub fn no_memory(mut record: Record) -> Response<ResponseBody> {
    record.refused(Refusal::QueueBytes);
    refusal(record, &ApiError::no_memory(), Duration::from_secs(1))
}

/// 500 after a panic, whose record is gone with it.
pub fn bug() -> Response<ResponseBody> {
    let error = ApiError::internal();
    let mut response = Response::new(ResponseBody::from(error.body()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
