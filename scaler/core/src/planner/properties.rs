//! What holds for every load: generated sizings, demands and clocks against a fleet that starts slowly, 10,000 cases each.

use proptest::prelude::*;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::ReplicaFacts;

use super::*;
use crate::config::{MAX_REPLICAS, Mode};
use crate::reconcile::{Action, reconcile};

mod constant;
mod unasked;
mod waits;
mod walk;
mod whole;

/// What happens in one step of a generated run.
#[derive(Clone, Debug)]
struct Step {
    passed_ms: u64,
    in_flight: u32,
    queued: u32,
    /// Which replica, if there is one of that rank, becomes ready or fails.
    event: Option<(usize, bool)>,
}

fn sizings() -> impl Strategy<Value = Sizing> {
    let limit = prop_oneof![1 => Just(u32::MAX), 1 => 1..64u32];
    (0..6u32, 0..40u32, 1..64u32, 1..60u64, any::<bool>(), 0..10u8, 0..4u32, limit).prop_map(
        |(min, max, target_concurrency, window, active, autoscale, parked, limit)| Sizing {
            parked,
            limit,
            mode: if active { Mode::Active } else { Mode::Flex },
            min,
            max,
            target_concurrency,
            window: Duration::from_secs(window),
            autoscale: autoscale > 0,
            ..Sizing::default()
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let passed = prop_oneof![6 => Just(1000u64), 2 => 0..3000u64, 1 => Just(0u64), 1 => Just(3_600_000u64)];
    let event = proptest::option::of((0..8usize, any::<bool>()));
    let step = (passed, 0..300u32, 0..40u32, event).prop_map(|(passed_ms, in_flight, queued, event)| Step {
        passed_ms,
        in_flight,
        queued,
        event,
    });
    proptest::collection::vec(step, 1..60)
}

/// A fleet that obeys actions: starts and drains take until the test says so, stops are instant.
#[derive(Default)]
struct Replicas {
    all: Vec<ReplicaFacts>,
    last_id: u32,
}

impl Replicas {
    fn obey(&mut self, actions: &[Action], now: Instant) {
        for action in actions {
            match action {
                Action::Start(_) => self.order(now),
                Action::Drain(id) => self.set(*id, Phase::Draining, now),
                Action::Undrain(id) => self.set(*id, Phase::Ready, now),
                Action::Park(id) => self.set(*id, Phase::Parked, now),
                Action::Wake(id) => self.set(*id, Phase::Waking, now),
                Action::Stop(id) => self.all.retain(|replica| replica.id != *id),
            }
        }
    }

    fn order(&mut self, now: Instant) {
        self.last_id += 1;
        let id = ReplicaId(self.last_id);
        self.all.push(ReplicaFacts::new(id, Phase::Provisioning, now, Capacity::ONE));
    }

    fn set(&mut self, id: ReplicaId, phase: Phase, now: Instant) {
        for replica in self.all.iter_mut().filter(|replica| replica.id == id) {
            (replica.phase, replica.since) = (phase, now);
        }
    }

    /// Spreads the load over those that serve, `limit` requests each at most; what nobody can take waits.
    fn observe(&mut self, step: &Step, limit: u32, now: Instant) -> Observation {
        let serving: Vec<_> = self.all.iter_mut().filter(|replica| replica.phase == Phase::Ready).collect();
        let places = limit.saturating_mul(u32::try_from(serving.len()).unwrap());
        let served = step.in_flight.min(places);
        let each = served / u32::try_from(serving.len().max(1)).unwrap();
        serving.into_iter().for_each(|replica| replica.in_flight = each);
        Observation {
            at: now,
            in_flight: served,
            queued: step.queued + step.in_flight - served,
            promised: 0,
            oldest_wait: Duration::from_millis(u64::from(step.queued) * 100),
            replicas: self.all.clone(),
        }
    }
}

fn plenty() -> Supply {
    Supply { offers: vec![Offer::new("any", Capacity::ONE, Price::FREE)], ..Supply::default() }
}

fn counted(replicas: &[ReplicaFacts]) -> u32 {
    Census::of(replicas).current()
}

/// E1: the bounds that a sentence tells are those in force.
fn told_as_it_is(plan: &Plan, sizing: &Sizing) -> Result<(), TestCaseError> {
    let text = plan.why.to_string();
    for (word, bound) in [("max is ", sizing.ceiling()), ("min is ", sizing.floor())] {
        if let Some((_, told)) = text.split_once(word) {
            // What blocks growth may follow.
            let told = told.split([',', ';']).next().unwrap_or_default();
            prop_assert_eq!(told.parse(), Ok(bound), "E1: {}", text);
        }
    }
    let room = plan.why.current < sizing.ceiling();
    prop_assert!(
        plan.why.reason != ScaleReason::AtMax || !room || plan.target > plan.why.current,
        "C2: {}",
        text
    );
    Ok(())
}

/// C6: what is parked is idle and within its bound, and nobody is started while somebody sleeps.
fn kept_asleep(
    seen: &Observation,
    plan: &Plan,
    actions: &[Action],
    fleet: &Replicas,
    sizing: &Sizing,
) -> Result<(), TestCaseError> {
    let of = |id: ReplicaId| seen.replicas.iter().find(|replica| replica.id == id);
    let asleep = fleet.all.iter().filter(|replica| replica.phase == Phase::Parked).count();
    let before = seen.replicas.iter().filter(|replica| replica.phase == Phase::Parked).count();
    prop_assert!(asleep <= before.max(sizing.parked as usize), "C6: {actions:?}");
    let wakes = actions.iter().filter(|action| matches!(action, Action::Wake(_))).count();
    prop_assert_eq!(wakes, plan.why.woken as usize, "C6: what is told is what is done");
    for action in actions {
        match action {
            Action::Start(_) => prop_assert_eq!(asleep, 0, "C6: a start beside a sleeper: {:?}", actions),
            Action::Park(id) => prop_assert!(of(*id).is_some_and(|one| one.in_flight == 0), "C6"),
            Action::Wake(id) => prop_assert!(of(*id).is_some_and(|one| one.phase == Phase::Parked), "C6"),
            Action::Drain(_) | Action::Undrain(_) | Action::Stop(_) => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn whatever_happens_the_target_is_within_bounds_and_covers_the_demand(sizing in sizings(), steps in steps()) {
        let mut now = Instant::ZERO;
        let mut planner = Planner::new(sizing.clone(), now);
        let mut fleet = Replicas::default();
        for step in &steps {
            now = now + Duration::from_millis(step.passed_ms);
            if let Some((rank, good)) = step.event
                && let Some(id) = fleet.all.get(rank).map(|replica| replica.id)
            {
                fleet.set(id, if good { Phase::Ready } else { Phase::Failed }, now);
                if good { planner.became_ready() } else { planner.start_failed(now) }
            }
            let seen = fleet.observe(step, sizing.limit, now);
            let plan = planner.tick(&seen, &plenty());

            prop_assert!(sizing.floor() <= plan.target && plan.target <= sizing.ceiling());
            prop_assert!(now < plan.next && plan.next <= now + TICK);
            told_as_it_is(&plan, &sizing)?;
            if sizing.autoscale {
                let plain = seen.demand().div_ceil(sizing.target());
                prop_assert!(plan.target >= plain.min(sizing.ceiling()), "A2: {plan:?}");
            }
            let actions = reconcile(&plan.goal(), &seen.replicas, now, &sizing);
            fleet.obey(&actions, now);

            prop_assert!(fleet.all.len() <= MAX_REPLICAS as usize, "A6");
            let had_ready = seen.replicas.iter().any(|replica| replica.phase == Phase::Ready);
            let has_ready = fleet.all.iter().any(|replica| replica.phase == Phase::Ready);
            prop_assert!(has_ready || !had_ready || seen.demand() == 0, "C-055: {actions:?}");
            let starts = actions.iter().any(|action| matches!(action, Action::Start(_)));
            let stops = actions.iter().filter(|action| matches!(action, Action::Drain(_))).count();
            prop_assert!(!starts || stops == 0, "grows and shrinks at once: {actions:?}");
            let over = counted(&seen.replicas) > sizing.ceiling();
            if sizing.autoscale && !over {
                prop_assert!(plan.target + 1 >= plan.why.current && stops <= 1, "two at once: {plan:?}");
                prop_assert!(seen.queued == 0 || plan.target >= plan.why.current, "somebody waits: {plan:?}");
            }
            kept_asleep(&seen, &plan, &actions, &fleet, &sizing)?;
        }
    }

    #[test]
    fn constant_load_never_oscillates(sizing in sizings(), adopted in 0..8u32, in_flight in 0..300u32) {
        let mut now = Instant::ZERO;
        let mut planner = Planner::new(sizing.clone(), now);
        let mut fleet = Replicas::default();
        (0..adopted.min(sizing.ceiling())).for_each(|_| fleet.order(now));
        let step = Step { passed_ms: 1000, in_flight, queued: 0, event: None };
        let mut sizes = vec![counted(&fleet.all)];
        for _ in 0..200 {
            now = now + TICK;
            for id in fleet.all.iter().map(|replica| replica.id).collect::<Vec<_>>() {
                if fleet.all.iter().any(|replica| replica.id == id && replica.phase == Phase::Provisioning) {
                    fleet.set(id, Phase::Ready, now);
                    planner.became_ready();
                }
            }
            // Who finds no place has waited too long by the next look.
            let mut seen = fleet.observe(&step, sizing.limit, now);
            seen.oldest_wait = if seen.queued > 0 { sizing.queue_threshold } else { Duration::ZERO };
            let plan = planner.tick(&seen, &plenty());
            let actions = reconcile(&plan.goal(), &seen.replicas, now, &sizing);
            fleet.obey(&actions, now);
            sizes.push(counted(&fleet.all));
        }
        sizes.dedup();
        prop_assert!(sizes.is_sorted() || sizes.iter().rev().is_sorted(), "{sizes:?}");
    }

    #[test]
    fn c4_a_clock_that_stands_still_or_leaps_shrinks_nothing(
        leaps in proptest::collection::vec(prop_oneof![Just(0u64), Just(3_600_000_000), Just(1)], 1..14),
    ) {
        let sizing = Sizing { max: 8, ..Sizing::default() };
        let mut now = Instant::ZERO;
        let mut planner = Planner::new(sizing, now);
        let mut fleet = Replicas::default();
        (0..3).for_each(|_| fleet.order(now));
        for leap in leaps {
            now = now + Duration::from_micros(leap);
            let seen = fleet.observe(&Step { passed_ms: 0, in_flight: 0, queued: 0, event: None }, u32::MAX, now);
            prop_assert_eq!(planner.tick(&seen, &plenty()).target, 3);
        }
    }
}
