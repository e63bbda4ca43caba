//! Each reason as a sentence, with its numbers at none, one and many.

use super::*;
use crate::demand::Observation;

fn said(demand: u32, needed: u32, target: u32, reason: ScaleReason) -> String {
    said_by(Rule::Concurrency, demand, needed, target, reason)
}

fn said_by(rule: Rule, demand: u32, needed: u32, target: u32, reason: ScaleReason) -> String {
    let decision = ScaleDecision {
        at: Instant::ZERO,
        rule,
        load: None,
        engine_queue: 0,
        waiters: 0,
        demand,
        queued: 3,
        promised: 0,
        oldest_wait: Duration::from_millis(1234),
        current: 1,
        needed,
        target,
        woken: 0,
        wanted: None,
        reason,
        also: Vec::new(),
    };
    decision.to_string()
}

#[test]
fn e1_reasons_are_told_with_their_numbers() {
    let (low_for, window) = (Duration::from_secs(12), Duration::from_secs(30));
    let retry_in = Duration::from_millis(8900);
    for (text, expected) in [
        (said(0, 0, 0, ScaleReason::Steady), "nothing is in progress"),
        (said(1, 1, 1, ScaleReason::Steady), "1 in progress (3 queued) needs 1"),
        (said(40, 2, 2, ScaleReason::Demand), "40 in progress (3 queued) need 2"),
        (said(4, 1, 2, ScaleReason::QueueWait), "a request has waited 1.2 s, 3 queued"),
        (said(160, 5, 4, ScaleReason::AtMax), "160 in progress (3 queued) need 5, but max is 4"),
        (said(0, 0, 1, ScaleReason::AtMin), "nothing is in progress, but min is 1"),
        (said(1, 1, 1, ScaleReason::OnTheirWay { count: 1 }), "1 is on its way"),
        (said(1, 1, 3, ScaleReason::OnTheirWay { count: 2 }), "2 are on their way"),
        (
            said(1, 1, 2, ScaleReason::Cooling { low_for, window, to: 1 }),
            "1 in progress (3 queued) needs 1, cooling 12 s of 30 s",
        ),
        (
            said(1, 1, 1, ScaleReason::BackingOff { failures: 1, retry_in }),
            "1 start has failed, next try in 9 s",
        ),
        (
            said(1, 1, 1, ScaleReason::BackingOff { failures: 3, retry_in }),
            "3 starts in a row have failed, or ended soon after, next try in 9 s",
        ),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn e1_jobs_of_one_moment_are_not_told_as_what_the_mean_needs() {
    let text = said_by(Rule::Jobs, 5, 1, 1, ScaleReason::Steady);
    assert_eq!(text, "5 in progress (3 queued) now, and the mean of the last 30 s needs 1");
    assert_eq!(said_by(Rule::Jobs, 0, 0, 0, ScaleReason::Steady), "nothing is in progress");
}

#[test]
fn e1_q2_who_was_told_to_come_back_is_told_apart_from_the_queue() {
    let told = |demand, queued, promised| {
        let seen =
            Observation { in_flight: demand - queued - promised, queued, promised, ..Default::default() };
        assert_eq!(seen.demand(), demand);
        let decision = ScaleDecision {
            at: Instant::ZERO,
            rule: Rule::Concurrency,
            load: None,
            engine_queue: 0,
            waiters: 0,
            demand,
            queued,
            promised,
            oldest_wait: Duration::ZERO,
            current: 1,
            needed: 21,
            target: 2,
            woken: 0,
            wanted: None,
            reason: ScaleReason::AtMax,
            also: Vec::new(),
        };
        decision.to_string()
    };
    assert_eq!(told(42, 0, 33), "42 in progress (33 told to come back) need 21, but max is 2");
    assert_eq!(told(42, 2, 31), "42 in progress (2 queued, 31 told to come back) need 21, but max is 2");
    assert_eq!(told(42, 0, 0), "42 in progress need 21, but max is 2");
    assert_eq!(told(1, 0, 1), "1 in progress (1 told to come back) needs 21, but max is 2");
}

#[test]
fn e1_memory_load_and_blocked_growth_are_told_with_their_numbers() {
    let told = |load, needed, reason| {
        let decision = ScaleDecision {
            at: Instant::ZERO,
            rule: Rule::TokenLoad,
            demand: 9,
            queued: 0,
            promised: 0,
            oldest_wait: Duration::ZERO,
            load,
            engine_queue: 0,
            waiters: 0,
            current: 3,
            needed,
            target: 3,
            woken: 0,
            wanted: None,
            reason,
            also: Vec::new(),
        };
        decision.to_string()
    };
    let cap = ScaleReason::PriceCap { cap: Price(1_000_000), cheapest: Price(1_350_000) };
    for (text, expected) in [
        (
            told(Some(80), 4, ScaleReason::Confirming { seen: 1, of: 2 }),
            "memory is 80 % full, which needs 4, confirming 1/2",
        ),
        (
            told(Some(40), 2, ScaleReason::Survivors { percent: 80 }),
            "memory is 40 % full, which needs 2; with one fewer, survivors would be at 80 %",
        ),
        (
            told(Some(99), 9, ScaleReason::Step { most: 2 }),
            "memory is 99 % full, which needs 9, at most 2 are added at a time",
        ),
        (
            told(None, 4, cap),
            "9 in progress need 4, but the price cap is $1.00/h and the cheapest offer is $1.35/h",
        ),
        (
            told(None, 4, ScaleReason::GatewayCap { cap: 8 }),
            "9 in progress need 4, but the gateway may have 8 replicas over all deployments",
        ),
        (
            told(None, 4, ScaleReason::Burst { grew: 12 }),
            "the engines' queues grew by 12 since the last check",
        ),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn a4_b5_what_a_queue_has_shown_is_told_with_when_it_shrinks() {
    let ago = Duration::from_secs(40);
    let shown = |replicas| ScaleReason::QueuedBefore { replicas, in_flight: 6, ago, most: 4 };
    let ends = "requests queued at 6 in progress 40 s ago; it shrinks when fewer than 5 are in progress";
    assert_eq!(
        said(9, 1, 2, shown(1)),
        format!("9 in progress (3 queued) need 1, but with 1 replica {ends}")
    );
    assert!(said(9, 1, 2, shown(2)).contains("but with 2 replicas requests"));
    assert_eq!(
        said(15, 1, 2, ScaleReason::FewPlaces { most: 8 }),
        "15 in progress (3 queued) need 1; one fewer should have 8 in progress at most, and 15 are",
    );
}

#[test]
fn c2_e1_why_more_are_wanted_is_told_where_growth_is_blocked() {
    let blocked = |wanted: ScaleReason, reason: ScaleReason| {
        let seen = Observation::default();
        let decision = ScaleDecision {
            at: seen.at,
            rule: Rule::Concurrency,
            engine_queue: 0,
            waiters: 0,
            load: None,
            demand: 0,
            queued: 1,
            promised: 0,
            oldest_wait: Duration::from_secs(2),
            current: 2,
            needed: 0,
            target: 3,
            woken: 0,
            wanted: Some(Box::new(wanted)),
            reason,
            also: Vec::new(),
        };
        decision.to_string()
    };
    let room = "but no offer has room";
    assert_eq!(blocked(ScaleReason::BelowMin, ScaleReason::NoCapacity), format!("min is 3, {room}"));
    assert_eq!(
        blocked(ScaleReason::Replacing, ScaleReason::NoCapacity),
        format!("a replica was lost, {room}")
    );
    assert_eq!(
        blocked(ScaleReason::QueueWait, ScaleReason::NoCapacity),
        format!("a request has waited 2.0 s, 1 queued, {room}")
    );
    assert_eq!(
        blocked(ScaleReason::QueueWait, ScaleReason::AtMax),
        "a request has waited 2.0 s, 1 queued, but max is 3"
    );
    assert_eq!(
        blocked(ScaleReason::Demand, ScaleReason::NoCredit),
        "nothing is in progress, but the credit is used up"
    );
    let cap = ScaleReason::PriceCap { cap: Price(500_000), cheapest: Price(1_000_000) };
    assert_eq!(
        blocked(ScaleReason::AutoscaleOff, cap),
        "autoscale is off and min is 3, but the price cap is $0.50/h and the cheapest offer is $1.00/h"
    );
    let retry_in = Duration::from_secs(9);
    assert_eq!(
        blocked(ScaleReason::BelowMin, ScaleReason::BackingOff { failures: 1, retry_in }),
        "min is 3; 1 start has failed, next try in 9 s"
    );
}

#[test]
fn c6_e1_who_is_woken_is_told_beside_the_reason() {
    let told = |woken| {
        let decision = ScaleDecision {
            at: Instant::ZERO,
            rule: Rule::Concurrency,
            load: None,
            engine_queue: 0,
            waiters: 0,
            demand: 40,
            queued: 0,
            promised: 0,
            oldest_wait: Duration::ZERO,
            current: 0,
            needed: 2,
            target: 2,
            woken,
            wanted: None,
            reason: ScaleReason::Demand,
            also: Vec::new(),
        };
        decision.to_string()
    };
    assert_eq!(told(0), "40 in progress need 2");
    assert_eq!(told(1), "40 in progress need 2; 1 parked replica is woken");
    assert_eq!(told(2), "40 in progress need 2; 2 parked replicas are woken");
}

#[test]
fn b3_e1_who_waits_inside_the_engines_is_told_with_what_that_needs() {
    let told = |engine_queue, reason| {
        let decision = ScaleDecision {
            at: Instant::ZERO,
            rule: Rule::TokenLoad,
            load: Some(1),
            engine_queue,
            waiters: 0,
            demand: 9,
            queued: 0,
            promised: 0,
            oldest_wait: Duration::ZERO,
            current: 1,
            needed: 2,
            target: 2,
            woken: 0,
            wanted: None,
            reason,
            also: Vec::new(),
        };
        decision.to_string()
    };
    let needs = "inside the engines and nothing is free there, which needs 2";
    assert_eq!(told(5, ScaleReason::Demand), format!("5 wait {needs}"));
    assert_eq!(told(1, ScaleReason::AtMax), format!("1 waits {needs}, but max is 2"));
    assert_eq!(
        told(0, ScaleReason::WouldQueue { waiting: 4 }),
        "memory is 1 % full, which needs 2; with one fewer, 4 would wait inside the engines"
    );
}

/// What is told of so many that are there, needed and wanted, by a rule that knows how full the memory is, or by jobs.
fn told(
    rule: Rule,
    (current, needed, target): (u32, u32, u32),
    wanted: ScaleReason,
    reason: ScaleReason,
) -> String {
    let decision = ScaleDecision {
        at: Instant::ZERO,
        rule,
        demand: 0,
        queued: 0,
        promised: 0,
        oldest_wait: Duration::ZERO,
        load: (rule == Rule::TokenLoad).then_some(0),
        engine_queue: 0,
        waiters: 0,
        current,
        needed,
        target,
        woken: 0,
        wanted: Some(Box::new(wanted)),
        reason,
        also: Vec::new(),
    };
    decision.to_string()
}

#[test]
fn e1_c2_what_the_load_does_not_need_any_more_is_not_told_as_what_it_needs() {
    for rule in [Rule::TokenLoad, Rule::Jobs] {
        let line =
            |count, counts| told(rule, counts, ScaleReason::OnTheirWay { count }, ScaleReason::NoCapacity);
        assert_eq!(line(1, (1, 0, 1)), "1 is on its way, but no offer has room");
        assert_eq!(line(1, (2, 1, 2)), "1 is on its way, but no offer has room", "the ready one is enough");
        assert_eq!(line(2, (3, 1, 3)), "2 are on their way, but no offer has room");
        // What the last check found stays wanted while figures are missing.
        for wanted in [ScaleReason::Demand, ScaleReason::Step { most: 2 }] {
            let text = told(rule, (1, 0, 3), wanted, ScaleReason::NoCredit);
            assert_eq!(text, "3 are wanted since the last check, but the credit is used up");
        }
    }
    let line = ScaleReason::OnTheirWay { count: 1 };
    let text = told(Rule::TokenLoad, (2, 2, 2), line, ScaleReason::NoCapacity);
    assert_eq!(text, "memory is 0 % full, which needs 2, but no offer has room");
}

#[test]
fn e1_a6_a_fleet_that_is_brought_back_to_max_is_told_how_many_go_and_not_what_it_needs() {
    let over = |counts| told(Rule::TokenLoad, counts, ScaleReason::AtMax, ScaleReason::AtMax);
    assert_eq!(over((3, 0, 2)), "3 are there, but max is 2, so 1 goes");
    assert_eq!(over((1, 0, 0)), "1 is there, but max is 0, so 1 goes");
    assert_eq!(over((6, 2, 2)), "6 are there, but max is 2, so 4 go");
    assert_eq!(over((3, 3, 2)), "memory is 0 % full, which needs 3, but max is 2");
    assert_eq!(over((2, 3, 2)), "memory is 0 % full, which needs 3, but max is 2");
}
