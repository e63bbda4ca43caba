//! The planner of one deployment: rule → need → guards → plan. It decides how many replicas there should be and says
//! why (E1). Which ones come and go is for [`crate::reconcile`]; that anything happens is for the driver.

use std::cmp::Ordering;

use tidegate_shared::decision::{ScaleDecision, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::{Duration, Instant};

use crate::config::Sizing;
use crate::guard::pause::Pause;
use crate::guard::window::Window;
use crate::reconcile::Goal;
use crate::rule::{Need, concurrency};

/// The time between two evaluations when nothing asks for one sooner (A2).
pub const TICK: Duration = Duration::from_secs(1);

/// What one evaluation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many replicas there should be, ready or on their way; within floor and ceiling.
    pub target: u32,
    /// Whether new replicas may be ordered now; `false` during a pause after failed starts (C1).
    pub may_start: bool,
    /// When to evaluate again at the latest, at most [`TICK`] away.
    pub next: Instant,
    /// What was seen, and why `target` is what it is.
    pub why: ScaleDecision,
}

impl Plan {
    /// The part of the plan that [`crate::reconcile::reconcile`] works towards.
    pub fn goal(&self) -> Goal {
        Goal { target: self.target, demand: self.why.demand, may_start: self.may_start }
    }
}

/// Sizes one deployment.
#[derive(Clone, Debug)]
pub struct Planner {
    sizing: Sizing,
    window: Window,
    pause: Pause,
    /// Ready replicas and target of the last evaluation.
    last: Option<(Census, u32)>,
    /// Ready replicas were lost, and their successors are not ordered yet.
    replacing: bool,
}

impl Planner {
    /// A planner that has seen nothing: it will not shrink the fleet before it has watched one window (C3).
    pub fn new(sizing: Sizing, now: Instant) -> Self {
        let window = Window::new(sizing.window, now);
        Self { sizing, window, pause: Pause::default(), last: None, replacing: false }
    }

    /// The settings in force.
    pub fn sizing(&self) -> &Sizing {
        &self.sizing
    }

    /// New settings, from the next evaluation on.
    pub fn resize(&mut self, sizing: Sizing) {
        self.window.resize(sizing.window);
        self.sizing = sizing;
    }

    /// A start has failed: the next one waits, longer each time (C1).
    pub fn start_failed(&mut self, now: Instant) {
        self.pause.failed(now);
    }

    /// A replica that was on its way is ready: the pauses are over, and the window begins anew, so that a replica
    /// which took longer to load than the window lasts is not stopped the moment that it can serve.
    pub fn became_ready(&mut self) {
        self.pause.reset();
        self.window.restart();
    }

    /// One evaluation.
    pub fn tick(&mut self, seen: &Observation) -> Plan {
        let now = seen.at;
        let fleet = Census::of(&seen.replicas);
        let need = concurrency::need(seen, fleet.ready, fleet.on_the_way, &self.sizing);
        self.window.see(need.replicas, now);
        self.notice_losses(&fleet);

        let (target, mut reason) = self.size(&need, &fleet);
        let paused = self.pause.left(now);
        if let Some(retry_in) = paused
            && target > fleet.current().saturating_add(fleet.draining)
        {
            reason = ScaleReason::BackingOff { failures: self.pause.failures(), retry_in };
        }
        self.replacing &= fleet.current() < target;
        self.last = Some((fleet, target));
        Plan {
            target,
            may_start: paused.is_none(),
            next: now + paused.map_or(TICK, |left| left.min(TICK)),
            why: decision(seen, &fleet, need.replicas, target, reason),
        }
    }

    /// The decision of an evaluation that cannot be acted upon, because the provider does not answer (C2). Nothing is
    /// learnt from it: the fleet is held, and the window does not move (C4).
    pub fn hold(&self, seen: &Observation) -> ScaleDecision {
        let fleet = Census::of(&seen.replicas);
        let need = concurrency::need(seen, fleet.ready, fleet.on_the_way, &self.sizing);
        decision(seen, &fleet, need.replicas, fleet.current(), ScaleReason::ProviderError)
    }

    /// Fewer ready replicas than at the last evaluation, though that one asked for no fewer: some have died.
    fn notice_losses(&mut self, fleet: &Census) {
        if let Some((before, target)) = &self.last {
            self.replacing |= fleet.ready < before.ready && *target >= before.current();
        }
    }

    fn size(&self, need: &Need, fleet: &Census) -> (u32, ScaleReason) {
        let (floor, ceiling, current) = (self.sizing.floor(), self.sizing.ceiling(), fleet.current());
        if !self.sizing.autoscale {
            return (floor, ScaleReason::AutoscaleOff);
        }
        let wanted = need.replicas.clamp(floor, ceiling);
        let reason = match wanted.cmp(&current) {
            Ordering::Less if current > ceiling => return (ceiling, ScaleReason::AtMax),
            Ordering::Less => return self.shrink(current),
            _ if need.replicas > ceiling => ScaleReason::AtMax,
            Ordering::Greater if self.replacing => ScaleReason::Replacing,
            Ordering::Greater if need.replicas < floor => ScaleReason::BelowMin,
            Ordering::Greater => need.cause.clone(),
            Ordering::Equal if fleet.on_the_way > 0 => ScaleReason::OnTheirWay { count: fleet.on_the_way },
            Ordering::Equal if need.replicas < floor => ScaleReason::AtMin,
            Ordering::Equal => ScaleReason::Steady,
        };
        (wanted, reason)
    }

    /// Fewer would do: only once that was so for the whole window, and to the largest need in it (A4).
    fn shrink(&self, current: u32) -> (u32, ScaleReason) {
        if !self.window.stayed_below(current) {
            let low_for = self.window.low_for(current);
            return (current, ScaleReason::Cooling { low_for, window: self.window.length() });
        }
        let peak = self.window.peak();
        let reason = if peak == 0 { ScaleReason::Idle } else { ScaleReason::LowDemand };
        (peak.clamp(self.sizing.floor(), self.sizing.ceiling()), reason)
    }
}

/// The fleet, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    ready: u32,
    on_the_way: u32,
    draining: u32,
}

impl Census {
    fn of(replicas: &[ReplicaFacts]) -> Self {
        let mut census = Self::default();
        for replica in replicas {
            match replica.phase {
                Phase::Ready => census.ready += 1,
                Phase::Provisioning | Phase::Starting => census.on_the_way += 1,
                Phase::Draining => census.draining += 1,
                Phase::Failed | Phase::Gone => {}
            }
        }
        census
    }

    /// Replicas that count as capacity, now or soon.
    fn current(&self) -> u32 {
        self.ready.saturating_add(self.on_the_way)
    }
}

fn decision(
    seen: &Observation,
    fleet: &Census,
    needed: u32,
    target: u32,
    reason: ScaleReason,
) -> ScaleDecision {
    ScaleDecision {
        at: seen.at,
        demand: seen.demand(),
        queued: seen.queued,
        oldest_wait: seen.oldest_wait,
        current: fleet.current(),
        needed,
        target,
        reason,
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
