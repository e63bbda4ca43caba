//! A fleet that refuses, or lets wait for too long, and does not grow has a block, held or not, by every rule; what a held
//! evaluation tells is what one that acts would; and what is told of who waits at the provider is what bars him from room
//! elsewhere, and nothing else (C2). 10,000 cases each.

use proptest::prelude::*;
use tidegate_shared::decision::Rule;
use tidegate_shared::offer::Money;
use tidegate_shared::request::Tokens;

use super::*;
use crate::config::RuleChoice;

const CAP: Price = Price(10);

/// A fleet at one moment, and what may be had.
#[derive(Clone, Debug)]
struct Moment {
    rule: Rule,
    ready: u32,
    /// Beyond `ready`, `max` allows so many more.
    more: u32,
    /// Each replica's memory is so full, in percent; `None` where the engines do not tell.
    load: Option<u64>,
    in_flight: u32,
    queued: u32,
    waited: u64,
    promised: u32,
    dear: bool,
    broke: bool,
}

const LIMIT: u32 = 8;

fn moments() -> impl Strategy<Value = Moment> {
    let rule = prop_oneof![Just(Rule::Concurrency), Just(Rule::TokenLoad), Just(Rule::Jobs)];
    let some = || prop_oneof![Just(0u32), 1..30u32];
    let who = (0..=LIMIT, some(), 0..3000u64, some());
    let load = proptest::option::weighted(0.8, 0..100u64);
    (rule, 0..4u32, 0..4u32, load, who, any::<bool>(), any::<bool>()).prop_map(
        |(rule, ready, more, load, (in_flight, queued, waited, promised), dear, broke)| Moment {
            rule,
            ready,
            more,
            load,
            in_flight,
            queued,
            waited,
            promised,
            dear,
            broke,
        },
    )
}

impl Moment {
    fn sizing(&self) -> Sizing {
        let rule = RuleChoice::Fixed(self.rule);
        let (max, price_cap) = (self.ready + self.more, Some(CAP));
        Sizing { rule, max, price_cap, target_concurrency: 6, limit: LIMIT, ..Sizing::default() }
    }

    fn supply(&self) -> Supply {
        let price = if self.dear { Price(CAP.0 + 1) } else { CAP };
        let grant = Grant { credit: self.broke.then_some(Money(0)), ..Grant::default() };
        Supply { offers: vec![Offer::new("gpu", Capacity::ONE, price)], grant, ..Supply::default() }
    }

    fn observation(&self, at: Instant) -> Observation {
        let replica = |id| ReplicaFacts {
            in_flight: self.in_flight,
            load: self.load.map(Tokens),
            memory: self.load.map(|_| Tokens(100)),
            waiting: self.load.map(|_| 0),
            ..ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::ONE)
        };
        Observation {
            at,
            in_flight: self.in_flight * self.ready,
            queued: self.queued,
            oldest_wait: Duration::from_millis(if self.queued > 0 { self.waited } else { 0 }),
            promised: self.promised,
            replicas: (1..=self.ready).map(replica).collect(),
        }
    }

    /// Somebody has no place and is owed one.
    fn asks(&self) -> bool {
        let waited = self.queued > 0 && (self.ready == 0 || self.waited >= 1000);
        let places = self.ready * (LIMIT - self.in_flight);
        waited || self.promised > 0 && self.queued + self.promised > places
    }
}

