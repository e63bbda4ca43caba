//! The planner of one deployment: rule → need → guards → plan. It decides how many replicas there should be, on which
//! offers new ones are started, and says why (E1). Which ones come and go is for [`crate::reconcile`]; that anything
//! happens is for the driver.

use std::collections::BTreeMap;

use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tidegate_shared::replica::{Capacity, Phase, Starts};
use tidegate_shared::time::{Duration, Instant};

use crate::budget::Grant;
use crate::config::{RuleChoice, Sizing};
use crate::guard::carried::Carried;
use crate::guard::pause::{Pause, STEADY};
use crate::guard::room::Rooms;
use crate::guard::window::Window;
use crate::reconcile::{Falling, Goal, Leaving};
use crate::rule::concurrency;
use asked::Figures;
use blocks::{is_urgent, only_the_cap};
use census::{Census, Counted, decision};
pub use checks::{CHECK, STEP};
use checks::{Checks, Look};

mod asked;
mod blocks;
mod census;
mod checks;
mod demand;
mod line;
mod queues;
mod reading;
mod tries;

/// The time between two evaluations when nothing asks for one sooner (A2).
pub const TICK: Duration = Duration::from_secs(1);

/// What growth can be had from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// What the provider offers now.
    pub offers: Vec<Offer>,
    /// What the gateway as a whole allows.
    pub grant: Grant,
    /// Replicas on their way that the provider has taken and has no room for yet, in order of id.
    pub waiting: Vec<ReplicaId>,
    /// Replicas on their way that the provider has taken and does not start before somebody changes something.
    pub held: u32,
    /// Parked replicas that are still falling asleep.
    pub falling: Falling,
    /// Of the offers that had no room, those that may be asked again now, as [`Planner::offers`] tells.
    pub again: Vec<Offer>,
    /// Starts under way on offers that had no room, which are no replicas yet.
    pub trying: u32,
}

/// What one evaluation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many replicas there should be, ready or on their way; within floor and ceiling.
    pub target: u32,
    /// What new replicas may be started on now, one each; fewer than are missing while something blocks growth (C1, C2).
    pub orders: Vec<Offer>,
    /// What is asked again whether it has room by now, one start each: none of them counts before it is taken (M1).
    pub tries: Vec<Offer>,
    /// Those that wait for a machine and may not have one any more: the credit is used up, or they cost more than the cap
    /// (M1, M3).
    pub withdrawn: Vec<ReplicaId>,
    /// Those that wait for one though an offer that may be taken by now has room: they are ordered anew there (M1, M3).
    pub moved: Vec<ReplicaId>,
    /// Replicas that may be parked (C6).
    pub parked: u32,
    /// Those of the parked ones that cannot be woken yet.
    pub falling: Falling,
    /// Who leaves first.
    pub leaving: Leaving,
    /// When to evaluate again at the latest, at most [`TICK`] away.
    pub next: Instant,
    /// Whether room under the gateway's cap can come by itself.
    pub room_comes: bool,
    /// Whether nothing but the gateway's cap keeps some that are missing from being started.
    pub needs_room: bool,
    /// Whether the credit keeps one more from being started (M3).
    pub broke: bool,
    /// What was seen, and why `target` is what it is.
    pub why: ScaleDecision,
}

impl Plan {
    /// The part of the plan that [`crate::reconcile::reconcile`] works towards.
    pub fn goal(&self) -> Goal {
        let keep_last = self.why.demand > 0 && self.why.reason != ScaleReason::MadeRoom;
        let Self { target, parked, leaving, .. } = *self;
        let (orders, falling) = (self.orders.clone(), self.falling.clone());
        let withdrawn = [self.withdrawn.as_slice(), &self.moved].concat();
        Goal { target, keep_last, orders, withdrawn, parked, falling, leaving }
    }

    /// When the next replica can be ordered, which is `from` where nothing else keeps it (C1, C2). The gateway's cap does
    /// only where nobody can make room under it.
    pub fn starts(&self, from: Instant) -> Starts {
        use ScaleReason::{AtMax, GatewayCap, NoCapacity, NoCredit, NoFit, PriceCap};
        let is = |which: fn(&ScaleReason) -> bool| self.why.blocks().any(which);
        let capped = is(|block| matches!(block, GatewayCap { .. }));
        match () {
            () if !self.orders.is_empty() || self.why.woken > 0 => Starts::From(from),
            // As many as may be are there: what would block one more keeps nobody waiting for those.
            () if self.why.reason == AtMax => Starts::From(from),
            // All that are wanted are ordered, and what else is told bars other offers for those that wait.
            () if self.why.target <= self.why.current && is(|block| *block == NoCapacity) => Starts::Stalled,
            () if is(|block| matches!(block, PriceCap { .. } | NoFit | NoCredit)) => Starts::Blocked,
            () if capped && !self.room_comes => Starts::Blocked,
            // With room under the cap there may be some at the provider.
            () if is(|block| *block == NoCapacity) && !capped => Starts::Stalled,
            () => Starts::From(from),
        }
    }
}

/// What a rule and its guards want, whether or not it can be had.
#[derive(Clone, Debug)]
struct Verdict {
    target: u32,
    reason: ScaleReason,
}

