//! Requests that wait for the first replica (Q3, C-101).

use super::*;

#[test]
fn q3_held_from_zero_and_dispatched_in_order_at_readiness() {
    let mut dispatcher = Dispatcher::new(Limits { concurrency: 2, ..Limits::default() }, true, ms(0));
    let waiting: Vec<_> = (0..3).map(|n| ticket(dispatcher.arrive(ms(n), &ask(n)))).collect();
    let id = ReplicaId(1);
    dispatcher.change(ms(10), id, Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(20), id, Change::Starting(Capacity::ONE));
    dispatcher.on_deadline(ms(60_000));
    assert!(dispatcher.take_woken().is_empty(), "no request before the model is loaded (C-028)");
    dispatcher.change(ms(60_000), id, Change::Ready);
    let woken = dispatcher.take_woken();
    assert_eq!(woken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), waiting[..2]);
    assert!(woken.iter().all(|(_, lease)| lease.is_ok()));
    assert_eq!(dispatcher.deadline(), ms(62_000), "the third has its headroom from readiness on");
}

#[test]
fn q3_the_cold_start_limit_ends_the_wait() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    ticket(dispatcher.arrive(ms(0), &ask(0)));
    assert_eq!(dispatcher.deadline(), ms(600_000));
    dispatcher.on_deadline(ms(600_000));
    assert_eq!(dispatcher.take_woken()[0].1.as_ref().unwrap_err().reason, Refusal::ColdStartTooLong);
}

#[test]
fn waiters_are_told_when_starts_keep_failing() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    ticket(dispatcher.arrive(ms(0), &ask(0)));
    for (n, told) in [(1, false), (2, true)] {
        let now = ms(5000 * u64::from(n));
        dispatcher.change(now, ReplicaId(n), Change::Ordered(Capacity::ONE));
        dispatcher.change(now, ReplicaId(n), Change::StartFailed);
        let woken = dispatcher.take_woken();
        assert_eq!(!woken.is_empty(), told, "after {n} failures");
        if let Some((_, end)) = woken.first() {
            assert_eq!(end.as_ref().unwrap_err().reason, Refusal::StartFailed);
        }
    }
    let late = ticket(dispatcher.arrive(ms(10_000), &ask(1)));
    dispatcher.on_deadline(ms(12_000));
    assert_eq!(dispatcher.take_woken()[0].0, late);
}

#[test]
fn q2_c1_nobody_is_told_to_come_before_the_next_start_is_tried() {
    let seconds = |seconds| Duration::from_secs(seconds);
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    let told = |dispatcher: &mut Dispatcher, id: u32, now: Instant| {
        ticket(dispatcher.arrive(now, &ask(u64::from(id))));
        dispatcher.change(now, ReplicaId(id), Change::Ordered(Capacity::ONE));
        dispatcher.hold_starts(now, Starts::From(now + seconds(64)));
        dispatcher.change(now, ReplicaId(id), Change::StartFailed);
        dispatcher.on_deadline(now + seconds(2));
        let (_, end) = dispatcher.take_woken().pop()?;
        let rejection = end.expect_err("no lease");
        assert_eq!(rejection.reason, Refusal::StartFailed);
        Some(rejection.retry_after)
    };
    assert_eq!(told(&mut dispatcher, 1, ms(0)), None, "one failure is no row");
    assert_eq!(told(&mut dispatcher, 2, ms(0)), Some(seconds(62)), "as soon as it is tried");
    // One becomes ready after 20 s, and dies: what comes next takes as long again, after the pause.
    dispatcher.change(ms(100_000), ReplicaId(3), Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(120_000), ReplicaId(3), Change::Ready);
    dispatcher.change(ms(120_000), ReplicaId(3), Change::Gone);
    assert_eq!(told(&mut dispatcher, 4, ms(120_000)), None);
    assert_eq!(told(&mut dispatcher, 5, ms(120_000)), Some(seconds(82)));
    // The pause is over, and the next one is on its way.
    dispatcher.change(ms(184_000), ReplicaId(6), Change::Ordered(Capacity::ONE));
    let full = Arc::new(RequestFacts { body_bytes: u64::MAX, ..RequestFacts::clone(&ask(9)) });
    assert_eq!(rejected(dispatcher.arrive(ms(190_000), &full)).retry_after, seconds(14));
}

#[test]
fn q2_a_crowd_at_a_full_line_before_the_first_replica_is_told_one_time_behind_the_other() {
    let limits = Limits { queue_requests: 10, concurrency: 4, ..Limits::default() };
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    (0..10).for_each(|n| {
        ticket(dispatcher.arrive(ms(0), &ask(n)));
    });
    let mut refuse = |n| rejected(dispatcher.arrive(ms(0), &ask(n))).retry_after.as_secs();
    let told: Vec<u64> = (10..210).map(&mut refuse).collect();
    assert!(told.is_sorted(), "in their order: {told:?}");
    let most = told.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
    assert_eq!(most, Some(2), "as many in a second as are served in one, if each takes the headroom of 2 s");
    assert_eq!((told[0], told[199]), (6, 105), "behind the line, and behind those before them");
}

