//! OpenAI's error object (H4): what the gateway says when it answers in place of a replica.
//!
//! Decides status, type, param and code of each kind of failure. Never makes a response, and never holds an
//! address of a replica, a key or a piece of a prompt.

use bytes::Bytes;
use serde::Serialize;
use tidegate_shared::decision::Refusal;

use super::request::BadBody;
use crate::config::show_size;
use crate::http1::head::BadHead;

/// Status that is logged when the client left before its answer was complete. Never sent.
pub const CLIENT_LEFT: u16 = 499;

/// The inner object of `{"error":{…}}`. All four fields are always there, as OpenAI's clients expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorObject {
    /// What went wrong, for a person.
    pub message: String,
    /// The class of error, which SDKs map to exceptions.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field of the request that is at fault.
    pub param: Option<&'static str>,
    /// What went wrong, for a program.
    pub code: Option<&'static str>,
}

/// An error answer: its status and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// What the body says.
    pub error: ErrorObject,
    /// The model that was asked for, where there is none of that name; for the log.
    pub model: Option<String>,
}

const INVALID_REQUEST: &str = "invalid_request_error";
const SERVER: &str = "server_error";

impl ApiError {
    fn new(status: u16, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        let error = ErrorObject { message: message.into(), kind, param: None, code: Some(code) };
        Self { status, error, model: None }
    }

    fn about(mut self, param: &'static str) -> Self {
        self.error.param = Some(param);
        self
    }

