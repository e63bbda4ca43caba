//! What holds for every load under the rules that look every 30 s, 10,000 cases each.

use proptest::prelude::*;
use tidegate_shared::decision::Rule;
use tidegate_shared::request::Tokens;

use super::super::tests::fleet::{Engines, UNIT};
use super::*;
use crate::config::RuleChoice;

const CASES: u32 = 10_000;
/// The longest step that counts in full, so that a case is over soon.
const STEP_TIME: Duration = Duration::from_secs(2);

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![3 => Just(Rule::TokenLoad), 1 => Just(Rule::Jobs)]
}

fn sizing(rule: Rule, min: u32, max: u32) -> Sizing {
    let cool = Duration::from_secs(20);
    Sizing { rule: RuleChoice::Fixed(rule), target_concurrency: 4, min, max, cool, ..Sizing::default() }
}

#[derive(Clone, Debug)]
struct Step {
    times: u32,
    tokens: u64,
    in_flight: u32,
    queued: u32,
    waiting: u32,
    /// The replica of this rank dies.
    dies: Option<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let load = prop_oneof![Just((0u64, 0u32)), (0..UNIT * 9, 0..40u32)];
    let queue = prop_oneof![4 => Just(0u32), 1 => 0..9u32];
    let step = (1..18u32, load, queue.clone(), queue, proptest::option::weighted(0.2, 0..4usize));
    let step = step.prop_map(|(times, (tokens, in_flight), queued, waiting, dies)| Step {
        times,
        tokens,
        in_flight,
        queued,
        waiting,
        dies,
    });
    proptest::collection::vec(step, 1..5)
}

