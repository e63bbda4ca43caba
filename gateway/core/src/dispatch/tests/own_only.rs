//! A replica of weight zero (C-129): conversations that are at home there stay, and nothing else goes there.

use super::*;

const ONE: ReplicaId = ReplicaId(1);
const TWO: ReplicaId = ReplicaId(2);
const THREE: ReplicaId = ReplicaId(3);

/// So many requests one after the other, from conversation `from` on; where each went, and how.
fn turns(dispatcher: &mut Dispatcher, now: u64, from: u64, count: u64) -> Vec<(ReplicaId, Route)> {
    let turn = |n| {
        let lease = forward(dispatcher.arrive(ms(now), &ask(n)));
        let way = (lease.replica, lease.route);
        dispatcher.end(ms(now), lease, &Spent::default());
        way
    };
    (from..from + count).map(turn).collect()
}

fn at(ways: &[(ReplicaId, Route)], id: ReplicaId) -> usize {
    ways.iter().filter(|(replica, _)| *replica == id).count()
}

/// Two conversations, at home on the first and on the second.
fn two_homes(limits: Limits) -> Dispatcher {
    let mut dispatcher = fleet(limits, &[1, 1]);
    let homes = turns(&mut dispatcher, 0, 1, 2);
    assert_eq!(homes, [(ONE, Route::Placed), (TWO, Route::Placed)]);
    dispatcher
}

#[test]
fn c_129_old_conversations_stay_new_ones_follow_the_other_weights_and_it_comes_back_at_its_own() {
    let mut dispatcher = fleet(Limits::default(), &[6, 3, 1]);
    let old = turns(&mut dispatcher, 0, 0, 1000);
    assert_eq!([at(&old, ONE), at(&old, TWO), at(&old, THREE)], [600, 300, 100]);

    dispatcher.change(ms(1), THREE, Change::OwnOnly);
    let new = turns(&mut dispatcher, 2, 1000, 900);
    assert_eq!(
        [at(&new, ONE), at(&new, TWO), at(&new, THREE)],
        [600, 300, 0],
        "by the weights of the others"
    );
    let again = turns(&mut dispatcher, 3, 0, 1000);
    assert!(again.iter().zip(&old).all(|(now, then)| *now == (then.0, Route::Home)), "nobody bounces");
    assert!(dispatcher.observe(ms(3)).replicas[2].own_only);

    dispatcher.change(ms(4), THREE, Change::Undrain);
    let back = turns(&mut dispatcher, 5, 5000, 1000);
    assert_eq!(
        [at(&back, ONE), at(&back, TWO), at(&back, THREE)],
        [600, 300, 100],
        "it catches up on nothing"
    );
}

#[test]
fn c_129_nothing_else_goes_there_neither_a_detour_nor_what_has_no_conversation() {
    let mut dispatcher = two_homes(Limits { concurrency: 4, ..Limits::default() });
    dispatcher.change(ms(1), TWO, Change::OwnOnly);
    // Its neighbour is full, and it idles all the while.
    let running: Vec<_> = (0..4).map(|_| forward(dispatcher.arrive(ms(2), &ask(1)))).collect();
    assert!(running.iter().all(|lease| lease.replica == ONE));
    let none = Arc::new(RequestFacts { identity: Identity::None, ..RequestFacts::clone(&ask(3)) });
    let waiting = [ask(1), ask(3), none].map(|facts| ticket(dispatcher.arrive(ms(3), &facts)));
    assert_eq!(turns(&mut dispatcher, 3, 2, 1), [(TWO, Route::Home)], "its own pass the line");
    let mut served = Vec::new();
    for lease in running {
        dispatcher.end(ms(4), lease, &Spent::default());
        served.extend(dispatcher.take_woken());
    }
    assert_eq!(served.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), waiting);
    for (_, end) in served {
        let lease = end.expect("a lease");
        assert_eq!(lease.replica, ONE);
        dispatcher.end(ms(5), lease, &Spent::default());
    }
}