fn others(why: &ScaleDecision) -> Vec<&'static str> {
    let silent = |block: &&ScaleReason| **block != ScaleReason::ProviderError;
    let mut words: Vec<_> = why.blocks().filter(silent).map(ScaleReason::as_str).collect();
    words.sort_unstable();
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn c2_q2_who_refuses_or_lets_wait_and_may_not_grow_has_a_block_by_every_rule_held_or_not(
        moment in moments(), seconds in 1..70u32,
    ) {
        let mut planner = Planner::new(moment.sizing(), Instant::ZERO);
        let supply = moment.supply();
        for second in 1..=seconds {
            let seen = moment.observation(Instant::ZERO + TICK * second);
            let held = planner.hold(&seen, &supply);
            let plan = planner.tick(&seen, &supply);
            let why = &plan.why;
            let told = |why: &ScaleDecision| (why.needed, why.load, why.waiters, why.engine_queue);
            prop_assert_eq!(told(&held), told(why), "one account: {} {}", held, why);
            if !moment.asks() {
                continue;
            }
            prop_assert!(why.needed > why.current, "{why}");
            prop_assert!(!plan.orders.is_empty() || !others(why).is_empty(), "C2: {why}");
            if !others(why).is_empty() {
                prop_assert_eq!(others(&held), others(why), "C2: {} {}", held, why);
            }
            // It resumes at the next evaluation once the last cause is gone.
            let mut free = planner.clone();
            free.resize(Sizing { max: 9, price_cap: None, ..moment.sizing() });
            let next = free.tick(&moment.observation(seen.at + TICK), &plenty());
            prop_assert!(!next.orders.is_empty(), "C2: {}", next.why);
        }
    }

    #[test]
    fn c2_m1_m3_who_waits_is_told_each_cause_that_bars_an_offer_with_room_and_no_other(line in lines()) {
        let now = Instant::ZERO + TICK;
        let all = [Bar::Cap, Bar::Credit, Bar::Pause];
        let goes = |lifted: &[Bar]| line.plan(lifted, now);
        let plan = goes(&[]);
        prop_assert!(plan.withdrawn.is_empty(), "what they wait on they may have");
        let told: Vec<Bar> = all.into_iter().filter(|bar| bar.is_told(&plan.why)).collect();
        let open = goes(&all).moved.len();
        prop_assert_eq!(goes(&told).moved.len(), open, "all that bars is told: {}", plan.why);
        for bar in told {
            let others: Vec<Bar> = all.into_iter().filter(|other| *other != bar).collect();
            prop_assert!(goes(&others).moved.len() < open, "it bars whatever the others do: {:?} {}", bar, plan.why);
        }
    }
}

/// What can bar an offer from who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bar {
    Cap,
    Credit,
    Pause,
}

impl Bar {
    fn is_told(self, why: &ScaleDecision) -> bool {
        let word = match self {
            Self::Cap => "price_cap",
            Self::Credit => "no_credit",
            Self::Pause => "backing_off",
        };
        why.blocks().any(|block| block.as_str() == word)
    }
}

/// As many as are wanted are ordered, and wait on the cheapest offer.
#[derive(Clone, Debug)]
struct Line {
    waits: u32,
    /// Price and room of each offer, the cheapest first.
    offers: Vec<(u64, Option<u32>)>,
    cap: Option<u64>,
    broke: bool,
    paused: bool,
}

fn lines() -> impl Strategy<Value = Line> {
    let offers = proptest::collection::vec((0..4u64, proptest::option::of(0..3u32)), 1..5);
    let bars = (proptest::option::of(0..4u64), any::<bool>(), proptest::bool::weighted(0.2));
    (1..4u32, offers, bars).prop_map(|(waits, mut offers, (cap, broke, paused))| {
        offers.sort_unstable();
        offers[0].0 = if broke { 0 } else { offers[0].0 };
        let cap = cap.map(|more: u64| offers[0].0 + more);
        Line { waits, offers, cap, broke, paused }
    })
}

impl Line {
    fn plan(&self, lifted: &[Bar], at: Instant) -> Plan {
        let holds = |bar, holds| holds && !lifted.contains(&bar);
        let price_cap = self.cap.map(Price).filter(|_| holds(Bar::Cap, true));
        let rule = RuleChoice::Fixed(Rule::Concurrency);
        let mut planner =
            Planner::new(Sizing { rule, max: 1 + self.waits, price_cap, ..Sizing::default() }, at);
        if holds(Bar::Pause, self.paused) {
            planner.start_failed(at);
        }
        let one = |id, phase| ReplicaFacts::new(ReplicaId(id), phase, Instant::ZERO, Capacity::ONE);
        let price = Price(self.offers[0].0);
        let line = (2..2 + self.waits).map(|id| ReplicaFacts {
            price,
            in_line: true,
            ..one(id, Phase::Provisioning)
        });
        let replicas: Vec<_> = std::iter::once(one(1, Phase::Ready)).chain(line).collect();
        let waiting = replicas.iter().skip(1).map(|replica| replica.id).collect();
        let in_flight = 32 * (1 + self.waits);
        let seen = Observation { at, in_flight, replicas, ..Observation::default() };
        let offer = |(at, (price, free)): (usize, &(u64, Option<u32>))| Offer {
            free: *free,
            queues: true,
            ..Offer::new(&format!("gpu-{at}"), Capacity::ONE, Price(*price))
        };
        let offers = self.offers.iter().enumerate().map(offer).collect();
        let credit = holds(Bar::Credit, self.broke).then_some(Money(0));
        let grant = Grant { credit, ..Grant::default() };
        planner.tick(&seen, &Supply { offers, grant, waiting, ..Supply::default() })
    }
}
