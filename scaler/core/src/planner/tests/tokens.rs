//! The token-load rule in time: when it looks, what it waits for, and who goes.

use super::fleet::{Engines, UNIT};
use super::*;
use crate::config::RuleChoice;
use crate::reconcile::Action;
use tidegate_shared::offer::Price;

pub(super) fn starts(engines: &Engines) -> usize {
    engines.actions.iter().filter(|action| matches!(action, Action::Start(_))).count()
}

pub(super) fn drained(engines: &Engines) -> Vec<u32> {
    let ids = engines.actions.iter().filter_map(|action| match action {
        Action::Drain(id) => Some(id.0),
        _ => None,
    });
    ids.collect()
}

/// A second in which requests hold so many percent of one replica each.
pub(super) fn filled(ready: u32, percent: u64, max: u32) -> Engines {
    let mut engines = Engines::by_tokens(0, max, ready);
    (engines.tokens, engines.in_flight) = (UNIT * percent * u64::from(ready) / 100, ready);
    engines
}

#[test]
fn b2_b3_90_80_70_percent_want_4_at_the_second_check_and_not_5() {
    let mut engines = filled(3, 80, 8);
    let first = engines.pass(30);
    assert_eq!(first.why.reason, ScaleReason::Confirming { seen: 1, of: 2 }, "{}", first.why);
    assert_eq!((first.why.needed, first.why.load, first.target), (4, Some(80), 3));
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target, plan.why.reason), (30, 4, ScaleReason::Demand));
    assert_eq!((starts(&engines), engines.count()), (1, 4));
}

#[test]
fn b1_e2_the_next_check_is_when_it_is_said_to_be() {
    let mut engines = filled(3, 80, 8);
    engines.pass(1);
    let due = engines.planner.next_check(engines.now).expect("a rule with checks");
    let (mut seen, mut passed) = (0, 0);
    while seen == 0 {
        let plan = engines.pass(1);
        passed += 1;
        if let ScaleReason::Confirming { seen: so_far, .. } = plan.why.reason {
            seen = so_far;
        }
        assert!(passed < 60, "{}", plan.why);
    }
    assert!(
        engines.now.since(due) <= Duration::from_secs(1) && engines.now >= due,
        "{due:?} {:?}",
        engines.now
    );
    let by_demand = Sizing { rule: RuleChoice::Fixed(Rule::Concurrency), ..Sizing::default() };
    assert_eq!(Engines::new(by_demand, 1).planner.next_check(engines.now), None);
}

#[test]
fn b3_need_above_current_at_one_check_is_a_spike() {
    let mut engines = filled(3, 90, 8);
    engines.pass(31);
    engines.tokens = UNIT;
    engines.pass(60);
    assert_eq!(starts(&engines), 0);
    engines.tokens = UNIT * 3;
    engines.pass(50);
    assert_eq!(starts(&engines), 0, "one check saw it");
    engines.pass(30);
    assert_eq!(starts(&engines), 2);
}

#[test]
fn b4_one_that_is_on_its_way_is_not_ordered_again() {
    let mut engines = filled(3, 80, 8);
    engines.load = Duration::from_secs(600);
    engines.pass(60);
    assert_eq!(starts(&engines), 1);
    let plan = engines.pass(300);
    assert_eq!(plan.why.reason, ScaleReason::OnTheirWay { count: 1 });
    assert_eq!(starts(&engines), 1);
}

#[test]
fn b4_wants_6_more_and_orders_2() {
    let mut engines = filled(3, 180, 12);
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.why.needed, plan.target), (60, 9, 5));
    assert_eq!(plan.why.reason, ScaleReason::Step { most: 2 });
    engines.pass(30);
    assert_eq!(engines.count(), 7, "two more at the next check, for it is confirmed still");
    engines.pass(300);
    assert_eq!(engines.count(), 9);
}

