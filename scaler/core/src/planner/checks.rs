//! What the rules that look every 30 s remember (token load and jobs), and what they make of it: the size that is wanted
//! until the next check, or until nobody asks for so many any more. It never asks whether growth can be had.

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::time::{Duration, Instant};

use super::asked::Figures;
use super::blocks::is_urgent;
use super::queues::{EngineQueues, Jump, Standing};
use super::{Census, Verdict};
use crate::config::Sizing;
use crate::guard::confirm::{CHECKS, Confirm};
use crate::guard::cool::{Cool, Spare};
use crate::guard::watched::Watched;
use crate::reconcile::{Leaving, leaving};
use crate::rule::Need;
use crate::rule::samples::{Samples, serves};
use crate::rule::token_load::{self, COMFORT};

use super::reading::{Coming, Reading, Sampled};

/// The time between two checks (B1).
pub const CHECK: Duration = Duration::from_secs(30);
/// Replicas that are added in one step, at most (B4).
pub const STEP: u32 = 2;
/// How long an engine that has just become ready may take to tell for the first time what it holds.
const FIRST_WORD: Duration = Duration::from_secs(3);

/// How long fewer must be needed, or nobody there, before what could not be had is forgotten: loads swing, and batches have
/// gaps.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    watched: Watched,
    pub(super) samples: Samples,
    confirm: Confirm,
    cool: Cool,
    queues: EngineQueues,
    /// When to check next, in watched time.
    next: Duration,
    /// How many there should be; `None` until first asked.
    level: Option<u32>,
    /// Why `level` is more than there are, where it is.
    cause: ScaleReason,
    step: Duration,
    /// For how long fewer than `level` have been needed, and for how long nobody has been there.
    fewer: Duration,
    nobody: Duration,
}

/// What one evaluation goes by.
pub(super) struct Look<'a> {
    pub(super) seen: &'a Observation,
    pub(super) fleet: &'a Census,
    pub(super) sizing: &'a Sizing,
    pub(super) figures: &'a Figures,
    /// A ready replica was lost, and its successor does not count yet.
    pub(super) replacing: bool,
}

