//! The only place that makes an error response to a client's request (H4). The event that ends a broken stream is made in
//! [`super::stream`]; the operator's side answers by itself.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tidegate_shared::decision::Refusal;

use super::body::{Response, ResponseBody};
use crate::http1::fields::{Fields, Name};
use crate::openai::ApiError;
use crate::telemetry::record::Record;
use crate::telemetry::request_id::RequestId;

/// Answers with an error; the record ends here.
pub fn error(mut record: Record, error: &ApiError) -> Response {
    match error.status {
        500.. => record.trouble(&error.error.message),
        _ => record.reason(&error.error.message),
    }
    if let Some(model) = &error.model {
        record.model(model);
    }
    json(&mut record, error.status, error.body())
}

/// 503 with the time to come again: whole seconds rounded up, and milliseconds (Q2).
pub fn refusal(record: Record, refused: &ApiError, retry_after: Duration) -> Response {
    let millis = u64::try_from(retry_after.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    let mut response = error(record, refused);
    response.fields.set(Name::RetryAfter, millis.div_ceil(1000).max(1).to_string());
    response.fields.set(Name::RetryAfterMs, millis.to_string());
    response
}

/// 405 with the methods that the path has.
pub fn method_not_allowed(record: Record, refused: &ApiError, allowed: &'static str) -> Response {
    let mut response = error(record, refused);
    response.fields.set(Name::Allow, allowed);
    response
}

/// Answers with JSON.
pub fn json(record: &mut Record, status: u16, body: Bytes) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    record.own(status.as_u16(), body.len());
    let mut response = Response::new(status, ResponseBody::from(body));
    response.fields.set(Name::ContentType, "application/json");
    response.fields.set(Name::RequestId, record.request_id());
    response
}

/// 200 with a stream of events that the gateway begins by itself.
pub fn events(body: ResponseBody, id: &RequestId) -> Response {
    let mut response = Response::new(StatusCode::OK, body);
    response.fields.set(Name::ContentType, "text/event-stream");
    response.fields.set(Name::RequestId, id);
    unbuffered(&mut response.fields);
    response
}

/// Tells proxies in front of this one not to collect events (C-011).
pub fn unbuffered(fields: &mut Fields) {
    fields.set(Name::AccelBuffering, "no");
    if !fields.has(Name::CacheControl) {
        fields.set(Name::CacheControl, "no-cache");
    }
}

/// Whether a body cannot be read here because it is compressed.
pub fn is_encoded(fields: &Fields) -> bool {
    fields.has(Name::ContentEncoding)
}

/// 503: the bodies in memory take all that they may; some of it is free as soon as a request ends.
pub fn no_memory(mut record: Record) -> Response {
    record.refused(Refusal::QueueBytes);
    refusal(record, &ApiError::no_memory(), Duration::from_secs(1))
}

/// 500 after a panic, whose record is gone with it.
pub fn bug() -> Response {
    let body = ResponseBody::from(ApiError::internal().body());
    let mut response = Response::new(StatusCode::INTERNAL_SERVER_ERROR, body);
    response.fields.set(Name::ContentType, "application/json");
    response
}