#[test]
fn q2_a_cold_crowd_is_told_by_the_pace_and_the_start_that_were_measured() {
    let limits = Limits { queue_requests: 8, concurrency: 4, ..Limits::default() };
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    dispatcher.change(ms(0), ReplicaId(1), Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(30_000), ReplicaId(1), Change::Ready);
    let held: Vec<_> = (0..4).map(|n| forward(dispatcher.arrive(ms(30_000), &ask(n)))).collect();
    held.into_iter().for_each(|lease| dispatcher.end(ms(40_000), lease, &Spent::default()));
    dispatcher.change(ms(50_000), ReplicaId(1), Change::Gone);
    (10..18).for_each(|n| {
        ticket(dispatcher.arrive(ms(50_000), &ask(n)));
    });
    let mut refuse = |n| rejected(dispatcher.arrive(ms(50_000), &ask(n))).retry_after.as_secs();
    let told: Vec<u64> = (20..60).map(&mut refuse).collect();
    assert_eq!((told[0], told[39]), (43, 140), "30 s to start, and 4 in 10 s from then on: {told:?}");
    assert!(told.chunk_by(|a, b| a == b).all(|same| same.len() <= 1), "{told:?}");
}

#[test]
fn c_101_a_hold_of_fifteen_minutes_holds() {
    let limits = Limits { cold_start: Duration::from_secs(900), concurrency: 2, ..Limits::default() };
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    let urgent = |n, priority| Arc::new(RequestFacts { priority, ..RequestFacts::clone(&ask(n)) });
    let low = ticket(dispatcher.arrive(ms(0), &urgent(1, Priority::Low)));
    let first = ticket(dispatcher.arrive(ms(1000), &ask(2)));
    dispatcher.change(ms(2000), ReplicaId(1), Change::Starting(Capacity::ONE));
    let high = ticket(dispatcher.arrive(ms(600_000), &urgent(3, Priority::High)));
    // The driver looks whenever it is told to, and at every second besides.
    let mut now = ms(0);
    while now < ms(700_000) {
        now = now + Duration::from_secs(1);
        assert!(dispatcher.deadline() >= ms(900_000), "no other timer ends the wait");
        dispatcher.on_deadline(now);
        assert_eq!(dispatcher.take_woken(), [], "{now:?}");
    }
    dispatcher.change(now, ReplicaId(1), Change::Ready);
    let woken = dispatcher.take_woken();
    assert_eq!(woken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [high, first]);
    for (_, lease) in woken {
        dispatcher.end(now, lease.expect("a lease"), &Spent::default());
    }
    assert_eq!(dispatcher.take_woken().pop().expect("served").0, low);
}

#[test]
fn q3_c2_nobody_is_held_for_a_replica_that_cannot_be_ordered_and_none_is_promised() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    let held = ticket(dispatcher.arrive(ms(0), &ask(0)));
    dispatcher.hold_starts(ms(50_000), Starts::Stalled);
    dispatcher.hold_starts(ms(51_000), Starts::Stalled);
    assert_eq!(dispatcher.deadline(), ms(52_000), "the headroom, from when it is known");
    dispatcher.on_deadline(ms(52_000));
    let (id, end) = dispatcher.take_woken().pop().expect("it is told");
    let told = Rejection { reason: Refusal::CannotStart, retry_after: Duration::from_secs(60) };
    assert_eq!((id, end.expect_err("no lease")), (held, told));

    // A blip costs nobody his place, and who waits for one that is on its way goes on waiting.
    ticket(dispatcher.arrive(ms(60_000), &ask(1)));
    dispatcher.hold_starts(ms(61_000), Starts::From(ms(0)));
    dispatcher.on_deadline(ms(70_000));
    assert_eq!(dispatcher.take_woken().len(), 0);
    dispatcher.change(ms(70_000), ReplicaId(1), Change::Ordered(Capacity::ONE));
    dispatcher.hold_starts(ms(71_000), Starts::Blocked);
    dispatcher.on_deadline(ms(90_000));
    assert_eq!(dispatcher.take_woken().len(), 0);
    dispatcher.change(ms(91_000), ReplicaId(1), Change::Ready);
    assert!(dispatcher.take_woken()[0].1.is_ok());
}

