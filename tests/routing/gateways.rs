//! Two gateways in front of one fleet, behind a balancer that knows no conversations (C-148).

use serde_json::json;
use tidegate_shared::rng::Rng;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::reply;
use tidegate_tests::stub::Stub;

use crate::CHAT;
use crate::fleet::{Way, counts, of_messages};

const CONVERSATIONS: usize = 1000;
const TURNS: usize = 5;
const REPLICAS: usize = 4;
/// Requests that a replica takes at a time from one gateway.
const LIMIT: u32 = 16;

/// All turns of a conversation, each over a gateway that is drawn. Every second one has a name; the others are known by
/// what was said.
async fn converse(crowds: [Crowd; 2], index: usize) -> Vec<Way> {
    let mut drawn = Rng::new(index as u64);
    let mut messages = vec![json!({"role": "system", "content": format!("You help person {index}.")})];
    let mut ways = Vec::new();
    for turn in 0..TURNS {
        messages.push(json!({"role": "user", "content": format!("question {turn}")}));
        let name = index.to_string();
        let headers = [("x-conversation-id", name.as_str())];
        let headers = if index.is_multiple_of(2) { &headers[..] } else { &[] };
        let answer = crowds[drawn.below(2)].post(CHAT, headers, &of_messages(&messages, 16)).await;
        ways.push(Way::of(&answer));
        let said = answer.json().pointer("/choices/0/message").cloned().expect("an answer");
        messages.push(said);
    }
    ways
}

#[tokio::test]
async fn c_148_two_gateways_send_each_conversation_to_one_replica_and_keep_its_limit() {
    let mut stubs = Vec::new();
    for _ in 0..REPLICAS {
        stubs.push(Stub::with(reply).await);
    }
    let deployment = Deployment::chat(&stubs)
        .set("policy", "prefix")
        .set("concurrency_limit", LIMIT)
        .set("queue.headroom", "1m");
    let gateways = [0, 1].map(|_| Gateway::start(Config::of(deployment.clone())));
    let [one, two] = gateways;
    let gateways = [one.await, two.await];
    let crowds = [Crowd::of(gateways[0].address, 2).await, Crowd::of(gateways[1].address, 2).await];

    let all = at_a_time(CONVERSATIONS, 48, |index| converse(crowds.clone(), index)).await;
    let most = |ways: &Vec<Way>| counts(ways, REPLICAS).into_iter().max().unwrap_or(0);
    let same: usize = all.iter().map(most).sum();
    let turns = CONVERSATIONS * TURNS;
    assert!(same * 100 >= turns * 95, "{same} of {turns} turns were where most of their conversation was");
    let shares = counts(all.iter().flatten(), REPLICAS);
    assert!(shares.iter().all(|share| share * REPLICAS * 100 <= turns * 125), "{shares:?}");
    for (stub, share) in stubs.iter().zip(shares) {
        // Each gateway keeps the limit for what it sends.
        assert!(stub.see(|log| log.most) <= 2 * LIMIT as usize);
        assert_eq!(stub.count(), share, "each turn was sent once");
    }
    for gateway in gateways {
        gateway.assert_idle().await;
    }
}
