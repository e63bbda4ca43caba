//! A replica that leaves is not idle while it writes (C-044, C5): its stream counts until the last byte, and only then is
//! it stopped.

use hyper::Method;
use serde_json::Value;
use tidegate_tests::client::{Client, Stream};
use tidegate_tests::shown::replicas;

use crate::CHAT;
use crate::fleet::{Fleet, engines, long};

#[tokio::test]
async fn c_044_c5_forty_streams_count_while_their_replicas_drain_and_each_is_stopped_after_its_last_byte() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "20000", "--step-sequence-us", "0"];
    let deployment = engines(&arguments)
        .set("min", 4)
        .set("max", 4)
        .set("window", "1s")
        .set("target_concurrency", 10)
        .set("concurrency_limit", 20);
    let fleet = Fleet::launch(deployment).await;
    fleet.settled(4).await;
    let mut streams: Vec<Stream> = Vec::new();
    for index in 0..40 {
        let client = if index % 2 == 0 { fleet.client() } else { fleet.h2() };
        streams.push(client.stream(CHAT, &long(&format!("stream {index}"), 750)).await);
    }
    let counts = |status: &Value| -> Vec<u64> {
        let of = |replica: &Value| replica["in_flight"].as_u64().unwrap_or_default();
        replicas(status).iter().map(of).collect()
    };
    let spread = counts(&fleet.status().await);
    assert_eq!((spread.len(), spread.iter().sum::<u64>()), (4, 40), "{spread:?}");
    assert!(spread.iter().all(|count| (9..=11).contains(count)), "{spread:?}");
    fleet.in_flight(40).await;
    // One replica is all that there may be now: the others leave, and none of them is idle.
    let change = serde_json::json!({"min": 1, "max": 1}).to_string();
    let changed = Client::h1(fleet.admin).send(Method::PUT, "/deployments/chat/sizing", &[], change).await;
    assert_eq!(changed.status, 200, "{:?}", changed.body);
    let draining = fleet
        .until_status("three drain with their streams", |chat| {
            let all = chat["replicas"].as_array()?;
            let drains: Vec<u64> = all
                .iter()
                .filter(|replica| replica["phase"] == "draining")
                .filter_map(|replica| replica["in_flight"].as_u64())
                .collect();
            (drains.len() == 3).then_some(drains)
        })
        .await;
    assert!(
        draining.iter().all(|count| (9..=11).contains(count)),
        "all of their streams count: {draining:?}"
    );
    assert_eq!((counts(&fleet.status().await), fleet.engines().len()), (spread, 4));
    whole(streams).await;
    fleet.settled(1).await;
    assert!(!fleet.log().contains("drain limit"), "none was cut");
    fleet.assert_idle().await;
}

/// A stream each on `count` replicas, of which each takes one at a time.
async fn one_on_each(fleet: &Fleet, count: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for index in 0..count {
        streams.push(fleet.chat(&long(&format!("stream {index}"), 3000)).await);
    }
    fleet.settled(count).await;
    streams
}

/// Reads each stream to its end, all at a time. An engine that is told to stop ends at once, whatever it sends, and one that
/// broke off has an error for its last event: so whoever has the end had its engine to the last byte.
async fn whole(streams: Vec<Stream>) {
    let read = |mut stream: Stream| async move {
        let mut last = String::new();
        while let Some(event) = stream.event().await {
            last = event;
        }
        assert_eq!(last, "data: [DONE]\n\n", "{}", stream.header("x-tidegate-replica"));
    };
    futures_util::future::join_all(streams.into_iter().map(read)).await;
}

const SLOW: &[&str] =
    &["--model", "chat", "--load-time", "0s", "--step-us", "5000", "--step-sequence-us", "0"];

#[tokio::test]
async fn c5_four_streams_while_the_target_drops_to_one_all_end_and_every_stop_comes_after() {
    let deployment = engines(SLOW)
        .set("min", 1)
        .set("max", 4)
        .set("window", "1s")
        .set("target_concurrency", 1)
        .set("concurrency_limit", 1)
        .set("queue.headroom", "10m");
    let fleet = Fleet::launch(deployment).await;
    let streams = one_on_each(&fleet, 4).await;
    let change = serde_json::json!({"max": 1}).to_string();
    Client::h1(fleet.admin).send(Method::PUT, "/deployments/chat/sizing", &[], change).await;
    fleet
        .until_status("the target is one, and three drain with their streams", |chat| {
            let all = chat["replicas"].as_array()?;
            let drains = |replica: &&Value| replica["phase"] == "draining" && replica["in_flight"] == 1;
            (chat["target"] == 1 && all.iter().filter(drains).count() == 3).then_some(())
        })
        .await;
    whole(streams).await;
    fleet.settled(1).await;
    assert!(!fleet.log().contains("drain limit"), "none was cut");
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c5_an_operator_drains_one_of_two_while_four_streams_run_and_all_end() {
    let deployment = engines(SLOW)
        .set("min", 2)
        .set("max", 3)
        .set("window", "1s")
        .set("target_concurrency", 2)
        .set("concurrency_limit", 2);
    let mut fleet = Fleet::launch(deployment).await;
    fleet.settled(2).await;
    let mut streams = Vec::new();
    for index in 0..4 {
        streams.push(fleet.chat(&long(&format!("stream {index}"), 3000)).await);
    }
    for _ in 0..2 {
        let path = "/deployments/chat/drain/chat-2";
        let answer = Client::h1(fleet.admin).send(Method::POST, path, &[], "").await;
        let told = answer.json();
        assert_eq!((answer.status, &told["state"], &told["in_flight"]), (200, &"draining".into(), &2.into()));
        assert_eq!(told["unsaved"], Value::Null);
    }
    fleet
        .until_status("another takes its place while it still writes", |chat| {
            let all = chat["replicas"].as_array()?;
            let is = |id: &str, phase: &str| all.iter().any(|one| one["id"] == id && one["phase"] == phase);
            (is("chat-2", "draining") && is("chat-3", "ready")).then_some(())
        })
        .await;
    let answer = fleet.ask("new").await;
    assert_eq!((answer.status, answer.header("x-tidegate-replica")), (200, "chat-3"));
    whole(streams).await;
    let after = fleet.settled(2).await;
    assert_eq!(after.iter().map(|engine| engine.id.as_str()).collect::<Vec<_>>(), ["chat-1", "chat-3"]);

    // A drain that the gateway did not live to finish goes on: the stream was cut with it, so nothing runs there.
    let stream = fleet.chat(&long("cut", 8000)).await;
    let draining = stream.header("x-tidegate-replica").to_owned();
    let path = format!("/deployments/chat/drain/{draining}");
    let told = Client::h1(fleet.admin).send(Method::POST, &path, &[], "").await.json();
    assert_eq!((&told["state"], &told["unsaved"]), (&"draining".into(), &Value::Null), "{told}");
    fleet.kill();
    fleet.restart().await;
    drop(stream);
    let after = fleet.settled(2).await;
    assert!(after.iter().all(|engine| engine.id != draining), "{draining} is gone: {after:?}");
    fleet.assert_idle().await;
}
