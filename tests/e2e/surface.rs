//! Every endpoint that a real llama.cpp serves, through the gateway (H1, H2).

use tidegate_tests::config::Config;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::{model, sdk};

#[tokio::test]
async fn h1_the_other_endpoints_work_with_a_real_engine_behind_them() {
    let Some(engine) = model::engine().await else { return };
    if sdk::python_folder().is_none() {
        return;
    }
    // Both are at zero: they are listed all the same, and wake up when asked.
    let chat = model::deployment(engine).set("max", 1).set("queue.headroom", "5m");
    let embedder = model::embedder(engine).set("max", 1).set("queue.headroom", "5m");
    let gateway = Gateway::launch(Config::of(chat).and(embedder)).await;
    let arguments = [&gateway.base_url(), engine.model, "embedder"];
    let Some(told) = sdk::python("surface.py", &arguments).await else { return };
    assert_eq!(told["models"], serde_json::json!([engine.model, "embedder"]), "H2: {told}");
    assert_eq!(told["model"], engine.model);
    for text in ["completion", "response"] {
        assert!(told[text].as_str().is_some_and(|text| !text.trim().is_empty()), "{text}: {told}");
    }
    let events: Vec<_> = told["response_events"].as_array().into_iter().flatten().collect();
    assert_eq!(events.first().and_then(|event| event.as_str()), Some("response.created"), "{told}");
    assert_eq!(events.last().and_then(|event| event.as_str()), Some("response.completed"), "{told}");
    assert_eq!(
        (&told["message"]["type"], &told["message"]["role"]),
        (&"message".into(), &"assistant".into())
    );
    assert!(told["message"]["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{told}");
    assert_eq!(told["embeddings"], serde_json::json!([576, 576, 576]), "{told}");
    assert!(told["difference"].as_f64().is_some_and(|difference| difference < 1e-5), "{told}");
    assert!(told["embedding_tokens"].as_u64() > Some(0), "{told}");
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}
