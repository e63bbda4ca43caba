//! The reported cases and what blocks growth, under the token-load rule.

use super::fleet::{Engines, UNIT};
use super::tokens::{drained, filled, starts};
use super::*;
use crate::budget::{Grant, Room};
use crate::reconcile::Action;
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::Hold;

#[test]
fn c_018_a_start_outlasts_the_quiet_and_is_kept_for_as_long_after() {
    let mut engines = Engines::by_tokens(0, 1, 0);
    engines.load = Duration::from_secs(1200);
    engines.in_flight = 1;
    engines.pass(1202);
    assert_eq!((starts(&engines), engines.actions.len()), (1, 1));
    (engines.in_flight, engines.tokens) = (0, 0);
    assert_eq!(engines.until_action().0, 151);
}

#[test]
fn c_051_engines_that_stop_telling_hold_the_fleet_and_an_idle_one_goes() {
    let mut engines = filled(3, 80, 8);
    engines.pass(31);
    for _ in 0..600 {
        engines.now = engines.now + TICK;
        let mut seen = engines.observe();
        seen.replicas.iter_mut().for_each(|replica| (replica.load, replica.waiting) = (None, None));
        engines.evaluate(&seen);
    }
    assert_eq!(engines.actions, []);
    let seen = |engines: &mut Engines| {
        let mut seen = engines.observe();
        seen.replicas.iter_mut().for_each(|replica| replica.load = None);
        seen
    };
    let silent = seen(&mut engines);
    assert_eq!(engines.evaluate(&silent).why.reason, ScaleReason::NoData);

    (engines.in_flight, engines.tokens) = (0, 0);
    for _ in 0..3600 {
        engines.now = engines.now + TICK;
        let idle = seen(&mut engines);
        engines.evaluate(&idle);
    }
    assert_eq!(engines.count(), 0, "zero traffic is a zero");
}

#[test]
fn c_104_two_of_three_are_removed_and_the_need_is_of_what_is_left() {
    let mut engines = filled(3, 80, 8);
    engines.pass(59);
    engines.replicas.iter_mut().take(2).for_each(|replica| replica.phase = Phase::Gone);
    let mut seen = engines.observe();
    seen.replicas[2].load = Some(tidegate_shared::request::Tokens(800));
    let plan = engines.planner.tick(&seen, &engines.supply);
    assert_eq!((plan.why.needed, plan.why.load), (2, Some(80)));
}

#[test]
fn b2_b5_what_a_draining_replica_still_serves_is_load_and_no_second_one_goes_for_it() {
    let mut engines = filled(4, 35, 8);
    engines.lingers = Duration::from_secs(3600);
    engines.pass(1000);
    assert_eq!((drained(&engines).len(), engines.count()), (1, 3), "three are 47 % full with all of it");
    let why = engines.second().why;
    assert_eq!((why.needed, why.load), (3, Some(47)));
}

#[test]
fn c_153_leaps_and_stops_of_the_clock_move_nothing() {
    let mut engines = filled(2, 25, 8);
    for _ in 0..20 {
        engines.pass_by(Duration::from_secs(3600));
        (0..50).for_each(|_| drop(engines.pass_by(Duration::ZERO)));
    }
    engines.pass(110);
    assert_eq!(engines.actions, [], "twenty leaps are forty seconds");
    engines.pass(3);
    assert_eq!(drained(&engines).len(), 1);
}

#[test]
fn auto_goes_by_tokens_once_an_engine_has_told_and_keeps_to_it() {
    let mut engines = Engines::new(Sizing { max: 8, ..Sizing::default() }, 1);
    engines.in_flight = 1;
    let mut seen = engines.observe();
    seen.replicas.iter_mut().for_each(|replica| (replica.memory, replica.load) = (None, None));
    assert_eq!(engines.evaluate(&seen).why.rule, Rule::Concurrency);
    assert_eq!(engines.second().why.rule, Rule::TokenLoad);
    assert_eq!(engines.evaluate(&seen).why.rule, Rule::TokenLoad);
}

