//! Constant load on engines that something else limits than what the rule goes by: their memory, their places, or the
//! gateway's own limit. Whatever it is, the fleet finds its size and keeps it.

use proptest::prelude::*;
use tidegate_shared::decision::Rule;

use super::super::tests::fleet::{Engines, UNIT};
use super::*;
use crate::config::RuleChoice;

/// A load that does not change, and what an engine can do of it.
#[derive(Clone, Debug)]
struct Load {
    sizing: Sizing,
    ready: u32,
    in_flight: u32,
    /// Tokens that each request holds.
    each: u64,
    /// Requests that an engine takes, whatever its memory; where `inside`, others wait in it, else at the gateway.
    slots: u32,
    inside: bool,
    /// How long a start takes, and how long what drains keeps its requests.
    start: Duration,
    lingers: Duration,
}

fn loads(window: u64, cool: u64) -> impl Strategy<Value = Load> {
    let rule = prop_oneof![Just(Rule::Concurrency), Just(Rule::TokenLoad), Just(Rule::Jobs)];
    let slots = prop_oneof![1 => Just(u32::MAX), 2 => 1..12u32];
    let sizes = (0..3u32, 1..9u32, 0..9u32, 1..13u32, 0..5u32);
    let slots = (slots, any::<bool>());
    (rule, sizes, 0..60u32, 0..UNIT / 2, slots, 0..40u64, 0..90u64).prop_map(
        move |(rule, (min, max, ready, target_concurrency, more), in_flight, each, slots, start, lingers)| {
            let (slots, inside) = slots;
            let sizing = Sizing {
                rule: RuleChoice::Fixed(rule),
                min: min.min(max),
                max,
                target_concurrency,
                limit: target_concurrency + more,
                window: Duration::from_secs(window),
                cool: Duration::from_secs(cool),
                ..Sizing::default()
            };
            let [start, lingers] = [start, lingers].map(Duration::from_secs);
            Load { sizing, ready: ready.min(max), in_flight, each, slots, inside, start, lingers }
        },
    )
}

/// The fleet under the load; after `settle` seconds nothing changes for as many as `rest`.
fn settles(load: &Load, settle: u32, rest: u32) -> Result<(), TestCaseError> {
    let mut engines = Engines::new(load.sizing.clone(), load.ready);
    (engines.in_flight, engines.tokens) = (load.in_flight, load.each * u64::from(load.in_flight));
    (engines.load, engines.lingers) = (load.start, load.lingers);
    let by_memory = UNIT.checked_div(load.each).map_or(u32::MAX, |most| u32::try_from(most).unwrap());
    let (outside, inside) = if load.inside { (u32::MAX, load.slots) } else { (load.slots, u32::MAX) };
    (engines.places, engines.slots) = (outside.min(load.sizing.limit).min(by_memory), inside);
    let (mut sizes, mut changes) = (vec![engines.count()], 0);
    for second in 0..settle + rest {
        let plan = engines.second();
        let waits = plan.why.queued == 0 || plan.target >= plan.why.current;
        prop_assert!(waits && plan.target + 1 >= plan.why.current, "{} of {sizes:?}", plan.why);
        if sizes.last() != Some(&engines.count()) {
            sizes.push(engines.count());
            changes += u32::from(second >= settle);
        }
    }
    let turns = sizes.windows(3).filter(|at| (at[0] < at[1]) != (at[1] < at[2])).count();
    prop_assert!(turns <= 2 && changes == 0, "{} of {sizes:?}", engines.second().why);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn constant_load_of_any_size_settles_whatever_limits_the_engines(load in loads(4, 8)) {
        // A queue at the gateway brings one replica after the other, each when the one before has started.
        settles(&load, 360, 120)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn constant_load_of_any_size_changes_nothing_for_an_hour_once_it_has_settled(load in loads(30, 150)) {
        settles(&load, 2400, 3600)?;
    }
}
