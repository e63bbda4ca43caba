//! What holds whatever happens, 10,000 cases each: every rule, mixed sizes, offers with prices and room, a price cap, credit
//! and the gateway's cap that come and go, parked replicas, deaths, failed starts, figures that are missing.

use proptest::prelude::*;
use tidegate_shared::decision::Rule;
use tidegate_shared::offer::Money;

use super::super::tests::fleet::{Engines, UNIT};
use super::*;
use crate::budget::Room;
use crate::config::RuleChoice;

const CASES: u32 = 10_000;

/// How a fleet is sized, by which rule, and what can be had.
#[derive(Clone, Debug)]
struct Setting {
    sizing: Sizing,
    /// Units, price and room of each offer.
    offers: Vec<(u32, u64, Option<u32>)>,
    /// Units of those that are there at the beginning.
    there: Vec<u32>,
}

/// What changes before a stretch of seconds.
#[derive(Clone, Debug)]
struct Stretch {
    seconds: u32,
    tokens: u64,
    in_flight: u32,
    queued: u32,
    /// The oldest has waited for so long when it begins, in ms.
    waited: u64,
    waiting: u32,
    credit: bool,
    room: Option<u32>,
    /// The replica of this rank dies.
    dies: Option<usize>,
    start_fails: bool,
    /// The replica of this rank does not tell one of its figures.
    silent: Option<(usize, u8)>,
    /// So many of those that are parked take long to fall asleep.
    late: usize,
    /// Floor, ceiling and whether the fleet is sized by its load, where an operator changes them.
    resized: Option<(u32, u32, bool)>,
    /// The most that it may keep, where another deployment waits for room.
    most: Option<u32>,
    /// What is on its way has no machine yet, and waits for room.
    in_line: bool,
}

fn rules() -> impl Strategy<Value = RuleChoice> {
    prop_oneof![
        2 => Just(RuleChoice::Fixed(Rule::Concurrency)),
        2 => Just(RuleChoice::Fixed(Rule::TokenLoad)),
        1 => Just(RuleChoice::Fixed(Rule::Jobs)),
        1 => Just(RuleChoice::Auto),
    ]
}

fn settings() -> impl Strategy<Value = Setting> {
    let offer = (1..5u32, 0..4u64, prop_oneof![2 => Just(None), 1 => (0..3u32).prop_map(Some)]);
    let offers = proptest::collection::vec(offer, 0..4);
    let there = proptest::collection::vec(1..5u32, 0..6);
    let cap = proptest::option::weighted(0.5, 0..4u64);
    (rules(), 0..3u32, 0..7u32, 1..8u32, (5..20u64, 8..30u64), 0..3u32, cap, (offers, there)).prop_map(
        |(rule, min, max, target_concurrency, (window, cool), parked, cap, (offers, there))| Setting {
            sizing: Sizing {
                rule,
                min,
                max,
                target_concurrency,
                parked,
                window: Duration::from_secs(window),
                cool: Duration::from_secs(cool),
                price_cap: cap.map(Price),
                ..Sizing::default()
            },
            offers,
            there,
        },
    )
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let load = prop_oneof![1 => Just((0u64, 0u32)), 3 => (0..UNIT * 12, 0..40u32)];
    let queue = prop_oneof![3 => Just(0u32), 1 => 0..9u32];
    let rarely = |chance: f64| proptest::option::weighted(chance, 0..4usize);
    let silent = (proptest::option::weighted(0.2, (0..4usize, 0..4u8)), 0..3usize);
    let resized = proptest::option::weighted(0.2, (0..3u32, 0..7u32, proptest::bool::weighted(0.8)));
    let told = (resized, proptest::option::weighted(0.1, 0..3u32), proptest::bool::weighted(0.2));
    let grants = (proptest::bool::weighted(0.8), proptest::option::weighted(0.2, 0..3u32));
    let stretch = (
        1..20u32,
        load,
        queue.clone(),
        0..3000u64,
        queue,
        grants,
        (rarely(0.2), proptest::bool::weighted(0.1)),
        (silent, told),
    );
    let stretch = stretch.prop_map(
        |(
            seconds,
            (tokens, in_flight),
            queued,
            waited,
            waiting,
            (credit, room),
            (dies, start_fails),
            ((silent, late), (resized, most, in_line)),
        )| Stretch {
            seconds,
            tokens,
            in_flight,
            queued,
            waited,
            waiting,
            credit,
            room,
            dies,
            start_fails,
            silent,
            late,
            resized,
            most,
            in_line,
        },
    );
    proptest::collection::vec(stretch, 1..6)
}

