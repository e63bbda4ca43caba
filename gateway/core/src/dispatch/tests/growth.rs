//! What becomes of conversations when replicas come (R2, R3, C-040): they spread, little by little, and then stay.

use proptest::prelude::*;

use super::*;

/// A replica comes.
fn joins(dispatcher: &mut Dispatcher, now: Instant, id: u32, units: u32) {
    dispatcher.change(now, ReplicaId(id), Change::Starting(Capacity::new(units)));
    dispatcher.change(now, ReplicaId(id), Change::Ready);
}

/// A turn of conversation `n`, which ends at once.
fn turn(dispatcher: &mut Dispatcher, now: Instant, n: u64) -> Route {
    let lease = forward(dispatcher.arrive(now, &ask(n)));
    let route = lease.route;
    dispatcher.end(now, lease, &Spent::default());
    route
}

/// A turn of each conversation, whatever becomes of it.
fn all_turn(dispatcher: &mut Dispatcher, now: Instant, count: u64) {
    all_turn_from(dispatcher, now, 0, count);
}

/// The same with the conversations from `first` on.
fn all_turn_from(dispatcher: &mut Dispatcher, now: Instant, first: u64, count: u64) {
    for n in first..first + count {
        turn(dispatcher, now, n);
    }
}

/// Turns of each conversation, one every `millis`; gives how many moved, and the time afterwards.
fn round(dispatcher: &mut Dispatcher, mut now: Instant, count: u64, millis: u64) -> (u64, Instant) {
    let mut moved = 0;
    for n in 0..count {
        now = now + Duration::from_millis(millis);
        match turn(dispatcher, now, n) {
            Route::Home => {}
            Route::Rehomed => moved += 1,
            other => panic!("{other}"),
        }
    }
    (moved, now)
}

fn homes(dispatcher: &Dispatcher) -> Vec<u32> {
    let seen = dispatcher.observe(ms(0));
    seen.replicas.iter().map(|replica| replica.conversations).collect()
}

/// Prefilling takes so many microseconds for a token, and a prompt of [`ask`] is 100 tokens.
fn measured(dispatcher: &mut Dispatcher, now: Instant, micros: u64) {
    let spent = Spent {
        prompt: Some(100),
        first_byte: Some(Duration::from_micros(100 * micros)),
        ..Spent::default()
    };
    let facts = Arc::new(RequestFacts { identity: Identity::None, ..RequestFacts::clone(&ask(0)) });
    for _ in 0..10 {
        let lease = forward(dispatcher.arrive(now, &facts));
        dispatcher.end(now, lease, &spent);
    }
}

/// One replica, and conversations that were opened there long ago and had a turn just now.
fn grown_old(count: u64) -> (Dispatcher, Instant) {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    all_turn(&mut dispatcher, ms(0), count);
    let now = ms(10 * 60 * 1000);
    all_turn(&mut dispatcher, now, count);
    (dispatcher, now)
}

#[test]
fn c_040_a_crowd_that_waited_for_the_first_replica_spreads_over_those_that_follow() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    let waiting: Vec<_> = (0..40).map(|n| ticket(dispatcher.arrive(ms(n), &ask(n)))).collect();
    joins(&mut dispatcher, ms(5000), 1, 1);
    let woken = dispatcher.take_woken();
    assert_eq!(woken.len(), waiting.len(), "nobody is held back for a replica to come (Q4)");
    joins(&mut dispatcher, ms(5500), 2, 1);
    joins(&mut dispatcher, ms(6000), 3, 2);
    assert_eq!(homes(&dispatcher), [40, 0, 0]);
    for (_, lease) in woken {
        dispatcher.end(ms(8000), lease.expect("a lease"), &Spent::default());
    }
    // Slow prefilling: it is the crowd that moves, not what is cheap.
    measured(&mut dispatcher, ms(8000), 10_000);
    let (mut now, mut moved) = (ms(8000), 0);
    for _ in 0..10 {
        let (more, then) = round(&mut dispatcher, now, 40, 500);
        (now, moved) = (then, moved + more);
        assert!(more <= 10, "a turn every 500 ms, a move every two seconds at most");
    }
    assert_eq!((homes(&dispatcher), moved), (vec![10, 10, 20], 30));
    assert_eq!(round(&mut dispatcher, now, 40, 5000).0, 0, "and then it stays");
}

