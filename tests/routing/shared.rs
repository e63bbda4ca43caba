//! Prompts that many ask as they are, over the real gateway (R1, R3, R6): a crowd that says the same words stays spread by
//! weight, and each of it goes home from the first turn on that is its own.

use serde_json::{Value, json};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::stand_in::INSTANT;

use crate::CHAT;
use crate::fleet::{Fleet, Way, counts, of_messages};

const COMPLETIONS: &str = "/v1/completions";

/// So many bodies, so many at a time; gives how each came to its replica.
async fn ask(fleet: &Fleet, width: usize, route: &'static str, bodies: Vec<Value>) -> Vec<Way> {
    let crowd = Crowd::of(fleet.gateway.address, 2).await;
    let answers = at_a_time(bodies.len(), width, |who| {
        let (crowd, body) = (crowd.clone(), bodies[who].clone());
        async move { crowd.post(route, &[], &body).await }
    })
    .await;
    answers.iter().map(Way::of).collect()
}

/// No replica has more than this percentage of its share by size.
#[track_caller]
fn assert_hottest(percent: f64, ways: &[Way], capacities: &[u32]) {
    let counts = counts(ways, capacities.len());
    let all: u32 = capacities.iter().sum();
    for (count, capacity) in counts.iter().zip(capacities) {
        let share = ways.len() as f64 * f64::from(*capacity) / f64::from(all);
        assert!(*count as f64 <= share * percent / 100.0 + 1.0, "{counts:?} on {capacities:?}");
    }
    eprintln!("{counts:?} on {capacities:?}");
}

/// Two hundred who say hi, and eight turns of each.
async fn say_hi(capacities: [u32; 4], width: usize) {
    let fleet = Fleet::start(&capacities, INSTANT, |deployment| deployment).await;
    // Fifty at a time, the load of the moment counts as well as the turn.
    let percent = if width == 1 { 105.0 } else { 120.0 };
    let mut talks = vec![vec![json!({"role": "user", "content": "hi"})]; 200];
    let mut last: Vec<usize> = Vec::new();
    for turn in 1..=8 {
        let bodies = talks.iter().map(|messages| of_messages(messages, 8)).collect();
        let ways = ask(&fleet, width, CHAT, bodies).await;
        assert_hottest(percent, &ways, &capacities);
        let at: Vec<usize> = ways.iter().map(|way| way.replica).collect();
        if turn > 2 {
            assert!(ways.iter().all(|way| way.route == "home"), "turn {turn}: {ways:?}");
            assert_eq!(at, last, "turn {turn}");
        }
        last = at;
        for (who, messages) in talks.iter_mut().enumerate() {
            messages.push(json!({"role": "assistant", "content": format!("hello {who}")}));
            messages.push(json!({"role": "user", "content": format!("{who} asks for the {turn}th time")}));
        }
    }
    fleet.gateway.assert_idle().await;
}

#[tokio::test]
async fn r1_r2_r3_two_hundred_who_say_hi_are_two_hundred_conversations() {
    say_hi([1; 4], 1).await;
    say_hi([1; 4], 50).await;
    say_hi([1, 2, 4, 1], 50).await;
}

/// Five hundred of what `body` makes on eight replicas.
async fn share(width: usize, route: &'static str, body: impl Fn(usize) -> Value) {
    let fleet = Fleet::start(&[1; 8], INSTANT, |deployment| deployment).await;
    let ways = ask(&fleet, width, route, (0..500).map(body).collect()).await;
    assert_hottest(125.0, &ways, &[1; 8]);
    fleet.gateway.assert_idle().await;
}

#[tokio::test]
async fn r6_completions_that_share_all_but_a_short_question_overload_nobody() {
    for shared in [300, 3000, 17_000] {
        let beginning = "high water at the bridge ".repeat(1000)[..shared].to_owned();
        let body = |who: usize| json!({"model": "chat", "max_tokens": 8, "prompt": format!("{beginning}\nQ{who}: and when is low water?")});
        share(20, COMPLETIONS, body).await;
    }
}

#[tokio::test]
async fn r6_the_same_body_from_five_hundred_users_overloads_nobody() {
    let shots: Vec<Value> = (0..9)
        .map(|at| json!({"role": if at % 2 == 1 { "assistant" } else { "user" }, "content": format!("shot {at}")}))
        .collect();
    share(20, CHAT, |_| of_messages(&shots, 8)).await;
    share(20, COMPLETIONS, |_| json!({"model": "chat", "max_tokens": 8, "prompt": "tide".repeat(150)})).await;
    share(1, COMPLETIONS, |_| json!({"model": "chat", "max_tokens": 8, "prompt": "when is high water?"}))
        .await;
}

#[tokio::test]
async fn r1_r2_a_short_prompt_that_grows_stays_at_home() {
    let fleet = Fleet::start(&[1; 4], INSTANT, |deployment| deployment).await;
    let mut prompts: Vec<String> = (0..100).map(|who| format!("{who:03} asks about tides")).collect();
    let mut last: Vec<usize> = Vec::new();
    for turn in 0..4 {
        let of = |prompt: &String| json!({"model": "chat", "max_tokens": 8, "prompt": prompt});
        let ways = ask(&fleet, 20, COMPLETIONS, prompts.iter().map(of).collect()).await;
        let at: Vec<usize> = ways.iter().map(|way| way.replica).collect();
        assert!(ways.iter().all(|way| way.route == if turn == 0 { "placed" } else { "home" }), "{ways:?}");
        assert!(turn == 0 || at == last, "turn {turn}");
        last = at;
        prompts.iter_mut().for_each(|prompt| prompt.push_str(" and this is what it is told"));
    }
}
