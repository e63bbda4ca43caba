//! A fleet that refuses, or lets wait for too long, and does not grow has a block, held or not, by every rule; and what a
//! held evaluation tells is what one that acts would (C2). 10,000 cases.

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
}