#[test]
fn a6_c2_growth_stops_at_max_and_says_so() {
    let mut engines = filled(3, 180, 4);
    let plan = engines.pass(300);
    assert_eq!((engines.count(), plan.target, plan.why.reason), (4, 4, ScaleReason::AtMax));
    let mut engines = filled(32, 99, 1000);
    assert_eq!(engines.pass(300).target, 32);
}

#[test]
fn e1_c2_a_need_beyond_max_is_confirmed_like_any_other_while_there_is_room() {
    let mut engines = filled(3, 99, 4);
    for (seconds, seen) in [(10, 0), (30, 1)] {
        let why = engines.pass(seconds).why;
        assert_eq!((why.needed, why.reason), (5, ScaleReason::Confirming { seen, of: 2 }));
    }
    let (_, plan) = engines.until_action();
    assert_eq!((plan.target, starts(&engines)), (4, 1));
    let why = engines.pass(120).why;
    assert_eq!(why.to_string(), "memory is 75 % full, which needs 5, but max is 4");
}

#[test]
fn b3_a_jump_of_the_engines_queues_orders_at_the_next_check() {
    let mut engines = filled(2, 50, 8);
    engines.pass(40);
    engines.waiting = 16;
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target), (20, 3), "within 30 s");
    assert_eq!(plan.why.reason, ScaleReason::Burst { grew: 16 });
    engines.pass(120);
    assert_eq!(starts(&engines), 1, "the same queue is no second jump");
}

#[test]
fn b3_what_is_less_than_a_quarter_of_the_places_or_a_spike_is_no_burst() {
    let mut engines = filled(2, 50, 8);
    engines.waiting = 15;
    engines.pass(120);
    assert_eq!(starts(&engines), 0, "two replicas run 64 at a time");
    engines.waiting = 0;
    engines.pass(58);
    engines.waiting = 400;
    engines.pass(2);
    engines.waiting = 0;
    engines.pass(60);
    assert_eq!(starts(&engines), 0, "two seconds of a queue");
}

#[test]
fn b3_a_restart_takes_no_queue_that_was_there_for_a_jump() {
    let mut engines = filled(2, 50, 8);
    engines.waiting = 60;
    engines.pass(120);
    assert_eq!(starts(&engines), 0);
}

#[test]
fn b5_2_at_25_percent_become_1_after_150_s() {
    let mut engines = filled(2, 25, 8);
    let plan = engines.pass(150);
    let cooling =
        ScaleReason::Cooling { low_for: Duration::from_secs(149), window: Duration::from_secs(150), to: 1 };
    assert_eq!((plan.target, plan.why.reason), (2, cooling));
    let plan = engines.second();
    assert_eq!((plan.target, plan.why.reason), (1, ScaleReason::LowDemand));
    let plan = engines.pass(600);
    assert_eq!((engines.count(), plan.why.load, plan.why.reason), (1, Some(50), ScaleReason::Steady));
}

#[test]
fn b5_2_at_40_percent_stay_2() {
    let mut engines = filled(2, 40, 8);
    let plan = engines.pass(3600);
    assert_eq!((plan.target, plan.why.reason), (2, ScaleReason::Survivors { percent: 80 }));
    let mut engines = filled(2, 50, 8);
    assert_eq!(engines.pass(3600).why.reason, ScaleReason::Steady, "50 % is not low");
}

#[test]
fn b5_the_others_must_take_over_the_requests_too_and_not_the_memory_alone() {
    for in_flight in [11, 15, 21, 37] {
        let mut engines = Engines::by_tokens(0, 8, 0);
        let sizing = Sizing { target_concurrency: 8, limit: 10, ..engines.planner.sizing().clone() };
        engines.planner.resize(sizing);
        (engines.places, engines.in_flight, engines.tokens) = (10, in_flight, u64::from(in_flight) * 2);
        engines.pass(600);
        let (settled, before) = (engines.count(), engines.actions.len());
        let why = engines.pass(3600).why;
        assert_eq!((engines.count(), engines.actions.len()), (settled, before), "{in_flight}: {why}");
        assert_eq!(why.reason, ScaleReason::FewPlaces { most: (settled - 1) * 8 });
    }
}

