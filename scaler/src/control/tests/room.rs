//! A start for which there is no room is no failed one: growth is blocked, and told so all the while, until one is taken
//! (C2, M1).

use tidegate_scaler_core::guard::room::PAUSE;
use tidegate_shared::decision::ScaleReason;

use super::super::*;
use super::world::World;
use super::{Loop, sizing};

/// How long a start takes to find out.
const ASKING: Duration = Duration::from_secs(7);

/// When each start was called.
fn starts(log: &[(Duration, String)]) -> Vec<Duration> {
    log.iter().filter(|(_, entry)| entry.starts_with("start ")).map(|(at, _)| *at).collect()
}

/// The words of all decisions that changed something, each with what blocked.
fn history(run: &Loop) -> Vec<(&'static str, Vec<&'static str>)> {
    let told =
        |one: &ScaleDecision| (one.reason.as_str(), one.blocks().map(|block| block.as_str()).collect());
    run.status.view().history.iter().map(told).collect()
}

#[tokio::test(start_paused = true)]
async fn c2_m1_no_room_is_told_over_all_tries_which_come_one_by_one_after_a_pause_and_are_no_failures() {
    let world = World::new();
    world.script().no_room = Some(ASKING);
    let run = Loop::start(&world, sizing(2, 4));
    world.reaches("start 2").await;
    run.pass(ASKING.as_secs() + 1).await;
    let began = run.status.view().newest.unwrap();
    assert_eq!(began.reason, ScaleReason::NoCapacity);
    let before = history(&run);
    let log = world.timed_log();
    let told = |log: &[(Duration, String)], word: &str| {
        log.iter().filter(|(_, entry)| entry.starts_with(word)).count()
    };
    assert_eq!((told(&log, "ordered"), told(&log, "gone")), (2, 2), "{log:?}");

    for _ in 0..60 {
        run.pass(1).await;
        let newest = run.status.view_of(&world.observe()).newest.unwrap();
        let blocks: Vec<_> = newest.blocks().map(ScaleReason::as_str).collect();
        assert_eq!((newest.target, newest.current, blocks), (2, 0, vec!["no_capacity"]));
        assert_eq!(run.status.starts_for(&world.observe()), Some(Starts::Stalled));
    }
    let log = world.timed_log();
    let tries = starts(&log);
    assert!(tries.len() >= 6, "{log:?}");
    for pair in tries.windows(2) {
        assert_eq!(pair[1].saturating_sub(pair[0]), ASKING + PAUSE, "each after the last has ended: {log:?}");
    }
    assert_eq!((told(&log, "ordered"), told(&log, "gone")), (0, 0), "a try is no replica: {log:?}");
    let view = run.status.view();
    assert_eq!(history(&run), before, "one decision as it began");
    assert_eq!((view.starts_failed, &view.last_failure, &view.lost), (0, &None, &None));
    assert_eq!(view.no_room.as_deref(), Some("none of 4 is free"));

    world.script().no_room = None;
    run.pass(60).await;
    let view = run.status.view();
    assert_eq!((view.starts_ready, view.starts_failed, view.no_room), (2, 0, None));
    let after = history(&run).split_off(before.len());
    assert!(after.iter().all(|(_, blocks)| blocks.is_empty()), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn m1_what_nobody_asks_for_any_more_is_not_tried() {
    let world = World::new();
    world.script().no_room = Some(Duration::ZERO);
    let run = Loop::start(&world, sizing(1, 4));
    run.pass(20).await;
    assert!(starts(&world.timed_log()).len() >= 5);
    run.helm.resize(sizing(0, 4), Price::FREE);
    run.pass(1).await;
    world.log();
    run.pass(60).await;
    assert_eq!(starts(&world.timed_log()).len(), 0);
    assert_eq!(run.status.view().newest.unwrap().blocks().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn c1_a_try_that_fails_otherwise_is_a_failed_start() {
    let world = World::new();
    world.script().no_room = Some(Duration::ZERO);
    let run = Loop::start(&world, sizing(1, 4));
    run.pass(5).await;
    assert_eq!(run.status.view().starts_failed, 0);
    (world.script().no_room, world.script().refuse_start) = (None, true);
    run.pass(5).await;
    let view = run.status.view();
    assert!(view.starts_failed >= 1);
    let blocks: Vec<_> =
        view.newest.iter().flat_map(ScaleDecision::blocks).map(ScaleReason::as_str).collect();
    assert_eq!(blocks, ["backing_off", "no_capacity"], "nobody knows what it would have found");
}
