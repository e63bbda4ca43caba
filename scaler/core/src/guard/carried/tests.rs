//! What a queue teaches, for how long, and what it does not.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Capacity, ReplicaFacts};

use super::*;
use crate::guard::expiry::FIRST;
use tidegate_shared::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct Watcher {
    carried: Carried,
    now: Instant,
}

impl Watcher {
    fn new() -> Self {
        let now = Instant::from_micros(3_600_000_000);
        Self { carried: Carried::new(now), now }
    }

    fn see(&mut self, ready: u32, in_flight: u32, queued: u32) {
        self.now = self.now + SECOND;
        let replica = |id| ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::ONE);
        let seen = Observation {
            at: self.now,
            in_flight,
            queued,
            oldest_wait: if queued > 0 { SECOND } else { Duration::ZERO },
            replicas: (1..=ready).map(replica).collect(),
            ..Observation::default()
        };
        self.carried.see(&seen, &Sizing::default());
    }

    fn need(&self, demand: u32) -> u32 {
        self.carried.need(demand, &Sizing::default())
    }

    /// So much time without a queue, with so many in flight on three.
    fn quiet(&mut self, time: Duration, in_flight: u32) {
        (0..time.as_secs()).for_each(|_| self.see(3, in_flight, 0));
    }
}

#[test]
fn a4_a_queue_beside_a_replica_that_takes_nobody_teaches_nothing() {
    for closed in [|one: &mut ReplicaFacts| one.out = true, |one: &mut ReplicaFacts| one.own_only = true] {
        let now = Instant::from_micros(3_600_000_000);
        let mut carried = Carried::new(now);
        let replica = |id| ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::ONE);
        let mut seen = Observation {
            at: now,
            in_flight: 20,
            queued: 4,
            oldest_wait: SECOND,
            replicas: (1..=2).map(replica).collect(),
            ..Observation::default()
        };
        let open = seen.clone();
        closed(&mut seen.replicas[0]);
        carried.see(&seen, &Sizing::default());
        assert_eq!(carried.need(32, &Sizing::default()), 1);
        carried.see(&open, &Sizing::default());
        assert_eq!(carried.need(32, &Sizing::default()), 4, "8 each of 10");
    }
}

#[test]
fn a4_a_queue_below_the_target_teaches_what_replicas_carry() {
    let mut watcher = Watcher::new();
    watcher.see(1, 9, 0);
    assert_eq!(watcher.need(9), 1);
    watcher.see(1, 5, 4);
    assert_eq!([4, 5, 8, 9, 64].map(|demand| watcher.need(demand)), [1, 2, 2, 3, 16], "4 each of 5");
    watcher.quiet(SECOND * 100, 9);
    let forbidden = watcher.carried.forbids(9, 2, &Sizing::default());
    let ago = SECOND * 100;
    assert_eq!(forbidden, Some(ScaleReason::QueuedBefore { replicas: 1, in_flight: 5, ago, most: 8 }));
    assert_eq!(watcher.carried.forbids(8, 2, &Sizing::default()), None);
}

#[test]
fn b5_others_that_would_be_over_the_target_are_told_as_few_places() {
    let watcher = Watcher::new();
    let forbids = |demand| watcher.carried.forbids(demand, 1, &Sizing::default());
    assert_eq!(forbids(32), None);
    assert_eq!(forbids(33), Some(ScaleReason::FewPlaces { most: 32 }));
}

#[test]
fn a3_a_queue_at_the_target_or_with_nothing_in_flight_teaches_nothing() {
    let mut watcher = Watcher::new();
    watcher.see(2, 64, 9);
    watcher.see(2, 0, 9);
    watcher.see(0, 0, 9);
    assert_eq!(watcher.need(64), 2);
    watcher.see(2, 10, 9);
    assert_eq!(watcher.need(64), 16);
    watcher.see(2, 64, 9);
    assert_eq!(watcher.need(64), 2, "they carry their target after all");
}

#[test]
fn a4_the_most_that_is_carried_counts_in_one_queue_and_after_it_and_a_new_queue_begins_anew() {
    let mut watcher = Watcher::new();
    watcher.see(1, 1, 9);
    watcher.see(1, 5, 5);
    watcher.see(1, 4, 6);
    assert_eq!(watcher.need(8), 2, "5 were carried");
    watcher.see(3, 30, 0);
    assert_eq!(watcher.need(16), 2, "10 were carried, and nobody waited");
    watcher.see(3, 12, 0);
    watcher.see(3, 15, 1);
    assert_eq!(watcher.need(16), 4, "5 were carried, and somebody waited");
}

#[test]
fn a4_a_constant_load_is_tried_ever_more_seldom_and_a_try_that_goes_well_ends_it() {
    let mut watcher = Watcher::new();
    let mut pause = FIRST;
    for _ in 0..3 {
        watcher.see(1, 5, 4);
        watcher.quiet(pause - SECOND, 9);
        assert_eq!((watcher.need(9), watcher.carried.is_trying()), (3, false), "{pause:?}");
        watcher.quiet(SECOND, 9);
        assert_eq!((watcher.need(9), watcher.carried.is_trying()), (1, true), "{pause:?}");
        pause *= 2;
    }
    watcher.quiet(pause / 2, 9);
    assert!(!watcher.carried.is_trying());
    watcher.see(1, 5, 4);
    watcher.quiet(FIRST, 9);
    assert!(watcher.carried.is_trying(), "the first pause again");
}

#[test]
fn a4_other_settings_forget() {
    let mut watcher = Watcher::new();
    watcher.see(1, 5, 4);
    watcher.carried.forget();
    assert_eq!(watcher.need(9), 1);
}

#[test]
fn a4_a_queue_that_lasts_is_one_queue_and_its_time_counts_from_its_end() {
    let mut watcher = Watcher::new();
    (0..FIRST.as_secs() + 3600).for_each(|_| watcher.see(1, 5, 4));
    watcher.quiet(FIRST - SECOND, 9);
    assert_eq!((watcher.need(9), watcher.carried.is_trying()), (3, false));
    watcher.quiet(SECOND, 9);
    assert_eq!((watcher.need(9), watcher.carried.is_trying()), (1, true));
}

#[test]
fn a4_what_was_found_wrong_is_not_tried_later() {
    let mut watcher = Watcher::new();
    watcher.see(1, 5, 4);
    watcher.see(1, 32, 0);
    watcher.quiet(FIRST, 9);
    assert!(!watcher.carried.is_trying());
}