impl Checks {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            watched: Watched::new(now),
            samples: Samples::default(),
            confirm: Confirm::default(),
            cool: Cool::default(),
            queues: EngineQueues::default(),
            next: CHECK,
            level: None,
            cause: ScaleReason::Demand,
            step: Duration::ZERO,
            fewer: Duration::ZERO,
            nobody: Duration::ZERO,
        }
    }

    /// Takes in what is there, whatever rule is in force, so that a rule that takes over has its past.
    pub(super) fn see(&mut self, seen: &Observation) {
        self.step = self.watched.see(seen.at);
        let at = self.watched.total();
        self.samples.see(seen, at);
        self.queues.see(seen, at);
    }

    /// Watched time until the next check.
    pub(super) fn due_in(&self) -> Duration {
        self.next.saturating_sub(self.watched.total())
    }

    /// A replica has become ready, or autoscaling is off: the time of quiet begins anew.
    pub(super) fn restart(&mut self) {
        self.cool.restart();
    }

    /// What the engines' queues say of the fleet: whether it is full, and how many would wait with one replica fewer.
    pub(super) fn places(
        &mut self,
        seen: &Observation,
        reading: &Reading,
        coming: Coming<'_>,
    ) -> (Option<Standing>, Option<u32>) {
        let spare = reading.load.is_some_and(|load| load <= COMFORT);
        let full = self.queues.full(seen, spare, coming.units(seen));
        let order = leaving(Leaving::LeastWarm, &seen.replicas);
        let left = order.iter().skip(1).filter(|replica| replica.is_ready());
        let left = left.map(|replica| replica.capacity.units()).fold(0, u32::saturating_add);
        (full, self.queues.crowd(self.samples.jobs(), left))
    }

    /// How many were wanted at the last evaluation, whatever `max` allows.
    pub(super) fn wants(&self) -> Option<u32> {
        self.level
    }

    /// One evaluation.
    pub(super) fn decide(&mut self, look: &Look<'_>) -> Verdict {
        let current = look.fleet.current();
        // More than was wanted: what somebody adopted or ordered elsewhere, or a removal that could not be done. It goes
        // as all others do, after a whole time of quiet (C3).
        let mut level = self.level.unwrap_or(current).max(current);
        self.cool.see(look.figures.spare(), self.step);
        self.see_need(look, level);
        if self.watched.total() >= self.next {
            self.next = self.watched.total() + CHECK;
            level = self.check(look, level);
        } else if let Some(jump) = self.queues.look_again(look.seen, self.watched.total())
            && let Some(need) = burst(look, jump)
            && need.replicas > current
        {
            level = self.grow(look, need.replicas, need.cause);
        } else if !look.replacing {
            level = self.still_asked(look, level);
        }
        if let Some(need) = &look.figures.line
            && need.replicas > level
        {
            (level, self.cause) = (need.replicas, need.cause.clone());
        }
        if level == current && self.may_remove(look) {
            level -= 1;
            self.cool.restart();
        }
        let (floor, ceiling) = (look.sizing.floor(), look.sizing.ceiling());
        // Who stands for a lost one is no need beyond max.
        let level = if look.replacing { level.min(ceiling) } else { level };
        let target = level.clamp(floor, ceiling);
        // What max alone forbids is had as soon as it allows it.
        self.level = Some(if target < current { target } else { level });
        Verdict { target, reason: self.reason(look, level, target) }
    }

    /// A whole time of quiet, and one fewer would do now too (B5); not while one is measured (A1).
    fn may_remove(&self, look: &Look<'_>) -> bool {
        let held = look.seen.replicas.iter().any(|replica| replica.hold.is_some());
        !held
            && look.figures.spare() == Spare::Yes
            && look.figures.reading.fits
            && self.cool.low_for() >= look.sizing.cool
            && look.fleet.current() > look.sizing.floor()
    }

    /// What is wanted from this check on (B3, B4).
    fn check(&mut self, look: &Look<'_>, level: u32) -> u32 {
        let current = look.fleet.current();
        let jump = self.queues.check(look.seen, self.watched.total());
        let (needed, stays) =
            (look.figures.by_load(), self.queues.stays(look.figures.full.map(|standing| standing.full)));
        let more = needed.filter(|needed| *needed > current && self.nobody < FORGOTTEN);
        if needed.is_some() {
            // A queue that has shrunk is a first one.
            let goes_on = stays || look.figures.reading.needed > Some(current);
            self.confirm.check(more.is_some() && goes_on);
            if more.is_some() && !goes_on {
                self.confirm.check(true);
            }
        }
        match (look.figures.rule, more) {
            (Sampled::Jobs, Some(needed)) => return self.grow(look, needed, ScaleReason::Demand),
            (_, Some(needed)) if self.confirm.is_confirmed() => {
                return self.grow(look, needed, ScaleReason::Demand);
            }
            _ => {}
        }
        if let Some(need) = jump.and_then(|jump| burst(look, jump))
            && need.replicas > current
        {
            return self.grow(look, need.replicas.max(more.unwrap_or(0)), need.cause);
        }
        still_needed(look, level)
    }

    /// Takes in for how long fewer are needed than `level`, and nobody is there.
    fn see_need(&mut self, look: &Look<'_>, level: u32) {
        let passed =
            |so: bool, before: Duration| if so { before.saturating_add(self.step) } else { Duration::ZERO };
        let lower = !self.is_burst(look.seen) && still_needed(look, level) < level;
        (self.fewer, self.nobody) =
            (passed(lower, self.fewer), passed(!look.figures.reading.there, self.nobody));
    }

    /// Between two checks: what could not be had so far and nobody asks for any more, those in the line at once, the load once
    /// that has lasted, is forgotten.
    fn still_asked(&self, look: &Look<'_>, level: u32) -> u32 {
        let in_line = matches!(self.cause, ScaleReason::QueueWait | ScaleReason::FromZero);
        match () {
            () if self.nobody >= FORGOTTEN => level.min(look.fleet.current()),
            () if in_line && look.figures.line.is_none() && look.seen.demand() == 0 => {
                level.min(look.fleet.current())
            }
            () if in_line || self.fewer >= FORGOTTEN => still_needed(look, level),
            () if look.figures.resupplied && !self.is_burst(look.seen) => still_needed(look, level),
            () => level,
        }
    }

    /// What is wanted more than there is, is wanted for a jump of the engines' queues, of which somebody waits still.
    fn is_burst(&self, seen: &Observation) -> bool {
        let waits =
            |replica: &ReplicaFacts| serves(replica) && replica.waiting.is_none_or(|waiting| waiting > 0);
        matches!(self.cause, ScaleReason::Burst { .. }) && seen.replicas.iter().any(waits)
    }

    fn grow(&mut self, look: &Look<'_>, needed: u32, cause: ScaleReason) -> u32 {
        self.queues.acted(look.seen);
        let most = look.fleet.current().saturating_add(STEP);
        self.cause = if needed > most { ScaleReason::Step { most: STEP } } else { cause };
        needed.min(most)
    }

    fn reason(&self, look: &Look<'_>, level: u32, target: u32) -> ScaleReason {
        let (sizing, current) = (look.sizing, look.fleet.current());
        if target < current {
            return match () {
                () if current > sizing.ceiling() => ScaleReason::AtMax,
                () if look.seen.demand() == 0 => ScaleReason::Idle,
                () => ScaleReason::LowDemand,
            };
        }
        if target > current {
            return match () {
                () if look.replacing => ScaleReason::Replacing,
                () if level < target => ScaleReason::BelowMin,
                () => self.cause.clone(),
            };
        }
        // Somebody waits, and max forbids one for him.
        if level > sizing.ceiling() && is_urgent(&self.cause) {
            return self.cause.clone();
        }
        let Some(needed) = look.figures.by_load() else { return unknown(look) };
        if needed > current && level > sizing.ceiling() {
            return ScaleReason::AtMax;
        }
        if needed > current {
            let of = if look.figures.rule == Sampled::Jobs { 1 } else { CHECKS };
            return ScaleReason::Confirming { seen: self.confirm.seen().min(of - 1), of };
        }
        if let (Spare::Yes, Some(waiting)) = (look.figures.reading.spare, look.figures.crowd)
            && current > sizing.floor()
            && look.fleet.on_the_way == 0
        {
            return ScaleReason::WouldQueue { waiting };
        }
        match (look.figures.reading.spare, look.figures.reading.survivors) {
            _ if look.fleet.on_the_way > 0 => ScaleReason::OnTheirWay { count: look.fleet.on_the_way },
            (Spare::Yes, _) if current <= sizing.floor() && current > 0 => ScaleReason::AtMin,
            (Spare::Yes, _) if current > 0 => {
                let low_for = self.cool.low_for().min(sizing.cool);
                ScaleReason::Cooling { low_for, window: sizing.cool, to: current - 1 }
            }
            (Spare::No, _)
                if let Some(crowded) = &look.figures.reading.crowded
                    && current > sizing.floor() =>
            {
                crowded.clone()
            }
            (Spare::No, Some(percent)) if current > sizing.floor() => ScaleReason::Survivors { percent },
            (Spare::Unknown, _) => unknown(look),
            // One fewer would be comfortable; whether it could go too is nobody's question while the floor keeps it.
            _ if look.figures.rule == Sampled::Tokens && needed < current && current <= sizing.floor() => {
                ScaleReason::AtMin
            }
            _ => ScaleReason::Steady,
        }
    }
}

