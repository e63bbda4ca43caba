//! Streams and errors as OpenAI's SDKs see them (H3, H4).

use serde_json::Value;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat_stream, delta, reply};
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
        Some("die") => Script::new().close(),
        Some("stall") => Script::new().stall(),
        Some("bad") => error(400, "invalid_request_error"),
        Some("stranger") => error(401, "authentication_error"),
        Some("forbidden") => error(403, "permission_error"),
        Some("limited") => error(429, "rate_limit_error"),
        _ => reply(request),
    }
}

/// What an SDK makes of a failure: the class, which may differ where SDKs have none of their own for a status.
type Failure = (&'static str, &'static str, u64, Option<&'static str>);

/// Failures that the gateway tells by itself.
const FAILURES: [Failure; 20] = [
    ("unknown_model", "NotFoundError", 404, Some("model_not_found")),
    ("streamed_unknown_model", "NotFoundError", 404, Some("model_not_found")),
    ("embedded_unknown_model", "NotFoundError", 404, Some("model_not_found")),
    ("completed_unknown_model", "NotFoundError", 404, Some("model_not_found")),
    ("model_is_a_list", "BadRequestError", 400, None),
    ("model_is_missing", "BadRequestError", 400, None),
    ("model_is_a_number", "BadRequestError", 400, None),
    ("messages_is_a_number", "BadRequestError", 400, None),
    ("stream_is_text", "BadRequestError", 400, None),
    ("no_json", "BadRequestError", 400, None),
    ("bad_header", "BadRequestError", 400, Some("invalid_header")),
    ("long_header", "", 431, Some("headers_too_large")),
    ("no_such_path", "NotFoundError", 404, Some("unknown_url")),
    ("wrong_method", "", 405, Some("method_not_allowed")),
    ("too_large", "", 413, Some("request_too_large")),
    ("dies", "InternalServerError", 502, Some("bad_gateway")),
    ("no_replica", "InternalServerError", 503, None),
    ("full", "InternalServerError", 503, Some("queue_full")),
    ("streamed_full", "InternalServerError", 503, Some("queue_full")),
    ("silent", "InternalServerError", 504, Some("gateway_timeout")),
];

/// Checks what an SDK told; `other` is its class for a status that it knows no better one for.
fn check(told: &Value, other: &str, timeout: &str) {
    let class = |case: &str| told[case]["class"].as_str().unwrap_or("none").to_owned();
    for (case, wanted, status, code) in FAILURES {
        let wanted = if wanted.is_empty() { other } else { wanted };
        let error = &told[case];
        assert_eq!(
            (class(case).as_str(), error["status"].as_u64()),
            (wanted, Some(status)),
            "{case}: {told}"
        );
        let texts = ["type", "code", "message"].map(|field| error[field].as_str().unwrap_or_default());
        assert!(texts.iter().all(|text| !text.is_empty()), "{case}: {error}");
        assert!(code.is_none_or(|code| error["code"] == code), "{case}: {error}");
    }
    assert!(told["unknown_model"]["message"].to_string().contains("no-such-model"), "{told}");
    for case in ["model_is_a_number", "model_is_a_list", "model_is_missing"] {
        assert_eq!(told[case]["param"], "model", "{told}");
    }
    assert_eq!(told["bad_header"]["param"], "x-tidegate-priority", "{told}");
    assert_eq!(told["before_the_break"], "before", "what came before the break was delivered: {told}");
    let broken = &told["breaks_midway"];
    assert_eq!((class("breaks_midway").as_str(), &broken["is_api_error"]), ("APIError", &true.into()));
    assert_eq!(class("too_slow"), timeout, "{told}");
    for (case, wanted, status) in [
        ("replica_says_400", "BadRequestError", 400),
        ("replica_says_401", "AuthenticationError", 401),
        ("replica_says_403", "PermissionDeniedError", 403),
        ("replica_says_429", "RateLimitError", 429),
    ] {
        let error = &told[case];
        assert_eq!(
            (class(case).as_str(), error["status"].as_u64()),
            (wanted, Some(status)),
            "{case}: {told}"
        );
        assert_eq!(error["code"], "from_the_replica", "{told}");
    }
}

#[tokio::test]
async fn h4_c_062_failures_become_the_errors_that_both_sdks_have_for_them() {
    let stub = Stub::with(scripted).await;
    let down = Stub::start().await;
    down.kill().await;
    let down = Deployment::named("down").replica(&down.url(), 1).set("queue.headroom", "100ms");
    // One stream takes the only place for as long as it likes.
    let taken = Stub::with(|_| Script::sse().event(&delta("a")).stall()).await;
    let full = Deployment::named("full").set("model", "chat").replica(&taken.url(), 1);
    let full = full.set("concurrency_limit", 1).set("queue.requests", 0);
    let config = Config::of(Deployment::chat([&stub])).and(down).and(full);
    let config = config.set("limits.body", "1MiB").set("limits.first_byte", "2s");
    let gateway = Gateway::launch(config.set("limits.between_bytes", "10m")).await;
    gateway.ready_replicas(2).await;
    let mut stays = gateway.chat(&chat_stream("full", "stays")).await;
    stays.event().await.expect("an event");
    let url = gateway.base_url();
    if let Some(told) = sdk::python("errors.py", &[&url]).await {
        check(&told, "APIStatusError", "APITimeoutError");
    }
    if let Some(told) = sdk::node("errors.mjs", &[&url]).await {
        check(&told, "APIError", "APIConnectionTimeoutError");
    }
    drop(stays);
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}
