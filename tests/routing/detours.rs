//! A home that is over its load limit sheds what comes, for that request only (R4); and where everybody is over it,
//! nothing is lost.

use serde_json::json;
use tidegate_tests::client::{Client, Stream};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::openai::chat;
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{Fleet, Way, number};

/// Requests that one replica works on; nine of them are 90 %.
const PLACES: usize = 10;
/// Engines that take their time: a token in five milliseconds.
const STEADY: &[&str] = &[
    "--model",
    "chat",
    "--load-time",
    "0s",
    "--step-us",
    "5000",
    "--step-sequence-us",
    "0",
    "--prefill-rate",
    "1000000",
    "--slots",
    "10",
];

async fn fleet() -> Fleet {
    Fleet::start(&[1, 1], STEADY, |deployment| {
        deployment.set("concurrency_limit", PLACES as i64).set("queue.headroom", "5m")
    })
    .await
}

/// A turn of the conversation: a short answer, waited for.
async fn turn(crowd: &Crowd, name: &str) -> Way {
    let mut body = chat("chat", "hi");
    body["max_tokens"] = 4.into();
    Way::of(&crowd.post(CHAT, &[("x-conversation-id", name)], &body).await)
}

/// Holds a place with an answer that does not end before its client leaves.
async fn hold(client: Client, name: &str) -> Stream {
    let body = json!({"model": "chat", "stream": true, "max_tokens": 8000, "ignore_eos": true,
        "messages": [{"role": "user", "content": "go on"}]});
    client.open(hyper::Method::POST, CHAT, &[("x-conversation-id", name)], body.to_string()).await
}

#[tokio::test]
async fn r4_a_home_over_nine_tenths_sheds_and_gets_its_conversations_back() {
    let fleet = fleet().await;
    let crowd = Crowd::of(fleet.gateway.address, 1).await;
    // One of the conversations keeps its home busy; the others live there, too.
    let busy = turn(&crowd, "busy").await.replica;
    let mut neighbours = Vec::new();
    // Where one request looks larger than it was until the next report, the other replica gets more of them meanwhile.
    for index in 0..400 {
        let name = format!("neighbour {index}");
        let way = turn(&crowd, &name).await;
        assert_eq!(way.route, "placed");
        neighbours.extend((way.replica == busy).then_some(name));
        if neighbours.len() == 20 {
            break;
        }
    }
    assert_eq!(neighbours.len(), 20, "some live there, too");
    let mut held = Vec::new();
    for _ in 0..PLACES - 2 {
        held.push(hold(fleet.gateway.client(), "busy").await);
    }
    let home = Way { route: "home".into(), replica: busy };
    let away = Way { route: "detour".into(), replica: 1 - busy };
    assert_eq!(turn(&crowd, &neighbours[0]).await, home, "eight of ten places are taken");
    held.push(hold(fleet.gateway.client(), "busy").await);
    assert!(held.iter().all(|stream| number(stream.header("x-tidegate-replica")) == busy));
    for name in &neighbours {
        assert_eq!(turn(&crowd, name).await, away, "nine of ten: somebody else has room");
    }
    drop(held);
    fleet.gateway.assert_idle().await;
    for name in &neighbours {
        assert_eq!(turn(&crowd, name).await, home, "its home is what it was");
    }
}

#[tokio::test]
async fn r4_q4_with_everything_over_the_limit_nothing_is_lost() {
    const CROWD: usize = 200;
    let fleet = fleet().await;
    let crowd = Crowd::of(fleet.gateway.address, 4).await;
    let names: Vec<String> = (0..CROWD).map(|index| format!("c{index}")).collect();
    let first = names.clone();
    let before = at_a_time(CROWD, 8, |index| {
        let (crowd, name) = (crowd.clone(), first[index].clone());
        async move { turn(&crowd, &name).await }
    })
    .await;
    // Every place of both is taken, so all of the crowd waits in line at one time.
    let mut held = JoinSet::new();
    for index in 0..2 * PLACES {
        let client = fleet.gateway.client();
        held.spawn(async move { hold(client, &format!("held {index}")).await });
    }
    let held = held.join_all().await;
    let mut turns = JoinSet::new();
    for name in names {
        let crowd = crowd.clone();
        turns.spawn(async move { (turn(&crowd, &name).await, name) });
    }
    fleet.gateway.queued(CROWD).await;
    drop(held);
    let served = turns.join_all().await;
    assert_eq!(served.len(), CROWD, "each was answered with 200");
    fleet.gateway.assert_idle().await;
    let after = at_a_time(CROWD, 8, |index| {
        let (crowd, name) = (crowd.clone(), first[index].clone());
        async move { turn(&crowd, &name).await }
    })
    .await;
    let homes = |ways: &[Way]| ways.iter().map(|way| way.replica).collect::<Vec<_>>();
    assert_eq!(homes(&after), homes(&before), "whatever the crush did, every home is what it was");
}