/// What could not be had so far and is not needed any more is not ordered later, and no reason is told for it; what is on its
/// way comes.
fn still_needed(look: &Look<'_>, level: u32) -> u32 {
    let current = look.fleet.current();
    look.figures.needed(current).map_or(level, |needed| level.min(needed.max(current)))
}

/// What the engines hold is not known. One that has just become ready is asked for the first time: until it has had time to
/// answer, it counts as on its way.
fn unknown(look: &Look<'_>) -> ScaleReason {
    let silent =
        |replica: &&ReplicaFacts| replica.is_ready() && (replica.load.is_none() || replica.memory.is_none());
    let silent: Vec<_> = look.seen.replicas.iter().filter(silent).collect();
    let fresh = silent.iter().all(|replica| look.seen.at.since(replica.since) < FIRST_WORD);
    match u32::try_from(silent.len()) {
        Ok(count @ 1..) if fresh && look.figures.rule == Sampled::Tokens => ScaleReason::OnTheirWay { count },
        _ => ScaleReason::NoData,
    }
}

/// What a jump of the engines' queues asks for: a replica for each target's worth of those that wait in them (B3).
fn burst(look: &Look<'_>, Jump { grew, waiting }: Jump) -> Option<Need> {
    let (ready, each) = (look.fleet.ready, look.sizing.target());
    let applies =
        look.figures.rule == Sampled::Tokens && token_load::is_burst(grew, ready.saturating_mul(each));
    applies.then(|| Need {
        replicas: ready.saturating_add(waiting.div_ceil(each).max(1)),
        cause: ScaleReason::Burst { grew },
    })
}