#[test]
fn c2_each_thing_that_blocks_growth_is_told_and_growth_resumes_at_the_next_evaluation() {
    let offer = |price, free| Offer { free, ..Offer::new("gpu", Capacity::ONE, Price(price)) };
    let cheap = vec![offer(900_000, None)];
    let (cap, cheapest) = (Price(1_000_000), Price(1_350_000));
    let blocks = [
        (vec![offer(1_350_000, None)], Grant::default(), ScaleReason::PriceCap { cap, cheapest }),
        (vec![offer(900_000, Some(0))], Grant::default(), ScaleReason::NoCapacity),
        (vec![], Grant::default(), ScaleReason::NoCapacity),
        (cheap.clone(), Grant { credit: Some(Money(0)), ..Grant::default() }, ScaleReason::NoCredit),
        (
            cheap.clone(),
            Grant { room: Some(Room { cap: 3, left: 0, tried: 0, comes: true }), ..Grant::default() },
            ScaleReason::GatewayCap { cap: 3 },
        ),
    ];
    for (offers, grant, reason) in blocks {
        let mut engines = filled(3, 80, 8);
        engines.planner.resize(Sizing { price_cap: Some(cap), ..engines.planner.sizing().clone() });
        engines.supply = Supply { offers, grant, ..Supply::default() };
        let plan = engines.pass(200);
        assert_eq!((plan.target, plan.why.current, &plan.why.reason), (4, 3, &reason));
        assert_eq!(engines.actions, [], "what runs is kept, {reason:?}");
        engines.supply = Supply { offers: cheap.clone(), ..Supply::default() };
        engines.second();
        assert_eq!(starts(&engines), 1, "{reason:?}");
    }
}

/// So many replicas of so many units each, filled to so many percent, where one like them costs $2.
fn large(ready: u32, units: u32, percent: u64) -> Engines {
    let mut engines = Engines::by_tokens(0, 8, 0);
    (0..ready).for_each(|_| engines.add(Phase::Ready, units));
    engines.tokens = UNIT * u64::from(ready * units) * percent / 100;
    engines.in_flight = ready;
    engines.supply.offers = vec![Offer::new("gpu", Capacity::new(units), Price(2_000_000))];
    engines
}

#[test]
fn b2_c2_what_blocks_growth_changes_no_count_and_buys_none_too_many_when_it_goes() {
    let price = |engines: &mut Engines, cap| {
        engines.planner.resize(Sizing { price_cap: cap, ..engines.planner.sizing().clone() });
    };
    for (ready, units, percent, needed) in [(2, 8, 90, 3), (3, 4, 80, 4)] {
        let open = large(ready, units, percent).supply.offers;
        let full = vec![Offer { free: Some(0), ..open[0].clone() }];
        for (cap, offers) in [(Some(Price(1_000_000)), open.clone()), (None, full), (None, vec![])] {
            let mut engines = large(ready, units, percent);
            price(&mut engines, cap);
            engines.supply.offers = offers;
            let plan = engines.pass(75);
            assert!(!matches!(plan.starts(Instant::ZERO), Starts::From(_)), "{}", plan.why);
            assert_eq!((plan.why.needed, plan.target), (needed, needed), "{}", plan.why);
            let seen = engines.observe();
            assert_eq!(
                engines.planner.hold(&seen, &engines.supply).needed,
                needed,
                "also while nobody answers"
            );
            price(&mut engines, None);
            engines.supply.offers = open.clone();
            engines.pass(300);
            assert_eq!(starts(&engines), 1);
        }
    }
}

#[test]
fn b2_c2_a_larger_offer_that_becomes_free_is_taken_no_more_often_than_it_needs() {
    let mut engines = large(2, 8, 90);
    let small = Offer { free: Some(0), ..Offer::new("small", Capacity::ONE, Price(1)) };
    engines.supply.offers = vec![small.clone()];
    let plan = engines.pass(75);
    assert_eq!((plan.why.needed, plan.target), (10, 4), "eight small ones, two at a time");
    engines.supply.offers = vec![small, Offer::new("large", Capacity::new(8), Price(2))];
    let plan = engines.second();
    assert_eq!((plan.why.needed, plan.orders.len(), starts(&engines)), (3, 1, 1));
}

