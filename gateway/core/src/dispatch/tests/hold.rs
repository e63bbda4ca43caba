//! A replica that is measured (A1): who is held, what becomes of its conversations, when its users come first.

use tidegate_shared::replica::Hold;

use super::*;

const ONE: ReplicaId = ReplicaId(1);
const TWO: ReplicaId = ReplicaId(2);

#[test]
fn a1_a_replica_that_is_set_aside_takes_nothing_and_gets_its_conversations_back() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let first = forward(dispatcher.arrive(ms(1), &ask(1)));
    let home = first.replica;
    dispatcher.end(ms(2), first, &Spent::default());
    assert_eq!(dispatcher.hold(ms(3), Some(home)), Ok((home, Hold::Aside)));

    for turn in 0..20 {
        let lease = forward(dispatcher.arrive(ms(4), &ask(turn)));
        assert_ne!(lease.replica, home);
        let expected = if turn == 1 { Route::Detour } else { Route::Placed };
        assert_eq!(lease.route, expected);
        dispatcher.end(ms(5), lease, &Spent::default());
    }
    assert!(dispatcher.may_measure(home));
    dispatcher.change(ms(6), home, Change::Release);
    let back = forward(dispatcher.arrive(ms(7), &ask(1)));
    assert_eq!((back.replica, back.route), (home, Route::Home));
    assert!(!dispatcher.may_measure(home), "it is held no more");
    dispatcher.end(ms(8), back, &Spent::default());
}

#[test]
fn a1_the_only_replica_goes_on_serving_and_a_request_there_comes_first() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    assert_eq!(dispatcher.hold(ms(1), None), Ok((ONE, Hold::Serving)));
    assert!(dispatcher.may_measure(ONE));
    let lease = forward(dispatcher.arrive(ms(2), &ask(1)));
    assert!(!dispatcher.may_measure(ONE));
    dispatcher.end(ms(3), lease, &Spent::default());
    // Nobody may have looked while it was there, and it was served beside what was measured.
    assert!(!dispatcher.may_measure(ONE), "it was asked");
    dispatcher.change(ms(4), ONE, Change::Release);
    assert_eq!(dispatcher.hold(ms(5), None), Ok((ONE, Hold::Serving)));
    assert!(dispatcher.may_measure(ONE), "what came before counts no more");
}

#[test]
fn a1_q4_who_waits_comes_first_and_is_served_as_soon_as_it_is_let_go() {
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1, 1]);
    dispatcher.hold(ms(1), Some(TWO)).expect("held");
    let lease = forward(dispatcher.arrive(ms(2), &ask(1)));
    let waits = ticket(dispatcher.arrive(ms(3), &ask(2)));
    assert!(!dispatcher.may_measure(TWO));
    dispatcher.change(ms(4), TWO, Change::Release);
    let (ticket, served) = dispatcher.take_woken().pop().expect("one is woken");
    let served = served.expect("it is served");
    assert_eq!((ticket, served.replica), (waits, TWO));
    dispatcher.end(ms(5), lease, &Spent::default());
    dispatcher.end(ms(5), served, &Spent::default());
}

#[test]
fn a1_the_one_that_is_missed_least_is_held_and_one_at_a_time() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let lease = forward(dispatcher.arrive(ms(1), &ask(1)));
    let (held, _) = dispatcher.hold(ms(2), None).expect("one is held");
    assert_ne!(held, lease.replica, "that has a conversation");
    assert_eq!(dispatcher.hold(ms(3), Some(lease.replica)), Err(NoHold::Held(held)));
    dispatcher.change(ms(4), held, Change::Release);
    assert_eq!(dispatcher.hold(ms(5), Some(ReplicaId(9))), Err(NoHold::Unknown));
    dispatcher.change(ms(6), held, Change::Draining);
    assert_eq!(dispatcher.hold(ms(7), Some(held)), Err(NoHold::NotReady));
    assert_eq!(fleet(Limits::default(), &[]).hold(ms(8), None), Err(NoHold::NotReady));
    dispatcher.end(ms(9), lease, &Spent::default());
}

#[test]
fn a1_measuring_ends_when_the_replica_leaves() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    dispatcher.hold(ms(1), Some(TWO)).expect("held");
    dispatcher.change(ms(2), TWO, Change::Draining);
    assert!(!dispatcher.may_measure(TWO));
    dispatcher.change(ms(3), TWO, Change::Gone);
    assert!(!dispatcher.may_measure(TWO));
}

#[test]
fn a1_g2_what_it_is_measured_with_is_no_demand() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    dispatcher.hold(ms(1), Some(TWO)).expect("held");
    dispatcher.ask(ms(2), TWO);
    let (some, tokens) = (Some(9), Some(Tokens(5000)));
    let report =
        EngineReport { asked: ms(2), running: some, waiting: some, kv_used: tokens, ..Default::default() };
    dispatcher.report(ms(3), TWO, EngineReport { kv_capacity: Some(Tokens(8000)), ..report });
    let seen = dispatcher.observe(ms(4));
    let told = |at: usize| (seen.replicas[at].load, seen.replicas[at].waiting, seen.replicas[at].hold);
    assert_eq!(told(1), (Some(Tokens(0)), Some(0), Some(Hold::Aside)));
    assert_eq!(seen.replicas[0].hold, None);
}
