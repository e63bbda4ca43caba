//! How often one request is tried, and how many may be.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn tries(failures: &[(u32, Failure, usize)]) -> Tries {
    let mut tries = Tries::default();
    for (replica, failure, sends) in failures {
        tries.failed(ReplicaId(*replica), *failure, *sends);
    }
    tries
}

#[test]
fn c_078_a_request_that_kills_engines_kills_two_at_most() {
    assert!(tries(&[(1, Failure::Broken, 2)]).may_go_on());
    assert!(!tries(&[(1, Failure::Broken, 2), (2, Failure::Broken, 1)]).may_go_on());
    assert!(!tries(&[(1, Failure::Died, 1), (2, Failure::Died, 1)]).may_go_on());
    let unlucky = [(1, Failure::Connect, 0), (2, Failure::Broken, 1), (3, Failure::Connect, 0)];
    assert!(tries(&unlucky).may_go_on(), "where nobody listened, nobody died of it");
}

#[test]
fn r5_attempts_are_counted_and_no_replica_gets_a_request_thrice() {
    let busy = |count| tries(&[(1, Failure::Busy, 1)].repeat(count));
    assert!(busy(3).may_go_on() && !busy(4).may_go_on());
    assert!(busy(1).may_send_to(ReplicaId(1)) && !busy(2).may_send_to(ReplicaId(1)));
    assert!(busy(2).may_send_to(ReplicaId(2)));
}

#[test]
fn c_028_an_engine_that_loads_has_not_had_the_request() {
    let loading = |count| tries(&[(1, Failure::Loading, 1)].repeat(count));
    assert!(loading(7).may_go_on() && loading(7).may_send_to(ReplicaId(1)));
    assert!(!loading(8).may_go_on());
}

#[test]
fn r5_one_in_five_may_be_sent_again_and_a_hundred_where_there_are_few() {
    let mut quiet = Budget::default();
    quiet.request(ms(0));
    assert_eq!((0..200).filter(|_| quiet.retry(ms(1))).count(), 100);
    assert_eq!(quiet.refused(), 100);
    let mut busy = Budget::default();
    (0..10_000).for_each(|n| busy.request(ms(n)));
    assert_eq!((0..5_000).filter(|_| busy.retry(ms(9_999))).count(), 2_000);
    // The first second's requests are too old now, the retries are not.
    assert!(!busy.retry(ms(10_000)));
    (0..1000).for_each(|_| busy.request(ms(10_000)));
    assert!(!busy.retry(ms(10_000)), "as many as before");
    assert!(busy.retry(ms(20_000)), "all of it is over");
}

#[test]
fn a_clock_that_steps_back_gives_nothing_back() {
    let mut budget = Budget::default();
    assert_eq!((0..200).filter(|_| budget.retry(ms(60_000))).count(), 100);
    assert!(!budget.retry(ms(5_000)) && !budget.retry(ms(0)));
    assert!(budget.retry(ms(70_000)));
}

proptest! {
    /// Against a plain list of what happened: within the last ten slots there are never more retries than a fifth of the
    /// requests or a hundred, and none is refused below that.
    #[test]
    fn r5_the_budget_is_exact(steps in prop::collection::vec((0u8..8, 0u64..3_000), 1..400)) {
        let mut budget = Budget::default();
        let (mut now, mut seen) = (0, BTreeMap::<u64, (u64, u64)>::new());
        for (op, passed) in steps {
            // Mostly little time passes, at times much.
            now += if op == 7 { passed * 4 } else { passed / 50 };
            let second = now / 1000;
            let recent = |seen: &BTreeMap<u64, (u64, u64)>| {
                let recent = seen.range((second + 1).saturating_sub(SLOTS)..);
                recent.fold((0, 0), |sum, (_, slot)| (sum.0 + slot.0, sum.1 + slot.1))
            };
            if op < 3 {
                seen.entry(second).or_default().0 += 40;
                (0..40).for_each(|_| budget.request(ms(now)));
                continue;
            }
            for _ in 0..20 {
                let (requests, retries) = recent(&seen);
                let may = retries < FLOOR.max(requests / ONE_IN);
                prop_assert_eq!(budget.retry(ms(now)), may);
                seen.entry(second).or_default().1 += u64::from(may);
            }
        }
    }
}
