//! The rules of admission and routing, one test or more each; and a random walk that holds the invariants.

use std::collections::BTreeMap;

mod beginnings;
mod cold;
mod explain;
mod fair;
mod growth;
mod hold;
mod joining;
mod judge;
mod line;
mod load;
mod overload;
mod own_only;
mod parked;
mod priority;
mod resize;
mod shared;
mod unfit;
mod walk;

use tidegate_shared::replica::{Capacity, Phase, Starts};
use tidegate_shared::request::{ConversationKey, Identity, Priority, Route};

use super::*;

fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn ask(n: u64) -> Arc<RequestFacts> {
    let identity = Identity::Named(ConversationKey(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    Arc::new(RequestFacts {
        identity,
        body_bytes: 1000,
        text_bytes: 400,
        output_limit: Some(100),
        choices: 1,
        fingerprint: n,
        ..RequestFacts::default()
    })
}

fn fleet(limits: Limits, capacities: &[u32]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    for (id, units) in (1..).map(ReplicaId).zip(capacities) {
        dispatcher.change(ms(0), id, Change::Starting(Capacity::new(*units)));
        dispatcher.change(ms(0), id, Change::Ready);
    }
    dispatcher
}

fn forward(verdict: Verdict) -> Lease {
    match verdict {
        Verdict::Forward(lease) => lease,
        other => panic!("not forwarded: {other:?}"),
    }
}

fn ticket(verdict: Verdict) -> TicketId {
    match verdict {
        Verdict::Wait(ticket) => ticket,
        other => panic!("does not wait: {other:?}"),
    }
}

fn rejected(verdict: Verdict) -> Rejection {
    match verdict {
        Verdict::Reject(rejection) => rejection,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn r3_capacities_4_4_8_spread_1_1_2_one_by_one_on_an_idle_fleet() {
    let mut dispatcher = fleet(Limits::default(), &[4, 4, 8]);
    let mut count = BTreeMap::<u32, u32>::new();
    for n in 0..1000 {
        let lease = forward(dispatcher.arrive(ms(n), &ask(n)));
        *count.entry(lease.replica.0).or_default() += 1;
        dispatcher.end(ms(n), lease, &Spent::default());
    }
    assert_eq!(count, BTreeMap::from([(1, 250), (2, 250), (3, 500)]));
}

#[test]
fn r3_the_first_of_all_goes_where_there_is_most_room() {
    let mut dispatcher = fleet(Limits::default(), &[1, 4, 2]);
    assert_eq!(forward(dispatcher.arrive(ms(0), &ask(0))).replica, ReplicaId(2));
}

#[test]
fn r3_and_100_at_a_time() {
    let mut dispatcher = fleet(Limits::default(), &[4, 4, 8]);
    let mut count = BTreeMap::<u32, u32>::new();
    for batch in 0..10 {
        let leases: Vec<_> =
            (0..100).map(|n| forward(dispatcher.arrive(ms(n), &ask(batch * 100 + n)))).collect();
        for lease in leases {
            *count.entry(lease.replica.0).or_default() += 1;
            dispatcher.end(ms(1000), lease, &Spent::default());
        }
    }
    assert_eq!(count, BTreeMap::from([(1, 250), (2, 250), (3, 500)]));
}

#[test]
fn r3_new_weights_hold_for_the_next_ones() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let place = |dispatcher: &mut Dispatcher, from: u64| {
        let mut second = 0;
        for n in from..from + 100 {
            let lease = forward(dispatcher.arrive(ms(n), &ask(n)));
            second += u32::from(lease.replica == ReplicaId(2));
            dispatcher.end(ms(n), lease, &Spent::default());
        }
        second
    };
    assert_eq!(place(&mut dispatcher, 0), 50);
    dispatcher.change(ms(200), ReplicaId(2), Change::Capacity(Capacity::new(3)));
    assert_eq!(place(&mut dispatcher, 1000), 75);
}

#[test]
fn r2_r4_follow_ups_go_home_and_detour_only_while_home_is_over_its_limit() {
    let mut dispatcher = fleet(Limits { concurrency: 10, ..Limits::default() }, &[1, 1]);
    let first = forward(dispatcher.arrive(ms(0), &ask(1)));
    assert_eq!(first.route, Route::Placed);
    let home = first.replica;
    dispatcher.end(ms(1), first, &Spent::default());
    // 9 of 10 places at home taken: 90 %.
    let held: Vec<_> = (0..9).map(|_| forward(dispatcher.arrive(ms(2), &ask(1)))).collect();
    assert!(held.iter().all(|lease| lease.replica == home && lease.route == Route::Home));
    let away = forward(dispatcher.arrive(ms(3), &ask(1)));
    assert_eq!(away.route, Route::Detour);
    assert_ne!(away.replica, home);
    dispatcher.end(ms(4), away, &Spent::default());
    held.into_iter().for_each(|lease| dispatcher.end(ms(5), lease, &Spent::default()));
    let back = forward(dispatcher.arrive(ms(6), &ask(1)));
    assert_eq!((back.route, back.replica), (Route::Home, home));
    dispatcher.end(ms(7), back, &Spent::default());
}

#[test]
fn r5_a_conversation_whose_home_is_gone_gets_a_new_one_and_stays() {
    for change in [Change::Gone, Change::Failed, Change::Draining, Change::Refused] {
        let mut dispatcher = fleet(Limits::default(), &[1, 1]);
        let first = forward(dispatcher.arrive(ms(0), &ask(1)));
        let home = first.replica;
        dispatcher.end(ms(1), first, &Spent::default());
        dispatcher.change(ms(2), home, change);
        let second = forward(dispatcher.arrive(ms(3), &ask(1)));
        assert_eq!(second.route, Route::Rehomed, "{change:?}");
        let new_home = second.replica;
        dispatcher.end(ms(4), second, &Spent::default());
        dispatcher.change(
            ms(5),
            home,
            if change == Change::Draining { Change::Undrain } else { Change::Ready },
        );
        let third = forward(dispatcher.arrive(ms(6), &ask(1)));
        assert_eq!((third.route, third.replica), (Route::Home, new_home));
        dispatcher.end(ms(7), third, &Spent::default());
    }
}

#[test]
fn r5_a_home_that_is_only_suspected_stays_home() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let first = forward(dispatcher.arrive(ms(0), &ask(1)));
    let home = first.replica;
    dispatcher.end(ms(1), first, &Spent::default());
    dispatcher.change(ms(2), home, Change::Suspect);
    let away = forward(dispatcher.arrive(ms(3), &ask(1)));
    assert_eq!(away.route, Route::Detour);
    dispatcher.end(ms(4), away, &Spent::default());
    dispatcher.change(ms(5), home, Change::Ready);
    let back = forward(dispatcher.arrive(ms(6), &ask(1)));
    assert_eq!((back.route, back.replica), (Route::Home, home));
    dispatcher.end(ms(7), back, &Spent::default());
}

#[test]
fn c5_the_scaler_looks_at_once_when_nothing_runs_on_one_that_drains() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let lease = forward(dispatcher.arrive(ms(1), &ask(0)));
    let (busy, idle) = (lease.replica, ReplicaId(3 - lease.replica.0));
    dispatcher.take_pressed();
    dispatcher.change(ms(2), busy, Change::Draining);
    assert!(!dispatcher.take_pressed(), "a request runs there");
    dispatcher.end(ms(3), lease, &Spent::default());
    assert!(dispatcher.take_pressed(), "it has ended");
    dispatcher.change(ms(4), idle, Change::Draining);
    assert!(dispatcher.take_pressed(), "none runs there");
    dispatcher.change(ms(5), ReplicaId(9), Change::Draining);
    assert!(!dispatcher.take_pressed(), "there is no such replica");
}

#[test]
fn c5_a_replica_that_failed_while_it_drained_does_not_come_back_ready() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    let id = ReplicaId(1);
    dispatcher.change(ms(1), id, Change::Draining);
    dispatcher.change(ms(2), id, Change::Failed);
    assert_eq!(dispatcher.observe(ms(2)).replicas[0].phase, Phase::Draining);
    dispatcher.change(ms(3), id, Change::Undrain);
    assert_eq!(dispatcher.observe(ms(3)).replicas[0].phase, Phase::Failed);
    dispatcher.change(ms(4), id, Change::Ready);
    assert_eq!(dispatcher.observe(ms(4)).replicas[0].phase, Phase::Ready);
}

