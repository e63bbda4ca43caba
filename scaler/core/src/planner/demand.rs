//! The size by the concurrency rule (A2–A5): the need within floor and ceiling, and what keeps it from shrinking.

use std::cmp::Ordering;

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::demand::Observation;

use super::{Census, Planner, Verdict};
use crate::rule::{Need, concurrency};

impl Planner {
    /// Takes in what `seen` needs not to queue: the plain need, what replicas were seen to carry, and all that are there
    /// while anybody waits.
    pub(super) fn watch(&mut self, seen: &Observation, need: &Need, fleet: &Census) {
        self.carried.see(seen, &self.sizing);
        let waits = seen.queued > 0 || seen.promised > 0;
        let all = if waits { fleet.current() } else { 0 };
        self.window.see(need.replicas.max(self.uncrowded(seen)).max(all), seen.at);
    }

    /// How many are needed by what replicas were seen to carry.
    fn uncrowded(&self, seen: &Observation) -> u32 {
        self.carried.need(seen.demand(), &self.sizing).saturating_add(concurrency::aside(seen))
    }

    pub(super) fn by_demand(&mut self, seen: &Observation, need: &Need, fleet: &Census) -> Verdict {
        let (target, reason) = self.size(seen, need, fleet);
        Verdict { target, reason }
    }

    fn size(&mut self, seen: &Observation, need: &Need, fleet: &Census) -> (u32, ScaleReason) {
        let (floor, ceiling, current) = (self.sizing.floor(), self.sizing.ceiling(), fleet.current());
        let wanted = need.replicas.max(self.lost_level()).clamp(floor, ceiling);
        let reason = match wanted.cmp(&current) {
            Ordering::Less if current > ceiling => return (ceiling, ScaleReason::AtMax),
            Ordering::Less => return self.shrink(seen, current),
            // What the load needs is within it: one more is for who waits.
            _ if need.replicas > ceiling && need.cause == ScaleReason::QueueWait => need.cause.clone(),
            _ if need.replicas > ceiling => ScaleReason::AtMax,
            Ordering::Greater if self.replacing.is_some() => ScaleReason::Replacing,
            Ordering::Greater if need.replicas < floor => ScaleReason::BelowMin,
            Ordering::Greater => need.cause.clone(),
            Ordering::Equal if fleet.on_the_way > 0 => ScaleReason::OnTheirWay { count: fleet.on_the_way },
            // As many as were lost have come back.
            Ordering::Equal if wanted > need.replicas.max(floor) => return self.shrink(seen, current),
            Ordering::Equal if need.replicas < floor => ScaleReason::AtMin,
            Ordering::Equal => ScaleReason::Steady,
        };
        (wanted, reason)
    }

    /// As many as counted before some were lost that are not replaced yet, while nothing else may take them away: a death
    /// is no shrink, also during cooling (C1). None otherwise.
    fn lost_level(&self) -> u32 {
        self.replacing.filter(|level| !self.window.stayed_below(*level)).unwrap_or(0)
    }

    /// Fewer would do: only once that was so for the whole window. Then one goes at each evaluation, down to the largest
    /// need in the window (A4), unless what comes of one shows in it; where it is only tried whether fewer would do, one in
    /// each window.
    fn shrink(&mut self, seen: &Observation, current: u32) -> (u32, ScaleReason) {
        if self.window.stayed_below(current) {
            let reason = if self.window.peak() == 0 { ScaleReason::Idle } else { ScaleReason::LowDemand };
            if self.carried.is_trying() && self.window.peak() > 0 {
                self.window.restart();
            }
            return (current.saturating_sub(1), reason);
        }
        let fewer = current.saturating_sub(1).saturating_sub(concurrency::aside(seen));
        let forbidden = self.carried.forbids(seen.demand(), fewer, &self.sizing);
        let (low_for, window) = (self.window.low_for(current), self.window.length());
        let to = self.window.peak_below(current).clamp(self.sizing.floor(), self.sizing.ceiling());
        (current, forbidden.unwrap_or(ScaleReason::Cooling { low_for, window, to }))
    }
}
