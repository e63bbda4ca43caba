//! The engines' own queues under the token-load rule.

use super::fleet::{Engines, UNIT};
use super::tokens::{filled, starts};
use super::*;

/// Engines that run 4 requests at a time, which take next to no memory.
fn slotted(ready: u32, target_concurrency: u32) -> Engines {
    let mut engines = Engines::by_tokens(1, 8, ready);
    engines.planner.resize(Sizing { target_concurrency, ..engines.planner.sizing().clone() });
    (engines.slots, engines.tokens) = (4, UNIT / 100);
    engines
}

#[test]
fn b3_a_jump_before_the_first_check_orders_at_it() {
    let mut engines = slotted(0, 8);
    engines.load = Duration::from_secs(2);
    engines.pass(5);
    assert_eq!((starts(&engines), engines.count()), (1, 1), "min");
    engines.in_flight = 9;
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target, plan.why.reason), (25, 2, ScaleReason::Burst { grew: 5 }));
}

#[test]
fn b3_a_jump_waits_for_30_s_at_most_whenever_it_comes() {
    for before in 1..=60 {
        let mut engines = filled(2, 50, 8);
        engines.pass(60 + before);
        engines.waiting = 16;
        let (seconds, plan) = engines.until_action();
        assert!(seconds <= 30, "{seconds} s after {before}");
        assert_eq!((plan.target, plan.why.reason), (3, ScaleReason::Burst { grew: 16 }));
        engines.pass(300);
        assert_eq!(starts(&engines), 1, "the same queue is no second jump, after {before}");
    }
}

#[test]
fn b3_a_spike_is_no_jump_whenever_it_comes() {
    for before in 1..=30 {
        let mut engines = filled(2, 50, 8);
        engines.pass(60 + before);
        engines.waiting = 400;
        engines.pass(4);
        engines.waiting = 0;
        engines.pass(60);
        assert_eq!(starts(&engines), 0, "after {before}");
    }
}
