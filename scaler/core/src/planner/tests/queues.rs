//! The engines' own queues under the token-load rule: jumps of them, and those that stay while nothing is free.

use super::fleet::{Engines, UNIT};
use super::tokens::{drained, filled, starts};
use super::*;
use crate::reconcile::Action;

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
    assert_eq!((seconds, plan.target, plan.why.reason), (25, 3, ScaleReason::Burst { grew: 5 }), "9 need 3");
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
fn b3_a_queue_that_stays_over_two_checks_while_nothing_is_free_needs_a_place_for_each() {
    let mut engines = slotted(1, 32);
    engines.pass(40);
    engines.in_flight = 10;
    let why = engines.pass(25).why;
    let told = "6 wait inside the engines and nothing is free there, which needs 3, confirming 1/2";
    assert_eq!((why.to_string().as_str(), why.load), (told, Some(1)));
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target, plan.why.reason), (25, 3, ScaleReason::Demand));
    assert_eq!(engines.pass(30).why.reason, ScaleReason::OnTheirWay { count: 2 }, "not another one");
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
fn b3_b4_a_queue_that_stays_grows_the_fleet_two_at_each_check_up_to_what_it_needs() {
    let mut engines = slotted(1, 32);
    engines.in_flight = 30;
    let mut grown = Vec::new();
    for second in 1..=600 {
        let before = engines.count();
        engines.second();
        if engines.count() != before {
            grown.push((second, engines.count()));
        }
    }
    assert_eq!(grown, [(60, 3), (90, 5), (120, 7), (150, 8)], "30 run on 8 engines of 4 places");
    let mut large = slotted(1, 32);
    large.supply.offers = vec![Offer::new("large", Capacity::new(3), Price::FREE)];
    large.in_flight = 24;
    large.pass(600);
    assert_eq!(large.count(), 3, "4 of 24 run on the first one, and 12 on each of the others");
}

#[test]
fn b3_a_queue_for_which_enough_is_on_its_way_orders_no_more() {
    let mut engines = slotted(1, 32);
    engines.load = Duration::from_secs(900);
    engines.in_flight = 12;
    assert_eq!(engines.pass(800).why.reason, ScaleReason::OnTheirWay { count: 2 });
    assert_eq!(engines.pass(1000).why.reason, ScaleReason::WouldQueue { waiting: 4 });
    assert_eq!(starts(&engines), 2);
}

#[test]
fn b3_those_on_their_way_count_with_their_own_size() {
    let mut engines = slotted(1, 32);
    engines.load = Duration::from_secs(900);
    engines.supply.offers = vec![Offer::new("large", Capacity::new(3), Price::FREE)];
    engines.in_flight = 16;
    engines.pass(70);
    engines.supply.offers = vec![Offer::new("small", Capacity::ONE, Price::FREE)];
    let why = engines.pass(300).why;
    assert_eq!((starts(&engines), why.needed), (1, 2), "12 wait, and 12 places come: {why}");
}

#[test]
fn b3_one_that_has_just_joined_and_is_idle_counts_as_one_that_comes() {
    for (units, count) in [(1, 6), (3, 3)] {
        let mut engines = slotted(1, 32);
        engines.supply.offers = vec![Offer::new("gpu", Capacity::new(units), Price::FREE)];
        for second in 0..122 {
            if second == 70 && units > 1 {
                engines.supply.offers = vec![Offer::new("small", Capacity::ONE, Price::FREE)];
            }
            engines.now = engines.now + TICK;
            engines.finish_starts();
            let mut seen = engines.observe();
            for replica in &mut seen.replicas {
                let (in_flight, waiting) = if replica.id == ReplicaId(1) { (24, 20) } else { (0, 0) };
                (replica.in_flight, replica.waiting) = (in_flight, Some(waiting));
            }
            seen.in_flight = 24;
            let why = engines.evaluate(&seen).why;
            assert!(second < 100 || why.needed == count, "20 wait; {units} units each: {why}");
        }
        assert_eq!(engines.count(), count);
    }
}

#[test]
fn b3_a_queue_that_those_who_come_drain_orders_no_more() {
    let mut engines = slotted(1, 32);
    engines.in_flight = 44;
    engines.pass(100);
    assert_eq!(engines.count(), 5, "44 need 11");
    for in_flight in [30, 21, 16, 12, 8, 8, 8] {
        engines.in_flight = in_flight;
        engines.pass(15);
    }
    assert_eq!(starts(&engines), 4, "{}", engines.second().why);
}

#[test]
fn b3_where_memory_is_what_limits_those_that_wait_need_as_many_as_run_now() {
    let mut engines = slotted(1, 32);
    // Small requests once have shown that 8 run at a time; of large ones 4 fill the memory.
    (engines.slots, engines.in_flight) = (8, 10);
    engines.pass(20);
    (engines.slots, engines.in_flight, engines.tokens) = (4, 16, UNIT * 9 / 10);
    let why = engines.pass(35).why;
    assert_eq!((why.load, why.needed), (Some(90), 4), "{why}");
}

#[test]
fn b5_what_engines_have_shown_is_tried_after_two_hours_and_ever_more_seldom() {
    let mut engines = slotted(1, 32);
    engines.in_flight = 10;
    let mut hours = Vec::new();
    for second in 0..12 * 3600u32 {
        engines.second();
        let drains = |action: Action| matches!(action, Action::Drain(_)).then_some(second / 3600);
        hours.extend(engines.actions.drain(..).filter_map(drains));
    }
    assert_eq!((hours, engines.count()), (vec![2, 6], 3), "each time the queue comes back");
    engines.slots = 16;
    engines.pass(9 * 3600);
    assert_eq!(engines.count(), 1, "they run more at a time by now");
}

#[test]
fn b5_a_queue_that_lasts_for_hours_counts_from_its_end() {
    let mut engines = slotted(2, 32);
    engines.planner.resize(Sizing { max: 2, ..engines.planner.sizing().clone() });
    engines.in_flight = 10;
    engines.pass(3 * 3600);
    engines.in_flight = 8;
    engines.pass(6600);
    assert_eq!(drained(&engines).len(), 0, "110 minutes after the queue");
    engines.pass(1200);
    assert_eq!(drained(&engines).len(), 1, "130 minutes after it");
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
