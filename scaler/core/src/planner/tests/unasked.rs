//! Who has left asks for nothing (B1, C2): a need that could not be had is forgotten under the rules that look every 30 s, that
//! of the line at once and that of the load after five seconds. No block is told for it then, and nothing is ordered when the
//! block goes.

use tidegate_shared::offer::Money;

use super::fleet::{Engines, UNIT};
use super::*;
use crate::config::RuleChoice;

const CAP: Price = Price(1_000_000);
const DEAR: Price = Price(2_000_000);

/// Replicas by `rule`, and one offer that is dearer than may be paid.
fn capped(rule: Rule, ready: u32) -> Engines {
    let rule = RuleChoice::Fixed(rule);
    let sizing = Sizing { rule, max: 8, price_cap: Some(CAP), ..Sizing::default() };
    let mut engines = Engines::new(sizing, ready);
    engines.supply.offers[0].price = DEAR;
    engines
}

fn words(plan: &Plan) -> Vec<&'static str> {
    plan.why.blocks().map(ScaleReason::as_str).collect()
}

/// What one evaluation orders once the cap allows it.
fn with_a_higher_cap(engines: &mut Engines) -> Plan {
    let sizing = Sizing { price_cap: Some(DEAR), ..engines.planner.sizing().clone() };
    engines.planner.resize(sizing);
    engines.second()
}

#[test]
fn c2_q3_who_waited_for_the_first_replica_and_left_leaves_no_need_behind() {
    for rule in [Rule::Jobs, Rule::TokenLoad] {
        let mut engines = capped(rule, 0);
        engines.in_flight = 1;
        for _ in 0..40 {
            assert_eq!(words(&engines.second()), ["price_cap"], "{rule:?}: it waits");
        }
        let mut stays = Engines { planner: engines.planner.clone(), ..capped(rule, 0) };
        (stays.now, stays.in_flight) = (engines.now, 1);
        assert_eq!(with_a_higher_cap(&mut stays).orders.len(), 1, "{rule:?}: who stays gets it at once");
        engines.in_flight = 0;
        let plan = engines.pass(6);
        assert_eq!((words(&plan), plan.target), (vec![], 0), "{rule:?}: {}", plan.why);
        assert_eq!(with_a_higher_cap(&mut engines).orders.len(), 0, "{rule:?}");
        engines.pass(60);
        assert_eq!(engines.count(), 0, "{rule:?}: nor at the next check");
    }
}

#[test]
fn c2_a3_who_waited_too_long_and_found_a_place_leaves_no_need_behind() {
    for rule in [Rule::Jobs, Rule::TokenLoad] {
        let mut engines = capped(rule, 1);
        (engines.in_flight, engines.queued, engines.oldest_wait) = (1, 1, Duration::from_secs(5));
        assert_eq!(words(&engines.second()), ["price_cap"], "{rule:?}: it waits");
        (engines.queued, engines.oldest_wait) = (0, Duration::ZERO);
        let plan = engines.second();
        assert_eq!((words(&plan), plan.target), (vec![], 1), "{rule:?}: {}", plan.why);
        assert_eq!(with_a_higher_cap(&mut engines).orders.len(), 0, "{rule:?}");
    }
}

#[test]
fn c2_b1_jobs_that_end_while_none_can_be_had_are_no_need_any_more() {
    let mut engines =
        Engines::new(Sizing { rule: RuleChoice::Fixed(Rule::Jobs), max: 8, ..Sizing::default() }, 1);
    engines.supply.offers[0].price = Price(1);
    engines.supply.grant.credit = Some(Money(0));
    engines.in_flight = 3 * engines.planner.sizing().target();
    let plan = engines.pass(90);
    assert_eq!((words(&plan), plan.target), (vec!["no_credit"], 3), "{}", plan.why);
    engines.in_flight = 0;
    let plan = engines.pass(6);
    assert_eq!((words(&plan), plan.target), (vec![], 1), "{}", plan.why);
    engines.supply.grant.credit = Some(Money(1_000_000_000));
    assert_eq!(engines.pass(60).target, 1);
    assert_eq!(engines.count(), 1);
}

