//! A decision in words (E1): what was seen, what it needs, and why.

use std::fmt;

use super::{Rule, ScaleDecision, ScaleReason};
use crate::span::{span, whole};

impl ScaleDecision {
    /// What was seen and what it needs, as `97 in progress (12 queued) need 4`: those that wait are among them.
    fn needs(&self) -> String {
        let Self { demand, needed, .. } = self;
        let waiting = self.waiting("queued");
        match (self.load, demand) {
            _ if self.waiters > 0 => format!("{}, which needs {needed}", self.unplaced()),
            _ if self.engine_queue > 0 => format!("{}, which needs {needed}", self.crowded()),
            (Some(load), _) => format!("memory is {load} % full, which needs {needed}"),
            (None, 0) => "nothing is in progress".to_owned(),
            // What counts is the mean: one moment's number beside it would contradict it.
            (None, _) if self.rule == Rule::Jobs => {
                format!("{demand} in progress{waiting} now, and the mean of the last 30 s needs {needed}")
            }
            (None, 1) => format!("1 in progress{waiting} needs {needed}"),
            (None, _) => format!("{demand} in progress{waiting} need {needed}"),
        }
    }

    /// Who waits inside the engines, as `5 wait inside the engines and nothing is free there`.
    pub fn crowded(&self) -> String {
        let wait = if self.engine_queue == 1 { "waits" } else { "wait" };
        format!("{} {wait} inside the engines and nothing is free there", self.engine_queue)
    }

    /// Who has no place, where it is they who need more than the load does, as `5 wait for a place (2 queued, 3 told to come
    /// back)`.
    pub fn unplaced(&self) -> String {
        let wait = if self.waiters == 1 { "waits" } else { "wait" };
        format!("{} {wait} for a place{}", self.waiters, self.waiting("queued"))
    }

    /// Why more are wanted than can be had, where that is not what was seen alone: `min is 3`.
    pub fn wants(&self) -> Option<String> {
        match self.wanted.as_deref() {
            Some(ScaleReason::BelowMin) => Some(format!("min is {}", self.target)),
            Some(ScaleReason::Replacing) => Some("a replica was lost".to_owned()),
            // Who waited may have gone since; what he asked for is no need of the load.
            Some(ScaleReason::QueueWait) => {
                Some(self.waited().unwrap_or_else(|| "a request waited too long".to_owned()))
            }
            Some(ScaleReason::FromZero) => Some(self.first_asked()),
            // What is ordered stays so, though the load needs less by now; and what is wanted does while the load is not known.
            Some(cause @ ScaleReason::OnTheirWay { .. }) if self.needed < self.target => {
                Some(Self { reason: cause.clone(), ..self.bare() }.to_string())
            }
            Some(ScaleReason::Demand | ScaleReason::Step { .. })
                if self.needed < self.target && self.rule != Rule::Concurrency =>
            {
                let (target, are) = (self.target, are(self.target));
                Some(format!("{target} {are} wanted since the last check"))
            }
            Some(cause @ (ScaleReason::AutoscaleOff | ScaleReason::Burst { .. })) => {
                Some(Self { reason: cause.clone(), ..self.bare() }.to_string())
            }
            _ => None,
        }
    }

    /// The same figures, where nothing else is told beside the reason.
    fn bare(&self) -> Self {
        Self { also: Vec::new(), wanted: None, woken: 0, ..self.clone() }
    }

    /// Who asks for one more than the load needs (A3): `a request has waited 1.2 s, 3 queued`, or `2 were refused and told to come
    /// back`; `None` where nobody does.
    pub fn waited(&self) -> Option<String> {
        let cause = self.wanted.as_deref().unwrap_or(&self.reason);
        let told = match self.promised {
            1 => "1 was refused and told to come back".to_owned(),
            some => format!("{some} were refused and told to come back"),
        };
        match (cause, self.queued, self.promised) {
            (ScaleReason::QueueWait, 0, 0) => None,
            (ScaleReason::QueueWait, 0, _) => Some(told),
            (ScaleReason::QueueWait, queued, 0) => {
                Some(format!("a request has waited {}, {queued} queued", span(self.oldest_wait)))
            }
            (ScaleReason::QueueWait, queued, _) => {
                Some(format!("a request has waited {}, {queued} queued, and {told}", span(self.oldest_wait)))
            }
            _ => None,
        }
    }

    /// Who asks for the first replica (Q3).
    fn first_asked(&self) -> String {
        match (self.queued, self.promised) {
            (0, 0) => "a request found no replica ready".to_owned(),
            (0, 1) => "1 was told to come back and no replica is ready".to_owned(),
            (0, told) => format!("{told} were told to come back and no replica is ready"),
            _ => "a request waits and no replica is ready".to_owned(),
        }
    }

    /// Who of the demand is at no replica, as ` (12 queued, 9 told to come back)`; `queued` is the word for those who
    /// wait here. Empty where all are at one.
    pub fn waiting(&self, queued: &str) -> String {
        let told = [(self.queued, queued), (self.promised, "told to come back")];
        let told = told.iter().filter(|(some, _)| *some > 0).map(|(some, what)| format!("{some} {what}"));
        let told: Vec<_> = told.collect();
        if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
    }

