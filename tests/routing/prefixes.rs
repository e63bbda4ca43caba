//! A long beginning that all share gathers nobody beyond the balance, and is computed a few times only (R6).

use serde_json::json;
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::stand_in::INSTANT;

use crate::CHAT;
use crate::fleet::{Cached, Fleet, Way, counts, of_messages};

const USERS: usize = 500;

/// Five hundred users of one system prompt of 4,000 tokens, on eight replicas of these capacities, so many at a time.
async fn share(capacities: [u32; 8], width: usize) {
    let fleet = Fleet::start(&capacities, INSTANT, |deployment| deployment).await;
    let crowd = Crowd::of(fleet.gateway.address, 2).await;
    // Four bytes are a token to the engine.
    let system = json!({"role": "system", "content": "tide".repeat(4000)});
    let answers = at_a_time(USERS, width, |user| {
        let question = json!({"role": "user", "content": format!("I am user {user}. When is high water?")});
        let (crowd, body) = (crowd.clone(), of_messages(&[system.clone(), question], 16));
        async move { crowd.post(CHAT, &[], &body).await }
    })
    .await;
    let ways: Vec<Way> = answers.iter().map(Way::of).collect();
    let counts = counts(&ways, capacities.len());
    let all: u32 = capacities.iter().sum();
    for (count, capacity) in counts.iter().zip(capacities) {
        let mean = USERS as f64 * f64::from(capacity) / f64::from(all);
        assert!(*count as f64 <= 1.25 * mean, "{counts:?} on {capacities:?}");
    }
    let hits = answers.iter().map(Cached::of).sum::<Cached>().percent();
    eprintln!("{width} at a time on {capacities:?}: {counts:?}, {hits:.1} % of the prompts were cached");
    assert!(hits > 90.0, "{hits:.1} % of the prompts were cached");
    fleet.gateway.assert_idle().await;
}

#[tokio::test]
async fn r6_a_shared_system_prompt_is_found_in_the_cache_and_overloads_nobody() {
    share([1; 8], 1).await;
    share([1; 8], 32).await;
}

#[tokio::test]
async fn r6_nor_does_it_where_the_replicas_differ() {
    share([1, 1, 1, 1, 1, 1, 2, 2], 40).await;
}
