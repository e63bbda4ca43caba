//! What the load and those who wait ask for, whatever can be had (A2, B2, B3, Q3). An evaluation that acts and one that is
//! held have it from here, so that what either tells is the same number. It knows neither floor nor ceiling, and nothing of
//! the time in which a need must last.

use tidegate_shared::decision::{Rule, ScaleReason};
use tidegate_shared::demand::Observation;

use super::checks::STEP;
use super::queues::Standing;
use super::reading::{Coming, Reading, Sampled};
use super::{Census, Planner, Supply};
use crate::guard::cool::Spare;
use crate::offer::sizes;
use crate::rule::{Need, concurrency, queue};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) need: Need,
    /// How full the fleet is, in percent, where the rule goes by that.
    pub(super) load: Option<u32>,
    /// Those that wait inside the engines, where it is they who need so many.
    pub(super) engine_queue: u32,
    /// Those that wait here or were told to come back, where it is they.
    pub(super) waiters: u32,
    /// What it comes from, under the rules that look every 30 s.
    pub(super) figures: Option<Figures>,
}

/// What the rules that look every 30 s go by at one moment.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) rule: Sampled,
    pub(super) reading: Reading,
    /// Requests that wait inside the engines while nothing is free.
    pub(super) full: Option<Standing>,
    /// So many would wait inside the engines with one replica fewer.
    pub(super) crowd: Option<u32>,
    /// What those who wait here, or were told to come back, ask for.
    pub(super) line: Option<Need>,
    /// What is started next is of another size than at the last evaluation.
    pub(super) resupplied: bool,
}

impl Figures {
    /// Replicas that are needed for those whom a replica has: by the load, or by those that wait inside the engines while
    /// nothing is free (B2, B3).
    pub(super) fn by_load(&self) -> Option<u32> {
        self.reading.needed.max(self.full.map(|standing| standing.needed))
    }

    /// Replicas that are needed; `None` where that is not known, and nobody asks for more than the `current` ones.
    pub(super) fn needed(&self, current: u32) -> Option<u32> {
        let line = self.line.as_ref().map(|need| need.replicas);
        match self.by_load() {
            None => line.filter(|line| *line > current),
            known => known.max(line),
        }
    }

    /// Whether one fewer would do, by the load and by the places.
    pub(super) fn spare(&self) -> Spare {
        match self.reading.spare {
            Spare::Yes if self.crowd.is_some() => Spare::No,
            spare => spare,
        }
    }

    fn asked(self, seen: &Observation, current: u32) -> Asked {
        let (load, needed) = (self.reading.load, self.needed(current).unwrap_or(current));
        let by_load = self.by_load().unwrap_or(current);
        let inside = self.full.filter(|_| self.by_load() > self.reading.needed);
        let engine_queue = inside.map_or(0, |standing| standing.full.waiting);
        let line = self.line.as_ref().filter(|line| line.replicas > by_load).map(|line| line.cause.clone());
        let (engine_queue, waiters, cause) = match line {
            Some(cause) => (0, seen.queued.saturating_add(seen.promised), cause),
            None => (engine_queue, 0, ScaleReason::Demand),
        };
        let need = Need { replicas: needed, cause };
        Asked { need, load, engine_queue, waiters, figures: Some(self) }
    }
}

impl Planner {
    /// What `seen` asks for by `rule`. Takes in how large what is started next would be, and what the engines' queues say of
    /// their places.
    pub(super) fn asked(&mut self, rule: Rule, seen: &Observation, fleet: &Census, supply: &Supply) -> Asked {
        let Some(rule) = Sampled::of(rule) else {
            let need = concurrency::need(seen, fleet.ready, fleet.on_the_way, &self.sizing);
            return Asked { need, load: None, engine_queue: 0, waiters: 0, figures: None };
        };
        let sizing = &self.sizing;
        let most = usize::try_from(sizing.ceiling()).unwrap_or(usize::MAX);
        let started = sizes(&supply.offers, sizing, most);
        let resupplied = started != self.started;
        self.started = started;
        let coming = Coming { falling: &supply.falling, started: &self.started };
        let reading = Reading::of(rule, &self.checks.samples, seen, sizing, coming);
        let fewer = fleet.current().saturating_sub(1);
        let reading = reading.unless(self.carried.forbids(seen.demand(), fewer, sizing));
        let (full, crowd) = match rule {
            Sampled::Tokens => self.checks.places(seen, &reading, coming),
            Sampled::Jobs => (None, None),
        };
        let line = queue::need(seen, fleet.ready, fleet.on_the_way, STEP, sizing);
        Figures { rule, reading, full, crowd, line, resupplied }.asked(seen, fleet.current())
    }
}