#[test]
fn c2_b3_a_load_that_falls_is_followed_by_its_mean_and_not_from_check_to_check() {
    let mut engines = capped(Rule::TokenLoad, 2);
    (engines.in_flight, engines.tokens) = (8, 2 * UNIT);
    let plan = engines.pass(95);
    assert_eq!((words(&plan), plan.target), (vec!["price_cap"], 4), "{}", plan.why);
    // The mean of 30 s falls below what needs more between two checks.
    engines.tokens = UNIT / 2;
    let plans: Vec<_> = (0..30).map(|_| engines.second()).collect();
    for lately in plans.windows(6) {
        let (plan, needed) = (&lately[5], lately.iter().map(|plan| plan.why.needed).max().unwrap());
        assert!(plan.target <= needed.max(2), "{}", plan.why);
        assert_eq!(words(plan).is_empty(), plan.target <= 2, "{}", plan.why);
    }
    assert!(plans.last().unwrap().target == 2);
    assert_eq!(with_a_higher_cap(&mut engines).orders.len(), 0);
}

#[test]
fn c2_b1_a_load_that_swings_and_a_batch_with_gaps_keep_their_need_and_what_blocks_it() {
    for rule in [Rule::TokenLoad, Rule::Jobs] {
        let mut engines = capped(rule, 1);
        let full = 3 * engines.planner.sizing().target();
        let wave = |engines: &mut Engines, second: u32| match second % 8 {
            0 => (engines.in_flight, engines.tokens) = (0, 0),
            _ => (engines.in_flight, engines.tokens) = (full, UNIT),
        };
        for second in 0..95 {
            wave(&mut engines, second);
            engines.second();
        }
        for second in 95..300 {
            wave(&mut engines, second);
            let plan = engines.second();
            assert_eq!(words(&plan), ["price_cap"], "{rule:?}: {}", plan.why);
        }
        assert!(!with_a_higher_cap(&mut engines).orders.is_empty(), "{rule:?}");
    }
}

#[test]
fn c4_a_need_outlasts_figures_that_go_missing() {
    let mut engines = capped(Rule::TokenLoad, 2);
    (engines.in_flight, engines.tokens) = (8, 2 * UNIT);
    assert_eq!(engines.pass(95).target, 4);
    for _ in 0..20 {
        engines.now = engines.now + TICK;
        let mut seen = engines.observe();
        seen.replicas.iter_mut().for_each(|replica| (replica.load, replica.memory) = (None, None));
        let plan = engines.evaluate(&seen);
        assert_eq!((words(&plan), plan.target), (vec!["price_cap"], 4), "{}", plan.why);
    }
}

#[test]
fn c2_b3_a_burst_is_a_need_for_as_long_as_one_of_it_waits() {
    let mut engines = capped(Rule::TokenLoad, 1);
    (engines.in_flight, engines.tokens) = (4, UNIT / 10);
    engines.pass(45);
    engines.waiting = 2 * engines.planner.sizing().target();
    let plan = engines.pass(20);
    assert!(plan.target > 1 && words(&plan) == ["price_cap"], "{}", plan.why);
    let wanted = plan.target;
    engines.waiting = 1;
    assert_eq!(engines.second().target, wanted);
    engines.waiting = 0;
    let plan = engines.pass(6);
    assert_eq!((words(&plan), plan.target), (vec![], 1), "{}", plan.why);
    assert_eq!(with_a_higher_cap(&mut engines).orders.len(), 0);
}

#[test]
fn c5_what_is_on_its_way_comes_though_nobody_asks_any_more() {
    for rule in [Rule::Jobs, Rule::TokenLoad] {
        let mut engines = capped(rule, 0);
        engines.supply.offers[0].price = CAP;
        engines.in_flight = 1;
        assert_eq!(engines.second().orders.len(), 1);
        engines.in_flight = 0;
        let plan = engines.pass(30);
        assert_eq!((plan.target, engines.count()), (1, 1), "{rule:?}: {}", plan.why);
    }
}