fn engines(setting: &Setting) -> Engines {
    let mut engines = Engines::new(setting.sizing.clone(), 0);
    setting.there.iter().for_each(|units| engines.add(Phase::Ready, *units));
    let offer = |(at, (units, price, free)): (usize, &(u32, u64, Option<u32>))| Offer {
        free: *free,
        ..Offer::new(&format!("gpu-{at}"), Capacity::new(*units), Price(*price))
    };
    engines.supply.offers = setting.offers.iter().enumerate().map(offer).collect();
    engines.load = Duration::from_secs(3);
    engines
}

/// What has changed, and what is seen a second later.
fn begin(engines: &mut Engines, stretch: &Stretch) {
    (engines.tokens, engines.in_flight) = (stretch.tokens, stretch.in_flight);
    (engines.queued, engines.waiting) = (stretch.queued, stretch.waiting);
    engines.supply.grant.credit = Some(Money(i128::from(stretch.credit)));
    engines.supply.grant.most = stretch.most;
    if let Some((min, max, autoscale)) = stretch.resized {
        let sizing = Sizing { min, max, autoscale, ..engines.planner.sizing().clone() };
        engines.planner.resize(sizing);
    }
    engines.supply.grant.room = stretch.room.map(|left| Room { cap: 9, left, tried: 0, comes: true });
    if let Some(at) = stretch.dies.filter(|at| *at < engines.replicas.len()) {
        engines.replicas.remove(at);
    }
    if stretch.start_fails {
        engines.planner.start_failed(engines.now);
    }
}

fn look(engines: &mut Engines, stretch: &Stretch, second: u32) -> Observation {
    engines.now = engines.now + TICK;
    engines.finish_starts();
    let waited = if stretch.queued > 0 { stretch.waited + u64::from(second) * 1000 } else { 0 };
    engines.oldest_wait = Duration::from_millis(waited);
    let asleep = engines.replicas.iter().filter(|one| one.phase == Phase::Parked).map(|one| one.id);
    engines.supply.falling.late = asleep.take(stretch.late).collect();
    engines.supply.waiting.clear();
    for one in engines.replicas.iter_mut().filter(|one| one.is_on_its_way()) {
        one.in_line = stretch.in_line;
        engines.supply.waiting.extend(stretch.in_line.then_some(one.id));
    }
    let mut seen = engines.observe();
    if let Some((rank, figure)) = stretch.silent
        && let Some(facts) = seen.replicas.get_mut(rank)
    {
        match figure {
            0 => facts.load = None,
            1 => facts.memory = None,
            2 => facts.waiting = None,
            _ => (facts.load, facts.memory, facts.waiting) = (None, None, None),
        }
    }
    seen
}

