//! What blocks growth, several at a time (C2): each that holds is told, and all others stay when one is removed.

use tidegate_shared::offer::Money;

use super::fleet::{Engines, UNIT};
use super::tokens::starts;
use super::*;
use crate::budget::Room;
use crate::config::RuleChoice;

const CAP: Price = Price(1_000_000);
const DEAR: Price = Price(1_350_000);

/// What can be in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    PriceCap,
    Credit,
    GatewayCap,
    Max,
    Pause,
}

const ALL: [Block; 5] = [Block::PriceCap, Block::Credit, Block::GatewayCap, Block::Max, Block::Pause];

impl Block {
    fn word(self) -> &'static str {
        match self {
            Self::PriceCap => "price_cap",
            Self::Credit => "no_credit",
            Self::GatewayCap => "gateway_cap",
            Self::Max => "at_max",
            Self::Pause => "backing_off",
        }
    }
}

/// Every set of them.
fn sets() -> impl Iterator<Item = Vec<Block>> {
    (0..1u32 << ALL.len())
        .map(|bits| (0..).zip(ALL).filter(|(at, _)| bits >> at & 1 == 1).map(|(_, block)| block).collect())
}

/// Two replicas at work, with `needed` for four; and what may be had while `blocks` hold.
fn story(blocks: &[Block]) -> (Story, Supply) {
    let holds = |block| blocks.contains(&block);
    let max = if holds(Block::Max) { 2 } else { 8 };
    let mut story = Story::new(Sizing { price_cap: Some(CAP), ..sizing(0, max) }, 2);
    if holds(Block::Pause) {
        story.planner.start_failed(story.now);
    }
    let price = if holds(Block::PriceCap) { DEAR } else { CAP };
    let grant = Grant {
        credit: holds(Block::Credit).then_some(Money(0)),
        room: holds(Block::GatewayCap).then_some(Room { cap: 2, left: 0, tried: 0, comes: true }),
        ..Grant::default()
    };
    (story, Supply { offers: vec![Offer::new("gpu", Capacity::ONE, price)], grant, ..Supply::default() })
}

fn words(why: &ScaleDecision) -> Vec<&'static str> {
    let mut words: Vec<_> = why.blocks().map(ScaleReason::as_str).collect();
    words.sort_unstable();
    words
}

