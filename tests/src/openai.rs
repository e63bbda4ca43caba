//! Bodies in OpenAI's shape: what clients send and replicas answer in the suites, and the shape of errors.
//!
//! The one schema of errors (C-062) is a typed one, as strict as the clients of languages with types: what OpenAI's clients for
//! Go, Java and .NET decode into has two texts and two texts that may be null, and a number or an object in place of one is a
//! failure there that hides the real one. Here, besides, nothing may be missing, and nothing may be there that they do not
//! know. OpenAI's own clients for Python and Node read the errors in `e2e/streaming`; there is no package of one for Go.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::script::Script;
use crate::stub::Request;

/// A chat request with one user message.
pub fn chat(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

/// The same with `stream: true`.
pub fn chat_stream(model: &str, text: &str) -> Value {
    json!({"model": model, "stream": true, "messages": [{"role": "user", "content": text}]})
}

/// The data of one event of a chat stream.
pub fn delta(text: &str) -> String {
    json!({"id": "c1", "object": "chat.completion.chunk", "model": "chat", "created": 1,
           "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
    .to_string()
}

/// What a well-behaved replica answers to any request that the gateway forwards.
pub fn reply(request: &Request) -> Script {
    if request.json()["stream"] == true {
        return Script::sse().event(&delta("Hel")).event(&delta("lo")).done();
    }
    let body = match request.path() {
        "/v1/embeddings" => json!({"object": "list", "model": "chat",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}],
            "usage": {"prompt_tokens": 2, "total_tokens": 2}}),
        _ => json!({"id": "c1", "object": "chat.completion", "model": "chat", "created": 1,
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": "Hello"}}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}}),
    };
    Script::json(200, &body)
}

/// The body of an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorBody {
    error: ErrorFields,
}

/// Its inside. No field has a default: each must be there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorFields {
    message: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "text_or_null")]
    param: Option<String>,
    #[serde(deserialize_with = "text_or_null")]
    code: Option<String>,
}

/// With a function of its own, a field may be null and must not be missing.
fn text_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)
}

/// What is wrong with `body` as an error of OpenAI's (C-062); `None` where nothing is.
pub fn fault_of_error(body: &[u8]) -> Option<String> {
    let ErrorBody { error } = match serde_json::from_slice(body) {
        Ok(read) => read,
        Err(error) => return Some(error.to_string()),
    };
    let empty = |text: &str| text.trim().is_empty();
    if empty(&error.message) || empty(&error.kind) {
        return Some("message or type is empty".to_owned());
    }
    let given = [error.param, error.code].into_iter().flatten();
    given.into_iter().any(|text| empty(&text)).then(|| "param or code is empty, and not null".to_owned())
}

/// Panics unless `body` is an error object of OpenAI's shape and nothing else (H4, C-062). Returns its inside.
#[track_caller]
pub fn assert_error_shape(body: &[u8]) -> Value {
    if let Some(fault) = fault_of_error(body) {
        panic!("{fault} in {:?}", String::from_utf8_lossy(body));
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    value["error"].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_062_what_a_typed_client_cannot_read_is_no_error_of_openais() {
        let good = json!({"message": "no", "type": "server_error", "param": null, "code": "bad_gateway"});
        let fault = |error: &Value| fault_of_error(json!({"error": error}).to_string().as_bytes());
        assert_eq!(fault(&good), None);
        let with = |key: &str, value: Value| {
            let mut error = good.clone();
            error[key] = value;
            error
        };
        let number = with("code", json!(502));
        let nested = with("param", json!({"name": "model"}));
        let (list, nothing) = (with("message", json!(["no"])), with("type", Value::Null));
        let (empty, more) = (with("code", json!("")), with("detail", json!("no")));
        for bad in [number, nested, list, nothing, empty, more] {
            assert!(fault(&bad).is_some(), "{bad}");
        }
        for key in ["message", "type", "param", "code"] {
            let mut short = good.clone();
            short.as_object_mut().map(|error| error.remove(key));
            assert!(fault(&short).is_some(), "without {key}");
        }
        for bad in ["", "<html>502 Bad Gateway</html>", "{\"error\": \"no\"}", "{\"detail\": {}}"] {
            assert!(fault_of_error(bad.as_bytes()).is_some(), "{bad}");
        }
        let more = json!({"error": good, "detail": "no"});
        assert!(fault_of_error(more.to_string().as_bytes()).is_some(), "beside it");
    }
}