#[test]
fn q4_its_own_leave_the_line_as_soon_as_it_has_room_whoever_stands_before_them() {
    let mut dispatcher = two_homes(Limits { concurrency: 1, ..Limits::default() });
    dispatcher.change(ms(1), TWO, Change::OwnOnly);
    let [one, two] = [1, 2].map(|n| forward(dispatcher.arrive(ms(2), &ask(n))));
    assert_eq!((one.replica, two.replica), (ONE, TWO));
    let first = ticket(dispatcher.arrive(ms(3), &ask(1)));
    let own = ticket(dispatcher.arrive(ms(3), &ask(2)));
    dispatcher.end(ms(4), two, &Spent::default());
    let (woken, lease) = dispatcher.take_woken().pop().expect("one goes");
    let lease = lease.expect("a lease");
    assert_eq!((woken, lease.replica), (own, TWO));
    dispatcher.end(ms(5), lease, &Spent::default());
    assert!(dispatcher.take_woken().is_empty(), "the other one's home is busy");
    dispatcher.end(ms(6), one, &Spent::default());
    let (woken, lease) = dispatcher.take_woken().pop().expect("and goes then");
    assert_eq!(woken, first);
    dispatcher.end(ms(7), lease.expect("a lease"), &Spent::default());
}

#[test]
fn c_129_where_nobody_else_is_left_new_ones_are_refused_in_time_and_old_ones_served() {
    let mut dispatcher = Dispatcher::new(Limits::default(), false, ms(0));
    for id in [ONE, TWO] {
        dispatcher.change(ms(0), id, Change::Starting(Capacity::ONE));
        dispatcher.change(ms(0), id, Change::Ready);
    }
    turns(&mut dispatcher, 0, 1, 2);
    dispatcher.change(ms(1), TWO, Change::OwnOnly);
    dispatcher.change(ms(2), ONE, Change::Failed);
    let waits = ticket(dispatcher.arrive(ms(3), &ask(3)));
    assert_eq!(turns(&mut dispatcher, 4, 2, 1), [(TWO, Route::Home)]);
    dispatcher.on_deadline(dispatcher.deadline());
    let (id, end) = dispatcher.take_woken().pop().expect("within the headroom");
    assert_eq!((id, end.map_err(|no| no.reason)), (waits, Err(Refusal::NoReplica)));
}

#[test]
fn c_129_r5_one_that_cannot_serve_loses_its_conversations_as_any_other_and_the_last_one_stays_in() {
    let mut dispatcher = two_homes(Limits::default());
    dispatcher.change(ms(1), TWO, Change::OwnOnly);
    let fail = |dispatcher: &mut Dispatcher, n| {
        for _ in 0..5 {
            let mut lease = forward(dispatcher.arrive(ms(2), &ask(n)));
            lease.sign = Sign::Fault(Fault::Status);
            dispatcher.end(ms(2), lease, &Spent::default());
        }
    };
    fail(&mut dispatcher, 1);
    assert_eq!(dispatcher.trust(ONE), Trust::Whole, "nobody else takes what is new (C-006)");
    fail(&mut dispatcher, 2);
    assert!(matches!(dispatcher.trust(TWO), Trust::Out { .. }));
    assert_eq!(turns(&mut dispatcher, 3, 2, 1), [(ONE, Route::Detour)]);
    dispatcher.change(ms(4), TWO, Change::Gone);
    assert_eq!(turns(&mut dispatcher, 5, 2, 1), [(ONE, Route::Rehomed)]);
}

/// Found by the random walk: nobody else may take it, so the home that said it was busy does.
#[test]
fn q4_its_own_do_not_wait_because_it_said_that_it_is_busy() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    let mut first = forward(dispatcher.arrive(ms(0), &ask(1)));
    first.sign = Sign::Busy(None);
    dispatcher.end(ms(0), first, &Spent::default());
    dispatcher.change(ms(1), ONE, Change::OwnOnly);
    assert_eq!(turns(&mut dispatcher, 2, 1, 1), [(ONE, Route::Home)]);
}
