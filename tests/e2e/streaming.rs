//! Streams and errors as OpenAI's SDKs see them (H3, H4).

use serde_json::Value;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{delta, reply};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Request, Stub};
use tidegate_tests::{model, sdk};

#[tokio::test]
async fn h3_a_stream_says_the_same_as_the_whole_answer_to_both_sdks() {
    let Some(engine) = model::engine().await else { return };
    let one = model::deployment(engine).set("min", 1).set("max", 1).set("queue.headroom", "5m");
    let gateway = Gateway::launch(Config::of(one)).await;
    gateway.ready_replicas(1).await;
    let url = gateway.base_url();
    let arguments = [&url, engine.model];
    let told = [sdk::python("stream.py", &arguments).await, sdk::node("stream.mjs", &arguments).await];
    for told in told.iter().flatten() {
        let text = told["whole"].as_str().unwrap_or_default();
        assert!(text.len() > 10, "{told}");
        assert_eq!(told["streamed"], told["whole"], "{told}");
        assert!(told["pieces"].as_u64() > Some(3), "event by event: {told}");
        assert_eq!(told["streamed_tokens"], told["whole_tokens"], "the usage chunk: {told}");
        assert!(told["whole_tokens"][1].as_u64() > Some(0), "{told}");
        assert_eq!(told["finish"][0], told["finish"][1], "{told}");
    }
    if let [Some(python), Some(node)] = &told {
        assert_eq!(python["whole"], node["whole"], "temperature 0 and a seed");
    }
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}

/// A replica whose message tells what goes wrong.
fn scripted(request: &Request) -> Script {
    let error = |status, kind: &str| {
        let error =
            serde_json::json!({"message": kind, "type": kind, "param": null, "code": "from_the_replica"});
        Script::json(status, &serde_json::json!({"error": error}))
    };
    match request.json()["messages"][0]["content"].as_str() {
        Some("break") => Script::sse().event(&delta("be")).event(&delta("fore")).reset(),
        Some("stall") => Script::new().stall(),
        Some("bad") => error(400, "invalid_request_error"),
        Some("limited") => error(429, "rate_limit_error"),
        _ => reply(request),
    }
}

#[tokio::test]
async fn h4_failures_become_the_errors_that_the_sdk_has_for_them() {
    let stub = Stub::with(scripted).await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let Some(told) = sdk::python("errors.py", &[&gateway.base_url()]).await else { return };
    let class = |case: &str| told[case]["class"].as_str().unwrap_or("none").to_owned();
    let is = |case: &str, wanted: &str, status: Option<u64>, code: Value| {
        assert_eq!(
            (class(case), told[case]["status"].as_u64()),
            (wanted.to_owned(), status),
            "{case}: {told}"
        );
        assert_eq!(told[case]["code"], code, "{case}: {told}");
    };
    is("unknown_model", "NotFoundError", Some(404), "model_not_found".into());
    assert!(told["unknown_model"]["message"].to_string().contains("no-such-model"), "{told}");
    for case in ["model_is_a_number", "messages_is_a_number", "stream_is_text"] {
        assert_eq!((class(case).as_str(), &told[case]["status"]), ("BadRequestError", &400.into()), "{told}");
    }
    assert_eq!(told["model_is_a_number"]["param"], "model", "{told}");
    assert_eq!(class("no_such_path"), "NotFoundError", "{told}");
    assert_eq!(told["before_the_break"], "before", "what came before the break was delivered: {told}");
    assert_eq!(
        (class("breaks_midway").as_str(), &told["breaks_midway"]["is_api_error"]),
        ("APIError", &true.into())
    );
    assert_eq!(class("too_slow"), "APITimeoutError", "{told}");
    is("replica_says_400", "BadRequestError", Some(400), "from_the_replica".into());
    is("replica_says_429", "RateLimitError", Some(429), "from_the_replica".into());
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}
