//! The fleet in numbers, and the decision that tells them. It decides nothing.

use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::{Phase, ReplicaFacts};

use super::asked::Asked;

/// The fleet, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Census {
    pub(super) ready: u32,
    pub(super) on_the_way: u32,
    pub(super) draining: u32,
    pub(super) parked: u32,
    /// Failed or to be stopped: they serve nobody any more, and hold their places until they are gone (A6).
    pub(super) leaving: u32,
    /// On their way, and without a machine yet.
    pub(super) in_line: u32,
}

impl Census {
    pub(super) fn of(replicas: &[ReplicaFacts]) -> Self {
        let mut census = Self::default();
        for replica in replicas {
            match replica.phase {
                Phase::Ready => census.ready += 1,
                Phase::Provisioning | Phase::Starting | Phase::Waking => census.on_the_way += 1,
                Phase::Draining => census.draining += 1,
                Phase::Parked => census.parked += 1,
                Phase::Failed | Phase::Gone => census.leaving += 1,
            }
            census.in_line += u32::from(replica.in_line && replica.is_on_its_way());
        }
        census
    }

    /// All that exist: no more than the ceiling may.
    fn existing(&self) -> u32 {
        let others = [self.draining, self.parked, self.leaving];
        others.iter().fold(self.current(), |sum, some| sum.saturating_add(*some))
    }

    /// How many more may exist (A6).
    pub(super) fn places(&self, ceiling: u32) -> u32 {
        ceiling.saturating_sub(self.existing())
    }

    /// Replicas that count as capacity, now or soon.
    pub(super) fn current(&self) -> u32 {
        self.ready.saturating_add(self.on_the_way)
    }
}

/// The numbers of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) needed: u32,
    pub(super) load: Option<u32>,
    pub(super) engine_queue: u32,
    pub(super) waiters: u32,
    pub(super) target: u32,
    pub(super) woken: u32,
    pub(super) current: u32,
}

impl Counted {
    /// What is asked for, of a fleet of none.
    pub(super) fn of(asked: &Asked) -> Self {
        let Asked { need, load, engine_queue, waiters, .. } = asked;
        let (needed, load, engine_queue, waiters) = (need.replicas, *load, *engine_queue, *waiters);
        Self { needed, load, engine_queue, waiters, target: 0, woken: 0, current: 0 }
    }
}

pub(super) fn decision(
    seen: &Observation,
    rule: Rule,
    counted: Counted,
    (reason, also): (ScaleReason, Vec<ScaleReason>),
) -> ScaleDecision {
    let Counted { needed, load, engine_queue, waiters, target, woken, current } = counted;
    ScaleDecision {
        at: seen.at,
        rule,
        demand: seen.demand(),
        queued: seen.queued,
        promised: seen.promised,
        oldest_wait: seen.oldest_wait,
        load,
        engine_queue,
        waiters,
        current,
        needed,
        target,
        woken,
        wanted: None,
        reason,
        also,
    }
}
