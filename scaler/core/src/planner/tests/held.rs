//! What holds growth though neither the offers nor the need do: `max` where what leaves fills it, or for who waits here; and
//! what waits for a machine that it may not have any more.

use tidegate_shared::decision::Rule;
use tidegate_shared::offer::Money;

use super::fleet::Engines;
use super::*;
use crate::config::RuleChoice;
use crate::reconcile::{Action, reconcile};

fn words(why: &ScaleDecision) -> Vec<&'static str> {
    why.blocks().map(ScaleReason::as_str).collect()
}

#[test]
fn a6_c2_what_leaves_holds_its_place_under_max_and_that_is_told() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let rule = RuleChoice::Fixed(rule);
        let mut engines = Engines::new(Sizing { rule, min: 2, max: 2, ..Sizing::default() }, 2);
        engines.pass(5);
        engines.planner.let_go(ReplicaId(1));
        engines.planner.let_go(ReplicaId(2));
        engines.replicas.iter_mut().for_each(|one| (one.phase, one.in_flight) = (Phase::Gone, 1));
        engines.supply.grant.credit = Some(Money(0));
        let mut seen = engines.observe();
        (seen.queued, seen.at) = (1, seen.at + TICK);
        let plan = engines.planner.tick(&seen, &engines.supply);
        assert_eq!((plan.orders.len(), words(&plan.why)), (0, vec!["at_max"]), "{}", plan.why);
        let held = "but max is 2, and 2 that leave hold their places until they are gone";
        assert!(plan.why.to_string().ends_with(held), "{}", plan.why);
        seen.replicas.pop();
        seen.at = seen.at + TICK;
        let plan = engines.planner.tick(&seen, &engines.supply);
        let held = "and 1 that leaves holds its place until it is gone";
        assert_eq!((plan.orders.len(), words(&plan.why)), (1, vec!["at_max"]), "{}", plan.why);
        assert!(plan.why.to_string().ends_with(held), "{}", plan.why);
        (seen.replicas, seen.at) = (Vec::new(), seen.at + TICK);
        let plan = engines.planner.tick(&seen, &engines.supply);
        assert_eq!((plan.orders.len(), words(&plan.why)), (2, vec![]), "{}", plan.why);
    }
}

#[test]
fn a6_c2_c6_what_takes_long_to_fall_asleep_holds_its_place_under_max_and_that_is_told() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let rule = RuleChoice::Fixed(rule);
        let mut engines = Engines::new(Sizing { rule, min: 2, max: 2, parked: 1, ..Sizing::default() }, 1);
        engines.add(Phase::Parked, 1);
        engines.supply.falling.late = vec![ReplicaId(2)];
        let plan = engines.second();
        assert_eq!((plan.orders.len(), words(&plan.why)), (0, vec!["at_max"]), "{}", plan.why);
        let held = "max is 2, and 1 that falls asleep holds its place until it sleeps";
        assert!(plan.why.to_string().ends_with(held), "{}", plan.why);
        engines.supply.falling = Falling::default();
        let plan = engines.second();
        assert_eq!((plan.why.woken, words(&plan.why)), (1, vec![]), "{}", plan.why);
    }
}

#[test]
fn a3_c2_max_is_told_where_it_keeps_one_from_who_waits_whatever_the_load() {
    for figures in [true, false] {
        let mut engines = Engines::by_tokens(0, 1, 1);
        (engines.tokens, engines.in_flight, engines.places) = (10, 2, 1);
        let mut last = None;
        for _ in 0..10 {
            engines.now = engines.now + TICK;
            engines.crowded += TICK;
            let mut seen = engines.observe();
            if !figures {
                seen.replicas.iter_mut().for_each(|one| (one.load, one.memory) = (None, None));
            }
            last = Some(engines.evaluate(&seen).why);
        }
        let why = last.unwrap();
        assert_eq!(words(&why), ["at_max"], "{why}");
        assert_eq!(why.to_string(), "a request has waited 10 s, 1 queued, but max is 1");
        // It resumes at the next evaluation.
        engines.planner.resize(Sizing { max: 2, ..engines.planner.sizing().clone() });
        let seen = engines.observe();
        assert_eq!(engines.evaluate(&seen).orders.len(), 1);
    }
}

