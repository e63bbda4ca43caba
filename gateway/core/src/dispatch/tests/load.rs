//! Load in tokens, the price of a detour, and shared beginnings (R4, R6, R8).

use tidegate_shared::replica::EngineReport;

use super::super::replicas::LOOKED_AT;
use super::*;

/// A fleet whose engines report what they hold and can hold.
fn reporting(capacity: u64, used: &[u64]) -> Dispatcher {
    let mut dispatcher = fleet(Limits::default(), &vec![1; used.len()]);
    for (id, used) in (1..).map(ReplicaId).zip(used) {
        dispatcher.ask(ms(1), id);
        let (kv_used, kv_capacity) = (Some(Tokens(*used)), Some(Tokens(capacity)));
        dispatcher.report(ms(1), id, EngineReport { kv_used, kv_capacity, ..EngineReport::default() });
    }
    dispatcher
}

#[test]
fn r8_new_conversations_go_where_the_engine_says_that_there_is_room() {
    let mut dispatcher = reporting(10_000, &[5_000, 1_000, 3_000]);
    let lease = forward(dispatcher.arrive(ms(2), &ask(1)));
    assert_eq!(lease.replica, ReplicaId(2));
    dispatcher.end(ms(3), lease, &Spent::default());
}

#[test]
fn r3_placements_by_declared_size_keep_nobody_from_its_share_by_reported_size() {
    let mut dispatcher = fleet(Limits::default(), &[1; 3]);
    let mut at = 0;
    let mut place = |dispatcher: &mut Dispatcher, count: u64| {
        let mut counts = [0; 3];
        for n in at..at + count {
            let lease = forward(dispatcher.arrive(ms(n), &ask(n)));
            counts[lease.replica.0 as usize - 1] += 1;
            dispatcher.end(ms(n), lease, &Spent::default());
        }
        at += count;
        counts
    };
    assert_eq!(place(&mut dispatcher, 10).iter().sum::<u32>(), 10);
    for (sizes, wanted) in [([1, 1, 2], [250, 250, 500]), ([4, 1, 5], [400, 100, 500])] {
        for (id, size) in (1..).map(ReplicaId).zip(sizes) {
            dispatcher.ask(ms(0), id);
            let (kv_used, kv_capacity) = (Some(Tokens(0)), Some(Tokens(size * 400_000)));
            dispatcher.report(ms(0), id, EngineReport { kv_used, kv_capacity, ..EngineReport::default() });
        }
        let spread = place(&mut dispatcher, 1000);
        let near = spread.iter().zip(wanted).all(|(count, wanted): (&u32, u32)| count.abs_diff(wanted) <= 2);
        assert!(near, "{spread:?}, wanted {wanted:?}");
    }
}

#[test]
fn q1_r4_nobody_is_filled_beyond_its_load_limit_in_tokens() {
    // A request takes 200 tokens; 90 % of 10,000 is the limit.
    let mut dispatcher = reporting(10_000, &[8_850, 8_750]);
    let held = forward(dispatcher.arrive(ms(2), &ask(1)));
    assert_eq!(held.replica, ReplicaId(2), "8,950 of 9,000");
    // The engines hold what others sent; with something in progress here, nobody fits any more.
    let busy = forward(dispatcher.arrive(ms(3), &ask(2)));
    assert_eq!(busy.replica, ReplicaId(1), "an account of its own with nothing in progress takes anything");
    ticket(dispatcher.arrive(ms(4), &ask(3)));
    dispatcher.end(ms(5), held, &Spent::default());
    assert_eq!(dispatcher.take_woken().len(), 1);
    dispatcher.end(ms(6), busy, &Spent::default());
}

#[test]
fn r4_a_detour_that_costs_more_than_it_saves_is_not_taken() {
    let mut dispatcher = fleet(Limits { concurrency: 10, ..Limits::default() }, &[1, 1]);
    let home = forward(dispatcher.arrive(ms(0), &ask(1)));
    let at = home.replica;
    // Prefilling is slow: a second for 100 tokens. Requests are short: 10 ms each.
    let slow = Spent { prompt: Some(100), first_byte: Some(Duration::from_secs(1)), ..Spent::default() };
    dispatcher.end(ms(1), home, &slow);
    for n in 0..50 {
        let lease = forward(dispatcher.arrive(ms(n * 10), &ask(1)));
        dispatcher.end(ms(n * 10 + 10), lease, &Spent::default());
    }
    let held: Vec<_> = (0..10).map(|_| forward(dispatcher.arrive(ms(600), &ask(1)))).collect();
    assert!(held.iter().all(|lease| lease.replica == at), "a place at home is free in a moment");
    let away = forward(dispatcher.arrive(ms(601), &ask(1)));
    assert_eq!(away.route, Route::Detour, "home is full: a place elsewhere is not left idle (Q4)");
}

#[test]
fn r6_conversations_that_share_a_beginning_go_to_those_that_hold_it_as_long_as_that_is_fair() {
    let mut dispatcher = fleet(Limits::default(), &[1; 8]);
    let user = |system: u64, n: u64| {
        let chain = vec![ConversationKey(system), ConversationKey(system * 1000 + n)];
        let identity = Identity::Prefix { chain, follows_up: false };
        Arc::new(RequestFacts { identity, text_bytes: 400, choices: 1, ..RequestFacts::default() })
    };
    let mut seen: BTreeMap<u64, BTreeMap<u32, u32>> = BTreeMap::new();
    let mut hits = 0;
    let mut counts = [0u32; 8];
    for n in 0..500 {
        let system = 1;
        let lease = forward(dispatcher.arrive(ms(n), &user(system, n)));
        let at = seen.entry(system).or_default().entry(lease.replica.0).or_default();
        hits += u32::from(*at > 0);
        *at += 1;
        counts[lease.replica.0 as usize - 1] += 1;
        dispatcher.end(ms(n), lease, &Spent::default());
    }
    assert!(hits >= 450, "{hits} of 500 found the beginning");
    assert!(counts.iter().all(|count| *count * 100 <= 125 * 500 / 8 + 100), "{counts:?}");
}

/// Also a refusal, which asks who is coming (Q2), and the end of a request that wakes another.
#[test]
fn r3_a_request_looks_at_a_handful_of_a_thousand_replicas() {
    const FLEET: u32 = 1000;
    let limits = Limits {
        concurrency: 2,
        queue_requests: 1,
        headroom: Duration::from_secs(3600),
        ..Limits::default()
    };
    let mut dispatcher = fleet(limits, &[1; FLEET as usize]);
    dispatcher.change(ms(0), ReplicaId(FLEET + 1), Change::Starting(Capacity::ONE));
    let mut leases = Vec::new();
    let looked = |what: &str| {
        let count = LOOKED_AT.replace(0);
        assert!(count <= 8, "{what} looks at {count}");
    };
    LOOKED_AT.set(0);
    for n in 0..u64::from(2 * FLEET) {
        leases.push(forward(dispatcher.arrive(ms(n), &ask(n))));
        looked("a placement");
    }
    let waits = ticket(dispatcher.arrive(ms(2000), &ask(2000)));
    // The first who waits may look for where room is soonest.
    LOOKED_AT.set(0);
    let refused = dispatcher.arrive(ms(2001), &ask(2001));
    assert!(matches!(refused, Verdict::Reject(_)), "{refused:?}");
    looked("a refusal");
    dispatcher.end(ms(2002), leases.pop().expect("one"), &Spent::default());
    assert!(dispatcher.take_woken().iter().any(|(id, _)| *id == waits));
    looked("an end that wakes");
}
