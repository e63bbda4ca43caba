//! The reported cases as whole stories, at the lengths that were reported.

use std::collections::BTreeSet;

use tidegate_scaler_core::budget::Bounds;
use tidegate_shared::decision::ScaleReason;
use tidegate_shared::offer::Money;

use super::*;
use crate::provider::InstanceState;
use crate::store::{Epoch, FILE, Store};

/// A loop that shares `house` with others.
fn sharing(world: &Arc<World>, name: &str, house: &House) -> Loop {
    let (fleet, provider) = (Arc::clone(world) as Arc<dyn Fleet>, Arc::clone(world) as Arc<dyn Provider>);
    let terms = Terms { sizing: sizing(0, 1), base_fee: Price::FREE, start_limit: START_LIMIT };
    Loop::spawn(Control::new(DeploymentName::new(name), fleet, provider, house.clone(), terms))
}

/// The entries that begin with this word, and when they came.
fn times(log: &[(Duration, String)], word: &str) -> Vec<u64> {
    let begins = |entry: &str| entry.split(' ').next() == Some(word);
    log.iter().filter(|(_, entry)| begins(entry)).map(|(at, _)| at.as_secs()).collect()
}

/// A start of 120 s and an idle window of 30 s; somebody waits all the time.
#[tokio::test(start_paused = true)]
async fn c_018_a_load_of_two_minutes_is_one_start_and_the_window_begins_after_it() {
    let world = World::new();
    world.script().load = Duration::from_secs(119);
    world.lasting(Duration::from_secs(5));
    let run = Loop::start(&world, sizing(0, 4));
    world.arrive(1);
    run.pass(3600).await;
    let log = world.timed_log();
    let entries: Vec<_> = log.iter().map(|(_, entry)| entry.as_str()).collect();
    assert_eq!(entries, ["ordered 1", "start 1", "up 1", "ready 1", "drain 1", "stop 1", "gone 1"]);
    assert_eq!((times(&log, "ready"), world.served_and_cut()), (vec![120], (1, 0)));
    assert!((155..=157).contains(&times(&log, "drain")[0]), "a window after its last request: {log:?}");
}

/// Its client leaves after 10 s: the start is given up a window after that and not before, and nothing flaps.
#[tokio::test(start_paused = true)]
async fn c_018_a_client_that_leaves_may_cancel_the_start_after_one_window_and_nothing_flaps() {
    let world = World::new();
    world.script().load = Duration::from_secs(119);
    let run = Loop::start(&world, sizing(0, 4));
    world.arrive(1);
    run.pass(10).await;
    world.leave();
    run.pass(3600).await;
    let log = world.timed_log();
    let entries: Vec<_> = log.iter().map(|(_, entry)| entry.as_str()).collect();
    assert_eq!(entries, ["ordered 1", "start 1", "up 1", "stop 1", "gone 1"]);
    assert!((40..=42).contains(&times(&log, "stop")[0]), "{log:?}");
    assert_eq!(run.status.view().starts_failed, 0, "nothing has failed, so the next start need not wait");

    // Somebody comes 20 s after the other left: it is kept, and serves him.
    world.arrive(1);
    run.pass(10).await;
    world.leave();
    run.pass(20).await;
    world.arrive(1);
    world.reaches("ready 2").await;
    let log = world.timed_log();
    assert_eq!(log.last().map(|(_, entry)| entry.as_str()), Some("ready 2"), "{log:?}");
    assert_eq!((times(&log, "start").len(), times(&log, "stop").len()), (1, 0), "{log:?}");
}

/// Three replicas and an hour without a request: at the least number when a window has passed, and there to its end.
#[tokio::test(start_paused = true)]
async fn c_051_an_hour_without_traffic_at_three_replicas_is_min_after_one_window() {
    let world = World::new();
    (1..=3).for_each(|id| world.left_over(id));
    let run = Loop::start(&world, sizing(1, 3));
    world.reaches("ready 3").await;
    world.arrive(90);
    run.pass(60).await;
    (1..=3).for_each(|id| world.finish(id));
    let idle = world.elapsed().as_secs();
    world.timed_log();
    run.pass(3600).await;
    let log = world.timed_log();
    let drains = times(&log, "drain");
    assert_eq!((drains.len(), times(&log, "gone").len(), log.len()), (2, 2, 6), "{log:?}");
    assert!(drains.iter().all(|at| (30..=32).contains(&(at - idle))), "in the window's time: {log:?}");
    let newest = run.status.view().newest.unwrap();
    assert_eq!((newest.needed, newest.target), (0, 1), "zero is a number: {newest:?}");
}