#[test]
fn r1_a_repeated_first_turn_is_placed_and_a_later_turn_is_not() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let chain = |keys: &[u64], follows_up| {
        let chain = keys.iter().map(|k| ConversationKey(*k)).collect();
        Arc::new(RequestFacts { identity: Identity::Prefix { chain, follows_up }, ..RequestFacts::default() })
    };
    let mut go = |facts: &Arc<RequestFacts>| {
        let lease = forward(dispatcher.arrive(ms(0), facts));
        let seen = (lease.route, lease.replica);
        dispatcher.end(ms(0), lease, &Spent::default());
        seen
    };
    let (route, _) = go(&chain(&[1, 2], false));
    assert_eq!(route, Route::Placed);
    let (route, home) = go(&chain(&[1, 2], false));
    assert_eq!(route, Route::Placed);
    assert_eq!(go(&chain(&[1, 2, 3, 4], true)), (Route::Home, home));
    assert_eq!(go(&chain(&[1, 2, 3, 4], true)), (Route::Home, home), "regenerated");
    assert_eq!(go(&chain(&[1, 2, 3, 4, 5, 6], true)), (Route::Home, home));
}

#[test]
fn q1_first_come_first_served_and_at_once_when_a_place_is_free() {
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1]);
    let running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let first = ticket(dispatcher.arrive(ms(1), &ask(1)));
    let second = ticket(dispatcher.arrive(ms(2), &ask(2)));
    dispatcher.end(ms(10), running, &Spent::default());
    let mut woken = dispatcher.take_woken();
    assert_eq!(woken.len(), 1);
    let (id, lease) = woken.remove(0);
    assert_eq!(id, first);
    dispatcher.end(ms(20), lease.unwrap(), &Spent::default());
    let woken = dispatcher.take_woken();
    assert_eq!(woken[0].0, second);
    assert_eq!(dispatcher.observe(ms(20)).queued, 0);
}