#[test]
fn c2_what_passes_by_itself_is_told_from_what_stays_blocked() {
    let starts = |offers: &[Offer], grant: Grant| {
        let mut story = Story::new(sizing(0, 2), 0);
        let seen = story.observation(0, 1, Duration::ZERO);
        let supply = Supply { offers: offers.to_vec(), grant, ..Supply::default() };
        story.planner.tick(&seen, &supply).starts(Instant::ZERO)
    };
    let room = |comes| Grant { room: Some(Room { cap: 2, left: 0, tried: 0, comes }), ..Grant::default() };
    let offer = [Offer::new("gpu", Capacity::ONE, Price(1))];
    assert_eq!(starts(&offer, Grant::default()), Starts::From(Instant::ZERO));
    assert_eq!(starts(&[], Grant::default()), Starts::Stalled);
    assert_eq!(starts(&offer, room(true)), Starts::From(Instant::ZERO), "another deployment gives one");
    assert_eq!(starts(&offer, room(false)), Starts::Blocked);
    let spent = Grant { credit: Some(Money(0)), ..Grant::default() };
    assert_eq!(starts(&offer, spent.clone()), Starts::Blocked);
    let free = [offer[0].clone(), Offer::new("own", Capacity::ONE, Price::FREE)];
    assert_eq!(starts(&free, spent), Starts::From(Instant::ZERO), "it costs nothing");
}

#[test]
fn c2_e1_min_is_told_as_the_cause_where_growth_to_it_is_blocked() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let (rule, price_cap) = (RuleChoice::Fixed(rule), Some(Price(500_000)));
        let mut engines = Engines::new(Sizing { rule, min: 3, max: 4, price_cap, ..Sizing::default() }, 2);
        engines.supply.offers = vec![Offer::new("gpu", Capacity::ONE, Price(1_000_000))];
        let why = engines.pass(5).why;
        let cap = "the price cap is $0.50/h and the cheapest offer is $1.00/h";
        assert_eq!((why.target, why.to_string()), (3, format!("min is 3, but {cap}")));
    }
}

#[test]
fn c2_who_waits_for_room_at_the_provider_is_told_as_no_capacity() {
    let mut engines = filled(3, 80, 8);
    engines.pass(200);
    let mut seen = engines.observe();
    let last = seen.replicas.len() - 1;
    seen.replicas[last].phase = Phase::Provisioning;
    engines.supply.waiting = vec![seen.replicas[last].id];
    let plan = engines.planner.tick(&seen, &engines.supply);
    assert_eq!((plan.why.reason, plan.orders), (ScaleReason::NoCapacity, vec![]));
    engines.supply.held = 1;
    let why = engines.planner.tick(&seen, &engines.supply).why;
    assert_eq!(why.reason, ScaleReason::ProviderHolds { count: 1 });
    assert_eq!(why.also, [ScaleReason::NoCapacity]);
    let told = "but the provider does not start 1 that is ordered, and waiting does not help; also, no offer has room";
    assert!(why.to_string().ends_with(told), "{why}");
    (engines.supply.waiting, engines.supply.held) = (Vec::new(), 0);
    let plan = engines.planner.tick(&seen, &engines.supply);
    assert_eq!(plan.why.reason, ScaleReason::OnTheirWay { count: 1 });
}

#[test]
fn c2_who_waits_for_room_at_max_is_told_before_max() {
    let mut story = Story::new(sizing(0, 2), 1);
    story.starting = 1;
    let seen = story.observation(97, 0, Duration::ZERO);
    let blocks = |waiting, supply: Supply| {
        let waiting = vec![ReplicaId(2); waiting];
        let plan = story.planner.clone().tick(&seen, &Supply { waiting, ..supply });
        plan.why.blocks().map(ScaleReason::as_str).collect::<Vec<_>>()
    };
    assert_eq!(blocks(0, plenty()), ["at_max"]);
    assert_eq!(blocks(1, plenty()), ["no_capacity", "at_max"]);
    assert_eq!(blocks(1, Supply::default()), ["no_capacity", "at_max"], "once");
    let held = || Supply { held: 1, ..plenty() };
    assert_eq!(blocks(0, held()), ["provider_holds", "at_max"]);
    assert_eq!(blocks(1, held()), ["provider_holds", "no_capacity", "at_max"]);
}