/// Two of three loaded replicas are deleted: what the next evaluation needs is worked out from the one that is left.
#[tokio::test(start_paused = true)]
async fn c_104_two_of_three_are_deleted_and_the_next_evaluation_counts_one() {
    let world = World::new();
    (1..=3).for_each(|id| world.left_over(id));
    let run = Loop::start(&world, sizing(0, 3));
    world.reaches("ready 3").await;
    world.arrive(90);
    run.pass(5).await;
    assert_eq!(run.status.view().newest.unwrap().demand, 90);
    world.log();
    world.vanish(1);
    world.vanish(2);
    world.reaches("gone 2").await;
    let at = Instant::ZERO + world.elapsed();
    run.pass(1).await;
    let history = run.status.view().history;
    let first = history.iter().find(|decision| decision.at >= at).unwrap();
    assert_eq!((first.at, first.demand, first.needed, first.current), (at, 30, 1, 1), "{first:?}");
}

/// One GPU, streams of 20 s on A all the time, a request for B each 2 s, five minutes: nobody is cut, both are served,
/// and there are no more swaps than residences fit in.
#[tokio::test(start_paused = true)]
async fn c_108_two_models_on_one_gpu_take_turns_and_nobody_is_cut() {
    const RESIDENCE: u64 = 60;
    let house = House::new(Bounds { replicas: Some(1), credit: None });
    let worlds = [World::new(), World::new()];
    worlds[0].lasting(Duration::from_secs(20));
    worlds[1].lasting(Duration::from_secs(1));
    worlds[0].arrive(1);
    let a = sharing(&worlds[0], "a", &house);
    worlds[0].reaches("ready 1").await;
    let b = sharing(&worlds[1], "b", &house);
    let mut logs = [Vec::new(), Vec::new()];
    let mut longest = Duration::ZERO;
    for second in 0..300 {
        if second % 5 == 0 {
            worlds[0].arrive(1);
        }
        if second % 2 == 0 {
            worlds[1].arrive(1);
        }
        a.pass(1).await;
        let phases = worlds.iter().flat_map(|world| world.observe().replicas);
        assert!(phases.count() <= 1, "one GPU");
        longest = worlds.iter().map(|world| world.observe().oldest_wait).fold(longest, Duration::max);
        worlds.iter().zip(&mut logs).for_each(|(world, log)| log.extend(world.timed_log()));
    }
    let starts = logs.iter().flat_map(|log| times(log, "start")).map(|_| 1u64).sum::<u64>();
    assert!((2..=300 / RESIDENCE).contains(&starts), "{starts} swaps");
    for (world, log) in worlds.iter().zip(&logs) {
        let (served, cut) = world.served_and_cut();
        assert!(served >= 20 && cut == 0, "{served} served, {cut} cut: {log:?}");
        // Who has become ready stays for his residence at least.
        let (ready, drains) = (times(log, "ready"), times(log, "drain"));
        assert!(
            drains.iter().all(|at| ready.iter().all(|since| at < since || at - since >= RESIDENCE)),
            "{log:?}"
        );
    }
    // Nobody waits longer than the other's residence, its last stream and the change.
    assert!(longest < Duration::from_secs(RESIDENCE + 20 + 10), "{longest:?}");
    drop((a, b));
}

/// What is shown is what would be decided on the figures beside it, also between two evaluations; the loop goes by its own.
#[tokio::test(start_paused = true)]
async fn e1_the_decision_that_is_shown_is_of_the_figures_beside_it_and_changes_nothing() {
    let world = World::new();
    world.left_over(1);
    let run = Loop::start(&world, sizing(1, 3));
    world.reaches("ready 1").await;
    run.pass(5).await;
    let recorded = run.status.newest();
    world.log();
    for (in_flight, needed, target) in [(0, 0, 1), (1, 1, 1), (33, 2, 2), (97, 4, 3)] {
        let mut seen = world.observe();
        (seen.in_flight, seen.at) = (in_flight, seen.at + Duration::from_millis(400));
        let view = run.status.view_of(&seen);
        let (shown, looked) = (view.newest.unwrap(), recorded.as_ref().map(|decision| decision.at));
        assert_eq!(view.looked, looked, "how old that is which the loop goes by");
        assert_eq!(
            (shown.at, shown.demand, shown.needed, shown.target),
            (seen.at, in_flight, needed, target)
        );
    }
    assert_eq!((run.status.newest(), world.log()), (recorded, vec![]));

    // The same while the provider is silent.
    world.script().silent = true;
    run.pass(60).await;
    let mut seen = world.observe();
    seen.in_flight = 97;
    let shown = run.status.view_of(&seen).newest.unwrap();
    assert_eq!((shown.demand, shown.target, shown.reason.as_str()), (97, 3, "provider_error"));
    assert_eq!(shown.also.iter().map(ScaleReason::as_str).collect::<Vec<_>>(), ["at_max"]);
}