fn expected(blocks: &[Block], more: Option<&'static str>) -> Vec<&'static str> {
    let mut words: Vec<_> = blocks.iter().map(|block| block.word()).chain(more).collect();
    words.sort_unstable();
    words
}

#[test]
fn c2_all_that_blocks_growth_is_told_and_it_resumes_at_the_next_evaluation_after_the_last() {
    for blocks in sets() {
        let (mut story, supply) = story(&blocks);
        let seen = story.observation(97, 0, Duration::ZERO);
        let plan = story.planner.tick(&seen, &supply);
        assert_eq!(words(&plan.why), expected(&blocks, None), "{}", plan.why);
        assert_eq!(plan.orders.len(), if blocks.is_empty() { 2 } else { 0 }, "{blocks:?}");
        // At max nothing that the cap would have to make room for is missing.
        assert_eq!(plan.needs_room, blocks == [Block::GatewayCap], "{blocks:?}");
        let told = plan.why.to_string();
        assert_eq!(told.matches("; also, ").count(), blocks.len().saturating_sub(1), "{told}");

        // Removed by what is in the planner's hands: the others were by what it is told.
        story.planner.resize(Sizing { price_cap: Some(CAP), ..sizing(0, 8) });
        story.planner.became_ready();
        let plan = story.planner.tick(&seen, &plenty());
        assert_eq!((words(&plan.why), plan.orders.len()), (vec![], 2), "{blocks:?}");
    }
}

#[test]
fn a6_e1_where_max_keeps_one_from_who_waits_it_is_he_who_is_told_and_no_need_of_the_load() {
    let mut story = Story::new(sizing(0, 1), 1);
    let why = story.planner.tick(&story.observation(1, 1, Duration::from_secs(2)), &plenty()).why;
    assert_eq!((why.needed, why.reason.clone()), (2, ScaleReason::AtMax));
    assert_eq!(why.wanted.as_deref(), Some(&ScaleReason::QueueWait), "2 at 32 each need 1");
    assert_eq!(why.to_string(), "a request has waited 2.0 s, 1 queued, but max is 1");
    let why = story.planner.tick(&story.observation(97, 1, Duration::from_secs(2)), &plenty()).why;
    assert_eq!(why.to_string(), "98 in progress (1 queued) need 4, but max is 1");
}

#[test]
fn c2_a_silent_provider_hides_nothing_else_that_blocks_growth() {
    for blocks in sets() {
        let (story, supply) = story(&blocks);
        let why = story.planner.hold(&story.observation(97, 0, Duration::ZERO), &supply);
        assert_eq!(words(&why), expected(&blocks, Some("provider_error")), "{why}");
        assert_eq!(why.reason, ScaleReason::ProviderError);
        // Nothing more is wanted: nothing else is in the way.
        let why = story.planner.hold(&story.observation(1, 0, Duration::ZERO), &supply);
        assert_eq!(words(&why), ["provider_error"], "{why}");
    }
}

#[test]
fn c2_a_parked_replica_that_can_be_woken_is_blocked_by_nothing_but_max() {
    let (story, supply) = story(&ALL);
    let mut seen = story.observation(97, 0, Duration::ZERO);
    seen.replicas.push(ReplicaFacts::new(ReplicaId(9), Phase::Parked, Instant::ZERO, Capacity::ONE));
    let mut planner = story.planner.clone();
    assert_eq!(words(&planner.tick(&seen, &supply).why), ["at_max"]);
    planner.resize(Sizing { price_cap: Some(CAP), ..sizing(0, 3) });
    let plan = planner.tick(&seen, &supply);
    assert_eq!((plan.target, plan.why.woken), (3, 1), "{}", plan.why);
}

#[test]
fn m3_what_costs_nothing_is_started_whatever_the_balance() {
    let free = |room| Offer { free: room, ..Offer::new("own", Capacity::ONE, Price::FREE) };
    let paid = Offer::new("gpu", Capacity::ONE, Price(1));
    let plan = |offers: &[Offer], fee| {
        let mut story = Story::new(sizing(0, 8), 1);
        let grant = Grant { credit: Some(Money(-1)), fee: Price(fee), ..Grant::default() };
        let supply = Supply { offers: offers.to_vec(), grant, ..Supply::default() };
        let plan = story.planner.tick(&story.observation(97, 0, Duration::ZERO), &supply);
        let names: Vec<String> = plan.orders.iter().map(|offer| offer.name.clone()).collect();
        (names.join(" "), words(&plan.why), plan.broke)
    };
    let own = |count| ["own"; 3][..count].join(" ");
    assert_eq!(plan(&[free(None)], 0), (own(3), vec![], false));
    assert_eq!(plan(&[free(None), paid.clone()], 0), (own(3), vec![], false));
    assert_eq!(plan(&[free(Some(2)), paid.clone()], 0), (own(2), vec!["no_credit"], false));
    assert_eq!(plan(&[free(Some(2))], 0), (own(2), vec!["no_capacity"], false));
    assert_eq!(plan(&[free(Some(0))], 0), (own(0), vec!["no_capacity"], false), "no credit would help");
    assert_eq!(plan(&[free(None)], 1), (own(0), vec!["no_credit"], true), "warm, it costs the fee");
    assert_eq!(plan(&[paid], 0), (own(0), vec!["no_credit"], true));
}

#[test]
fn m3_c1_what_ran_and_died_is_replaced_whatever_the_balance_and_nothing_beyond() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let mut engines =
            Engines::new(Sizing { rule: RuleChoice::Fixed(rule), min: 2, max: 8, ..Sizing::default() }, 3);
        (engines.in_flight, engines.tokens) = (3 * 30, UNIT * 2);
        engines.supply.offers[0].price = Price(1);
        engines.pass(40);
        let before = engines.count();
        engines.supply.grant.credit = Some(Money(0));
        engines.actions.clear();
        engines.in_flight = 8 * 30;
        engines.pass(60);
        assert_eq!((starts(&engines), engines.count()), (0, before), "{rule:?}: growth");
        engines.replicas.remove(0);
        let plan = engines.second();
        assert_eq!((starts(&engines), engines.count()), (1, before), "{rule:?}: {}", plan.why);
        assert_eq!(words(&engines.second().why), ["no_credit"], "{rule:?}: what is beyond stays blocked");
        // It has a machine and dies as it loads: the next one stands for the same.
        engines.replicas.pop();
        engines.second();
        assert_eq!((starts(&engines), engines.count()), (2, before), "{rule:?}");
    }
}