#[test]
fn r2_r3_old_conversations_stay_unless_they_are_cold_or_cheap() {
    let (mut dispatcher, now) = grown_old(20);
    measured(&mut dispatcher, now, 10_000);
    joins(&mut dispatcher, now, 2, 1);
    let (moved, now) = round(&mut dispatcher, now, 20, 1000);
    assert_eq!(moved, 0, "a second of prefilling each, and warm");
    let later = now + Duration::from_secs(5 * 60);
    let (moved, now) = round(&mut dispatcher, later, 20, 3000);
    assert_eq!((moved, homes(&dispatcher)), (10, vec![10, 10]), "cold");
    assert_eq!(
        round(&mut dispatcher, now + Duration::from_secs(900), 20, 3000).0,
        0,
        "and no more than that"
    );

    let (mut dispatcher, now) = grown_old(20);
    measured(&mut dispatcher, now, 1_000);
    joins(&mut dispatcher, now, 2, 1);
    let (moved, _) = round(&mut dispatcher, now, 20, 50);
    assert_eq!(moved, 4, "100 ms of prefilling each: one in 250 ms");

    let (mut dispatcher, now) = grown_old(20);
    joins(&mut dispatcher, now, 2, 1);
    assert_eq!(round(&mut dispatcher, now, 20, 1000).0, 0, "nothing is measured, so nothing is cheap");
}

#[test]
fn r4_a_home_over_its_limit_sheds_to_a_newcomer_for_good() {
    let (mut dispatcher, now) = grown_old(40);
    measured(&mut dispatcher, now, 100_000);
    let held: Vec<_> = (0..36).map(|n| forward(dispatcher.arrive(now, &ask(n)))).collect();
    joins(&mut dispatcher, now, 2, 1);
    for n in 36..40 {
        let lease = forward(dispatcher.arrive(now, &ask(n)));
        assert_eq!((lease.route, lease.replica), (Route::Rehomed, ReplicaId(2)), "elsewhere it goes anyway");
        dispatcher.end(now, lease, &Spent::default());
    }
    held.into_iter().for_each(|lease| dispatcher.end(now, lease, &Spent::default()));
    assert_eq!(homes(&dispatcher), [36, 4]);
    assert_eq!(turn(&mut dispatcher, now, 39), Route::Home);
}

#[test]
fn r2_a_conversation_that_moved_stays_until_the_fleet_grows_again() {
    let (mut dispatcher, now) = grown_old(30);
    measured(&mut dispatcher, now, 100);
    joins(&mut dispatcher, now, 2, 1);
    joins(&mut dispatcher, now, 3, 1);
    dispatcher.change(now, ReplicaId(3), Change::Suspect);
    let mut now = now;
    while homes(&dispatcher)[1] < 10 {
        now = round(&mut dispatcher, now, 30, 250).1;
    }
    let at = |dispatcher: &mut Dispatcher, n: u64| {
        let lease = forward(dispatcher.arrive(now, &ask(n)));
        let at = lease.replica;
        dispatcher.end(now, lease, &Spent::default());
        at
    };
    let moved = (0..30).find(|n| at(&mut dispatcher, *n) == ReplicaId(2)).expect("one that moved");
    // More come while the third is not to be had.
    all_turn_from(&mut dispatcher, now, 1000, 60);
    dispatcher.change(now, ReplicaId(3), Change::Ready);
    assert!(homes(&dispatcher)[1] > 30 && homes(&dispatcher)[2] == 0, "{:?}", homes(&dispatcher));
    let later = now + Duration::from_secs(600);
    assert_eq!(turn(&mut dispatcher, later, moved), Route::Home, "it has moved already");
    let stayed = (0..30).find(|n| at(&mut dispatcher, *n) == ReplicaId(1)).expect("one that did not");
    assert_eq!(turn(&mut dispatcher, later, stayed), Route::Rehomed);
    joins(&mut dispatcher, later, 4, 1);
    let later = later + Duration::from_secs(600);
    assert_eq!(turn(&mut dispatcher, later, moved), Route::Rehomed, "a new growth");
}