/// Sizes one deployment.
#[derive(Clone, Debug)]
pub struct Planner {
    sizing: Sizing,
    window: Window,
    carried: Carried,
    checks: Checks,
    /// How large what is started next would be, by the offers of the last evaluation.
    started: Vec<Capacity>,
    pause: Pause,
    /// Offers that had no room.
    rooms: Rooms,
    /// Some ready replica has told what it can hold (auto).
    told: bool,
    /// Those that were ready at the last evaluation, and since when.
    ready: BTreeMap<ReplicaId, Instant>,
    /// Replicas that counted and target of the last evaluation.
    last: Option<(u32, u32)>,
    /// Ready replicas were lost, and as many as counted before do not yet again.
    replacing: Option<u32>,
    /// The most that were ready since fewer were last wanted: up to these, one that died is replaced, and nothing grows (M3).
    ran: u32,
}

impl Planner {
    /// A planner that has seen nothing: it will not shrink the fleet before it has watched one window (C3).
    pub fn new(sizing: Sizing, now: Instant) -> Self {
        let (window, checks) = (Window::new(sizing.window, now), Checks::new(now));
        let (carried, ready) = (Carried::new(now), BTreeMap::new());
        let (pause, rooms) = (Pause::default(), Rooms::default());
        let (started, told, last, replacing, ran) = (Vec::new(), false, None, None, 0);
        Self { sizing, window, carried, checks, started, pause, rooms, told, ready, last, replacing, ran }
    }

    /// The settings in force.
    pub fn sizing(&self) -> &Sizing {
        &self.sizing
    }

    /// New settings, from the next evaluation on.
    pub fn resize(&mut self, sizing: Sizing) {
        self.window.resize(sizing.window);
        if sizing.target() != self.sizing.target() || sizing.limit != self.sizing.limit {
            self.carried.forget();
        }
        self.sizing = sizing;
    }

    /// Replica `id` is taken out by an operator: that it is not there any more does not mean that it died.
    pub fn let_go(&mut self, id: ReplicaId) {
        if self.ready.remove(&id).is_some() {
            self.ran = self.ran.saturating_sub(1);
        }
    }

    /// A start has failed: the next one waits, longer each time (C1).
    pub fn start_failed(&mut self, now: Instant) {
        self.pause.failed(now);
    }

    /// No start is ordered before; a moment of the past where one may be (C1).
    pub fn starts_from(&self) -> Instant {
        self.pause.until()
    }

    /// A replica that was on its way is ready: the pause is over, and windows begin anew, so that a replica which took
    /// longer to load than they last is not stopped the moment that it can serve.
    pub fn became_ready(&mut self) {
        self.pause.ready();
        self.window.restart();
        self.checks.restart();
    }

    /// One evaluation.
    pub fn tick(&mut self, seen: &Observation, supply: &Supply) -> Plan {
        let now = seen.at;
        let fleet = Census::of(&seen.replicas);
        self.notice_losses(seen);
        self.checks.see(seen);
        let rule = self.rule(seen);
        let need = concurrency::need(seen, fleet.ready, fleet.on_the_way, &self.sizing);
        self.watch(seen, &need, &fleet);

        let asked = self.asked(rule, seen, &fleet, supply);
        let verdict = match &asked.figures {
            _ if !self.sizing.autoscale => self.switched_off(),
            None => self.by_demand(seen, &asked.need, &fleet),
            Some(figures) => self.by_checks(figures, seen, &fleet),
        };
        let Verdict { target, reason } = self.made_room(verdict, fleet.current(), &supply.grant);
        self.ran = self.ran.min(target).max(fleet.ready);
        let missing = self.missing(target, &fleet, supply);
        self.replacing = self.still_replacing(target, &fleet);
        self.last = Some((fleet.current(), target));
        let (woken, current) = (missing.woken, fleet.current());
        let counted = Counted { target, woken, current, ..Counted::of(&asked) };
        let wanted = self.wanted(&reason, counted);
        let stuck = is_urgent(&reason) && target == current && target == self.sizing.ceiling();
        let reason = if stuck { ScaleReason::AtMax } else { reason };
        let orders = self.orders(missing, supply, now);
        let line = self.line(seen, &fleet, orders.len(), supply);
        let over = stuck || self.is_over(&asked);
        let reasons = self.reasons(reason, over, missing, &line, (supply, now));
        let tries = self.tries(missing, orders.len(), supply, now);
        let needs_room = missing.starts > 0 && only_the_cap(&reasons);
        let wanted = (reasons.0 != wanted && reasons.0.blocks()).then(|| Box::new(wanted));
        Plan {
            target,
            orders,
            tries,
            withdrawn: line.withdrawn,
            moved: line.moved,
            parked: self.sizing.parked.min(supply.grant.parked.unwrap_or(u32::MAX)),
            falling: supply.falling.clone(),
            leaving: if rule == Rule::Concurrency { Leaving::LeastBusy } else { Leaving::LeastWarm },
            next: now
                + [self.pause.left(now), self.rooms.next(now)].into_iter().flatten().fold(TICK, Ord::min),
            room_comes: supply.grant.room.is_none_or(|room| room.comes),
            needs_room,
            broke: self.is_broke(1, missing.lost, supply),
            why: ScaleDecision { wanted, ..decision(seen, rule, counted, reasons) },
        }
    }

