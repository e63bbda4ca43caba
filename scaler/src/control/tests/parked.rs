//! Replicas that are kept asleep instead of stopped (C6).

use super::*;

fn none() -> Vec<String> {
    Vec::new()
}

fn parking(min: u32, max: u32, parked: u32) -> Sizing {
    Sizing { parked, ..sizing(min, max) }
}

/// A loop whose replica 1 has served and is asleep now.
async fn parked(world: &Arc<World>, sizing: Sizing) -> Loop {
    let run = Loop::start(world, sizing);
    world.arrive(1);
    world.reaches("ready 1").await;
    world.finish(1);
    world.reaches("parked 1").await;
    run.pass(5).await;
    world.log();
    run
}

#[tokio::test(start_paused = true)]
async fn c6_an_idle_replica_sleeps_and_is_woken_before_another_is_started() {
    let world = World::new();
    world.script().sleep = Some(Duration::from_secs(3));
    let run = Loop::start(&world, parking(0, 2, 1));
    world.arrive(1);
    world.reaches("ready 1").await;
    world.log();
    world.finish(1);
    world.reaches("sleep 1").await;
    assert_eq!(world.log(), ["drain 1", "parked 1", "sleep 1"]);
    run.pass(3600).await;
    assert_eq!(world.log(), none(), "it sleeps on");
    assert_eq!(run.status.newest().unwrap().target, 0);

    world.arrive(40);
    world.reaches("ready 2").await;
    let log = ["waking 1", "ordered 2", "wake 1", "start 2", "woken 1", "ready 1", "up 2", "ready 2"];
    assert_eq!(world.log(), log);
    let view = run.status.view();
    assert_eq!((view.starts_ready, view.wakes_ready, view.wakes_failed), (2, 1, 0));
    let woken = view.history.iter().find(|decision| decision.woken > 0).unwrap();
    assert!(woken.to_string().ends_with("; 1 parked replica is woken"), "{woken}");

    world.finish(1);
    world.finish(2);
    world.reaches("gone 1").await;
    run.pass(600).await;
    let last = world.log();
    assert_eq!(last.iter().filter(|entry| entry.starts_with("sleep")).count(), 1, "one may sleep: {last:?}");
    assert_eq!(run.end(Shutdown::Stop { within: Duration::from_secs(60) }).await, []);
    assert!(world.log().contains(&"stop 2".to_owned()), "and the end of the gateway is its end");
}

