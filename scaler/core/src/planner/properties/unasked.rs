//! Nothing is wanted beyond what is there that nobody has asked for in the last seconds, whatever was wanted before and could
//! not be had, under the rules that look every 30 s (B1, C2). 10,000 cases.

use proptest::prelude::*;
use tidegate_shared::decision::Rule;

use super::*;
use crate::config::RuleChoice;
use crate::planner::tests::fleet::{Engines, UNIT};

/// What is so for some seconds.
#[derive(Clone, Debug)]
struct Spell {
    seconds: u32,
    in_flight: u32,
    queued: u32,
    /// For how long the oldest of them has waited.
    waited: u64,
    /// Tokens of each request.
    tokens: u64,
    /// Requests that wait inside an engine.
    waiting: u32,
    /// Nothing may be had.
    dear: bool,
}

fn spells() -> impl Strategy<Value = Vec<Spell>> {
    let some = |most: u32| prop_oneof![Just(0), 1..most];
    let spell = (1..40u32, some(40), some(12), 0..4u64, 0..UNIT / 8, some(80), any::<bool>());
    let spell = spell.prop_map(|(seconds, in_flight, queued, waited, tokens, waiting, dear)| Spell {
        seconds,
        in_flight,
        queued,
        waited,
        tokens,
        waiting,
        dear,
    });
    proptest::collection::vec(spell, 1..10)
}

const CAP: Price = Price(10);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn c2_b1_nothing_is_wanted_that_nobody_asks_for(
        jobs in any::<bool>(), ready in 0..4u32, spells in spells(),
    ) {
        let rule = RuleChoice::Fixed(if jobs { Rule::Jobs } else { Rule::TokenLoad });
        let sizing = Sizing { rule, max: 12, price_cap: Some(CAP), ..Sizing::default() };
        let mut engines = Engines::new(sizing, ready);
        // What each of the last evaluations said was needed; all there may be where a burst waited.
        let (mut lately, mut idle) = (std::collections::VecDeque::from([0; 6]), 0);
        for spell in spells {
            engines.in_flight = spell.in_flight;
            engines.tokens = spell.tokens * u64::from(spell.in_flight);
            engines.waiting = spell.waiting.min(spell.in_flight);
            let waited = if spell.queued > 0 { spell.waited } else { 0 };
            (engines.queued, engines.oldest_wait) = (spell.queued, Duration::from_secs(waited));
            engines.supply.offers[0].price = if spell.dear { Price(CAP.0 + 1) } else { CAP };
            for _ in 0..spell.seconds {
                let before = engines.count();
                let plan = engines.second();
                let why = &plan.why;
                let burst = engines.waiting > 0 && engines.count() > 0;
                lately.pop_front();
                lately.push_back(if burst { u32::MAX } else { why.needed });
                let asked = lately.iter().copied().max().unwrap_or_default();
                prop_assert!(
                    plan.target <= before.max(asked), "{} of {before}, needed {}: {why}", plan.target, why.needed
                );
                idle = if engines.in_flight + engines.queued == 0 { idle + 1 } else { 0 };
                if idle >= 6 {
                    prop_assert_eq!((plan.orders.len(), why.blocks().count()), (0, 0), "nobody is there: {}", why);
                }
            }
        }
    }
}
