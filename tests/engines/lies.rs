//! Replicas whose pages lie, stall, vanish or change: they harm their own figures and nobody else's.

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Request, Stub, healthy};

use super::{has, until_engine};

const GOOD: &str = "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"0\"} 1\n\
    vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n\
    vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"1000\"} 1\n";

/// Probes as of a healthy replica whose `/metrics` is this.
fn page(text: &str) -> impl Fn(&Request) -> Script + Send + Sync + 'static {
    let text = text.to_owned();
    move |request| match request.path() {
        "/metrics" => Script::answer(200, &["content-type: text/plain"], &text),
        _ => healthy(request),
    }
}

/// A gateway over these replicas, which tells what `GOOD` says of each.
async fn over(stubs: &[&Stub]) -> Gateway {
    for stub in stubs {
        stub.on_probe(page(GOOD));
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(stubs.iter().copied()))).await;
    for index in 0..stubs.len() {
        until_engine(&gateway, index, "a good page counts", is_good).await;
    }
    gateway
}

fn is_good(engine: &Value) -> bool {
    engine["dialect"] == "vllm"
        && has(engine, 3, 1)
        && engine["kv_used"] == 500
        && engine["kv_capacity"] == 1000
}

async fn errors(gateway: &Gateway, replica: &str) -> f64 {
    gateway.metrics().await.total(metric::SIGNAL_ERRORS, &[("deployment", "chat"), ("replica", replica)])
}

#[tokio::test]
async fn c_051_one_replicas_nonsense_is_unknown_and_counted_and_harms_no_other() {
    let (liar, honest) = (Stub::start().await, Stub::start().await);
    let gateway = over(&[&liar, &honest]).await;
    assert_eq!(errors(&gateway, "chat-1").await, 0.0);
    for bad in ["NaN", "+Inf", "-1", "1e308"] {
        let before = errors(&gateway, "chat-1").await;
        liar.on_probe(page(
            &GOOD.replace("waiting{engine=\"0\"} 1", &format!("waiting{{engine=\"0\"}} {bad}")),
        ));
        let engine = until_engine(&gateway, 0, bad, |engine| engine["waiting"].is_null()).await;
        assert_eq!((&engine["running"], &engine["kv_used"]), (&Value::from(3), &Value::from(500)));
        assert!(errors(&gateway, "chat-1").await > before, "{bad} is counted");
        liar.on_probe(page(GOOD));
        until_engine(&gateway, 0, "it comes to its senses", is_good).await;
    }
    for text in
        ["", "<html><body>vllm:num_requests_running 3</body></html>\n", "vllm:num_requests_running{engine"]
    {
        let before = errors(&gateway, "chat-1").await;
        liar.on_probe(page(text));
        let unknown = |engine: &Value| engine["running"].is_null() && engine["kv_capacity"].is_null();
        until_engine(&gateway, 0, "nothing is known", unknown).await;
        assert!(errors(&gateway, "chat-1").await > before, "{text:?} is counted");
        liar.on_probe(page(GOOD));
        until_engine(&gateway, 0, "it comes to its senses", is_good).await;
    }
    assert_eq!(errors(&gateway, "chat-2").await, 0.0);
    until_engine(&gateway, 1, "the other is known all the time", is_good).await;
}

#[tokio::test]
async fn g2_a_page_that_never_comes_is_unknown_and_takes_nobody_out() {
    let (slow, quick) = (Stub::start().await, Stub::start().await);
    let gateway = over(&[&slow, &quick]).await;
    slow.on_probe(|request| match request.path() {
        "/metrics" => Script::new().stall(),
        _ => healthy(request),
    });
    let unknown = |engine: &Value| engine["dialect"] == "vllm" && engine["running"].is_null();
    until_engine(&gateway, 0, "nothing is known", unknown).await;
    let asked = quick.see(|log| log.probes.len());
    quick.until("the other is asked on", |log| (log.probes.len() > asked + 8).then_some(())).await;
    until_engine(&gateway, 1, "the other is known", is_good).await;
    gateway.ready_replicas(2).await;
}

#[tokio::test]
async fn g2_an_engine_without_metrics_is_no_error() {
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    let engine = until_engine(&gateway, 0, "it was looked at", |engine| engine["dialect"] == "none").await;
    assert!(engine["running"].is_null() && engine["age_s"].is_null(), "{engine}");
    assert_eq!(errors(&gateway, "chat-1").await, 0.0);
}

#[tokio::test]
async fn c_104_who_comes_back_is_recognised_anew_and_starts_without_a_history() {
    let stub = Stub::start().await;
    let gateway = over(&[&stub]).await;
    stub.kill().await;
    until_engine(&gateway, 0, "what a dead engine said is forgotten", Value::is_null).await;
    stub.on_probe(page("sglang:num_running_reqs 2\nsglang:num_queue_reqs 0\n"));
    stub.revive();
    let engine = until_engine(&gateway, 0, "another engine is there", |engine| has(engine, 2, 0)).await;
    assert_eq!(engine["dialect"], "sglang");
    assert!(engine["kv_used"].is_null() && engine["kv_capacity"].is_null(), "{engine}");
    eventually(
        "it is ready",
        async || match gateway.status().await["deployments"][0]["replicas"][0]["phase"] {
            Value::String(ref phase) if phase == "ready" => Ok(()),
            ref other => Err(other.to_string()),
        },
    )
    .await;
}