#[test]
fn q1_the_line_is_bounded_in_number_and_bytes() {
    let tight = Limits { concurrency: 1, queue_requests: 2, ..Limits::default() };
    let mut dispatcher = fleet(tight.clone(), &[1]);
    let _running = forward(dispatcher.arrive(ms(0), &ask(0)));
    ticket(dispatcher.arrive(ms(0), &ask(1)));
    ticket(dispatcher.arrive(ms(0), &ask(2)));
    assert_eq!(rejected(dispatcher.arrive(ms(0), &ask(3))).reason, Refusal::QueueFull);

    let mut dispatcher = fleet(Limits { queue_bytes: 1500, ..tight }, &[1]);
    let _running = forward(dispatcher.arrive(ms(0), &ask(0)));
    ticket(dispatcher.arrive(ms(0), &ask(1)));
    assert_eq!(rejected(dispatcher.arrive(ms(0), &ask(2))).reason, Refusal::QueueBytes);
}

#[test]
fn q4_a_waiter_that_left_frees_its_place_and_is_never_dispatched() {
    let mut dispatcher = fleet(Limits { concurrency: 1, queue_requests: 4, ..Limits::default() }, &[1]);
    let running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let gone: Vec<_> = (1..5).map(|n| ticket(dispatcher.arrive(ms(1), &ask(n)))).collect();
    gone.into_iter().for_each(|ticket| dispatcher.abandon(ms(1), ticket));
    assert_eq!((dispatcher.observe(ms(1)).queued, dispatcher.queued_bytes()), (0, 0));
    let new: Vec<_> = (5..9).map(|n| ticket(dispatcher.arrive(ms(2), &ask(n)))).collect();
    dispatcher.end(ms(3), running, &Spent::default());
    assert_eq!(dispatcher.take_woken()[0].0, new[0]);
}

#[test]
fn q2_headroom_ends_in_a_refusal_with_an_hour_at_most() {
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1]);
    let _running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let waiting = ticket(dispatcher.arrive(ms(100), &ask(1)));
    assert_eq!(dispatcher.deadline(), ms(2100));
    dispatcher.on_deadline(ms(2099));
    assert!(dispatcher.take_woken().is_empty());
    dispatcher.on_deadline(ms(2100));
    let (id, end) = dispatcher.take_woken().remove(0);
    let rejection = end.unwrap_err();
    assert_eq!((id, rejection.reason), (waiting, Refusal::WaitedTooLong));
    assert!(rejection.retry_after >= Duration::from_secs(1));
    assert_eq!(dispatcher.deadline(), Instant::NEVER);
}