#[tokio::test(start_paused = true)]
async fn c6_without_a_sleep_of_its_own_the_provider_keeps_it() {
    let world = World::new();
    world.script().keeps = true;
    let run = parked(&world, parking(0, 1, 1)).await;
    world.arrive(1);
    world.reaches("ready 1").await;
    assert_eq!(world.log(), ["waking 1", "unpark 1", "woken 1", "ready 1"]);
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn c6_what_cannot_sleep_is_stopped_and_says_why() {
    let world = World::new();
    let run = Loop::start(&world, parking(0, 1, 1));
    world.arrive(1);
    world.reaches("ready 1").await;
    world.finish(1);
    world.reaches("gone 1").await;
    let why = "chat-1 is stopped: it could not be put to sleep: its engine knows no sleep, and provider scripted none \
               either";
    assert_eq!(run.status.view().last_failure.as_deref(), Some(why));
    assert_eq!(run.status.view().starts_failed, 0);
}

#[tokio::test(start_paused = true)]
async fn c6_one_that_does_not_wake_is_replaced_at_once() {
    let world = World::new();
    world.script().sleep = Some(Duration::ZERO);
    let run = parked(&world, parking(0, 1, 1)).await;
    world.script().wake = None;
    world.arrive(1);
    world.reaches("ready 2").await;
    let log = ["waking 1", "wake 1", "stop 1", "gone 1", "ordered 2", "start 2", "up 2", "ready 2"];
    assert_eq!(world.log(), log, "no pause: no start has failed");
    let view = run.status.view();
    assert_eq!((view.wakes_failed, view.starts_failed, view.last_failure), (1, 0, None), "all is well again");
}

#[tokio::test(start_paused = true)]
async fn c6_one_that_is_awake_and_not_ready_in_its_time_is_replaced() {
    let world = World::new();
    world.script().sleep = Some(Duration::ZERO);
    let run = parked(&world, parking(0, 2, 2)).await;
    world.script().wake = Some(Duration::from_secs(3600));
    let began = world.elapsed();
    world.arrive(1);
    world.reaches("stop 1").await;
    assert_eq!((world.elapsed() - began).as_secs(), 60);
    world.reaches("ready 2").await;
    assert_eq!(world.log()[..6], ["waking 1", "wake 1", "woken 1", "ordered 2", "start 2", "stop 1"]);
    assert_eq!(run.status.view().wakes_failed, 1);
}

#[tokio::test(start_paused = true)]
async fn c6_one_that_dies_in_its_sleep_is_simply_gone() {
    let world = World::new();
    world.script().sleep = Some(Duration::ZERO);
    let run = parked(&world, parking(0, 1, 1)).await;
    world.kill(1);
    world.reaches("stop 1").await;
    assert_eq!(world.log(), ["gone 1", "stop 1"]);
    run.pass(60).await;
    assert_eq!(world.log(), none());
    assert!(!run.reasons().contains(&"replacing"), "{:?}", run.reasons());
}

#[tokio::test(start_paused = true)]
async fn c3_c6_a_restart_finds_what_sleeps_by_its_provider_and_by_its_engine() {
    let world = World::new();
    world.lists(1, true);
    world.left_over(2);
    let load = world.script().load;
    world.script().keeps = true;
    let run = Loop::start(&world, parking(0, 2, 2));
    world.reaches("up 2").await;
    assert_eq!(world.log(), ["up 1", "parked 1", "up 2"]);
    world.found_sleeping(2);
    run.pass(load.as_secs() + 300).await;
    assert_eq!(world.log(), none(), "both sleep, as they did");
    world.arrive(64);
    world.reaches("ready 1").await;
    let log = world.log();
    for entry in ["waking 1", "unpark 1", "woken 1", "waking 2", "wake 2", "woken 2", "ready 2", "ready 1"] {
        assert!(log.iter().any(|logged| logged == entry), "{entry}: {log:?}");
    }
    assert_eq!(log.len(), 8, "and nothing is started: {log:?}");
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn c5_c6_an_operator_takes_a_sleeper_out() {
    let world = World::new();
    world.script().sleep = Some(Duration::ZERO);
    let run = parked(&world, parking(0, 1, 1)).await;
    run.helm.drain(ReplicaId(1), world.observe().at);
    world.reaches("gone 1").await;
    assert_eq!(world.log()[1..], ["stop 1", "gone 1"]);
    world.arrive(1);
    world.reaches("ready 2").await;
}

#[tokio::test(start_paused = true)]
async fn c6_the_end_waits_for_no_engine_that_hangs_in_it() {
    let world = World::new();
    world.script().sleep = Some(Duration::from_secs(100));
    let run = Loop::start(&world, parking(0, 1, 1));
    world.arrive(1);
    world.reaches("ready 1").await;
    world.finish(1);
    world.reaches("sleep 1").await;
    let began = world.elapsed();
    assert_eq!(run.end(Shutdown::Stop { within: Duration::from_secs(20) }).await, []);
    assert!((world.elapsed() - began).as_secs() < 10, "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn c6_who_comes_while_it_falls_asleep_waits_for_that_and_nobody_is_started() {
    let world = World::new();
    world.script().sleep = Some(Duration::from_secs(7));
    let run = Loop::start(&world, parking(0, 1, 1));
    world.arrive(1);
    world.reaches("ready 1").await;
    world.finish(1);
    world.reaches("sleep 1").await;
    world.log();
    world.arrive(1);
    world.reaches("ready 1").await;
    assert_eq!(world.log(), ["waking 1", "wake 1", "woken 1", "ready 1"]);
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn c6_who_sleeps_soundly_is_woken_while_another_falls_asleep_and_who_takes_long_is_replaced() {
    let world = World::new();
    world.script().sleep = Some(Duration::ZERO);
    let run = Loop::start(&world, parking(0, 3, 3));
    world.arrive(40);
    world.reaches("ready 2").await;
    world.finish(1);
    world.arrive(1);
    world.reaches("parked 2").await;
    run.pass(5).await;
    world.script().sleep = Some(Duration::from_secs(100));
    world.finish(1);
    world.reaches("sleep 1").await;
    world.log();

    let began = world.elapsed();
    world.arrive(1);
    world.reaches("ready 2").await;
    assert_eq!(world.log(), ["waking 2", "wake 2", "woken 2", "ready 2"], "though 1 was parked last");
    assert!((world.elapsed() - began).as_secs() < 2);
    world.arrive(60);
    world.reaches("ready 3").await;
    assert_eq!(world.log(), ["ordered 3", "start 3", "up 3", "ready 3"], "nobody waits for 1 so long");
    assert!((10..20).contains(&(world.elapsed() - began).as_secs()), "and not at once");
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn c6_one_that_is_slow_to_wake_and_slow_to_be_ready_is_kept() {
    let world = World::new();
    world.script().sleep = Some(Duration::ZERO);
    let run = parked(&world, parking(0, 2, 2)).await;
    world.script().rouse = Duration::from_secs(55);
    world.script().wake = Some(Duration::from_secs(30));
    let began = world.elapsed();
    world.arrive(1);
    world.reaches("ready 1").await;
    assert_eq!((world.elapsed() - began).as_secs(), 85, "each within its minute");
    run.pass(60).await;
    assert_eq!(world.log(), ["waking 1", "wake 1", "woken 1", "ready 1"]);
    let view = run.status.view();
    assert_eq!((view.wakes_ready, view.wakes_failed, view.last_failure), (1, 0, None));
}

#[tokio::test(start_paused = true)]
async fn c6_a_provider_that_hangs_over_a_sleep_or_a_wake_is_not_waited_for_without_end() {
    let world = World::new();
    world.script().keeps = true;
    let run = parked(&world, parking(0, 1, 1)).await;
    world.script().stuck = true;
    world.arrive(1);
    world.reaches("ready 2").await;
    let log = ["waking 1", "unpark 1", "stop 1", "gone 1", "ordered 2", "start 2", "up 2", "ready 2"];
    assert_eq!(world.log(), log);
    assert_eq!(run.status.view().wakes_failed, 1);
    world.finish(2);
    world.reaches("gone 2").await;
    let why = "chat-2 is stopped: it could not be put to sleep: its provider does not answer within 120s";
    assert_eq!(run.status.view().last_failure.as_deref(), Some(why));
}
