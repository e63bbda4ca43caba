//! The built-in stand-in engine, which speaks like vLLM.

use serde_json::Value;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;

use super::{has, streams, until_engine};

#[tokio::test]
async fn g2_the_stand_in_tells_what_runs_waits_and_is_held() {
    let arguments = ["--model", "chat", "--slots", "2", "--load-time", "0s", "--kv-tokens", "32768"];
    let deployment = Deployment::named("chat").engine(&arguments).set("mode", "active").set("min", 1);
    let deployment = deployment.set("max", 1).set("target_concurrency", 8).set("concurrency_limit", 8);
    let gateway = Gateway::launch(Config::of(deployment)).await;
    gateway.ready_replicas(1).await;
    let idle = until_engine(&gateway, 0, "it is idle", |engine| has(engine, 0, 0)).await;
    assert_eq!((&idle["dialect"], &idle["kv_used"]), (&Value::from("vllm"), &Value::from(0)));
    assert_eq!(idle["kv_capacity"], 32_768);

    let streams = streams(5, gateway.address, "chat");
    until_engine(&gateway, 0, "it is busy", |engine| {
        has(engine, 2, 3) && engine["kv_used"].as_u64().is_some_and(|used| used > 0)
    })
    .await;
    drop(streams);
    until_engine(&gateway, 0, "it is idle again", |engine| has(engine, 0, 0) && engine["kv_used"] == 0).await;
}
