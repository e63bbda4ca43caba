//! A replica that leaves is not idle while it writes (C-044, C5): its stream counts until the last byte, and only then is
//! it stopped.

use hyper::Method;
use serde_json::Value;
use tidegate_tests::client::{Client, Stream};

use crate::fleet::{Fleet, engines, long};

#[tokio::test]
async fn c_044_c5_a_replica_that_leaves_is_stopped_after_the_last_byte_of_its_stream() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "5000", "--step-sequence-us", "0"];
    let deployment = engines(&arguments)
        .set("min", 1)
        .set("max", 2)
        .set("window", "1s")
        .set("target_concurrency", 2)
        .set("concurrency_limit", 2);
    let fleet = Fleet::launch(deployment).await;
    fleet.settled(1).await;
    let mut streams: Vec<Stream> = Vec::new();
    for index in 0..4 {
        streams.push(fleet.chat(&long(&format!("stream {index}"), 3000)).await);
    }
    let both = fleet.settled(2).await;
    // One stream stays on each: one replica would do, so one of the two leaves, and cannot end yet.
    for engine in &both {
        let at = streams.iter().position(|stream| stream.header("x-tidegate-replica") == engine.id);
        drop(streams.swap_remove(at.expect("a stream on each")));
    }
    let leaving = fleet
        .until_status("one drains with its stream", |chat| {
            let mut all = chat["replicas"].as_array()?.iter();
            let leaves = all.find(|replica| replica["phase"] == "draining" && replica["in_flight"] == 1)?;
            Some(leaves["id"].as_str()?.to_owned())
        })
        .await;
    for mut stream in streams {
        let (mut events, mut last) = (0, String::new());
        while let Some(event) = stream.event().await {
            if stream.header("x-tidegate-replica") == leaving && events == 0 {
                assert!(fleet.engines().iter().any(|engine| engine.id == leaving), "it writes still");
            }
            (events, last) = (events + 1, event);
        }
        assert!(events > 3000 / 64 && last == "data: [DONE]\n\n", "{events} events, the last is {last:?}");
    }
    let left = fleet.settled(1).await;
    assert!(left.iter().all(|engine| engine.id != leaving), "then it is gone: {left:?}");
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

/// Reads each stream to its end, all at a time, and checks that its engine lived until the last byte.
async fn whole(fleet: &Fleet, streams: Vec<Stream>) {
    let read = |mut stream: Stream| async move {
        let (mut last, mut at_its_last) = (String::new(), Vec::new());
        while let Some(event) = stream.event().await {
            // What comes next is the end: until then nobody may have told its engine to stop.
            if event.contains("\"finish_reason\":\"") {
                at_its_last = fleet.engines();
            }
            last = event;
        }
        let replica = stream.header("x-tidegate-replica");
        assert_eq!(last, "data: [DONE]\n\n", "{replica}");
        assert!(at_its_last.iter().any(|engine| engine.id == replica), "{replica} in {at_its_last:?}");
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
    let change = serde_json::json!({"target_concurrency": 4}).to_string();
    Client::h1(fleet.admin).send(Method::PUT, "/deployments/chat/sizing", &[], change).await;
    fleet
        .until_status("the target is one, and three drain with their streams", |chat| {
            let all = chat["replicas"].as_array()?;
            let drains = |replica: &&Value| replica["phase"] == "draining" && replica["in_flight"] == 1;
            (chat["target"] == 1 && all.iter().filter(drains).count() == 3).then_some(())
        })
        .await;
    whole(&fleet, streams).await;
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
    whole(&fleet, streams).await;
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
