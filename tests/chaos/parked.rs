//! Replicas that sleep instead of being stopped (C6): a burst wakes the very engines that served the one before, no request
//! fails, and `kill -9` of the gateway at the worst moments leaves no orphan and makes no duplicate (C-005).

use procfs::process::Process;
use rustix::process::Signal;
use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::Deployment;
use tidegate_tests::deadline::eventually;
use tidegate_tests::shown::replicas;
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{Engine, Fleet, engines, long};

/// Up to two engines that take long to load and a moment to wake up, both of which may sleep.
fn sleepers(more: &[&str]) -> Deployment {
    let slow = ["--model", "chat", "--load-time", "2s", "--wake-time", "300ms", "--step-us", "2000"];
    engines(&[&slow[..], more].concat())
        .set("max", 2)
        .set("parked", 2)
        .set("target_concurrency", 4)
        .set("window", "1s")
        .set("queue.headroom", "5m")
}

/// Eight answers of `tokens` tokens at once, for which two replicas are needed; none fails.
fn burst(fleet: &Fleet, round: &str, tokens: u32) -> JoinSet<()> {
    let mut requests = JoinSet::new();
    for number in 0..8 {
        let (server, body) = (fleet.address, long(&format!("question {number} of {round}"), tokens));
        requests.spawn(async move {
            let stream = Client::h1(server).stream(CHAT, &body).await;
            assert_eq!(stream.status, 200);
            let answer = stream.whole().await;
            assert!(answer.body.ends_with(b"data: [DONE]\n\n"), "a whole answer: {:?}", answer.body);
        });
    }
    requests
}

/// Waits until all replicas are parked, and as many engines live; these.
async fn parked(fleet: &Fleet, count: usize) -> Vec<Engine> {
    eventually(&format!("{count} parked"), async || {
        let (status, engines) = (fleet.status().await, fleet.engines());
        let phases: Vec<Value> = replicas(&status).iter().map(|one| one["phase"].clone()).collect();
        if phases == vec!["parked"; count] && engines.len() == count {
            return Ok(engines);
        }
        Err(format!("{engines:?} beside {status}"))
    })
    .await
}

fn is_stopped(engine: &Engine) -> bool {
    Process::new(engine.pid).and_then(|process| process.stat()).expect("it lives").state == 'T'
}

async fn sleeps(engine: &Engine) -> bool {
    engine.client().get("/is_sleeping").await.json()["is_sleeping"] == true
}

/// From zero through a burst to sleep, and woken by the next; then the gateway is killed while all sleep, and while they
/// are being woken. Gives the engines, which are the same throughout.
async fn story(fleet: &mut Fleet) -> Vec<Engine> {
    fleet.settled(0).await;
    let requests = burst(fleet, "the first burst", 1000);
    let first = fleet.settled(2).await;
    requests.join_all().await;
    assert_eq!(parked(fleet, 2).await, first, "idle: they sleep, and live on");

    let requests = burst(fleet, "the second burst", 1000);
    assert_eq!(fleet.settled(2).await, first, "and are woken for the next");
    requests.join_all().await;
    let starts = fleet.metrics().await;
    let started = |result| starts.total(metric::STARTS, &[("deployment", "chat"), ("result", result)]);
    assert_eq!(["ready", "failed", "woken", "not_woken"].map(started), [2.0, 0.0, 2.0, 0.0]);
    let told = fleet.status().await["deployments"][0]["decisions"].to_string();
    assert!(
        told.contains("parked replicas are woken") || told.contains("1 parked replica is woken"),
        "{told}"
    );
    let served = |status| starts.total(metric::REQUESTS, &[("deployment", "chat"), ("status", status)]);
    assert_eq!(served("200"), starts.total(metric::REQUESTS, &[("deployment", "chat")]), "not one failed");

    parked(fleet, 2).await;
    fleet.kill();
    fleet.restart().await;
    assert_eq!(parked(fleet, 2).await, first, "killed while they sleep: found asleep");
    let before = fleet.log().matches("is being woken").count();
    // Its requests die with the gateway.
    let mut lost = burst(fleet, "the third burst", 1000);
    eventually("one is being woken", async || {
        if fleet.log().matches("is being woken").count() > before { Ok(()) } else { Err(fleet.log()) }
    })
    .await;
    fleet.kill();
    lost.detach_all();
    fleet.restart().await;
    let requests = burst(fleet, "the fourth burst", 1000);
    assert_eq!(fleet.settled(2).await, first, "killed while they wake up: the same two");
    requests.join_all().await;
    assert_eq!(parked(fleet, 2).await, first);
    assert!(
        !fleet.log().contains("could not be") && !fleet.log().contains("awake and not ready"),
        "all woke up"
    );
    first
}

#[tokio::test]
async fn c6_c_005_engines_that_can_sleep_are_put_to_sleep_and_woken() {
    let mut fleet = Fleet::launch(sleepers(&[])).await;
    for engine in story(&mut fleet).await {
        eventually("it sleeps, and runs", async || {
            if sleeps(&engine).await && !is_stopped(&engine) { Ok(()) } else { Err(format!("{engine:?}")) }
        })
        .await;
    }
    fleet.terminate();
    assert_eq!(fleet.ended().await.code(), Some(0));
    assert_eq!(fleet.engines(), [], "SIGTERM leaves nothing");
}

#[tokio::test]
async fn c6_c_005_engines_that_cannot_are_stopped_where_they_stand_and_go_on() {
    let mut fleet = Fleet::launch(sleepers(&["--sleepless"])).await;
    for engine in story(&mut fleet).await {
        eventually(
            "it stands still",
            async || {
                if is_stopped(&engine) { Ok(()) } else { Err(format!("{engine:?}")) }
            },
        )
        .await;
    }
    fleet.terminate();
    assert_eq!(fleet.ended().await.code(), Some(0));
    assert_eq!(fleet.engines(), [], "SIGTERM leaves nothing");
}

#[tokio::test]
async fn c6_a_sleeper_that_dies_is_gone_and_the_other_is_woken() {
    let fleet = Fleet::launch(sleepers(&[])).await;
    let requests = burst(&fleet, "the first burst", 1000);
    let first = fleet.settled(2).await;
    requests.join_all().await;
    parked(&fleet, 2).await;
    first[0].signal(Signal::KILL);
    assert_eq!(parked(&fleet, 1).await, first[1..]);
    assert_eq!(fleet.ask("who is there?").await.header("x-tidegate-replica"), first[1].id);
    let requests = burst(&fleet, "the second burst", 1000);
    let both = fleet.settled(2).await;
    requests.join_all().await;
    assert_eq!(both[0], first[1]);
    assert_ne!(both[1].id, first[0].id, "a new one beside it");
}
