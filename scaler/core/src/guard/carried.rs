//! What replicas carry, as far as a queue has shown it: requests that waited too long while fewer were in flight than the
//! target allows were held back by something else, be it memory or the engine's own limits. A fleet must not shrink into
//! the same queue again (A4, B5), for as long as [`super::expiry`] says. It never makes a fleet grow.

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::{Hold, Phase};
use tidegate_shared::time::Instant;

use super::expiry::Expiry;
use super::watched::Watched;
use crate::config::Sizing;

/// How much of what was carried the others may be given, in percent: as much as the usual target is of the usual limit
/// (Q1), so that a load which varies a little does not fill them.
pub const SHARE: u32 = 80;

/// Requests in flight on so many replicas.
#[derive(Clone, Copy, Debug)]
struct Held {
    in_flight: u32,
    replicas: u32,
}

impl Held {
    /// On those that serve in `seen`; none where nobody does, nothing is there, or some are ready and not open to everybody:
    /// what the others are left with says nothing of what all can carry.
    fn of(seen: &Observation) -> Option<Self> {
        let ready = seen.replicas.iter().filter(|one| one.is_ready() && one.hold != Some(Hold::Aside));
        if ready.clone().any(|one| one.out || one.own_only) {
            return None;
        }
        let replicas = u32::try_from(ready.count()).unwrap_or(u32::MAX);
        let draining = seen.replicas.iter().filter(|one| one.phase == Phase::Draining);
        let leaving = draining.map(|one| one.in_flight).fold(0, u32::saturating_add);
        let in_flight = seen.in_flight.saturating_sub(leaving);
        (replicas > 0 && in_flight > 0).then_some(Self { in_flight, replicas })
    }

    /// Whether there are more for each replica than in `other`.
    fn is_more_than(self, other: Self) -> bool {
        u64::from(self.in_flight) * u64::from(other.replicas)
            > u64::from(other.in_flight) * u64::from(self.replicas)
    }

    fn reaches(self, target: u32) -> bool {
        self.in_flight >= target.saturating_mul(self.replicas)
    }
}

/// A queue, and what was in flight with it.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// When somebody waited too long.
    then: Held,
    /// The most for each replica that was carried, then or since.
    best: Held,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Carried {
    watched: Watched,
    shown: Option<Shown>,
    /// Somebody waited too long at the last look too.
    late: bool,
    expiry: Expiry,
}

impl Carried {
    /// Nothing was shown yet.
    pub fn new(now: Instant) -> Self {
        Self { watched: Watched::new(now), shown: None, late: false, expiry: Expiry::default() }
    }

    /// Takes in this moment.
    pub fn see(&mut self, seen: &Observation, sizing: &Sizing) {
        self.watched.see(seen.at);
        let ready = seen.replicas.iter().filter(|one| one.is_ready() && one.hold != Some(Hold::Aside));
        let ready = u32::try_from(ready.count()).unwrap_or(u32::MAX);
        if self.expiry.ends(self.watched.total(), ready) {
            self.shown = None;
        }
        let late = seen.queued > 0 && seen.oldest_wait >= sizing.queue_threshold;
        let again = std::mem::replace(&mut self.late, late);
        let Some(found) = Held::of(seen) else { return };
        let more = self.shown.is_none_or(|shown| found.is_more_than(shown.best));
        match (late, &mut self.shown) {
            // The target is what limits, and the plain need knows that.
            _ if more && found.reaches(sizing.target()) => {
                self.shown = None;
                self.expiry.end(self.watched.total());
            }
            (true, Some(_)) if again && !more => self.expiry.lasts(self.watched.total()),
            (true, _) => self.learn(found),
            (false, Some(shown)) if more && seen.queued == 0 && seen.promised == 0 => shown.best = found,
            (false, _) => {}
        }
    }

    fn learn(&mut self, found: Held) {
        self.expiry.shown(self.watched.total(), found.replicas);
        self.shown = Some(Shown { then: found, best: found });
    }

    /// Forgets everything: other settings make other queues.
    pub fn forget(&mut self) {
        (self.shown, self.expiry) = (None, Expiry::default());
    }

    /// Whether it is tried whether fewer would do: then one goes at a time, and it is waited and seen.
    pub fn is_trying(&self) -> bool {
        self.expiry.is_trying()
    }

    /// Replicas that `demand` needs not to queue, as far as is known: each has the target, or [`SHARE`] of what one was
    /// seen to carry if that is less.
    pub fn need(&self, demand: u32, sizing: &Sizing) -> u32 {
        let plain = demand.div_ceil(sizing.target());
        let Some(shown) = self.shown else { return plain };
        let asked = u64::from(demand) * u64::from(shown.best.replicas) * 100;
        let each = u64::from(shown.best.in_flight) * u64::from(SHARE);
        plain.max(u32::try_from(asked.div_ceil(each.max(1))).unwrap_or(u32::MAX))
    }

    /// The most in flight that `replicas` may be left with.
    fn room(&self, replicas: u32, sizing: &Sizing) -> u32 {
        let plain = sizing.target().saturating_mul(replicas);
        let Some(shown) = self.shown else { return plain };
        let carried = u64::from(shown.best.in_flight) * u64::from(replicas) * u64::from(SHARE);
        plain.min(u32::try_from(carried / (u64::from(shown.best.replicas.max(1)) * 100)).unwrap_or(u32::MAX))
    }

    /// Why `demand` is not left to `replicas`; `None` if it may be.
    pub fn forbids(&self, demand: u32, replicas: u32, sizing: &Sizing) -> Option<ScaleReason> {
        if self.need(demand, sizing) <= replicas {
            return None;
        }
        let most = self.room(replicas, sizing);
        Some(match self.shown {
            Some(Shown { then, .. }) if demand.div_ceil(sizing.target()) <= replicas => {
                let Held { in_flight, replicas } = then;
                let ago = self.expiry.age(self.watched.total());
                ScaleReason::QueuedBefore { replicas, in_flight, ago, most }
            }
            _ => ScaleReason::FewPlaces { most },
        })
    }
}

#[cfg(test)]
mod tests;
