//! What the engines' own queues say in time (B3): whether they have jumped since the last check, and whether one stands
//! while nothing is free. It decides nothing.

use std::collections::VecDeque;

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::time::Duration;

use crate::guard::expiry::Expiry;
use crate::rule::Mean;
use crate::rule::places::{Full, Places, full, most_at_queues, most_elsewhere};
use crate::rule::token_load::Queues;

/// How long an engine's queue must have lasted to count: one look at it may have met a spike.
const SETTLED: Duration = Duration::from_secs(5);
/// The least time between two looks at the engines' queues.
const LOOK: Duration = Duration::from_secs(1);
/// For so long after a check it is looked at again for a jump that came just before it, and had not lasted yet: no jump
/// waits for longer than from one check to the next, though what engines tell is up to two seconds old.
const AGAIN: Duration = Duration::from_secs(7);
/// A queue that has lost no more than one in so many since the last check has stayed: engines take turns.
const STAYS: u32 = 4;

/// By how many requests the queues have grown, and how many wait in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) grew: u32,
    pub(super) waiting: u32,
}

/// Those that wait inside the engines while nothing is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) full: Full,
    /// Replicas on which each would find a place.
    pub(super) needed: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct EngineQueues {
    /// The queues of the last [`SETTLED`], in watched time.
    lately: VecDeque<(Duration, Queues)>,
    /// What had lasted of them at the last check; before the first one, what was there when the watch began.
    before: Option<Queues>,
    /// The same of the check before that, and until when it is still looked back to.
    earlier: Option<(Duration, Queues)>,
    /// What there was at the last check if nothing was free.
    stood: Option<Full>,
    /// What the engines run at a time, as last seen where a queue was with memory to spare.
    places: Option<Places>,
    /// One is there now.
    queueing: bool,
    /// How long `places` hold.
    expiry: Expiry,
    /// Watched time of this moment.
    now: Duration,
}

impl EngineQueues {
    /// Takes in what is there at watched time `at`.
    pub(super) fn see(&mut self, seen: &Observation, at: Duration) {
        self.now = at;
        while self.lately.front().is_some_and(|(taken, _)| at.saturating_sub(*taken) >= SETTLED) {
            self.lately.pop_front();
        }
        if self.lately.back().is_none_or(|(taken, _)| at.saturating_sub(*taken) >= LOOK) {
            self.lately.push_back((at, Queues::of(seen)));
        }
        if self.before.is_none() && at >= SETTLED {
            let known = |least: Queues, (_, queues): &(Duration, Queues)| least.least_known(queues);
            self.before = Some(self.lately.iter().fold(Queues::of(seen), known));
        }
    }

    /// How they have grown by this check since the one before.
    pub(super) fn check(&mut self, seen: &Observation, at: Duration) -> Option<Jump> {
        let lasted = self.lasted(seen);
        let jump = self.before.as_ref().map(|before| jump(&lasted, before));
        self.earlier = self.before.take().map(|before| (at.saturating_add(AGAIN), before));
        self.before = Some(lasted);
        jump
    }

    /// The same shortly after a check: what came just before it counts as soon as it has lasted.
    pub(super) fn look_again(&self, seen: &Observation, at: Duration) -> Option<Jump> {
        let (until, earlier) = self.earlier.as_ref()?;
        (at <= *until).then(|| jump(&self.lasted(seen), earlier))
    }

    /// Replicas are ordered: what waits now is provided for.
    pub(super) fn acted(&mut self, seen: &Observation) {
        self.earlier = None;
        self.before = Some(self.lasted(seen));
    }

    /// Those that wait while nothing is free, and what they need of replicas of so many units that come, in order, the last
    /// as often as it takes. A queue where memory is to `spare` tells what the engines run at a time.
    pub(super) fn full(&mut self, seen: &Observation, spare: bool, coming: Vec<u32>) -> Option<Standing> {
        let lasted = self.lasted(seen);
        let replicas = seen.replicas.iter().filter(|replica| replica.is_ready()).count();
        let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
        if self.expiry.ends(self.now, replicas) {
            self.places = None;
        }
        let most = most_at_queues(seen, &lasted).filter(|most| most.running > 0);
        match (most, self.places) {
            // As long as there is one the most counts: at its end, requests are gone before engines tell.
            (Some(most), Some(before)) if spare && self.queueing => {
                self.places = Some(most.more(before));
                self.expiry.lasts(self.now);
            }
            (Some(most), _) if spare => {
                self.places = Some(most);
                self.expiry.shown(self.now, replicas);
            }
            (None, Some(before)) => {
                self.places = most_elsewhere(seen, &lasted).map(|more| more.more(before)).or(self.places);
            }
            _ => {}
        }
        self.queueing = most.is_some();
        // Where memory is what limits, that of now is all that is known.
        let each = if spare { self.places } else { most };
        let (lasted, fresh) = self.fresh(seen, lasted);
        let full = full(seen, &lasted, &fresh)?;
        let ready = || seen.replicas.iter().filter(|replica| replica.is_ready());
        let first = ready().filter(|replica| fresh.contains(&replica.id));
        let units: Vec<u32> = first.map(|replica| replica.capacity.units()).chain(coming).collect();
        let more = each.map_or(1, |each| each.replicas(full.waiting, &units));
        let filled = u32::try_from(ready().count().saturating_sub(fresh.len())).unwrap_or(u32::MAX);
        Some(Standing { full, needed: filled.saturating_add(more) })
    }

    /// The queues that have lasted since the replica was ready, and those that are ready for less than [`SETTLED`] and have
    /// none: they had no time to fill, and count as such that come.
    fn fresh(&self, seen: &Observation, lasted: Queues) -> (Queues, Vec<ReplicaId>) {
        let joined = |id| self.lately.iter().any(|(_, queues)| !queues.has(id));
        let lasted = lasted.or(&Queues::of(seen), joined);
        let ready = seen.replicas.iter().filter(|replica| replica.is_ready()).map(|replica| replica.id);
        let fresh =
            ready.filter(|id| joined(*id) && lasted.of_replica(*id).is_none_or(|waiting| waiting == 0));
        let fresh = fresh.collect();
        (lasted, fresh)
    }

    /// Whether the queue at this check, where nothing is free, has stood since the one before. Who has found a place on a
    /// replica that came meanwhile has not gone.
    pub(super) fn stays(&mut self, full: Option<Full>) -> bool {
        let before = std::mem::replace(&mut self.stood, full);
        before.zip(full).is_some_and(|(before, now)| {
            let placed = now.running.saturating_sub(before.running);
            now.waiting.saturating_add(placed) >= before.waiting - before.waiting / STAYS
        })
    }

    /// How many of `jobs` would wait inside engines of so many units in all.
    pub(super) fn crowd(&self, jobs: Option<Mean>, units: u32) -> Option<u32> {
        self.places.filter(|_| units > 0)?.short(jobs?, units)
    }

    /// What has lasted of them.
    fn lasted(&self, seen: &Observation) -> Queues {
        self.lately.iter().fold(Queues::of(seen), |least, (_, queues)| least.least(queues))
    }
}

fn jump(lasted: &Queues, before: &Queues) -> Jump {
    Jump { grew: lasted.growth(before), waiting: lasted.waiting() }
}
