//! Who joins a fleet at work, or comes back to it, second by second (C-040).

use std::collections::VecDeque;

use super::*;

/// When the fourth replica is ready.
const READY: u64 = 2000;
/// Requests a second.
const RATE: u64 = 60;
/// Seconds that are looked at, of which it warms up in the first ten.
const SECONDS: usize = 20;

/// Three replicas with 30 long streams each, and a fourth that joins as `join` says and is ready at [`READY`]; then
/// requests that take `each`. Gives how many the fourth got in each second.
fn offer(limits: Limits, each: Duration, join: impl FnOnce(&mut Dispatcher)) -> [u64; SECONDS] {
    let mut dispatcher = fleet(limits, &[1, 1, 1]);
    let long: Vec<_> = (0..90).map(|n| forward(dispatcher.arrive(ms(0), &ask(n)))).collect();
    assert!((1..=3).all(|id| dispatcher.in_flight(ReplicaId(id)) == 30), "thirty each");
    join(&mut dispatcher);
    let (mut running, mut got, mut all) = (VecDeque::new(), [0; SECONDS], 0);
    for n in 0..RATE * SECONDS as u64 {
        let since = n * 1000 / RATE;
        let now = ms(READY + since);
        while running.front().is_some_and(|(until, _)| *until <= now) {
            let (_, mut lease): (_, Lease) = running.pop_front().expect("a request");
            lease.sign = Sign::Well;
            dispatcher.end(now, lease, &Spent::default());
        }
        match dispatcher.arrive(now, &ask(1000 + n)) {
            Verdict::Forward(lease) => {
                all += 1;
                got[usize::try_from(since / 1000).expect("a second")] +=
                    u64::from(lease.replica == ReplicaId(4));
                running.push_back((now + each, lease));
            }
            // Everybody is full.
            Verdict::Wait(_) | Verdict::Reject(_) => {}
        }
        let sum: u64 = got.iter().sum();
        let (held, limit) = (dispatcher.in_flight(ReplicaId(4)), dispatcher.limit(ReplicaId(4)));
        assert!(held <= limit, "{held} at a time, and its limit is {limit}");
        let has_room = |id| dispatcher.in_flight(ReplicaId(id)) * 10 < dispatcher.limit(ReplicaId(id)) * 9;
        let others = (1..=3).any(has_room);
        // Nobody waits beside a place (Q4), so it may have more where nobody else is under his limit of load.
        let warming = since < 10_000 && others;
        assert!(!warming || 4 * sum <= 2 * all + 4, "{sum} of {all}: more than twice its share");
    }
    drop(long);
    got
}

fn joins(dispatcher: &mut Dispatcher) {
    dispatcher.change(ms(1), ReplicaId(4), Change::Starting(Capacity::ONE));
    dispatcher.change(ms(READY), ReplicaId(4), Change::Ready);
}

/// It was there, got streams, and failed with them; half of them end before it is back, and the others when it is.
fn comes_back(dispatcher: &mut Dispatcher) {
    dispatcher.change(ms(1), ReplicaId(4), Change::Starting(Capacity::ONE));
    dispatcher.change(ms(1), ReplicaId(4), Change::Ready);
    let leases: Vec<_> = (500..540).map(|n| forward(dispatcher.arrive(ms(2), &ask(n)))).collect();
    let (its, others): (Vec<_>, Vec<_>) = leases.into_iter().partition(|lease| lease.replica == ReplicaId(4));
    others.into_iter().for_each(|lease| dispatcher.end(ms(3), lease, &Spent::default()));
    assert!(its.len() >= 15, "it had its share: {}", its.len());
    dispatcher.change(ms(4), ReplicaId(4), Change::Failed);
    let mut its = its.into_iter();
    its.by_ref().take(10).for_each(|lease| dispatcher.end(ms(5), lease, &Spent::default()));
    dispatcher.change(ms(READY), ReplicaId(4), Change::Ready);
    its.for_each(|lease| dispatcher.end(ms(READY), lease, &Spent::default()));
    assert_eq!(dispatcher.in_flight(ReplicaId(4)), 0);
}

#[test]
fn c_040_who_joins_or_comes_back_gets_twice_its_share_in_no_second_of_ten() {
    for concurrency in [Limits::default().concurrency, 64] {
        let limits = Limits { concurrency, ..Limits::default() };
        for got in [
            offer(limits.clone(), Duration::from_millis(100), joins),
            offer(limits, Duration::from_millis(100), comes_back),
        ] {
            let (warming, warm) = got.split_at(10);
            assert!(warming.iter().all(|got| (15..=31).contains(got)), "15 of 60 are its share: {got:?}");
            assert!(warming.iter().sum::<u64>() <= 301, "{got:?}");
            assert_eq!(warm, [RATE; 10], "warm, and the emptiest");
        }
    }
}

#[test]
fn c_040_who_joins_or_comes_back_is_filled_to_its_limit_and_no_further() {
    let long = Duration::from_secs(3600);
    for (concurrency, room) in [(40, 3 * 10 + 40), (64, 3 * 34 + 64)] {
        let limits = Limits { concurrency, ..Limits::default() };
        for got in [offer(limits.clone(), long, joins), offer(limits, long, comes_back)] {
            let sum: u64 = got.iter().sum();
            assert!(sum <= u64::from(concurrency), "never more than its limit: {got:?}");
            assert!(sum * 10 >= u64::from(concurrency) * 9, "nor left empty, of {room}: {got:?}");
        }
    }
}
