//! A fleet of containers follows the demand: from zero through a burst to its ceiling and back to zero (A2, A4, A5, Q3,
//! E1), and it loses nobody.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tokio::task::JoinSet;

use crate::fleet::Fleet;

/// A streamed chat of `tokens` tokens.
fn long(text: &str, tokens: u32) -> Value {
    json!({"model": "chat", "stream": true, "max_tokens": tokens, "ignore_eos": true,
           "messages": [{"role": "user", "content": text}]})
}

/// Must show 3, with containers: nothing, a burst, a plateau, idle. No request fails, no container stays, and each
/// decision has its reason.
#[tokio::test]
async fn a5_from_zero_through_a_burst_and_a_plateau_to_zero() {
    let fleet = Fleet::launch(false, |deployment| {
        deployment.set("max", 3).set("target_concurrency", 4).set("window", "2s").set("queue.headroom", "5m")
    });
    let Some(fleet) = fleet.await else { return };
    assert_eq!(fleet.settled(0).await, [], "nothing at first");

    let mut requests = JoinSet::new();
    let send = |number: usize, tokens: u32, requests: &mut JoinSet<(u16, String)>| {
        let (server, body) = (fleet.address, long(&format!("question {number}"), tokens));
        requests.spawn(async move {
            let stream = Client::h1(server).stream("/v1/chat/completions", &body).await;
            let replica = stream.header("x-tidegate-replica").to_owned();
            let status = stream.status;
            let answer = stream.whole().await;
            assert!(answer.body.ends_with(b"data: [DONE]\n\n"), "a whole answer: {:?}", answer.body);
            (status, replica)
        });
    };
    // The burst: twelve at once, for which three replicas are needed. They last until all three are there.
    (0..12).for_each(|number| send(number, 1500, &mut requests));
    fleet.settled(3).await;
    // The plateau: whoever is answered asks again.
    let mut seen = BTreeSet::new();
    let mut asked = 12;
    while let Some(done) = requests.join_next().await {
        let (status, replica) = done.expect("no panic");
        assert_eq!(status, 200);
        seen.insert(replica);
        if asked < 60 {
            send(asked, 100, &mut requests);
            asked += 1;
        }
    }
    assert_eq!(seen.len(), 3, "all three served: {seen:?}");
    fleet.assert_idle().await;

    assert_eq!(fleet.settled(0).await, [], "no container stays");
    let status = fleet.status().await;
    let decisions = status["deployments"][0]["decisions"].as_array().expect("decisions").clone();
    let reasons: BTreeSet<&str> = decisions.iter().filter_map(|one| one["reason"].as_str()).collect();
    assert!(reasons.contains("from_zero") && reasons.contains("idle"), "{reasons:?}");
    assert!(
        decisions.iter().all(|one| one["reason"].as_str().is_some_and(|reason| !reason.is_empty())),
        "{status}"
    );
    assert_eq!(
        fleet.metrics().await.total(metric::REQUESTS, &[("deployment", "chat"), ("status", "200")]),
        60.0
    );
    assert_eq!(
        fleet.metrics().await.total(metric::REQUESTS, &[("deployment", "chat")]),
        60.0,
        "not one failed"
    );
    fleet.terminate();
}