#[test]
fn a6_c2_max_blocks_nobody_who_is_brought_back_to_it_and_is_enough() {
    let told = |in_flight| {
        let plan = Story::new(sizing(0, 2), 4).tick(in_flight, 0);
        assert_eq!((plan.target, &plan.why.reason), (2, &ScaleReason::AtMax));
        words(&plan.why)
    };
    assert_eq!(told(64), [""; 0]);
    assert_eq!(told(65), ["at_max"], "three are needed");
}

#[test]
fn c2_who_waits_for_room_is_told_beside_what_else_blocks() {
    let rule = RuleChoice::Fixed(Rule::Concurrency);
    let mut engines = Engines::new(Sizing { rule, max: 8, ..Sizing::default() }, 1);
    engines.in_flight = 3 * 32;
    engines.add(Phase::Provisioning, 1);
    engines.supply.waiting = vec![ReplicaId(2)];
    engines.supply.grant.credit = Some(Money(0));
    engines.supply.offers[0].price = Price(1);
    assert_eq!(words(&engines.second().why), ["no_credit", "no_capacity"]);
    engines.supply.held = 1;
    assert_eq!(words(&engines.second().why), ["no_credit", "provider_holds", "no_capacity"]);
}

#[test]
fn m1_m3_who_waits_for_a_machine_that_may_not_be_had_any_more_is_withdrawn() {
    let cap = Some(Price(2));
    let rule = RuleChoice::Fixed(Rule::Concurrency);
    let mut engines = Engines::new(Sizing { rule, max: 8, price_cap: cap, ..Sizing::default() }, 1);
    engines.in_flight = 3 * 32;
    engines.supply.offers[0].price = Price(2);
    for in_line in [true, true, false] {
        engines.add(Phase::Provisioning, 1);
        let last = engines.replicas.last_mut().unwrap();
        (last.price, last.in_line) = (Price(2), in_line);
    }
    engines.supply.waiting = vec![ReplicaId(2), ReplicaId(3)];
    let stops = |engines: &mut Engines| {
        let seen = engines.observe();
        let plan = engines.planner.clone().tick(&seen, &engines.supply);
        let actions = reconcile(&plan.goal(), &seen.replicas, engines.now, engines.planner.sizing());
        let stops = actions.into_iter().filter_map(|action| match action {
            Action::Stop(id) => Some(id.0),
            _ => None,
        });
        stops.collect::<Vec<_>>()
    };
    assert_eq!(stops(&mut engines), [0; 0]);
    engines.supply.grant.credit = Some(Money(0));
    assert_eq!(stops(&mut engines), [2, 3], "what has a machine runs on");
    engines.supply.grant.credit = Some(Money(1));
    engines.planner.resize(Sizing { price_cap: Some(Price(1)), ..engines.planner.sizing().clone() });
    assert_eq!(stops(&mut engines), [2, 3]);
    // Nobody needs them either: each is stopped once.
    engines.in_flight = 0;
    engines.second();
    assert!(engines.replicas.iter().all(|one| !one.in_line));
    // The one that stands for a replica that ran, and died, keeps its place in the line.
    let mut engines = Engines::new(Sizing { rule, min: 1, max: 8, ..Sizing::default() }, 2);
    engines.in_flight = 3 * 32;
    engines.supply.offers[0].price = Price(2);
    engines.second();
    engines.replicas.truncate(1);
    for _ in 0..2 {
        engines.add(Phase::Provisioning, 1);
        let last = engines.replicas.last_mut().unwrap();
        (last.price, last.in_line) = (Price(2), true);
    }
    engines.supply.grant.credit = Some(Money(0));
    assert_eq!(stops(&mut engines).len(), 1);
}