#[test]
fn b5_e1_what_the_floor_keeps_is_told_whether_or_not_it_could_go() {
    for load in [25, 30] {
        let mut engines = filled(2, load, 8);
        engines.planner.resize(Sizing { min: 2, ..engines.planner.sizing().clone() });
        let plan = engines.pass(60);
        assert_eq!((plan.why.needed, plan.why.reason), (1, ScaleReason::AtMin), "{load} %");
    }
}

#[test]
fn c4_e1_an_engine_that_has_just_joined_is_on_its_way_until_it_had_time_to_tell() {
    let mut engines = filled(2, 40, 8);
    let before = engines.pass(60).why;
    engines.add(Phase::Ready, 1);
    let mut told = |seconds: u32| {
        engines.now = engines.now + TICK * seconds;
        let mut seen = engines.observe();
        seen.replicas.iter_mut().skip(2).for_each(|one| (one.load, one.memory) = (None, None));
        let why = engines.evaluate(&seen).why;
        (why.target, why.reason)
    };
    assert_eq!(told(0), (3, ScaleReason::OnTheirWay { count: 1 }));
    assert_eq!(told(2).1, ScaleReason::OnTheirWay { count: 1 });
    assert_eq!(told(1).1, ScaleReason::NoData, "it does not tell at all");
    assert_eq!(before.reason, ScaleReason::Survivors { percent: 80 });
}

#[test]
fn b5_a_queue_of_one_anywhere_begins_the_150_s_again() {
    let in_the_gateway = |engines: &mut Engines, queue| engines.queued = queue;
    let in_an_engine = |engines: &mut Engines, queue| engines.waiting = queue;
    for set in [in_the_gateway, in_an_engine] {
        let mut engines = filled(2, 25, 8);
        engines.pass(149);
        set(&mut engines, 1);
        engines.second();
        set(&mut engines, 0);
        engines.pass(150);
        assert_eq!(drained(&engines), [0u32; 0]);
        engines.second();
        assert_eq!(drained(&engines).len(), 1);
    }
}

#[test]
fn b5_one_at_a_time_and_each_removal_begins_the_150_s_again() {
    let mut engines = Engines::by_tokens(0, 8, 4);
    let mut gone = Vec::new();
    for _ in 0..4 {
        let (seconds, plan) = engines.until_action();
        engines.pass(5);
        gone.push((seconds, plan.target));
    }
    assert_eq!(gone, [(151, 3), (146, 2), (146, 1), (146, 0)], "151 s with the 5 s between");
    assert_eq!(engines.second().why.reason, ScaleReason::Steady);
}

#[test]
fn c1_active_never_goes_below_min_and_autoscale_off_holds_it() {
    let mut engines = Engines::by_tokens(2, 8, 3);
    assert_eq!(engines.pass(2000).why.reason, ScaleReason::AtMin);
    assert_eq!(engines.count(), 2);
    let sizing = Sizing { mode: crate::config::Mode::Active, ..engines.planner.sizing().clone() };
    let mut active = Engines::new(Sizing { min: 0, ..sizing.clone() }, 3);
    active.pass(3000);
    assert_eq!(active.count(), 1);
    let mut off = Engines::new(Sizing { autoscale: false, min: 2, ..sizing }, 2);
    (off.tokens, off.in_flight) = (UNIT * 9, 90);
    assert_eq!(off.pass(600).why.reason, ScaleReason::AutoscaleOff);
    assert_eq!(off.count(), 2);
}

