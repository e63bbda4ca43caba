//! A replica that leaves is not idle while it writes (C-044, C5): its stream counts until the last byte, and only then is
//! it stopped.

use tidegate_tests::client::Stream;

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