/// One at work, two that wait on the offer `a`, which is full and costs nothing or `price`, and a dearer one with room.
fn in_line(sizing: Sizing, price: u64) -> Engines {
    let offer =
        |name, price, free| Offer { free, queues: true, ..Offer::new(name, Capacity::ONE, Price(price)) };
    let rule = RuleChoice::Fixed(Rule::Concurrency);
    let mut engines = Engines::new(Sizing { rule, max: 3, ..sizing }, 1);
    engines.in_flight = 3 * 32;
    engines.supply.offers = vec![offer("a", price, Some(0)), offer("b", price + 2, None)];
    for _ in 0..2 {
        engines.add(Phase::Provisioning, 1);
        let last = engines.replicas.last_mut().unwrap();
        (last.price, last.in_line) = (Price(price), true);
    }
    engines.supply.waiting = vec![ReplicaId(2), ReplicaId(3)];
    engines
}

fn moved(engines: &mut Engines) -> Vec<u32> {
    let plan = engines.planner.clone().tick(&engines.observe(), &engines.supply);
    assert!(plan.moved.iter().all(|id| plan.goal().withdrawn.contains(id)) && plan.orders.is_empty());
    plan.moved.iter().map(|id| id.0).collect()
}

#[test]
fn m1_m3_who_waits_goes_where_there_is_room_once_that_may_be_taken() {
    let capped = Sizing { price_cap: Some(Price(2)), ..Sizing::default() };
    let mut engines = in_line(capped, 1);
    assert_eq!(moved(&mut engines), [0; 0]);
    engines.planner.resize(Sizing { price_cap: Some(Price(3)), ..engines.planner.sizing().clone() });
    assert_eq!(moved(&mut engines), [2, 3]);
    // They are ordered there once they are gone.
    let mut after = in_line(Sizing::default(), 1);
    after.replicas.truncate(1);
    after.supply.waiting.clear();
    let orders = after.second().orders;
    assert_eq!(orders.iter().map(|offer| offer.name.as_str()).collect::<Vec<_>>(), ["b", "b"]);

    // No more than find room, none that has some where it is, and none while nothing is ordered.
    engines.supply.offers[1].free = Some(1);
    assert_eq!(moved(&mut engines), [2]);
    engines.supply.offers[0].free = Some(1);
    assert_eq!(moved(&mut engines), [3]);
    engines.supply.offers[0].free = None;
    assert_eq!(moved(&mut engines), [0; 0]);
    engines.supply.offers[0].free = Some(0);
    engines.planner.start_failed(engines.now);
    assert_eq!(moved(&mut engines), [0; 0]);

    // The same of the credit.
    let mut engines = in_line(Sizing::default(), 0);
    engines.supply.grant.credit = Some(Money(-1));
    assert_eq!(moved(&mut engines), [0; 0]);
    engines.supply.grant.credit = Some(Money(5));
    assert_eq!(moved(&mut engines), [2, 3]);

    // Who waits on the dearer one stays there.
    engines.replicas.iter_mut().for_each(|one| one.price = Price(2));
    engines.supply.offers[0].free = Some(2);
    assert_eq!(moved(&mut engines), [0; 0]);
}

/// What is told while nothing of what is in line moves, or leaves it, and nobody who comes is refused for it.
fn kept(engines: &mut Engines) -> (Vec<&'static str>, String) {
    let plan = engines.planner.clone().tick(&engines.observe(), &engines.supply);
    assert!(plan.goal().withdrawn.is_empty() && plan.orders.is_empty(), "{}", plan.why);
    assert_eq!((plan.target, plan.starts(Instant::ZERO)), (3, Starts::Stalled), "{}", plan.why);
    (words(&plan.why), plan.why.to_string())
}

