//! llama.cpp's own server with a real model, as `tidegate quickstart` gets it.

use tidegate::quickstart::{self, Engine, Progress};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;

use super::{has, not_tested, streams, until_engine};

/// One replica, to which the gateway sends up to 8 requests at a time.
fn deployment(engine: &Engine) -> Deployment {
    let command: Vec<&str> = engine.command.iter().map(String::as_str).collect();
    let deployment = Deployment::named(engine.model).process(&command);
    let deployment = deployment.set("mode", "active").set("min", 1).set("max", 1);
    let deployment = deployment.set("target_concurrency", 8).set("concurrency_limit", 8);
    engine.env.iter().fold(deployment, |deployment, (name, value)| {
        deployment.set(&format!("process.env.{name}"), value.as_str())
    })
}

#[tokio::test]
async fn g2_needs_network_six_requests_on_two_slots_are_two_in_work_and_four_deferred() {
    let engine = match quickstart::prepare(&Progress::stderr()).await {
        Ok(engine) => engine,
        Err(error) => return not_tested("llama.cpp's server", &error.to_string()),
    };
    let gateway = Gateway::launch(Config::of(deployment(&engine))).await;
    gateway.ready_replicas(1).await;
    let idle = until_engine(&gateway, 0, "it is idle", |engine| has(engine, 0, 0)).await;
    assert_eq!(idle["dialect"], "llamacpp");
    assert_eq!(idle["kv_capacity"], engine.slots * engine.context);
    assert_eq!(idle["kv_used"], 0);

    let streams = streams(6, gateway.address, engine.model);
    let busy = until_engine(&gateway, 0, "it is busy", |seen| {
        has(seen, engine.slots, 6 - engine.slots) && seen["kv_used"].as_u64().is_some_and(|used| used > 0)
    })
    .await;
    assert!(busy["kv_used"].as_u64() <= busy["kv_capacity"].as_u64(), "{busy}");
    drop(streams);
    until_engine(&gateway, 0, "it is idle again", |engine| has(engine, 0, 0) && engine["kv_used"] == 0).await;
}
