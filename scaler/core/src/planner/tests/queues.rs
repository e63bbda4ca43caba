//! The engines' own queues under the token-load rule: jumps of them, and those that stay while nothing is free.

use super::fleet::{Engines, UNIT};
use super::tokens::{drained, filled, starts};
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

#[test]
fn b3_a_queue_that_stays_over_two_checks_while_nothing_is_free_needs_one_more() {
    let mut engines = slotted(1, 32);
    engines.pass(40);
    engines.in_flight = 10;
    let why = engines.pass(25).why;
    let told = "6 wait inside the engines and nothing is free there, which needs 2, confirming 1/2";
    assert_eq!((why.to_string().as_str(), why.load), (told, Some(1)));
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target, plan.why.reason), (25, 2, ScaleReason::Demand));
    assert_eq!(engines.pass(30).why.reason, ScaleReason::OnTheirWay { count: 1 }, "not another one");
    engines.pass(1000);
    assert_eq!((starts(&engines), drained(&engines).len()), (2, 0), "10 find a place on three");
    let why = engines.pass(1).why;
    assert_eq!(
        why.to_string(),
        "memory is 1 % full, which needs 1; with one fewer, 2 would wait inside the engines"
    );
    engines.in_flight = 8;
    engines.pass(1000);
    assert_eq!((starts(&engines), drained(&engines).len()), (2, 1), "and 8 on two");
    (engines.in_flight, engines.tokens) = (0, 0);
    engines.pass(1000);
    assert_eq!(engines.count(), 1);
}

#[test]
fn b3_a_queue_that_shrinks_or_beside_a_free_place_needs_none() {
    let mut shrinks = slotted(1, 32);
    shrinks.pass(40);
    for waits in [7, 5, 3, 2, 1, 0] {
        shrinks.in_flight = 4 + waits;
        shrinks.pass(30);
    }
    assert_eq!(starts(&shrinks), 0);
    let mut beside = slotted(2, 32);
    for _ in 0..300 {
        beside.now = beside.now + TICK;
        let mut seen = beside.observe();
        for (replica, (in_flight, waiting)) in seen.replicas.iter_mut().zip([(6, 2), (3, 0)]) {
            (replica.in_flight, replica.waiting) = (in_flight, Some(waiting));
        }
        beside.evaluate(&seen);
    }
    assert_eq!(starts(&beside), 0, "the second one runs 3");
}

#[test]
fn b3_c2_at_max_a_queue_that_stays_is_told() {
    let mut engines = slotted(1, 32);
    engines.planner.resize(Sizing { max: 1, ..engines.planner.sizing().clone() });
    engines.in_flight = 5;
    let told = "1 waits inside the engines and nothing is free there, which needs 2, but max is 1";
    assert_eq!(engines.pass(100).why.to_string(), told);
}