#[test]
fn q2_refused_on_arrival_when_the_drain_says_so_and_told_when_and_served_then() {
    // One place, a second per request.
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1]);
    let mut running = forward(dispatcher.arrive(ms(0), &ask(0)));
    for n in 1..=5 {
        dispatcher.end(ms(n * 1000), running, &Spent::default());
        running = forward(dispatcher.arrive(ms(n * 1000), &ask(n)));
    }
    let now = ms(5000);
    ticket(dispatcher.arrive(now, &ask(10)));
    ticket(dispatcher.arrive(now, &ask(11)));
    let told: Vec<_> = (12..16).map(|n| rejected(dispatcher.arrive(now, &ask(n)))).collect();
    assert!(told.iter().all(|rejection| rejection.reason == Refusal::WouldWaitTooLong));
    assert!(
        told.windows(2).all(|pair| pair[0].retry_after < pair[1].retry_after),
        "one behind the other: {told:?}"
    );

    let back = now + told[0].retry_after;
    let mut now = now;
    let mut served = 0;
    while now < back {
        now = now + Duration::from_secs(1);
        dispatcher.end(now, running, &Spent::default());
        served += 1;
        running = match dispatcher.take_woken().pop() {
            Some((_, lease)) => lease.unwrap(),
            None => break,
        };
    }
    assert!(served >= 2);
    match dispatcher.arrive(back, &ask(12)) {
        Verdict::Forward(_) | Verdict::Wait(_) => {}
        Verdict::Reject(rejection) => panic!("came as told and was refused: {rejection:?}"),
    }
}

#[test]
fn a_fixed_fleet_without_replicas_refuses_and_one_that_is_down_holds_for_the_headroom() {
    let mut dispatcher = Dispatcher::new(Limits::default(), false, ms(0));
    assert_eq!(rejected(dispatcher.arrive(ms(2000), &ask(0))).reason, Refusal::CannotStart);
    let mut dispatcher = Dispatcher::new(Limits::default(), false, ms(0));
    // The fleet is told of a moment after the port is open.
    let first = ticket(dispatcher.arrive(ms(0), &ask(0)));
    dispatcher.abandon(ms(0), first);
    dispatcher.change(ms(0), ReplicaId(1), Change::Starting(Capacity::ONE));
    ticket(dispatcher.arrive(ms(1), &ask(0)));
    assert_eq!(dispatcher.deadline(), ms(2001));
    dispatcher.change(ms(1000), ReplicaId(1), Change::Ready);
    assert!(dispatcher.take_woken()[0].1.is_ok(), "C-078: recovery is automatic");
}

#[test]
fn r5_a_retry_goes_elsewhere_keeps_its_place_and_comes_back_when_there_is_no_elsewhere() {
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1, 1]);
    let first = forward(dispatcher.arrive(ms(0), &ask(1)));
    let home = first.replica;
    let other = forward(dispatcher.arrive(ms(0), &ask(2)));
    let behind = ticket(dispatcher.arrive(ms(1), &ask(3)));
    dispatcher.end(ms(2), first, &Spent::default());
    let (id, lease) = dispatcher.take_woken().remove(0);
    assert_eq!(id, behind);
    // `home` failed request 1: it waits for the other replica though it came first, and goes before later ones.
    let again = ticket(dispatcher.retry(ms(3), &ask(1), &[home], ms(0)));
    let later = ticket(dispatcher.arrive(ms(4), &ask(4)));
    dispatcher.end(ms(5), lease.unwrap(), &Spent::default());
    let woken = dispatcher.take_woken();
    assert_eq!(woken[0].0, later, "the place at `home` is of no use to the retry; the next takes it");
    dispatcher.end(ms(6), other, &Spent::default());
    let (id, lease) = dispatcher.take_woken().remove(0);
    assert_eq!(id, again);
    assert_ne!(lease.unwrap().replica, home);
}
