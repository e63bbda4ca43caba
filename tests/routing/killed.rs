//! A replica is killed in the middle of everything: what had not started fails nowhere, and its conversations find new
//! homes by weight and stay there (R5).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidegate_tests::client::Client;
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::deadline::eventually;
use tidegate_tests::openai::{assert_error_shape, chat};
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{Fleet, Way, counts, number};

/// Sequences that one engine runs at a time; the others wait in it, without an answer yet.
const SLOTS: usize = 6;
const STREAMS: usize = 64;
const CONVERSATIONS: usize = 120;
/// The first one is killed.
const CAPACITIES: [u32; 4] = [2, 1, 1, 2];

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All of it came.
    Whole,
    /// An error event said that its replica is gone.
    Error,
}

/// Streams an answer of its own conversation; counts it in `begun` if the replica that will be killed began it.
async fn stream(client: Client, index: usize, begun: Arc<AtomicUsize>) -> (usize, End) {
    let body = json!({"model": "chat", "stream": true, "max_tokens": 300, "ignore_eos": true,
        "messages": [{"role": "user", "content": format!("stream {index}")}]});
    let mut stream = client.stream(CHAT, &body).await;
    assert_eq!(stream.status, 200, "stream {index} had not started");
    let replica = number(stream.header("x-tidegate-replica"));
    let mut last = stream.event().await.expect("an event");
    begun.fetch_add(usize::from(replica == 0), Ordering::SeqCst);
    while let Some(event) = stream.event().await {
        last = event;
    }
    let data = last.trim_end().strip_prefix("data: ").expect("data");
    if data == "[DONE]" {
        return (replica, End::Whole);
    }
    assert_error_shape(data.as_bytes());
    (replica, End::Error)
}

async fn turn(crowd: &Crowd) -> Vec<Way> {
    at_a_time(CONVERSATIONS, 16, |index| {
        let (crowd, name) = (crowd.clone(), format!("conversation {index}"));
        async move {
            let mut body = chat("chat", "hi");
            body["max_tokens"] = 8.into();
            Way::of(&crowd.post(CHAT, &[("x-conversation-id", &name)], &body).await)
        }
    })
    .await
}

#[tokio::test]
async fn r5_a_killed_replica_fails_nothing_that_had_not_started_and_its_conversations_spread_by_weight() {
    let slots = SLOTS.to_string();
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "4000", "--step-sequence-us", "0"];
    let arguments = [&arguments[..], &["--prefill-rate", "1000000", "--slots", &slots]].concat();
    let mut fleet = Fleet::start(&CAPACITIES, &arguments, |deployment| deployment).await;
    let crowd = Crowd::of(fleet.gateway.address, 2).await;
    let homes = turn(&crowd).await;
    let orphans: Vec<usize> = (0..CONVERSATIONS).filter(|index| homes[*index].replica == 0).collect();
    assert!(orphans.len().abs_diff(CONVERSATIONS / 3) <= 6, "{:?}", counts(&homes, 4));

    let (begun, mut streams) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for index in 0..STREAMS {
        streams.spawn(stream(fleet.gateway.client(), index, Arc::clone(&begun)));
    }
    fleet.gateway.in_flight(STREAMS).await;
    eventually("the first one is full", async || match begun.load(Ordering::SeqCst) {
        SLOTS.. => Ok(()),
        fewer => Err(format!("{fewer} have begun")),
    })
    .await;
    let waiting = fleet.engines[0].figure("vllm:num_requests_waiting").await;
    assert!(waiting > 0.0, "some have not started there");
    fleet.engines[0].kill().await;

    let ends = streams.join_all().await;
    let failed: Vec<_> = ends.iter().filter(|(_, end)| *end == End::Error).collect();
    assert_eq!(ends.len(), STREAMS);
    assert!(failed.iter().all(|(replica, _)| *replica == 0), "only streams of the one that died: {failed:?}");
    assert!((1..=begun.load(Ordering::SeqCst)).contains(&failed.len()), "and of them only what had begun");
    fleet.gateway.assert_idle().await;

    let second = turn(&crowd).await;
    let moved: Vec<&Way> = orphans.iter().map(|index| &second[*index]).collect();
    assert!(moved.iter().all(|way| way.route == "rehomed"), "{moved:?}");
    let spread = counts(moved.iter().copied(), 4);
    let quarter = orphans.len() / 4;
    for (count, wanted) in spread.iter().zip([0, quarter, quarter, 2 * quarter]) {
        // They come at once, so chance has its part; an equal spread would be 6 off.
        assert!(count.abs_diff(wanted) <= 4, "{spread:?} of {} by weight 0:1:1:2", orphans.len());
    }
    let others = (0..CONVERSATIONS).filter(|index| !orphans.contains(index));
    assert!(
        others.clone().all(|index| second[index] == Way { route: "home".into(), ..homes[index].clone() })
    );
    let third = turn(&crowd).await;
    let stays = |(now, before): (&Way, &Way)| now.route == "home" && now.replica == before.replica;
    assert!(third.iter().zip(&second).all(stays), "they stay there");
}
