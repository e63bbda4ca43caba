//! A conversation is known by its own words, as OpenAI's SDK writes them (R1): in chats, in completions whose prompt
//! grows, when tools are called, and with images.

use serde_json::{Value, json};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::reply;
use tidegate_tests::script::Script;
use tidegate_tests::sdk;
use tidegate_tests::stub::{Request, Stub};

/// Calls a tool when there is one and nobody called it yet; else says something.
fn work(request: &Request) -> Script {
    let body = request.json();
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    if request.path() == "/v1/completions" {
        return Script::json(
            200,
            &json!({"id": "c1", "object": "text_completion", "model": "chat", "created": 1,
                "choices": [{"index": 0, "finish_reason": "stop", "text": "and so on, until the evening"}]}),
        );
    }
    if body["tools"].is_null() || last.is_some_and(|last| last["role"] == "tool") {
        return reply(request);
    }
    let call = json!({"id": "call_1", "type": "function",
        "function": {"name": "tide_table", "arguments": "{\"port\": \"Brest\"}"}});
    Script::json(
        200,
        &json!({"id": "c1", "object": "chat.completion", "model": "chat", "created": 1,
            "choices": [{"index": 0, "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": null, "tool_calls": [call]}}]}),
    )
}

#[tokio::test]
async fn r1_r2_whatever_the_sdk_sends_the_next_turn_goes_home_and_no_header_is_needed() {
    let stubs = [Stub::with(work).await, Stub::with(work).await, Stub::with(work).await];
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let Some(told) = sdk::python("identity.py", &[&gateway.base_url()]).await else { return };
    for story in ["chat", "completions", "tools", "images"] {
        let turns = told[story].as_array().expect("turns");
        assert_eq!(turns.len(), 4, "{story}: {told}");
        // A completion shows in nothing whether it is a first turn; an unknown one opens a conversation all the same.
        assert_eq!(turns[0][0], "placed", "{story}: {told}");
        let home: &Value = &turns[0][1];
        for turn in &turns[1..] {
            assert_eq!((&turn[0], &turn[1]), (&Value::from("home"), home), "{story}: {told}");
        }
    }
    for stub in &stubs {
        let headers =
            stub.see(|log| log.work.iter().map(|work| work.request.head.clone()).collect::<Vec<_>>());
        let names = ["x-conversation-id", "x-session-id"];
        assert!(
            headers.iter().all(|head| names.iter().all(|name| head.header(name).is_none())),
            "{headers:?}"
        );
    }
    gateway.assert_idle().await;
}
