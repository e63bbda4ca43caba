//! Another size while requests run and wait (Q1, Q3), and a replica that is taken out before it was ever ready (C5).

use super::*;

const HEADROOM: u64 = 2000;

fn narrow() -> Limits {
    Limits { concurrency: 1, ..Limits::default() }
}

#[test]
fn q1_a_higher_limit_lets_those_in_who_wait_at_once_and_in_order() {
    let mut dispatcher = fleet(narrow(), &[1]);
    let first = forward(dispatcher.arrive(ms(0), &ask(1)));
    let waiting: Vec<_> = (2..5).map(|n| ticket(dispatcher.arrive(ms(0), &ask(n)))).collect();
    dispatcher.resize(ms(1), 3, true);
    let woken = dispatcher.take_woken();
    assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), waiting[..2]);
    assert!(woken.iter().all(|(_, end)| end.is_ok()));
    assert_eq!((dispatcher.limit(ReplicaId(1)), dispatcher.in_flight(ReplicaId(1))), (3, 3));
    dispatcher.end(ms(2), first, &Spent::default());
    assert_eq!(dispatcher.take_woken().len(), 1, "and the last one after that");
}

#[test]
fn q1_who_is_over_a_lower_limit_finishes_and_nobody_comes_after() {
    let mut dispatcher = fleet(Limits { concurrency: 4, ..Limits::default() }, &[1]);
    let leases: Vec<_> = (0..4).map(|n| forward(dispatcher.arrive(ms(0), &ask(n)))).collect();
    dispatcher.resize(ms(1), 2, true);
    assert_eq!(dispatcher.in_flight(ReplicaId(1)), 4, "nothing is cut");
    ticket(dispatcher.arrive(ms(1), &ask(9)));
    let mut let_in = Vec::new();
    for lease in leases {
        dispatcher.end(ms(2), lease, &Spent::default());
        let_in.push(dispatcher.take_woken().len());
    }
    assert_eq!(let_in, [0, 0, 1, 0], "from under two on");
}

#[test]
fn q3_who_waits_for_a_start_that_cannot_be_any_more_is_refused_within_the_headroom() {
    let mut dispatcher = fleet(Limits::default(), &[]);
    let waits = ticket(dispatcher.arrive(ms(0), &ask(1)));
    dispatcher.on_deadline(ms(10 * HEADROOM));
    assert!(dispatcher.take_woken().is_empty(), "a start may take long");
    dispatcher.resize(ms(10 * HEADROOM), narrow().concurrency, false);
    let refused = dispatcher.take_woken();
    assert!(matches!(&refused[..], [(ticket, Err(_))] if *ticket == waits), "{refused:?}");
    assert_eq!(dispatcher.observe(ms(10 * HEADROOM)).queued, 0);
}

#[test]
fn c5_one_that_is_put_back_before_its_model_was_loaded_still_has_to_load() {
    let mut dispatcher = fleet(Limits::default(), &[]);
    let (id, phase) = (ReplicaId(1), |dispatcher: &Dispatcher| dispatcher.observe(ms(9)).replicas[0].phase);
    dispatcher.change(ms(0), id, Change::Starting(Capacity::ONE));
    dispatcher.change(ms(1), id, Change::Draining);
    dispatcher.change(ms(2), id, Change::Undrain);
    assert_eq!(phase(&dispatcher), Phase::Starting);
    dispatcher.change(ms(3), id, Change::Draining);
    dispatcher.change(ms(4), id, Change::Ready);
    assert_eq!(phase(&dispatcher), Phase::Draining, "its probe does not undo a drain");
    dispatcher.change(ms(5), id, Change::Undrain);
    assert_eq!(phase(&dispatcher), Phase::Ready);
}
