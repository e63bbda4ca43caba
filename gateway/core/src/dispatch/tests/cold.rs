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