#[test]
fn q2_c2_who_waits_for_what_stays_blocked_is_told_at_the_evaluation_that_he_asked_for() {
    let told = |replicas: &[Change]| {
        let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
        for (id, change) in (1..).zip(replicas) {
            dispatcher.change(ms(0), ReplicaId(id), Change::Ordered(Capacity::ONE));
            dispatcher.change(ms(0), ReplicaId(id), *change);
        }
        dispatcher.take_pressed();
        let held = ticket(dispatcher.arrive(ms(100_000), &ask(0)));
        let pressed = dispatcher.take_pressed();
        dispatcher.hold_starts(ms(100_005), Starts::Blocked);
        let woken = dispatcher.take_woken().into_iter().next();
        let told = woken.map(|(id, end)| (id == held, end.expect_err("no lease").reason));
        (pressed, told)
    };
    assert_eq!(told(&[]), (true, Some((true, Refusal::CannotStart))));
    assert_eq!(told(&[Change::Draining]), (true, Some((true, Refusal::CannotStart))), "it only leaves");
    assert_eq!(told(&[Change::Starting(Capacity::ONE)]), (false, None), "one is on its way");
    let mut dispatcher = fleet(Limits::default(), &[1]);
    dispatcher.change(ms(0), ReplicaId(1), Change::Suspect);
    ticket(dispatcher.arrive(ms(1), &ask(0)));
    dispatcher.hold_starts(ms(5), Starts::Blocked);
    assert_eq!(dispatcher.take_woken(), [], "one is there, and may be well in a moment");
}

#[test]
fn q2_where_nothing_can_be_started_nothing_is_promised() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    dispatcher.change(ms(0), ReplicaId(1), Change::Draining);
    let waits = ticket(dispatcher.arrive(ms(0), &ask(0)));
    dispatcher.resize(ms(10), 4, false);
    dispatcher.on_deadline(ms(2000));
    let (id, end) = dispatcher.take_woken().pop().expect("it is told");
    let told = |reason| Rejection { reason, retry_after: Duration::from_secs(60) };
    let drained = told(Refusal::Drained);
    assert_eq!((id, end.expect_err("no lease")), (waits, drained), "the last one leaves");
    assert_eq!(rejected(dispatcher.arrive(ms(2001), &ask(2))), drained, "at once, now that it lasts");
    dispatcher.change(ms(3000), ReplicaId(1), Change::Gone);
    assert_eq!(rejected(dispatcher.arrive(ms(3000), &ask(1))), told(Refusal::CannotStart), "at once");
}

#[test]
fn q3_who_may_wait_longer_already_loses_nothing_by_what_comes_behind_the_first() {
    use crate::queue::{Queue, Waiter};
    let mut queue = Queue::default();
    let extra = Duration::from_secs(9);
    let (facts, start_by) = (ask(1), Instant::NEVER);
    let waiter = Waiter { facts, tried: Vec::new(), since: ms(1000), extra, promised: true, start_by };
    let id = queue.enter(ms(1000), waiter);
    queue.hold(ms(3000), Duration::from_secs(600));
    assert_eq!(queue.least_patient(), Some((ms(10_000), id)));
    queue.hold(ms(30_000), Duration::from_secs(600));
    assert_eq!(queue.least_patient(), Some((ms(30_000), id)));
    queue.leave(id);
    assert_eq!(queue.least_patient(), None);
}

#[test]
fn q3_nobody_is_held_for_the_next_once_it_is_known_that_it_does_not_come() {
    let limits = Limits { concurrency: 1, ..Limits::default() };
    for (change, at) in [(Change::StartFailed, 303_000), (Change::Gone, 303_000), (Change::Ready, 303_000)] {
        let mut dispatcher = Dispatcher::new(limits.clone(), true, ms(0));
        let waiters: Vec<_> = (0..4).map(|n| ticket(dispatcher.arrive(ms(0), &ask(n)))).collect();
        dispatcher.change(ms(0), ReplicaId(1), Change::Starting(Capacity::ONE));
        dispatcher.change(ms(290_000), ReplicaId(2), Change::Starting(Capacity::ONE));
        dispatcher.change(ms(295_000), ReplicaId(3), Change::Starting(Capacity::ONE));
        dispatcher.change(ms(300_000), ReplicaId(1), Change::Ready);
        assert_eq!(dispatcher.deadline(), ms(597_000), "the headroom after the last");
        dispatcher.change(ms(300_500), ReplicaId(3), Change::Gone);
        assert_eq!(dispatcher.deadline(), ms(592_000), "the headroom after the second");
        dispatcher.change(ms(301_000), ReplicaId(2), change);
        assert_eq!(dispatcher.deadline(), ms(at), "{change:?}: the headroom from when it is known");
        dispatcher.take_woken();
        dispatcher.on_deadline(ms(at));
        let told = dispatcher.take_woken();
        let last = told.last().expect("it is told");
        assert_eq!(last.0, waiters[3]);
        assert_eq!(last.1.as_ref().expect_err("no lease").reason, Refusal::WaitedTooLong);
    }
}