    /// 400: the request's head or framing makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, INVALID_REQUEST, "invalid_request", message)
    }

    /// 400: the header `name` has a value that it must not have. `allowed` follows "must be".
    pub fn bad_header(name: &'static str, value: &[u8], allowed: &str) -> Self {
        let value = String::from_utf8_lossy(value);
        let message = format!("{name} is `{}`, but must be {allowed}", shorten(&value));
        Self::new(400, INVALID_REQUEST, "invalid_header", message).about(name)
    }

    /// 400, 414, 431 or 501: what came is no head of a request, or not of one that can be read.
    pub fn bad_head(bad: BadHead) -> Self {
        let (status, code) = match bad {
            BadHead::Malformed(_) => (400, "invalid_request"),
            BadHead::TargetTooLong => (414, "url_too_long"),
            BadHead::TooLarge => (431, "headers_too_large"),
            BadHead::Coding => (501, "unknown_transfer_encoding"),
        };
        Self::new(status, INVALID_REQUEST, code, bad.to_string())
    }

    /// 401: no key, or one that is not known.
    pub fn invalid_key() -> Self {
        Self::new(
            401,
            INVALID_REQUEST,
            "invalid_api_key",
            "a valid API key is needed: `Authorization: Bearer <key>`",
        )
    }

    /// 403: the key is known and may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, INVALID_REQUEST, "forbidden", message)
    }

    /// 404: no deployment has the name `model`.
    pub fn unknown_model(model: &str) -> Self {
        let shown = shorten(model);
        let error = Self::new(
            404,
            INVALID_REQUEST,
            "model_not_found",
            format!("the model `{shown}` does not exist; GET /v1/models lists those that do"),
        );
        Self { model: Some(shown.to_owned()), ..error.about("model") }
    }

    /// 404: there is nothing at `path`.
    pub fn unknown_path(method: &str, path: &str) -> Self {
        let (method, path) = (shorten(method), shorten(path));
        let operators = ["/", "/status", "/metrics"].contains(&path)
            || ["/route", "/deployments/"].iter().any(|page| path.starts_with(page));
        let hint = if operators {
            "; the operator's pages are on another port, `admin` in the configuration"
        } else {
            ""
        };
        Self::new(404, INVALID_REQUEST, "unknown_url", format!("unknown URL: {method} {path}{hint}"))
    }

    /// 405: `path` exists, but only with the methods in `allowed` (as in the `Allow` header).
    pub fn method_not_allowed(method: &str, path: &str, allowed: &str) -> Self {
        let (method, path) = (shorten(method), shorten(path));
        Self::new(
            405,
            INVALID_REQUEST,
            "method_not_allowed",
            format!("{method} is not allowed on {path}; allowed: {allowed}"),
        )
    }

    /// 408: the client did not send its request in time.
    pub fn request_too_slow(message: impl Into<String>) -> Self {
        Self::new(408, INVALID_REQUEST, "request_timeout", message)
    }

    /// 413: the body is larger than `limit` bytes; it is `sent` bytes long, where its head says so.
    pub fn too_large(limit: u64, sent: Option<u64>) -> Self {
        let sent = sent.map(|sent| format!("{} bytes and ", sent)).unwrap_or_default();
        let limit = show_size(limit);
        Self::new(
            413,
            INVALID_REQUEST,
            "request_too_large",
            format!("the request body is {sent}over the limit of {limit}"),
        )
    }

    /// 415: the body is compressed, as its `content-encoding` says, so that its model cannot be read.
    pub fn coded_body(coding: &[u8]) -> Self {
        let coding = String::from_utf8_lossy(coding);
        let text = format!(
            "content-encoding is `{}`, but bodies are read as they are: send it without",
            shorten(&coding)
        );
        Self::new(415, INVALID_REQUEST, "unsupported_content_encoding", text).about("content-encoding")
    }

    /// 429: the key has used up one of its limits.
    pub fn rate_limited(message: impl Into<String>) -> Self {
        Self::new(429, "rate_limit_error", "rate_limit_exceeded", message)
    }

    /// 500: a bug in the gateway. Says nothing about its inside.
    pub fn internal() -> Self {
        Self::new(
            500,
            SERVER,
            "internal_error",
            "the gateway failed to handle this request; this is a bug of the gateway",
        )
    }

    /// 502: the replica could not be reached, or broke the protocol. `what` must not hold its address.
    pub fn bad_replica(what: impl Into<String>) -> Self {
        Self::new(502, SERVER, "bad_gateway", what)
    }

    /// 503: admission refused the request (Q1, Q2). Always sent with `Retry-After`; the code is the reason.
    pub fn refused(refusal: Refusal, message: impl Into<String>) -> Self {
        Self::new(503, "service_unavailable", refusal.as_str(), message)
    }

    /// 503: all bodies together take the memory that they may take.
    pub fn no_memory() -> Self {
        let text = "the gateway holds as many bytes of request bodies as it may; try again in 1 s";
        Self::refused(Refusal::QueueBytes, text)
    }

    /// 504: the replica did not answer, or fell silent, for too long.
    pub fn replica_timeout(message: impl Into<String>) -> Self {
        Self::new(504, SERVER, "gateway_timeout", message)
    }

    /// The body of the answer: `{"error":{"message":…,"type":…,"param":…,"code":…}}`.
    pub fn body(&self) -> Bytes {
        self.wrapped("", "")
    }

    /// The error as an event of a stream that has begun already, so that it does not end without a word.
    /// To be sent at an event boundary only ([`super::SseScan::at_boundary`]), and without `[DONE]` after it.
    pub fn event(&self) -> Bytes {
        self.wrapped("data: ", "\n\n")
    }

    fn wrapped(&self, before: &str, after: &str) -> Bytes {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a ErrorObject,
        }
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(before.as_bytes());
        // Writing strings to memory cannot fail; were it to, the client would see an empty body with the right status.
        let written = serde_json::to_writer(&mut out, &Body { error: &self.error });
        debug_assert!(written.is_ok());
        out.extend_from_slice(after.as_bytes());
        out.into()
    }
}

impl From<&BadBody> for ApiError {
    fn from(bad: &BadBody) -> Self {
        let error = ErrorObject {
            message: bad.to_string(),
            kind: INVALID_REQUEST,
            param: bad.param(),
            code: Some(bad.code()),
        };
        Self { status: 400, error, model: None }
    }
}

