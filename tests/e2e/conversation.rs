//! A conversation finds its replica again, with nothing but its own words (R1, R2).

use tidegate_tests::config::Config;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::{model, sdk};

/// Must show 1: the second turn, sent with no session header, goes home and finds its cache warm; another conversation
/// meanwhile lands on the other replica.
#[tokio::test]
async fn r2_the_second_turn_goes_home_to_a_warm_cache_while_another_conversation_has_the_other_replica() {
    let Some(engine) = model::engine().await else { return };
    if sdk::python_folder().is_none() {
        return;
    }
    let two = model::deployment(engine).set("min", 2).set("max", 2).set("queue.headroom", "5m");
    let gateway = Gateway::launch(Config::of(two)).await;
    gateway.ready_replicas(2).await;
    let Some(told) = sdk::python("turns.py", &[&gateway.base_url(), engine.model]).await else { return };

    let homes: Vec<_> = [0, 1]
        .into_iter()
        .map(|conversation| {
            let [first, second] = [&told[conversation][0], &told[conversation][1]];
            assert_eq!((&first["status"], &first["route"]), (&200.into(), &"placed".into()), "{told}");
            assert_eq!((&second["status"], &second["route"]), (&200.into(), &"home".into()), "{told}");
            assert_eq!(first["replica"], second["replica"], "{told}");
            let prompt = first["prompt"].as_f64().unwrap_or_default();
            assert!(prompt > 500.0, "a prompt worth caching: {told}");
            let cached = second["cached"].as_f64().unwrap_or_default();
            assert!(cached > 0.8 * prompt, "{cached} of {prompt} tokens were in the cache: {told}");
            first["replica"].clone()
        })
        .collect();
    assert_ne!(homes[0], homes[1], "each conversation has a replica of its own: {told}");
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}