    /// When the next check is due, seen from `now`, if nothing stalls until then; `None` under a rule without any (B1).
    pub fn next_check(&self, now: Instant) -> Option<Instant> {
        (self.chosen(self.told) != Rule::Concurrency).then(|| now + self.checks.due_in())
    }

    /// The decision of an evaluation that cannot be acted upon, because the provider does not answer (C2). Nothing is
    /// learnt from it: the fleet is held, and no window moves (C4).
    pub fn hold(&self, seen: &Observation, supply: &Supply) -> ScaleDecision {
        let fleet = Census::of(&seen.replicas);
        // What is seen now counts, and is not kept.
        let mut twin = self.clone();
        twin.checks.see(seen);
        let rule = twin.rule(seen);
        let asked = twin.asked(rule, seen, &fleet, supply);
        let (current, needed) = (fleet.current(), asked.need.replicas);
        let wanted = if self.sizing.autoscale { needed } else { 0 };
        let target = wanted.clamp(self.sizing.floor(), self.sizing.ceiling()).max(current);
        let counted = Counted { target, woken: 0, current, ..Counted::of(&asked) };
        if let Some(figures) = &asked.figures {
            twin.by_checks(figures, seen, &fleet);
        }
        let over = twin.is_over(&asked);
        let missing = target > current || over;
        let wanted = missing.then(|| Box::new(self.wanted(&asked.need.cause, counted)));
        let reasons = (ScaleReason::ProviderError, self.silent(target, over, &fleet, (supply, seen.at)));
        ScaleDecision { wanted, ..decision(seen, rule, counted, reasons) }
    }

    /// The rule in force. Once token load was possible, `auto` keeps to it: figures that go missing hold the fleet, and
    /// another rule would move it (C4).
    fn rule(&mut self, seen: &Observation) -> Rule {
        self.told |= seen.replicas.iter().any(|replica| replica.is_ready() && replica.memory.is_some());
        self.chosen(self.told)
    }

    fn chosen(&self, told: bool) -> Rule {
        match self.sizing.rule {
            RuleChoice::Fixed(rule) => rule,
            RuleChoice::Auto if self.sizing.task.is_jobs() => Rule::Jobs,
            RuleChoice::Auto if told => Rule::TokenLoad,
            RuleChoice::Auto => Rule::Concurrency,
        }
    }

    /// Ready replicas that are not there any more, though nobody let them go, have died. Those that were not ready for
    /// long count as failed starts, all but the first (C1).
    fn notice_losses(&mut self, seen: &Observation) {
        let now = seen.at;
        let there = |id: &ReplicaId| {
            let those = [Phase::Ready, Phase::Draining];
            seen.replicas.iter().any(|replica| replica.id == *id && those.contains(&replica.phase))
        };
        let lost = self.ready.iter().filter(|(id, _)| !there(id));
        let lost: Vec<Instant> = lost.map(|(_, since)| *since).collect();
        if let Some((before, target)) = self.last.filter(|_| !lost.is_empty())
            && target >= before
        {
            self.replacing = self.replacing.max(Some(before));
        }
        if lost.iter().any(|since| now.since(*since) < STEADY) {
            self.pause.died(now);
        }
        let ready = seen.replicas.iter().filter(|replica| replica.is_ready());
        self.ready = ready.map(|replica| (replica.id, replica.since)).collect();
        self.ready.values().for_each(|since| self.pause.stays(*since, now));
    }

    /// `autoscale = false` (C1).
    fn switched_off(&mut self) -> Verdict {
        self.checks.restart();
        Verdict { target: self.sizing.floor(), reason: ScaleReason::AutoscaleOff }
    }

    fn by_checks(&mut self, figures: &Figures, seen: &Observation, fleet: &Census) -> Verdict {
        let (sizing, replacing) = (&self.sizing, self.replacing.is_some());
        self.checks.decide(&Look { seen, fleet, sizing, figures, replacing })
    }

    /// How many are to count until what was lost is made good; `None` once it is, or where fewer are wanted by now.
    fn still_replacing(&self, target: u32, fleet: &Census) -> Option<u32> {
        self.replacing.map(|level| level.min(target)).filter(|level| fleet.current() < *level)
    }

    /// How many replicas that ran are not among so many that are `there`: who stands for one of them is no growth (M3).
    fn lost(&self, there: u32) -> u32 {
        self.ran.saturating_sub(there)
    }

    /// Another deployment has nothing and waits: what is over the most that this one may keep goes (C-108). Up to that it grows
    /// for its own reason.
    fn made_room(&self, verdict: Verdict, current: u32, grant: &Grant) -> Verdict {
        let most = grant.most.map_or(u32::MAX, |most| most.max(self.sizing.floor()));
        if verdict.target <= most {
            return verdict;
        }
        let reason = if current < most { verdict.reason } else { ScaleReason::MadeRoom };
        Verdict { target: most, reason }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
