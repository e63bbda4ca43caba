//! SIGTERM, SIGINT and SIGHUP: what runs is finished, then the engines are stopped and nothing is left; a second signal ends
//! it at once.

use tidegate_tests::client::Stream;
use tidegate_tests::deadline::eventually;

use crate::CHAT;
use crate::fleet::{Fleet, brief, engines, long};

/// Engines that take a while over an answer.
const SLOW: &[&str] = &["--model", "chat", "--load-time", "0s", "--step-us", "20000"];

/// Reads a stream to its end; the last event.
async fn last(mut stream: Stream) -> String {
    let mut last = String::new();
    while let Some(event) = stream.event().await {
        last = event;
    }
    last
}

#[tokio::test]
async fn what_runs_is_finished_and_nothing_is_left() {
    for signal in ["SIGTERM", "SIGINT", "SIGHUP"] {
        let mut fleet = Fleet::launch(
            engines(SLOW).set("min", 1).set("max", 1).set("concurrency_limit", 2).set("queue.headroom", "5m"),
        )
        .await;
        fleet.settled(1).await;
        let mut streams = [fleet.chat(&long("h1", 80)).await, fleet.h2().stream(CHAT, &long("h2", 80)).await];
        for stream in &mut streams {
            assert!(stream.event().await.is_some(), "it runs");
        }
        let client = fleet.client();
        let waiting = tokio::spawn(async move { client.post(CHAT, &brief("in the queue")).await });
        fleet.queued(1).await;
        let idle = tidegate_tests::client::Raw::connect(fleet.address).await;
        match signal {
            "SIGTERM" => fleet.terminate(),
            "SIGHUP" => fleet.hang_up(),
            _ => fleet.interrupt(),
        }
        for stream in streams {
            assert_eq!(last(stream).await, "data: [DONE]\n\n", "{signal}");
        }
        assert_eq!(waiting.await.expect("an answer").status, 200, "{signal}: also what was in the queue");
        assert_eq!(fleet.ended().await.code(), Some(0), "{signal}");
        assert_eq!(fleet.engines(), [], "{signal}: nothing is left");
        drop(idle);
    }
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut fleet = Fleet::launch(engines(SLOW).set("min", 2).set("max", 2)).await;
    fleet.settled(2).await;
    let mut stream = fleet.chat(&long("for ever", 8000)).await;
    assert!(stream.event().await.is_some());
    fleet.terminate();
    eventually("the first signal is seen", async || {
        let log = fleet.log();
        log.contains("stopping: running requests are finished").then_some(()).ok_or(log)
    })
    .await;
    fleet.interrupt();
    fleet.ended().await;
    assert_eq!(fleet.engines(), [], "nothing is left");
}
