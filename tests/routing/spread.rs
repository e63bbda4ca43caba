//! New conversations follow the capacities (R3, C-129), one by one and in bursts, and nobody herds.

use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::task::JoinSet;

use crate::CHAT;

/// New conversations of one test of R3.
const NEW: usize = 1000;

/// A gateway over stubs of these capacities that answer when the gate lets them; no replica's limit is in the way.
async fn fleet(capacities: &[u32], gate: &Gate) -> (Gateway, Vec<Stub>) {
    let (mut deployment, mut stubs) = (Deployment::named("chat").set("concurrency_limit", 200), Vec::new());
    for capacity in capacities {
        let gate = gate.clone();
        let stub = Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await;
        deployment = deployment.replica(&stub.url(), *capacity);
        stubs.push(stub);
    }
    (Gateway::start(Config::of(deployment)).await, stubs)
}

async fn open_conversation(client: Client, name: String) {
    let answer = client.post_with(CHAT, &[("x-conversation-id", &name)], &chat("chat", "hi")).await;
    assert_eq!((answer.status, answer.header("x-tidegate-route")), (200, "placed"));
}

/// Checks 250/250/500, each ±5 %.
#[track_caller]
fn assert_spread(stubs: &[Stub]) {
    let counts: Vec<_> = stubs.iter().map(Stub::count).collect();
    assert_eq!(counts.iter().sum::<usize>(), NEW);
    for (count, wanted) in counts.iter().zip([250, 250, 500_usize]) {
        assert!(count.abs_diff(wanted) * 20 <= wanted, "{counts:?}, wanted 250/250/500");
    }
}

#[tokio::test]
async fn r3_one_by_one_on_an_idle_fleet() {
    let gate = Gate::closed();
    gate.open();
    let (gateway, stubs) = fleet(&[4, 4, 8], &gate).await;
    for index in 0..NEW {
        open_conversation(gateway.client(), format!("c{index}")).await;
    }
    assert_spread(&stubs);
}

#[tokio::test]
async fn r3_a_hundred_at_a_time() {
    let gate = Gate::closed();
    let (gateway, stubs) = fleet(&[4, 4, 8], &gate).await;
    for batch in 0..NEW / 100 {
        let mut clients = JoinSet::new();
        for index in 0..100 {
            clients.spawn(open_conversation(gateway.client(), format!("c{batch}-{index}")));
        }
        // All of the batch is placed before the first of it ends.
        gateway.in_flight(100).await;
        for _ in 0..100 {
            gate.pass();
        }
        while let Some(done) = clients.join_next().await {
            done.expect("a conversation");
        }
    }
    assert_spread(&stubs);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_129_new_conversations_follow_the_weights_and_old_ones_stay() {
    let gate = Gate::closed();
    gate.open();
    let (gateway, stubs) = fleet(&[9, 1], &gate).await;
    let mut homes = Vec::new();
    for turn in 0..3 {
        for index in 0..200 {
            let name = format!("user-{index}@example.com");
            let headers = [("x-session-id", name.as_str())];
            let answer =
                gateway.client().post_with(CHAT, &headers, &chat("chat", &format!("turn {turn}"))).await;
            let replica = answer.header("x-tidegate-replica").to_owned();
            if turn == 0 {
                homes.push(replica);
            } else {
                assert_eq!(homes[index], replica, "no bouncing");
            }
        }
    }
    let first = homes.iter().filter(|home| *home == "chat-1").count();
    assert!((174..=186).contains(&first), "{first} of 200 on nine tenths");
    assert_eq!(stubs[0].count(), first * 3);
}
