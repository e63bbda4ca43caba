//! Bodies in OpenAI's shape: what clients send and replicas answer in the suites, and the shape of errors.

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

/// Panics unless `body` is an error object of OpenAI's shape and nothing else (H4, C-062). Returns its inside.
#[track_caller]
pub fn assert_error_shape(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error} in {text:?}"));
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    assert_eq!(keys(&value), Some(vec!["error".to_owned()]), "{text}");
    let error = &value["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "message: {text}");
    assert!(error["type"].as_str().is_some_and(|kind| !kind.is_empty()), "type: {text}");
    for key in ["param", "code"] {
        let field = error.get(key).unwrap_or_else(|| panic!("{key} is missing: {text}"));
        assert!(field.is_null() || field.is_string(), "{key} must be a string or null: {text}");
    }
    error.clone()
}