    /// The reason with its numbers.
    fn cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needs, target, demand) = (self.needs(), self.target, self.demand);
        match &self.reason {
            ScaleReason::Steady | ScaleReason::Demand => f.write_str(&needs),
            ScaleReason::QueueWait => {
                f.write_str(self.waited().as_deref().unwrap_or("a request waited too long"))
            }
            ScaleReason::FromZero => f.write_str(&self.first_asked()),
            ScaleReason::Burst { grew } => {
                write!(f, "the engines' queues grew by {grew} since the last check")
            }
            ScaleReason::Confirming { seen, of } => write!(f, "{needs}, confirming {seen}/{of}"),
            ScaleReason::Step { most } => write!(f, "{needs}, at most {most} are added at a time"),
            ScaleReason::BelowMin => write!(f, "min is {target}"),
            ScaleReason::AtMax => self.at_max(f),
            ScaleReason::AtMin => write!(f, "{needs}, but min is {target}"),
            ScaleReason::OnTheirWay { count: 1 } => f.write_str("1 is on its way"),
            ScaleReason::OnTheirWay { count } => write!(f, "{count} are on their way"),
            ScaleReason::Cooling { low_for, window, .. } => {
                write!(f, "{needs}, cooling {} of {}", whole(*low_for), whole(*window))
            }
            ScaleReason::Survivors { percent } => {
                write!(f, "{needs}; with one fewer, survivors would be at {percent} %")
            }
            ScaleReason::WouldQueue { waiting } => {
                write!(f, "{needs}; with one fewer, {waiting} would wait inside the engines")
            }
            ScaleReason::QueuedBefore { replicas, in_flight, ago, most } => {
                let with =
                    if *replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") };
                let queued =
                    format!("with {with} requests queued at {in_flight} in progress {} ago", whole(*ago));
                let fewer = most.saturating_add(1);
                write!(f, "{needs}, but {queued}; it shrinks when fewer than {fewer} are in progress")
            }
            ScaleReason::FewPlaces { most } => {
                write!(f, "{needs}; one fewer should have {most} in progress at most, and {demand} are")
            }
            ScaleReason::LowDemand => f.write_str("demand was low for the whole window"),
            ScaleReason::Idle => f.write_str("nothing was in progress for the whole window"),
            ScaleReason::AutoscaleOff => write!(f, "autoscale is off and min is {target}"),
            ScaleReason::Replacing => f.write_str("a replica was lost and is replaced"),
            ScaleReason::MadeRoom => f.write_str("another deployment waits for room under the gateway's cap"),
            ScaleReason::NoData => f.write_str("engines do not tell what they hold, so the fleet is held"),
            ScaleReason::ProviderError => f.write_str("the provider does not answer, so the fleet is held"),
            ScaleReason::AtMaxWithLeaving { .. }
            | ScaleReason::BackingOff { .. }
            | ScaleReason::GatewayCap { .. }
            | ScaleReason::NoCapacity
            | ScaleReason::NoCredit
            | ScaleReason::NoFit
            | ScaleReason::PriceCap { .. }
            | ScaleReason::ProviderHolds { .. }
            | ScaleReason::RoomOverCap { .. } => self.blocked(f),
        }
    }

    /// How `max` bounds the fleet: more are wanted, or some have to go.
    fn at_max(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, max) = (self.current, self.target);
        if self.is_too_large() {
            let over = there - max;
            let go = if over == 1 { "goes" } else { "go" };
            return write!(f, "{there} {} there, but max is {max}, so {over} {go}", are(there));
        }
        write!(f, "{}, but max is {max}", self.wants().unwrap_or_else(|| self.needs()))
    }

    /// What `reason` blocks growth by, beside what else does.
    fn block(&self, reason: &ScaleReason) -> String {
        let bars =
            |block: &ScaleReason| matches!(block, ScaleReason::RoomOverCap { .. } | ScaleReason::NoCredit);
        match reason {
            ScaleReason::NoCapacity if self.blocks().any(bars) => {
                "no offer that may be taken has room".to_owned()
            }
            _ => reason.block(),
        }
    }

    /// Why more are wanted, and what blocks growth (C2).
    fn blocked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wants, block) = (self.wants().unwrap_or_else(|| self.needs()), self.block(&self.reason));
        match &self.reason {
            ScaleReason::BackingOff { .. } if self.wanted.is_some() => write!(f, "{wants}; {block}"),
            ScaleReason::BackingOff { .. } => f.write_str(&block),
            _ => write!(f, "{wants}, but {block}"),
        }
    }
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// Why the target is what it is, for people: the reason with its numbers, to follow "wants 2 replicas: ".
impl fmt::Display for ScaleDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause(f)?;
        for block in &self.also {
            write!(f, "; also, {}", self.block(block))?;
        }
        match self.woken {
            0 => Ok(()),
            1 => f.write_str("; 1 parked replica is woken"),
            woken => write!(f, "; {woken} parked replicas are woken"),
        }
    }
}
