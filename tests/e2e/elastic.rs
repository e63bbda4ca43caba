//! The fleet follows the demand, from zero and back to zero, and loses nobody on the way (A2, A4, A5, Q3, E1).

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::config::Config;
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::{model, sdk};

/// The reasons of all decisions that `/status` tells, oldest first, with the sizes that they led from and to.
fn decisions(status: &Value) -> Vec<(String, u64, u64)> {
    let told = status["deployments"][0]["decisions"].as_array().cloned().unwrap_or_default();
    let number = |decision: &Value, key: &str| decision[key].as_u64().unwrap_or(u64::MAX);
    let read = |decision: &Value| {
        let reason = decision["reason"].as_str().unwrap_or_default().to_owned();
        (reason, number(decision, "current"), number(decision, "target"))
    };
    told.iter().rev().map(read).collect()
}

/// Must show 3: 0 → 1 on the first request, which is held and answered, to 2 under 40 chats at once, back to 0 after
/// the idle window; `/status` has each decision's reason; not one request fails.
#[tokio::test]
async fn a5_from_zero_to_two_and_back_to_zero_and_not_one_request_fails() {
    let Some(engine) = model::engine().await else { return };
    if sdk::python_folder().is_none() {
        return;
    }
    let deployment = model::deployment(engine)
        .set("max", 2)
        .set("target_concurrency", 4)
        .set("concurrency_limit", 4)
        .set("window", "3s")
        .set("queue.headroom", "5m");
    let gateway = Gateway::launch(Config::of(deployment)).await;
    gateway.until_metric(metric::TARGET, &[], 0.0).await;
    assert_eq!(gateway.status().await["deployments"][0]["replicas"], Value::Array(Vec::new()), "from zero");

    let url = gateway.base_url();
    let arguments = [&url, engine.model, "1", "40", "8", "0"];
    let (told, ()) = tokio::join!(sdk::python("crowd.py", &arguments), gateway.ready_replicas(2));
    let told = told.expect("it is there");
    let all = told.as_array().expect("a list");
    assert_eq!(all.len(), 41);
    assert!(all.iter().all(|one| one["status"] == 200), "not one request fails: {told}");
    let replicas: std::collections::BTreeSet<_> = all.iter().map(|one| one["replica"].to_string()).collect();
    assert_eq!(replicas.len(), 2, "both served: {told}");
    gateway.assert_idle().await;

    let seen = eventually("the fleet is back at zero", async || {
        let status = gateway.status().await;
        let empty = status["deployments"][0]["replicas"].as_array().is_some_and(Vec::is_empty);
        if empty { Ok(decisions(&status)) } else { Err(status.to_string()) }
    });
    let seen = seen.await;
    let reasons = |from, to| -> Vec<&str> {
        let moved = seen.iter().filter(|(_, current, target)| (*current, *target) == (from, to));
        moved.map(|(reason, _, _)| reason.as_str()).collect()
    };
    assert_eq!(reasons(0, 1).first(), Some(&"from_zero"), "{seen:?}");
    // Forty at four a replica want more than there may be.
    assert!(reasons(1, 2).contains(&"at_max"), "{seen:?}");
    assert!(seen.iter().any(|(reason, _, target)| reason == "idle" && *target == 0), "{seen:?}");
    gateway.leaves_nothing().await;
}