#[test]
fn b5_on_4_4_8_the_removal_is_judged_by_that_replicas_own_size() {
    let fleet = |conversations: [u32; 3]| {
        let mut engines = Engines::by_tokens(0, 8, 0);
        for (units, conversations) in [4, 4, 8].into_iter().zip(conversations) {
            engines.add(Phase::Ready, units);
            engines.replicas.last_mut().unwrap().conversations = conversations;
        }
        (engines.tokens, engines.in_flight) = (UNIT * 16 * 30 / 100, 9);
        engines
    };
    let mut small_leaves = fleet([1, 5, 9]);
    assert_eq!(small_leaves.until_action().0, 151);
    assert_eq!(drained(&small_leaves), [1], "4.8 of 12 left are 40 %");
    let mut large_would_leave = fleet([5, 9, 1]);
    let plan = large_would_leave.pass(1000);
    assert_eq!(plan.why.reason, ScaleReason::Survivors { percent: 60 }, "4.8 of 8 left");
}

#[test]
fn b2_a_larger_offer_counts_for_what_it_can_hold() {
    let mut engines = filled(3, 120, 12);
    engines.supply.offers = vec![Offer::new("large", Capacity::new(3), Price::FREE)];
    let (_, plan) = engines.until_action();
    assert_eq!((plan.why.needed, starts(&engines)), (4, 1), "3.6 of 6 units are 60 %");
}

#[test]
fn q3_the_gateways_own_queue_starts_a_replica_at_once() {
    let mut engines = Engines::by_tokens(0, 8, 0);
    engines.pass(10);
    engines.in_flight = 1;
    let plan = engines.second();
    assert_eq!((plan.target, plan.why.reason, starts(&engines)), (1, ScaleReason::FromZero, 1));
    engines.pass(55);
    assert_eq!(starts(&engines), 1);

    let mut engines = filled(2, 30, 8);
    engines.pass(10);
    (engines.queued, engines.oldest_wait) = (1, Duration::from_secs(1));
    let plan = engines.second();
    assert_eq!((plan.target, plan.why.reason), (3, ScaleReason::QueueWait));
}

#[test]
fn c1_a_dead_replica_is_replaced_within_one_evaluation() {
    let mut engines = filled(3, 55, 8);
    engines.pass(400);
    engines.replicas.remove(1);
    let plan = engines.second();
    assert_eq!((plan.target, plan.why.reason, starts(&engines)), (3, ScaleReason::Replacing, 1));
}

#[test]
fn c1_what_dies_of_its_first_request_again_and_again_is_started_ever_more_seldom() {
    let mut engines = Engines::by_tokens(1, 8, 0);
    engines.load = Duration::from_secs(3);
    let mut tries = Vec::new();
    for second in 0..2000u32 {
        engines.second();
        tries.extend(
            engines.actions.drain(..).filter(|action| matches!(action, Action::Start(_))).map(|_| second),
        );
        let ready = engines.replicas.iter().position(ReplicaFacts::is_ready);
        if let Some(at) = ready {
            engines.replicas.remove(at);
        }
        assert!(engines.count() <= 1, "crashes never order more");
    }
    let pauses: Vec<u32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.is_sorted() && *pauses.last().unwrap() >= 300, "{pauses:?}");
}

#[test]
fn c3_an_adopted_fleet_is_not_shrunk_before_150_s_whatever_comes_late() {
    let mut engines = Engines::by_tokens(0, 8, 2);
    engines.pass(100);
    engines.add(Phase::Ready, 1);
    assert_eq!(engines.second().target, 3, "adopted late");
    engines.pass(49);
    assert_eq!(drained(&engines), [0u32; 0]);
    engines.second();
    assert_eq!(drained(&engines).len(), 1);
}

/// Found by the walk: what the one that left had held was in no mean of those that took it over.
#[test]
fn b5_a_short_time_of_quiet_takes_no_second_one_on_old_figures() {
    let mut engines = Engines::by_tokens(0, 3, 3);
    engines.planner.resize(Sizing { cool: Duration::from_secs(10), ..engines.planner.sizing().clone() });
    (engines.tokens, engines.in_flight) = (601, 1);
    engines.pass(600);
    assert_eq!((engines.count(), drained(&engines).len()), (2, 1));
}