#[test]
fn c2_what_was_blocked_and_is_not_needed_any_more_is_not_ordered_later() {
    let mut engines = filled(3, 80, 8);
    engines.supply.offers[0].price = Price(1);
    engines.supply.grant.credit = Some(Money(-1));
    engines.pass(90);
    engines.tokens = UNIT;
    engines.pass(60);
    engines.supply.grant.credit = Some(Money(1));
    engines.pass(60);
    assert_eq!(starts(&engines), 0);
}

#[test]
fn c_108_a_deployment_that_has_to_give_drains_one_and_takes_it_back_when_nobody_asks() {
    let mut engines = filled(1, 50, 8);
    engines.pass(100);
    engines.supply.grant.most = Some(0);
    engines.now = engines.now + TICK;
    let seen = engines.observe();
    let plan = engines.evaluate(&seen);
    assert_eq!((plan.target, plan.why.reason), (0, ScaleReason::MadeRoom));
    assert_eq!(engines.actions, [Action::Drain(ReplicaId(1))], "its requests run to their end");
    engines.supply.grant.most = None;
    engines.now = engines.now + TICK;
    let seen = engines.observe();
    engines.evaluate(&seen);
    assert_eq!(engines.actions[1..], [Action::Undrain(ReplicaId(1))]);
}

#[test]
fn a1_a_replica_that_is_measured_is_there_beside_those_that_are_needed() {
    let now = Instant::from_micros(3_600_000_000);
    let sizing = Sizing { max: 4, ..Sizing::default() };
    let target = |hold: Option<Hold>, replicas: u32, in_flight: u32| {
        let mut planner = Planner::new(sizing.clone(), now);
        let facts = |id| ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::ONE);
        let mut replicas: Vec<_> = (1..=replicas).map(facts).collect();
        replicas[0].hold = hold;
        // A whole window and more.
        let ticks = (0..40).map(|second| {
            let at = now + Duration::from_secs(second);
            let seen = Observation { at, in_flight, replicas: replicas.clone(), ..Observation::default() };
            planner.tick(&seen, &plenty()).target
        });
        ticks.last().expect("ticks")
    };
    assert_eq!(target(None, 1, 0), 0, "flex goes to zero");
    assert_eq!(target(Some(Hold::Serving), 1, 0), 1, "not under a measurement");
    assert_eq!(target(Some(Hold::Aside), 2, 0), 1);
    assert_eq!(target(Some(Hold::Serving), 1, 10), 1, "it serves, and counts");
    assert_eq!(target(Some(Hold::Aside), 2, 33), 3, "two for the requests and it");
    assert_eq!(target(Some(Hold::Aside), 2, 1000), 4, "never beyond max");
}

#[test]
fn c_108_e1_what_grows_up_to_what_another_leaves_it_is_told_why_it_does_and_not_that_it_makes_room() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let mut engines =
            Engines::new(Sizing { rule: RuleChoice::Fixed(rule), max: 3, ..Sizing::default() }, 3);
        (engines.in_flight, engines.tokens) = (3 * 32, 3 * UNIT / 2);
        engines.pass(1);
        engines.replicas.truncate(1);
        engines.supply.grant.most = Some(2);
        engines.supply.offers[0].free = Some(0);
        let plan = engines.second();
        let told: Vec<_> = plan.why.blocks().map(ScaleReason::as_str).collect();
        assert_eq!((plan.target, told), (2, vec!["no_capacity"]), "{rule:?} {}", plan.why);
        assert_ne!(plan.why.wanted.as_deref(), Some(&ScaleReason::MadeRoom), "{rule:?} {}", plan.why);
    }
}