#[test]
fn c2_m1_m3_what_keeps_who_waits_from_an_offer_with_room_is_told_beside_the_wait() {
    let capped = |cap| Sizing { price_cap: Some(Price(cap)), ..Sizing::default() };
    let waits = "96 in progress need 3, but no offer that may be taken has room; also, ";
    let mut engines = in_line(capped(2_000_000), 1_000_000);
    engines.supply.offers[1].price = Price(3_000_000);
    let cap = "the price cap is $2.00/h and the cheapest offer with room is $3.00/h";
    assert_eq!(kept(&mut engines), (vec!["no_capacity", "price_cap"], format!("{waits}{cap}")));
    // Raising the cap changes nothing where the dearer one is full too, or too small.
    let mut full = in_line(capped(2), 1);
    full.supply.offers[1].free = Some(0);
    let none = (vec!["no_capacity"], "96 in progress need 3, but no offer has room".to_owned());
    assert_eq!(kept(&mut full), none);
    let mut small = in_line(Sizing { memory: Some(2), ..capped(2) }, 1);
    (small.supply.offers[0].memory, small.supply.offers[1].memory) = (Some(2), Some(1));
    assert_eq!(kept(&mut small), none);

    let mut poor = in_line(Sizing::default(), 0);
    poor.supply.grant.credit = Some(Money(-1));
    let told = (vec!["no_capacity", "no_credit"], format!("{waits}the credit is used up"));
    assert_eq!(kept(&mut poor), told);
    poor.supply.offers[1].free = Some(0);
    assert_eq!(kept(&mut poor), none);
    // Each that holds, whatever else does: both are to be removed, or the time is to pass.
    let mut both = in_line(capped(1), 0);
    both.supply.grant.credit = Some(Money(-1));
    assert_eq!(kept(&mut both).0, ["no_capacity", "price_cap", "no_credit"]);
    both.planner.start_failed(both.now);
    assert_eq!(kept(&mut both).0, ["no_capacity", "backing_off", "price_cap", "no_credit"]);

    // The cap is none of it where what may be had with credit is enough.
    let mut engines = in_line(capped(2), 0);
    engines.supply.grant.credit = Some(Money(0));
    engines.supply.offers.push(Offer::new("c", Capacity::ONE, Price(3)));
    assert_eq!(kept(&mut engines).0, ["no_capacity", "no_credit"]);
    engines.supply.offers[1].free = Some(1);
    assert_eq!(kept(&mut engines).0, ["no_capacity", "price_cap", "no_credit"]);
    // Nor for who goes elsewhere by now.
    engines.supply.grant.credit = None;
    engines.supply.offers[1].free = Some(2);
    let plan = engines.planner.clone().tick(&engines.observe(), &engines.supply);
    assert_eq!((plan.moved.len(), words(&plan.why)), (2, vec!["no_capacity"]));
}

#[test]
fn c2_m1_the_cap_is_told_beside_the_full_offers_within_it_where_nothing_can_wait() {
    let offer = |name, price, free| Offer { free, ..Offer::new(name, Capacity::ONE, Price(price)) };
    let rule = RuleChoice::Fixed(Rule::Concurrency);
    let sizing = Sizing { rule, max: 8, price_cap: Some(Price(2)), ..Sizing::default() };
    let told = |dear: Offer| {
        let mut engines = Engines::new(sizing.clone(), 1);
        (engines.in_flight, engines.supply.offers) = (3 * 32, vec![offer("a", 1, Some(0)), dear]);
        let seen = engines.observe();
        let held = words(&engines.planner.hold(&seen, &engines.supply));
        assert_eq!(held, ["provider_error"], "nobody knows of room");
        let plan = engines.planner.tick(&seen, &engines.supply);
        (words(&plan.why), plan.starts(Instant::ZERO))
    };
    assert_eq!(told(offer("b", 3, None)), (vec!["no_capacity", "price_cap"], Starts::Stalled));
    assert_eq!(told(offer("b", 3, Some(0))), (vec!["no_capacity"], Starts::Stalled));
}