/// Equal loads that some fleet of `max` can carry and others that none can.
fn fleet(rule: Rule, ready: u32, max: u32, tokens: u64, in_flight: u32) -> Engines {
    let mut engines = Engines::new(sizing(rule, 0, max), ready.min(max));
    (engines.tokens, engines.in_flight, engines.load) = (tokens, in_flight, STEP_TIME);
    engines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn within_bounds_one_removal_at_a_time_and_none_while_anything_waits(
        rule in rules(), min in 0..3u32, max in 0..6u32, ready in 0..6u32, steps in steps(),
    ) {
        let sizing = sizing(rule, min, max);
        let mut engines = Engines::new(sizing.clone(), ready.min(sizing.ceiling()));
        engines.load = STEP_TIME * 2;
        for step in steps {
            (engines.tokens, engines.in_flight) = (step.tokens, step.in_flight);
            (engines.queued, engines.waiting) = (step.queued, step.waiting);
            engines.oldest_wait = Duration::from_millis(u64::from(step.queued) * 300);
            if let Some(at) = step.dies.filter(|at| *at < engines.replicas.len()) {
                engines.replicas.remove(at);
            }
            for _ in 0..step.times {
                engines.actions.clear();
                let before = engines.count();
                let plan = engines.pass_by(STEP_TIME);
                prop_assert!(sizing.floor() <= plan.target && plan.target <= sizing.ceiling(), "{plan:?}");
                told_as_it_is(&plan, &sizing)?;
                prop_assert!(plan.target + 1 >= before, "B5: two at once, {plan:?}");
                prop_assert!(plan.target <= before.max(sizing.floor()).max(plan.why.current) + STEP, "B4: {plan:?}");
                let waits = plan.why.queued > 0 || engines.waiting > 0 && rule == Rule::TokenLoad;
                let knows = engines.replicas.iter().any(|replica| replica.waiting.is_some_and(|waiting| waiting > 0));
                if waits && (plan.why.queued > 0 || knows) {
                    prop_assert!(plan.target >= plan.why.current, "B5: somebody waits, {plan:?}");
                }
                prop_assert!(engines.replicas.len() <= MAX_REPLICAS as usize);
            }
        }
    }

    #[test]
    fn constant_load_of_any_size_never_oscillates(
        rule in rules(), ready in 0..6u32, max in 1..7u32, tokens in 0..UNIT * 8, in_flight in 0..40u32,
        lingers in prop_oneof![Just(0u64), 1..400u64],
    ) {
        let tokens = if in_flight == 0 { 0 } else { tokens };
        let mut engines = fleet(rule, ready, max, tokens, in_flight);
        engines.lingers = Duration::from_secs(lingers);
        let mut sizes = vec![engines.count()];
        for _ in 0..90 {
            engines.pass_by(STEP_TIME);
            sizes.push(engines.count());
        }
        let began = if ready == 0 { 1 } else { 0 };
        let turns = sizes.windows(2).filter(|pair| pair[0] != pair[1]).map(|pair| pair[0] < pair[1]).collect::<Vec<_>>();
        let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
        prop_assert!(changes <= began, "{sizes:?}");
    }

    #[test]
    fn b3_b5_constant_load_on_engines_of_so_many_places_never_oscillates(
        ready in 0..6u32, max in 1..7u32, in_flight in 0..60u32, slots in 1..12u32, target in 1..40u32,
        tokens in 0..UNIT,
    ) {
        let mut engines = fleet(Rule::TokenLoad, ready, max, if in_flight == 0 { 0 } else { tokens }, in_flight);
        let queue_threshold = Duration::MAX;
        let sizing = Sizing { queue_threshold, target_concurrency: target, ..engines.planner.sizing().clone() };
        engines.planner.resize(sizing);
        engines.slots = slots;
        let mut sizes = vec![engines.count()];
        for _ in 0..220 {
            engines.pass_by(STEP_TIME);
            sizes.push(engines.count());
        }
        // What is too small once finds out how much its engines run at a time, and grows by what waits then.
        let turns = sizes.windows(2).filter(|pair| pair[0] != pair[1]).map(|pair| pair[0] < pair[1]).collect::<Vec<_>>();
        let back = turns.windows(2).filter(|pair| pair[0] && !pair[1]).count();
        let began = if ready == 0 { 1 } else { 0 };
        sizes.dedup();
        prop_assert!(back <= began + 1, "{sizes:?}");
        // Whoever waits at the end waits because there may be no more, or because a place is free elsewhere.
        let seen = engines.observe();
        let all_wait = seen.replicas.iter().all(|replica| replica.waiting > Some(0));
        prop_assert!(seen.replicas.is_empty() || !all_wait || engines.count() == max, "{seen:?}");
    }

    #[test]
    fn b2_c2_what_is_told_as_needed_is_ordered_whatever_blocked_it(
        ready in 1..5u32, units in 1..9u32, next in 1..9u32, percent in 61..300u64, blocked in 0..4u8,
    ) {
        let sizing = Sizing { price_cap: Some(Price(5)), ..sizing(Rule::TokenLoad, 0, 32) };
        let mut engines = Engines::new(sizing, 0);
        (0..ready).for_each(|_| engines.add(Phase::Ready, units));
        (engines.tokens, engines.in_flight) = (UNIT * u64::from(ready * units) * percent / 100, ready);
        let good = Offer::new("good", Capacity::new(next), Price(5));
        engines.supply.offers = match blocked {
            0 => vec![Offer { price: Price(6), ..good.clone() }],
            1 | 2 => vec![Offer { free: Some(0), ..good.clone() }],
            _ => vec![good.clone()],
        };
        engines.supply.grant.credit = (blocked > 1).then_some(tidegate_shared::offer::Money(0));
        let plan = (0..40).map(|_| engines.pass_by(STEP_TIME)).last().unwrap();
        let (needed, text) = (plan.why.needed, plan.why.to_string());
        prop_assert!(text.contains(&format!("which needs {needed}")) && !matches!(plan.starts(Instant::ZERO), Starts::From(_)), "{text}");
        prop_assert_eq!(plan.target, needed.min(ready + STEP), "{}", text);
        (engines.supply.offers, engines.supply.grant.credit) = (vec![good], None);
        let mut most = ready;
        for _ in 0..300 {
            engines.pass_by(STEP_TIME);
            most = most.max(engines.count());
        }
        prop_assert_eq!(most, needed.min(32), "{}", text);
    }

    #[test]
    fn c_051_a_missing_figure_never_changes_the_fleet(
        ready in 1..6u32, percent in 0..100u64, missing in proptest::collection::vec((0..6usize, 0..4u8), 1..60),
    ) {
        let tokens = UNIT * u64::from(ready) * percent / 100;
        let mut engines = fleet(Rule::TokenLoad, ready, 6, tokens, ready);
        (0..90).for_each(|_| drop(engines.pass_by(STEP_TIME)));
        engines.in_flight = engines.count();
        (0..90).for_each(|_| drop(engines.pass_by(STEP_TIME)));
        let settled = engines.count();
        engines.actions.clear();
        for (rank, figure) in missing {
            engines.now = engines.now + STEP_TIME;
            engines.finish_starts();
            let mut seen = engines.observe();
            let at = rank % seen.replicas.len();
            let facts = &mut seen.replicas[at];
            match figure {
                0 => facts.load = None,
                1 => facts.memory = None,
                2 => facts.waiting = None,
                _ => (facts.load, facts.memory, facts.waiting) = (None, None, None),
            }
            let plan = engines.evaluate(&seen);
            prop_assert_eq!(plan.target, settled, "{:?}", plan.why);
        }
        (0..20).for_each(|_| drop(engines.pass_by(STEP_TIME)));
        prop_assert_eq!(engines.count(), settled);
    }

    #[test]
    fn c_153_jumps_of_the_clock_change_nothing(
        rule in rules(), ready in 1..6u32, busy in any::<bool>(),
        jumps in proptest::collection::vec((any::<bool>(), 0..100_000_000_000u64), 1..9),
    ) {
        let mut engines = fleet(rule, ready, 6, 0, 0);
        if busy {
            (engines.tokens, engines.in_flight) = (UNIT * u64::from(ready) * 9 / 10, ready * 5);
        }
        for (back, micros) in jumps {
            let jump = Duration::from_micros(micros);
            engines.now = if back { engines.now - jump } else { engines.now + jump };
            let seen = engines.observe();
            let plan = engines.evaluate(&seen);
            prop_assert_eq!(plan.target, ready, "{:?}", plan.why);
        }
    }

    #[test]
    fn figures_of_any_size_neither_panic_nor_leave_the_bounds(
        figures in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()), 1..6),
        in_flight in any::<u32>(), queued in any::<u32>(),
    ) {
        let mut engines = fleet(Rule::TokenLoad, 0, 6, 0, 0);
        let facts = |(at, (load, memory, waiting, units)): (usize, &(u64, u64, u32, u32))| ReplicaFacts {
            in_flight: 1,
            load: Some(Tokens(*load)),
            memory: Some(Tokens(*memory)),
            waiting: Some(*waiting),
            ..ReplicaFacts::new(ReplicaId(u32::try_from(at).unwrap()), Phase::Ready, Instant::ZERO, Capacity::new(*units))
        };
        let replicas: Vec<_> = figures.iter().enumerate().map(facts).collect();
        for _ in 0..32 {
            engines.now = engines.now + STEP_TIME;
            let at = engines.now;
            let seen = Observation { at, in_flight, queued, replicas: replicas.clone(), ..Observation::default() };
            let plan = engines.planner.tick(&seen, &engines.supply);
            prop_assert!(plan.target <= 6 && plan.why.to_string().len() < 200);
        }
    }
}
