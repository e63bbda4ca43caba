//! An engine that can sleep, as vLLM can.

use super::*;

#[tokio::test]
async fn an_engine_sleeps_until_it_is_woken_and_has_forgotten_its_cache_then() {
    let engine = start(&["--wake-time", "0s"]).await;
    let sleeping = async || engine.get("/is_sleeping").await.1;
    let long = chat(&"the same beginning ".repeat(40));
    let cached = async || {
        let (status, answer) = engine.post("/chat/completions", &long).await;
        (status, answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64())
    };
    assert_eq!(sleeping().await, r#"{"is_sleeping":false}"#);
    cached().await;
    assert!(matches!(cached().await, (200, Some(1..))), "the second finds the first in the cache");
    assert_eq!(engine.get("/sleep").await.0, 405);
    assert_eq!(engine.text(Method::POST, "/sleep?level=1", "").await.0, 200);
    assert_eq!(sleeping().await, r#"{"is_sleeping":true}"#);
    assert_eq!(engine.get("/health").await.0, 200, "as vLLM, it is well");
    assert_eq!(engine.get("/v1/models").await.0, 200);
    let (status, refusal) = engine.post("/chat/completions", &long).await;
    assert!(status == 500 && refusal.to_string().contains("sleeps"), "{refusal}");
    assert_eq!(engine.text(Method::POST, "/wake_up", "").await.0, 200);
    assert_eq!(sleeping().await, r#"{"is_sleeping":false}"#);
    assert!(matches!(cached().await, (200, None | Some(0))), "and serves, with nothing in its cache");
}

#[tokio::test]
async fn an_engine_that_knows_no_sleep_has_none_of_these_paths() {
    let engine = start(&["--sleepless"]).await;
    assert_eq!(engine.get("/is_sleeping").await.0, 404);
    assert_eq!(engine.text(Method::POST, "/sleep?level=1", "").await.0, 404);
}