/// Whatever the pauses of the loop have grown to: its own lists are none of those looks.
#[tokio::test(start_paused = true)]
async fn c2_a_silent_provider_that_looks_by_itself_is_told_with_its_next_look() {
    let world = World::new();
    world.script().silent = true;
    world.script().looks = Some(Duration::ZERO);
    let run = Loop::start(&world, sizing(0, 2));
    run.pass(40).await;
    for seconds in [2, 1] {
        world.script().looks = Some(Duration::from_secs(seconds));
        let seen = world.observe();
        let again = run.status.view_of(&seen).asked_again.map(|at| at.since(seen.at).as_secs());
        assert_eq!(again, Some(seconds));
    }
}

/// A provider that hangs is waited for; what an operator changes meanwhile is not.
#[tokio::test(start_paused = true)]
async fn c2_what_an_operator_changes_holds_at_once_while_a_provider_hangs() {
    let world = World::new();
    world.left_over(1);
    let run = Loop::start(&world, sizing(1, 8));
    world.reaches("ready 1").await;
    world.script().hang = true;
    run.pass(60).await;
    world.arrive(97);
    let blocks = || {
        let newest = run.status.newest().unwrap();
        newest.blocks().map(ScaleReason::as_str).collect::<Vec<_>>()
    };
    assert_eq!(blocks(), ["provider_error"]);
    for max in [1, 2] {
        run.helm.resize(sizing(1, max), Price::FREE);
        run.pass(1).await;
        assert_eq!(blocks(), ["provider_error", "at_max"], "max is {max}");
    }
    run.helm.resize(sizing(1, 8), Price::FREE);
    run.pass(1).await;
    assert_eq!(blocks(), ["provider_error"]);
}

/// A cause that has gone is told no longer, even before the loop has looked again.
#[tokio::test(start_paused = true)]
async fn e1_m3_a_credit_that_was_just_added_is_in_the_way_of_nothing_that_is_shown() {
    let (world, house) =
        (World::new(), House::new(Bounds { replicas: None, credit: Some(Money::default()) }));
    let (fleet, provider) = (Arc::clone(&world) as Arc<dyn Fleet>, Arc::clone(&world) as Arc<dyn Provider>);
    // What is warm costs a fee.
    let terms = Terms { sizing: sizing(0, 1), base_fee: Price(1), start_limit: START_LIMIT };
    let run = Loop::spawn(Control::new(DeploymentName::new("a"), fleet, provider, house.clone(), terms));
    world.arrive(1);
    run.pass(2).await;
    let words = || {
        let newest = run.status.view_of(&world.observe()).newest.unwrap();
        newest.blocks().map(ScaleReason::as_str).collect::<Vec<_>>()
    };
    assert_eq!(words(), ["no_credit"]);
    house.top_up(Money(5_000_000), world.observe().at).unwrap();
    assert_eq!(words(), [""; 0]);
}

#[tokio::test]
async fn c_005_whom_the_last_run_told_to_stop_has_not_failed_in_the_next_one_and_who_crashes_has() {
    let (dir, name) = (tempfile::tempdir().unwrap(), DeploymentName::new("chat"));
    let open = |seconds| {
        let time = Duration::from_secs(seconds);
        let epoch = Epoch { boot: "one".to_owned(), monotonic: time, wall: time };
        let (store, kept) =
            Store::open(&dir.path().join(FILE), epoch, &BTreeSet::from([name.clone()])).unwrap();
        let house = House::kept(Bounds::default(), store.clone(), kept, std::slice::from_ref(&name));
        (store, house)
    };
    let (store, house) = open(10);
    house.open(&name, Price::FREE, 0, Instant::ZERO);
    house.about_to_end(&name, ReplicaId(1), Instant::ZERO).written().await;
    store.close().await;

    let (store, house) = open(20);
    let world = World::new();
    let terms = Terms { sizing: sizing(0, 2), base_fee: Price::FREE, start_limit: START_LIMIT };
    let (fleet, provider) = (Arc::clone(&world) as Arc<dyn Fleet>, Arc::clone(&world) as Arc<dyn Provider>);
    let mut control = Control::new(name.clone(), fleet, provider, house, terms);
    let up = |id| Instance {
        id: ReplicaId(id),
        capacity: Capacity::ONE,
        price: Price::FREE,
        state: InstanceState::Up { url: format!("http://replica-{id}") },
        costs: true,
    };
    for listed in [vec![up(1), up(2)], vec![]] {
        control.step(Ok(listed));
    }
    let view = control.status.view();
    assert_eq!((view.starts_failed, view.lost), (1, None));
    assert_eq!(view.last_failure.as_deref(), Some("chat-2 did not start: it vanished from its provider"));
    store.close().await;
}

#[test]
fn m1_m3_who_may_not_wait_for_a_machine_any_more_is_told_why() {
    let why = |price, cap: Option<u64>| why_withdrawn(Some(Price(price)), cap.map(Price));
    assert_eq!(why(3, Some(2)), "it would cost more than the price cap");
    assert_eq!([why(2, Some(2)), why(2, None)], ["the credit is used up"; 2]);
}