#[test]
fn e1_c2_what_is_wanted_though_the_load_does_not_need_it_is_not_told_as_needed_by_it() {
    for rule in [Rule::TokenLoad, Rule::Jobs] {
        let rule = RuleChoice::Fixed(rule);
        for ready in [0, 1] {
            let mut engines = Engines::new(Sizing { rule, max: 3, ..Sizing::default() }, ready);
            engines.add(Phase::Provisioning, 1);
            engines.supply.waiting = vec![ReplicaId(ready + 1)];
            let why = engines.second().why;
            assert_eq!((why.target, why.needed), (ready + 1, 0), "{why}");
            assert_eq!(why.to_string(), "1 is on its way, but no offer has room");
        }
        // An operator took one out that nobody asks for.
        let mut engines = Engines::new(Sizing { rule, max: 3, ..Sizing::default() }, 2);
        engines.supply.offers[0].price = Price(1);
        engines.second();
        engines.planner.let_go(ReplicaId(2));
        engines.replicas.truncate(1);
        engines.supply.grant.credit = Some(Money(0));
        let why = engines.pass(6).why;
        assert_eq!((why.target, words(&why)), (1, Vec::new()), "{why}");
        // There are more than there may be by now.
        let mut engines = Engines::new(Sizing { rule, max: 2, ..Sizing::default() }, 4);
        let why = engines.second().why;
        assert_eq!(why.to_string(), "4 are there, but max is 2, so 2 go");
    }
}

#[test]
fn c1_e1_a_fleet_that_was_replaced_is_told_to_cool_and_not_to_be_held_by_min() {
    let mut story = Story::new(sizing(1, 8), 3);
    story.pass(40, 90);
    story.ready = 2;
    story.tick(0, 0);
    story.ready = 3;
    let plan = story.pass(1, 0);
    assert_eq!(plan.target, 3);
    assert!(matches!(plan.why.reason, ScaleReason::Cooling { .. }), "{}", plan.why);
}

#[test]
fn c1_c2_what_min_asks_for_is_no_loss_once_what_was_lost_is_made_good() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let rule = RuleChoice::Fixed(rule);
        let mut engines = Engines::new(Sizing { rule, min: 1, max: 4, ..Sizing::default() }, 1);
        engines.supply.offers[0].price = Price(1);
        engines.supply.grant.credit = Some(Money(0));
        engines.pass(5);
        engines.planner.resize(Sizing { min: 2, ..engines.planner.sizing().clone() });
        let due = "min is 2, but the credit is used up";
        assert_eq!(engines.second().why.to_string(), due);
        engines.replicas.remove(0);
        let plan = engines.second();
        assert_eq!((plan.orders.len(), plan.why.to_string()), (1, due.to_owned()), "the lost one alone");
        for _ in 0..5 {
            assert_eq!(engines.second().why.to_string(), due);
        }
    }
}

#[test]
fn q2_c2_who_was_told_to_come_back_keeps_a_fleet_of_none_wanted_over_a_check() {
    let rule = RuleChoice::Fixed(Rule::TokenLoad);
    let sizing = Sizing { rule, max: 4, price_cap: Some(Price(1)), ..Sizing::default() };
    let mut engines = Engines::new(sizing.clone(), 0);
    engines.supply.offers[0].price = Price(2);
    let seen = |engines: &mut Engines| {
        engines.now = engines.now + TICK;
        Observation { promised: 3, ..engines.observe() }
    };
    for _ in 0..70 {
        let now = seen(&mut engines);
        let why = engines.evaluate(&now).why;
        assert_eq!((words(&why), why.needed), (vec!["price_cap"], 1), "{why}");
        let wants = "3 were told to come back and no replica is ready, but the price cap is ";
        assert!(why.to_string().starts_with(wants), "{why}");
    }
    engines.planner.resize(Sizing { price_cap: None, ..sizing });
    let now = seen(&mut engines);
    assert_eq!(engines.evaluate(&now).orders.len(), 1);
}
