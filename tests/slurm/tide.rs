//! A fleet of jobs follows the demand: from zero through a burst to what the cluster has, and back to zero (A2, A4, A5,
//! Q3, C2, E1), and it loses nobody.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::deadline::{eventually, patiently};
use tokio::task::JoinSet;

use crate::fleet::Fleet;

/// A streamed chat of `tokens` tokens.
fn long(text: &str, tokens: u32) -> Value {
    json!({"model": "chat", "stream": true, "max_tokens": tokens, "ignore_eos": true,
           "messages": [{"role": "user", "content": text}]})
}

/// Waits until the third replica says what it waits for, and so does the decision; the deployment's status.
async fn third_waits(fleet: &Fleet) -> Value {
    eventually("the third waits and says for what", async || {
        let status = fleet.gateway.status().await["deployments"][0].clone();
        let told = status["replicas"].as_array().cloned().unwrap_or_default();
        let why = told.iter().filter_map(|replica| replica["why"].as_str());
        let no_room = why.filter(|why| why.contains("no capacity: Slurm says Resources")).count();
        let decided = status["decision"]["reason"] == "no_capacity";
        if no_room == 1 && decided { Ok(status) } else { Err(format!("{status}\n{}", fleet.gateway.log())) }
    })
    .await
}

/// Must show 3, with jobs: nothing, a burst that wants more than the cluster has, a plateau, idle. No request fails, no
/// job stays, and what blocks growth is said.
#[tokio::test]
async fn a5_c2_from_zero_through_a_burst_and_a_plateau_to_zero() {
    let fleet = Fleet::launch(|deployment| {
        deployment
            .set("max", 3)
            .set("rule", "concurrency")
            .set("target_concurrency", 4)
            .set("window", "3s")
            .set("queue.headroom", "5m")
    });
    let Some(fleet) = fleet.await else { return };
    assert_eq!(fleet.cluster.jobs(), Vec::<String>::new(), "nothing at first");

    let mut requests = JoinSet::new();
    let send = |number: usize, tokens: u32, requests: &mut JoinSet<(u16, String)>| {
        let (server, body) = (fleet.gateway.address, long(&format!("question {number}"), tokens));
        requests.spawn(async move {
            let stream = Client::h1(server).stream("/v1/chat/completions", &body).await;
            let (status, replica) = (stream.status, stream.header("x-tidegate-replica").to_owned());
            let answer = stream.whole().await;
            assert!(answer.body.ends_with(b"data: [DONE]\n\n"), "a whole answer: {:?}", answer.body);
            (status, replica)
        });
    };
    // The burst: twelve at once need three replicas, and there are two GPUs.
    (0..12).for_each(|number| send(number, 1500, &mut requests));
    fleet.gateway.ready_replicas(2).await;
    assert_eq!(third_waits(&fleet).await["provider"], "slurm");
    // The plateau: whoever is answered asks again.
    let (mut seen, mut asked) = (BTreeSet::new(), 12);
    while let Some(done) = patiently("an answer", requests.join_next()).await {
        let (status, replica) = done.expect("no panic");
        assert_eq!(status, 200);
        seen.insert(replica);
        if asked < 60 {
            send(asked, 50, &mut requests);
            asked += 1;
        }
    }
    assert!(seen.len() >= 2, "both served: {seen:?}");
    fleet.gateway.assert_idle().await;
    fleet.jobs(0).await;

    let status = fleet.gateway.status().await;
    let decisions = status["deployments"][0]["decisions"].as_array().expect("decisions").clone();
    let reasons: BTreeSet<&str> = decisions.iter().filter_map(|one| one["reason"].as_str()).collect();
    assert!(reasons.contains("from_zero") && reasons.contains("idle"), "{reasons:?}");
    assert_eq!(
        fleet.gateway.metrics().await.total(metric::REQUESTS, &[("deployment", "chat"), ("status", "200")]),
        60.0
    );
    assert_eq!(
        fleet.gateway.metrics().await.total(metric::REQUESTS, &[("deployment", "chat")]),
        60.0,
        "not one failed"
    );
    fleet.leaves_no_job().await;
}
