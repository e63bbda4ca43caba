//! What a refused client is told under an overload that goes on (Q2): who waits as told is served.

use std::sync::Arc;
use std::time::Duration;

use tidegate_tests::crowd::Crowd;
use tidegate_tests::deadline::as_told;
use tidegate_tests::openai::chat;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::Fleet;

/// Places of one engine, and steps of a request, each of 10 ms: a quarter of a second a request.
const PLACES: i64 = 32;
const TOKENS: u32 = 25;
/// Clients that shall have been refused before no new ones come.
const REFUSED: usize = 500;
/// Between two new clients: half as many again as the engine can serve.
const PAUSE: Duration = Duration::from_micros(5200);

/// Asks, waits as told whenever refused; how often that was. A refusal takes one of `wanted`.
async fn obedient(crowd: Crowd, number: usize, wanted: Arc<Semaphore>) -> usize {
    let mut body = chat("chat", &format!("question {number}"));
    body["max_tokens"] = TOKENS.into();
    body["ignore_eos"] = true.into();
    let mut refusals = 0;
    loop {
        let answer = crowd.post(CHAT, &[], &body).await;
        if answer.status == 200 {
            return refusals;
        }
        assert_eq!(answer.status, 503, "{:?}", answer.body);
        if refusals == 0
            && let Ok(one) = wanted.try_acquire()
        {
            one.forget();
        }
        refusals += 1;
        let told: u64 = answer.header("retry-after-ms").parse().expect("retry-after-ms");
        as_told(Duration::from_millis(told)).await;
    }
}

#[tokio::test]
async fn q2_of_five_hundred_refused_under_a_steady_overload_nearly_all_are_served_at_the_first_retry() {
    let places = PLACES.to_string();
    let arguments = ["--model", "chat", "--load-time", "0s", "--prefill-rate", "1000000", "--slots", &places];
    let steps = ["--step-us", "10000", "--step-sequence-us", "0", "--step-kv-ns", "0"];
    let fleet = Fleet::start(&[1], &[&arguments[..], &steps].concat(), |deployment| {
        deployment.set("concurrency_limit", PLACES).set("queue.headroom", "1s")
    })
    .await;
    let crowd = Crowd::of(fleet.gateway.address, 8).await;
    let (wanted, mut clients) = (Arc::new(Semaphore::new(REFUSED)), JoinSet::new());
    for number in 0.. {
        if wanted.available_permits() == 0 {
            break;
        }
        clients.spawn(obedient(crowd.clone(), number, Arc::clone(&wanted)));
        as_told(PAUSE).await;
    }
    let refusals = clients.join_all().await;
    let at = |count: usize| refusals.iter().filter(|refused| **refused == count).count();
    let refused = refusals.len() - at(0);
    let most = refusals.iter().max().copied().unwrap_or(0);
    eprintln!(
        "{} clients, {refused} refused, {} of them once, nobody more than {most} times",
        refusals.len(),
        at(1)
    );
    assert!(refused >= REFUSED);
    assert!(at(1) * 100 >= refused * 95, "{} of {refused} were served at the first retry", at(1));
    fleet.gateway.assert_idle().await;
}