#[test]
fn r3_nothing_moves_where_the_balance_is_kept() {
    let mut dispatcher = fleet(Limits::default(), &[1; 4]);
    all_turn(&mut dispatcher, ms(0), 40);
    let mut now = ms(1_000_000);
    joins(&mut dispatcher, now, 5, 1);
    for _ in 0..3 {
        let (moved, then) = round(&mut dispatcher, now + Duration::from_secs(600), 40, 1000);
        assert_eq!(moved, 0, "10 homes where 8 would be the share: within a quarter");
        now = then;
    }
    // By hash, a conversation is where its beginning is, on this gateway as on others.
    let by_hash = Limits { policy: tidegate_shared::policy::PolicyName::Prefix, ..Limits::default() };
    let mut dispatcher = fleet(by_hash, &[1]);
    all_turn(&mut dispatcher, ms(0), 40);
    joins(&mut dispatcher, ms(1_000_000), 2, 1);
    assert_eq!(round(&mut dispatcher, ms(1_000_000), 40, 1000).0, 0);
}

#[test]
fn r2_in_a_steady_fleet_every_turn_goes_home() {
    let mut dispatcher = fleet(Limits::default(), &[1, 2, 3]);
    all_turn(&mut dispatcher, ms(0), 600);
    let mut now = ms(1_000_000);
    for _ in 0..5 {
        let (moved, then) = round(&mut dispatcher, now, 600, 100);
        assert_eq!(moved, 0);
        now = then;
    }
    assert_eq!(homes(&dispatcher), [100, 200, 300]);
}

#[derive(Clone, Debug)]
enum Op {
    Turn(u64),
    Join(u32),
    Leave(usize),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        20 => (0u64..60).prop_map(Op::Turn),
        1 => (1u32..4).prop_map(Op::Join),
        1 => any::<usize>().prop_map(Op::Leave),
        3 => (0u64..400_000).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 1..600)
}

proptest! {
    /// Whatever comes and goes: a conversation whose home is well moves once for each growth at most, only to a replica
    /// that came, and each move leaves its old home no emptier by size than the new one.
    #[test]
    fn r2_a_conversation_never_bounces(ops in ops(), micros in 0u64..5000) {
        let mut dispatcher = fleet(Limits::default(), &[1]);
        measured(&mut dispatcher, ms(0), micros);
        let (mut now, mut next, mut growth) = (ms(0), 2, 0u32);
        let mut moved = BTreeMap::<u64, u32>::new();
        let mut home = BTreeMap::<u64, ReplicaId>::new();
        for op in ops {
            let known = dispatcher.observe(now).replicas;
            match op {
                Op::Turn(n) if !known.is_empty() => {
                    let lease = forward(dispatcher.arrive(now, &ask(n)));
                    let (route, at) = (lease.route, lease.replica);
                    dispatcher.end(now, lease, &Spent::default());
                    let old = home.insert(n, at).filter(|old| known.iter().any(|replica| replica.id == *old));
                    if let (Some(old), Route::Rehomed) = (old, route) {
                        prop_assert!(old != at && at.0 > 1, "to one that came");
                        prop_assert!(moved.insert(n, growth) != Some(growth), "{n} moved twice");
                        let fleet = dispatcher.observe(now).replicas;
                        let of = |id: ReplicaId| fleet.iter().find(|replica| replica.id == id).unwrap();
                        let (from, to) = (of(old), of(at));
                        let (a, b) = (from.conversations * to.capacity.units(), to.conversations * from.capacity.units());
                        prop_assert!(a >= b, "{from:?} {to:?}");
                    }
                }
                Op::Join(units) if known.len() < 8 => {
                    joins(&mut dispatcher, now, next, units);
                    (next, growth) = (next + 1, growth + 1);
                }
                Op::Leave(at) if known.len() > 1 => {
                    dispatcher.change(now, known[at % known.len()].id, Change::Gone);
                }
                Op::Pass(millis) => now = now + Duration::from_millis(millis),
                Op::Turn(_) | Op::Join(_) | Op::Leave(_) => {}
            }
        }
    }
}
