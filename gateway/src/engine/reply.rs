//! What clients get, in OpenAI's shapes. Decides the status of each failure; never what an answer holds.

use base64::Engine as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate_sim::engine::{Finish, Id};

use super::clock::Clock;
use super::driver::End;
use super::openai::{Embedding, Generation};
use super::text;

/// The connection is to be cut, as the faults in force demand.
#[derive(Debug, thiserror::Error)]
#[error("cut by the fault \"die_after_tokens\"")]
pub(super) struct Cut;

/// A body that may be cut.
pub(super) type Body = BoxBody<Bytes, Cut>;

/// Says in each answer that no model is behind it.
const STAND_IN: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-tidegate-engine"), HeaderValue::from_static("stand-in"));

/// Names the "build" that answered, as OpenAI does.
const FINGERPRINT: &str = "tidegate-engine";

/// An answer that is an error.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<&'static str>,
    code: Value,
}

impl Failure {
    fn new(status: StatusCode, message: String, kind: &'static str, code: &'static str) -> Self {
        Self { status, message, kind, param: None, code: code.into() }
    }

    /// 400.
    pub(super) fn invalid(message: String, param: Option<&'static str>, code: Option<&'static str>) -> Self {
        let (status, kind) = (StatusCode::BAD_REQUEST, "invalid_request_error");
        Self { status, message, kind, param, code: code.into() }
    }

    /// 400: prompt and answer do not fit.
    pub(super) fn too_long(tokens: u64, allowed: u32) -> Self {
        let message = format!(
            "Prompt and answer take {tokens} tokens; this model's maximum context length is {allowed} tokens"
        );
        Self::invalid(message, Some("messages"), Some("context_length_exceeded"))
    }

    /// 404: another model.
    pub(super) fn unknown_model(asked: &str, served: &str) -> Self {
        let message = format!("The model `{asked}` does not exist; this engine serves `{served}`");
        let failure = Self::new(StatusCode::NOT_FOUND, message, "invalid_request_error", "model_not_found");
        Self { param: Some("model"), ..failure }
    }

    /// 404: no such path.
    pub(super) fn unknown_path(path: &str) -> Self {
        let message = format!(
            "A stand-in engine serves nothing at {path}; it has /v1/chat/completions, /v1/completions and /v1/embeddings"
        );
        Self::new(StatusCode::NOT_FOUND, message, "invalid_request_error", "not_found")
    }

    /// 405.
    pub(super) fn method(method: &http::Method, allowed: &str) -> Self {
        let message = format!("The method {method} is not allowed here; allowed is {allowed}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message, "invalid_request_error", "method_not_allowed")
    }

    /// 413.
    pub(super) fn body_too_large(limit: usize) -> Self {
        let message = format!("The body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message, "invalid_request_error", "body_too_large")
    }

    /// 503: the queue is full.
    pub(super) fn queue_full(waiting: u32) -> Self {
        let message = format!("The engine's queue is full: {waiting} requests wait");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message, "server_error", "queue_full")
    }

    /// 503: the model loads; the shape is llama.cpp's.
    pub(super) fn loading() -> Self {
        let (message, kind) = ("Loading model".to_owned(), "unavailable_error");
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message, kind, param: None, code: 503.into() }
    }

    /// The status that the fault `refuse` names.
    pub(super) fn refused(status: u16) -> Self {
        let message = format!("Refused with {status} by the fault \"refuse\"");
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, message, "server_error", "fault")
    }

    /// 500: something that the faults in force, or the end of the engine, made fail.
    pub(super) fn broken(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_owned(), "server_error", "engine_error")
    }

    /// The error object.
    pub(super) fn json(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    /// The whole answer.
    pub(super) fn response(&self) -> Response<Body> {
        let mut response = respond(self.status, "application/json", self.json().to_string());
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// An answer of known length.
pub(super) fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    with_body(status, kind, Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed())
}

/// 200 with a JSON value.
pub(super) fn json(value: &Value) -> Response<Body> {
    respond(StatusCode::OK, "application/json", value.to_string())
}

/// An answer with any body.
pub(super) fn with_body(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let (name, value) = STAND_IN;
    response.headers_mut().insert(name, value);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// OpenAI's word for the end of an answer.
pub(super) const fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// What an answer cost.
pub(super) fn usage(prompt_tokens: u32, output: u32, cached_tokens: u32) -> Value {
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output,
        "total_tokens": u64::from(prompt_tokens) + u64::from(output),
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    })
}

/// What all chunks of one answer, or its only object, have in common.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
}

impl Envelope {
    /// For the answer to `ask`, made now, which the engine knows as `id`.
    pub(super) fn new(ask: &Generation, id: Id, model: &str) -> Self {
        let (prefix, object) = match (ask.chat, ask.stream) {
            (true, true) => ("chatcmpl", "chat.completion.chunk"),
            (true, false) => ("chatcmpl", "chat.completion"),
            (false, _) => ("cmpl", "text_completion"),
        };
        let created = Clock::unix_seconds();
        let id = format!("{prefix}-{:016x}{id:08x}", ask.answer.seed);
        Self { id, object, created, model: model.to_owned() }
    }

    /// The object with these choices; `usage` only where it is given.
    pub(super) fn object(&self, choices: &Value, usage: Option<&Value>) -> Value {
        let mut object = json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        });
        if let (Some(usage), Some(fields)) = (usage, object.as_object_mut()) {
            fields.insert("usage".into(), usage.clone());
        }
        object
    }
}

/// The whole answer to a request for text that is not streamed.
pub(super) fn completion(ask: &Generation, id: Id, model: &str, end: &End) -> Value {
    let text = ask.answer.text(ask.answer.tokens);
    let reason = finish_reason(end.finish);
    let choice = if ask.chat {
        let message = json!({"role": "assistant", "content": text, "refusal": null});
        json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason})
    } else {
        json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason})
    };
    let usage = usage(ask.request.prompt_tokens, ask.answer.tokens, end.cached_tokens);
    Envelope::new(ask, id, model).object(&json!([choice]), Some(&usage))
}

/// The answer to a request for vectors.
pub(super) fn embeddings(ask: &Embedding, model: &str) -> Value {
    let data: Vec<Value> = ask
        .inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let vector = text::embedding(input, ask.dimensions);
            let embedding = if ask.base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Value::from(base64::engine::general_purpose::STANDARD.encode(&bytes))
            } else {
                Value::from(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens: u32 = ask.inputs.iter().map(|input| text::tokens(input.len()).max(1)).sum();
    json!({
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}

/// The list of models, which is one.
pub(super) fn model(model: &str, created: u64, max_length: u32) -> Value {
    json!({
        "id": model, "object": "model", "created": created, "owned_by": FINGERPRINT, "max_model_len": max_length,
    })
}