#[test]
fn m3_what_was_let_go_or_is_not_wanted_any_more_is_growth_once_it_is_again() {
    let mut story = Story::new(sizing(0, 8), 3);
    let poor = || Grant { credit: Some(Money(0)), ..Grant::default() };
    let supply = Supply {
        offers: vec![Offer::new("gpu", Capacity::ONE, Price(1))],
        grant: poor(),
        ..Supply::default()
    };
    let orders = |story: &mut Story, in_flight| {
        let seen = story.observation(in_flight, 0, Duration::ZERO);
        story.now = story.now + TICK;
        story.planner.tick(&seen, &supply).orders.len()
    };
    assert_eq!(orders(&mut story, 90), 0);
    story.planner.let_go(ReplicaId(3));
    story.ready = 2;
    assert_eq!(orders(&mut story, 90), 0, "an operator took it out");
    story.ready = 1;
    assert_eq!(orders(&mut story, 90), 1, "it died");
    story.ready = 2;
    (0..60).for_each(|_| assert_eq!(orders(&mut story, 20), 0));
    story.ready = 1;
    assert_eq!(orders(&mut story, 20), 0);
    assert_eq!(orders(&mut story, 90), 0, "one was enough meanwhile");
}

#[test]
fn m3_c6_what_wakes_for_one_that_was_lost_leaves_nobody_who_may_start_without_credit() {
    for rule in [Rule::Concurrency, Rule::TokenLoad, Rule::Jobs] {
        let sizing = Sizing { rule: RuleChoice::Fixed(rule), min: 2, max: 4, parked: 1, ..Sizing::default() };
        let mut engines = Engines::new(sizing, 2);
        engines.supply.offers[0].price = Price(1);
        engines.supply.grant.credit = Some(Money(0));
        engines.second();
        engines.replicas.truncate(1);
        engines.now = engines.now + TICK;
        let plan = |engines: &mut Engines| {
            let seen = engines.observe();
            let plan = engines.planner.clone().tick(&seen, &engines.supply);
            (plan.why.woken, plan.orders.len(), plan.broke)
        };
        assert_eq!(plan(&mut engines), (0, 1, false), "the lost one is started");
        engines.add(Phase::Parked, 1);
        assert_eq!(plan(&mut engines), (1, 0, true), "it wakes, and any start would be growth");
    }
}

#[test]
fn a6_c2_what_max_forbade_of_a_load_is_ordered_at_the_evaluation_after_it_is_raised() {
    for rule in [Rule::TokenLoad, Rule::Jobs] {
        let rule = RuleChoice::Fixed(rule);
        let mut engines = Engines::new(Sizing { rule, max: 1, ..Sizing::default() }, 1);
        (engines.in_flight, engines.tokens) = (3 * engines.planner.sizing().target(), UNIT);
        for _ in 0..25 {
            let why = engines.second().why;
            assert_eq!(words(&why), Vec::<&str>::new(), "no check has said so: {why}");
        }
        engines.pass(40);
        for _ in 0..45 {
            let why = engines.second().why;
            assert_eq!(words(&why), ["at_max"], "{why}");
        }
        engines.planner.resize(Sizing { max: 8, ..engines.planner.sizing().clone() });
        let plan = engines.second();
        assert!(!plan.orders.is_empty(), "{rule:?}: {}", plan.why);
    }
}