/// The first 200 bytes or so of a text that a client chose, so that an error is never larger than its cause
/// is worth.
fn shorten(text: &str) -> &str {
    match text.char_indices().find(|&(at, _)| at >= 200) {
        Some((at, _)) => text.get(..at).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_the_shape_is_exact() {
        let body = ApiError::unknown_model("no \"such\"").body();
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            r#"{"error":{"message":"the model `no \"such\"` does not exist; GET /v1/models lists those that do","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
        );
        let body = ApiError::too_large(64 << 20, Some(70_000_000)).body();
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            r#"{"error":{"message":"the request body is 70000000 bytes and over the limit of 64MiB","type":"invalid_request_error","param":null,"code":"request_too_large"}}"#
        );
    }

    #[test]
    fn h4_each_kind_has_its_status() {
        let statuses = [
            (ApiError::bad_request("x"), 400),
            (ApiError::from(&BadBody::Missing { param: "model" }), 400),
            (ApiError::invalid_key(), 401),
            (ApiError::forbidden("x"), 403),
            (ApiError::unknown_model("x"), 404),
            (ApiError::unknown_path("GET", "/x"), 404),
            (ApiError::method_not_allowed("GET", "/x", "POST"), 405),
            (ApiError::request_too_slow("x"), 408),
            (ApiError::too_large(1, None), 413),
            (ApiError::coded_body(b"gzip"), 415),
            (ApiError::rate_limited("x"), 429),
            (ApiError::internal(), 500),
            (ApiError::bad_replica("x"), 502),
            (ApiError::refused(Refusal::QueueFull, "x"), 503),
            (ApiError::replica_timeout("x"), 504),
        ];
        for (error, status) in statuses {
            assert_eq!(error.status, status);
            let parsed: serde_json::Value = serde_json::from_slice(&error.body()).unwrap();
            let object = parsed["error"].as_object().unwrap();
            assert_eq!(object.keys().collect::<Vec<_>>(), ["code", "message", "param", "type"]);
        }
    }

    /// What a typed client decodes an error into; anything else is a failure of its own there.
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Typed {
        error: Fields,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        message: String,
        #[serde(rename = "type")]
        kind: String,
        param: Option<String>,
        code: Option<String>,
    }

    #[track_caller]
    fn assert_typed(error: &ApiError) {
        let (body, event) = (error.body(), error.event());
        let event = event.strip_prefix(b"data: ").and_then(|data| data.strip_suffix(b"\n\n"));
        for body in [Some(&body[..]), event] {
            let Typed { error: read } = serde_json::from_slice(body.expect("one event")).expect("typed");
            let told =
                (read.message.as_str(), read.kind.as_str(), read.param.as_deref(), read.code.as_deref());
            let meant = (&error.error.message[..], error.error.kind, error.error.param, error.error.code);
            assert_eq!(told, meant);
            assert!(!read.message.is_empty() && !read.kind.is_empty());
            assert!(read.code.is_some_and(|code| !code.is_empty()), "{error:?}");
        }
    }

    #[test]
    fn c_062_every_refusal_and_every_bad_head_can_be_read_by_typed_clients() {
        let refusals = Refusal::ALL.map(|refusal| ApiError::refused(refusal, "no"));
        let heads = [
            BadHead::Malformed("it has no colon"),
            BadHead::TargetTooLong,
            BadHead::TooLarge,
            BadHead::Coding,
        ];
        let others = [
            ApiError::bad_header("x-tidegate-priority", b"\xff\"\n", "high"),
            ApiError::from(&BadBody::Missing { param: "model" }),
            ApiError::unknown_model("\u{0}\u{1b}\"\\"),
            ApiError::unknown_path("GET", "/x"),
            ApiError::method_not_allowed("GET", "/x", "POST"),
            ApiError::request_too_slow("x"),
            ApiError::too_large(u64::MAX, None),
            ApiError::coded_body(b"\xff\"gzip"),
            ApiError::rate_limited("x"),
            ApiError::invalid_key(),
            ApiError::forbidden("x"),
            ApiError::internal(),
            ApiError::bad_replica("x"),
            ApiError::no_memory(),
            ApiError::replica_timeout("x"),
        ];
        refusals
            .into_iter()
            .chain(heads.map(ApiError::bad_head))
            .chain(others)
            .for_each(|one| assert_typed(&one));
    }

    #[test]
    fn an_event_is_one_whole_event() {
        let event = ApiError::bad_replica("two\nlines").event();
        let text = std::str::from_utf8(&event).unwrap();
        assert!(text.starts_with("data: {\"error\":{") && text.ends_with("}}\n\n"));
        assert_eq!(text.matches('\n').count(), 2);
    }

    #[test]
    fn long_names_are_not_echoed_in_full() {
        let error = ApiError::unknown_model(&"ä".repeat(10_000));
        assert!(error.error.message.len() < 400);
    }
}