/// Those that are let go though they serve, and though they would soon. Who waits for a machine that it may not have is none,
/// and who is ordered anew elsewhere.
fn removals(actions: &[Action], seen: &Observation, plan: &Plan) -> (usize, usize) {
    let of = |id: &ReplicaId| seen.replicas.iter().find(|one| one.id == *id);
    let withdrawn = plan.goal().withdrawn;
    let gone = actions.iter().filter_map(|action| match action {
        Action::Drain(id) | Action::Stop(id) if !withdrawn.contains(id) => of(id),
        _ => None,
    });
    (gone.clone().filter(|one| one.is_ready()).count(), gone.filter(|one| one.is_on_its_way()).count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn the_fleet_is_within_bounds_goes_one_by_one_and_never_while_anything_waits(
        setting in settings(), stretches in stretches(),
    ) {
        let mut engines = engines(&setting);
        let mut ran = 0;
        for stretch in &stretches {
            begin(&mut engines, stretch);
            let sizing = &engines.planner.sizing().clone();
            for second in 0..stretch.seconds {
                let seen = look(&mut engines, stretch, second);
                engines.actions.clear();
                let ready = seen.replicas.iter().filter(|one| one.is_ready()).count();
                let plan = engines.evaluate(&seen);
                let (why, gone) = (&plan.why, removals(&engines.actions, &seen, &plan));
                prop_assert!(sizing.floor() <= plan.target && plan.target <= sizing.ceiling(), "{why:?}");
                prop_assert!(gone.0 <= 1, "A4, B5: two at once, {:?}", engines.actions);
                // An operator wants fewer, or another deployment waits for room.
                let demanded = !sizing.autoscale || why.current > sizing.ceiling() || why.reason == ScaleReason::MadeRoom;
                let gone = if demanded { 0 } else { gone.0 + gone.1 };
                prop_assert!(gone <= 1, "A4, B5: two at once, {:?}", engines.actions);
                let told = seen.replicas.iter().filter_map(|one| one.waiting).sum::<u32>();
                let waits = seen.queued > 0 || why.rule == Rule::TokenLoad && told > 0;
                prop_assert!(gone == 0 || !waits, "somebody waits: {why:?} {:?}", engines.actions);
                let dear = |offer: &Offer| sizing.price_cap.is_some_and(|cap| offer.price > cap);
                prop_assert!(!plan.orders.iter().any(dear), "M1: {:?}", plan.orders);
                let starts = engines.actions.iter().filter(|action| matches!(action, Action::Start(_))).count();
                let pays = |action: &&Action| matches!(action, Action::Start(offer) if offer.price > Price::FREE);
                let paid = engines.actions.iter().filter(pays).count();
                ran = ready.max(ran.min(plan.target as usize));
                let in_place = (why.current as usize + paid) <= ran;
                prop_assert!(paid == 0 || stretch.credit || in_place, "M3: {ran} ran");
                prop_assert!(stretch.room.is_none_or(|left| starts <= left as usize), "A6");
                prop_assert!(engines.replicas.len() <= seen.replicas.len().max(sizing.ceiling() as usize), "A6");
                let back = Census::of(&seen.replicas).draining + why.woken;
                let missing = plan.target.saturating_sub(why.current + back) as usize;
                let told = plan.orders.len() >= missing || why.blocks().next().is_some();
                prop_assert!(told, "C2: {why:?}");
                let needs = why.to_string().contains(&format!("which needs {}, but", why.needed));
                let enough = why.needed < why.target && why.blocks().next().is_some();
                prop_assert!(!needs || !enough, "E1: {why} though {} are wanted", why.target);
            }
        }
    }

    #[test]
    fn a_clock_that_leaps_stands_or_goes_back_decides_nothing_that_a_second_would_not(
        setting in settings(), stretches in stretches(),
        leaps in proptest::collection::vec(prop_oneof![
            Just(0i64), Just(1), -100_000_000_000..100_000_000_000i64,
        ], 1..6),
    ) {
        let mut engines = engines(&setting);
        let mut leaps = leaps.iter().cycle();
        for stretch in &stretches {
            begin(&mut engines, stretch);
            for second in 0..stretch.seconds {
                let seen = look(&mut engines, stretch, second);
                let at = |at: Instant| {
                    let plan = engines.planner.clone().tick(&Observation { at, ..seen.clone() }, &engines.supply);
                    plan.target
                };
                let leap = *leaps.next().unwrap();
                let by = Duration::from_micros(leap.unsigned_abs());
                let leapt = at(if leap < 0 { seen.at - by } else { seen.at + by });
                // At most two seconds of a step count, at least none.
                let usual = [seen.at - TICK, seen.at - TICK / 2, seen.at, seen.at + TICK].map(at);
                prop_assert!(usual.contains(&leapt), "{leap} us: {leapt} and not one of {usual:?}");
                engines.evaluate(&seen);
            }
        }
    }

    #[test]
    fn figures_that_a_rule_does_not_go_by_change_nothing_if_they_are_missing(
        setting in settings(), jobs in any::<bool>(), stretches in stretches(),
    ) {
        let rule = if jobs { Rule::Jobs } else { Rule::Concurrency };
        let sizing = Sizing { rule: RuleChoice::Fixed(rule), ..setting.sizing.clone() };
        let setting = Setting { sizing, ..setting };
        let (mut whole, mut blind) = (engines(&setting), engines(&setting));
        for stretch in &stretches {
            begin(&mut whole, stretch);
            begin(&mut blind, stretch);
            for second in 0..stretch.seconds {
                let full = Stretch { silent: None, ..stretch.clone() };
                let seen = look(&mut whole, &full, second);
                let mut less = look(&mut blind, &full, second);
                for facts in &mut less.replicas {
                    (facts.load, facts.memory, facts.waiting) = (None, None, None);
                }
                prop_assert_eq!(whole.evaluate(&seen), blind.evaluate(&less));
            }
        }
    }
}
