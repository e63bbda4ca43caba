//! The token-load rule (B2, B3, B5): so much memory that the fleet is filled to 60 %. Sizes are real: each replica counts
//! with what its engine says that it can hold. It never looks at requests, prices or the past.

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::ReplicaFacts;

use super::Mean;
use super::samples::held;

/// How full the replicas should be, in percent (B2).
pub const COMFORT: u32 = 60;
/// A mean load from here on is not low, in percent (B5).
pub const LOW: u32 = 50;
/// The survivors of a removal must stay below this, in percent (B5).
pub const SURVIVORS: u32 = 55;
/// The engines' queues must grow by so many requests at least for a burst (B3): fewer are the engines' own scheduling.
pub const BURST_LEAST: u32 = 4;
/// And by so much of what the fleet runs at a time, in percent. A shorter queue is gone in a quarter of the time that a
/// request takes, long before a replica could start.
pub const BURST_SHARE: u32 = 25;

/// What replicas can hold, in tokens times a common factor, so that sizes that are declared in units and sizes that are
/// told in tokens compare exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Tokens of the ready replicas that tell.
    tokens: u128,
    /// Their units.
    units: u128,
}

impl Scale {
    /// From the ready replicas that tell what they can hold; `None` while none does.
    pub fn of(replicas: &[ReplicaFacts]) -> Option<Self> {
        let (mut tokens, mut units) = (0, 0);
        for replica in replicas.iter().filter(|replica| replica.is_ready()) {
            if let Some(memory) = replica.memory {
                tokens += u128::from(memory.0);
                units += u128::from(replica.capacity.units());
            }
        }
        (tokens > 0).then_some(Self { tokens, units })
    }

    /// What a replica can hold: what its engine says, else as much for each of its units as the others say on average.
    pub fn size(self, replica: &ReplicaFacts) -> u128 {
        match replica.memory {
            Some(memory) => u128::from(memory.0).saturating_mul(self.units),
            None => self.units(replica.capacity.units()),
        }
    }

    /// What a replica of so many units can hold.
    pub fn units(self, units: u32) -> u128 {
        u128::from(units).saturating_mul(self.tokens)
    }

    /// `load × 100`, to be compared with percents of [`Filled::of`].
    fn load(self, load: Mean) -> u128 {
        load.sum.saturating_mul(self.units).saturating_mul(100)
    }
}

/// A mean load against sizes.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    scale: Scale,
    load: Mean,
}

impl Filled {
    /// `load` on replicas that are sized by `scale`.
    pub fn new(scale: Scale, load: Mean) -> Self {
        Self { scale, load }
    }

    /// Whether nothing is held at all.
    pub fn is_idle(self) -> bool {
        self.load.sum == 0
    }

    /// Whether replicas of `size` in all would be less than `percent` full.
    pub fn is_below(self, percent: u32, size: u128) -> bool {
        self.scale.load(self.load) < self.share(percent, size)
    }

    /// How full replicas of `size` in all would be, in percent, rounded up: what is over 60 % is not told as 60 %.
    pub fn percent(self, size: u128) -> u32 {
        let whole = size.saturating_mul(u128::from(self.load.count.max(1)));
        if whole == 0 {
            return u32::MAX;
        }
        u32::try_from(self.scale.load(self.load).div_ceil(whole)).unwrap_or(u32::MAX)
    }

    /// Replicas needed to be no more than [`COMFORT`] full (B2). `sizes` are those that count now, the first to leave
    /// first; `coming` are those that would come, in order, the last as often as it takes.
    pub fn needed(self, sizes: &[u128], coming: &[u128]) -> u32 {
        let load = self.scale.load(self.load);
        let all: u128 = sizes.iter().copied().fold(0, u128::saturating_add);
        let count = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
        let missing = load.saturating_sub(self.share(COMFORT, all));
        if missing > 0 {
            return count.saturating_add(u32::try_from(self.more(missing, coming)).unwrap_or(u32::MAX));
        }
        let mut left = all;
        let spare = sizes.iter().take_while(|size| {
            left = left.saturating_sub(**size);
            load <= self.share(COMFORT, left)
        });
        count.saturating_sub(u32::try_from(spare.count()).unwrap_or(u32::MAX))
    }

    /// How many of those that would come take `missing`.
    fn more(self, mut missing: u128, coming: &[u128]) -> u128 {
        let Some((last, first)) = coming.split_last() else { return missing };
        let mut more = 0;
        for size in first {
            if missing == 0 {
                return more;
            }
            missing = missing.saturating_sub(self.share(COMFORT, *size));
            more += 1;
        }
        missing.div_ceil(self.share(COMFORT, *last).max(1)).saturating_add(more)
    }

    fn share(self, percent: u32, size: u128) -> u128 {
        size.saturating_mul(u128::from(percent)).saturating_mul(u128::from(self.load.count.max(1)))
    }
}

/// The engines' own queues at one moment: of each ready replica, how many wait there; `None` where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queues(Vec<(ReplicaId, Option<u32>)>);

impl Queues {
    /// As of `seen`.
    pub fn of(seen: &Observation) -> Self {
        let ready = seen.replicas.iter().filter(|replica| replica.is_ready());
        Self(ready.map(|replica| (replica.id, held(replica).map(|held| held.waiting))).collect())
    }

    /// By how many requests they have grown since `before`, all together. A queue whose length is not known now, or was
    /// not then, says nothing; a replica that was not there then had none.
    pub fn growth(&self, before: &Self) -> u32 {
        let mut growth = 0i64;
        for (id, now) in &self.0 {
            let then =
                before.0.iter().find(|(known, _)| known == id).map_or(Some(0), |(_, waiting)| *waiting);
            if let (Some(now), Some(then)) = (*now, then) {
                growth += i64::from(now) - i64::from(then);
            }
        }
        u32::try_from(growth.max(0)).unwrap_or(u32::MAX)
    }

    /// Requests that wait, as far as it is known.
    pub fn waiting(&self) -> u32 {
        self.0.iter().filter_map(|(_, waiting)| *waiting).fold(0, u32::saturating_add)
    }

    /// Requests that wait in the engine of this replica; `None` where it is not known.
    pub fn of_replica(&self, id: ReplicaId) -> Option<u32> {
        self.0.iter().find(|(known, _)| *known == id).and_then(|(_, waiting)| *waiting)
    }

    /// Whether this replica was ready then.
    pub fn has(&self, id: ReplicaId) -> bool {
        self.0.iter().any(|(known, _)| *known == id)
    }

    /// Those of `other` for each replica that `is_new`, and the same for all others.
    pub fn or(&self, other: &Self, is_new: impl Fn(ReplicaId) -> bool) -> Self {
        let of = |(id, waiting): &(ReplicaId, Option<u32>)| {
            (*id, if is_new(*id) { other.of_replica(*id) } else { *waiting })
        };
        Self(self.0.iter().map(of).collect())
    }

    /// The shorter of both for each replica, or the one that is known.
    pub fn least_known(&self, other: &Self) -> Self {
        let shorter = |(id, now): &(ReplicaId, Option<u32>)| {
            let then = other.of_replica(*id);
            (*id, now.zip(then).map(|(now, then)| now.min(then)).or(*now).or(then))
        };
        Self(self.0.iter().map(shorter).collect())
    }

    /// The shorter of both for each replica: what has lasted. What is not known in either is not known.
    pub fn least(&self, other: &Self) -> Self {
        let shorter = |(id, now): &(ReplicaId, Option<u32>)| {
            (*id, now.zip(other.of_replica(*id)).map(|(now, then)| now.min(then)))
        };
        Self(self.0.iter().map(shorter).collect())
    }
}

/// Whether growth by `grew` is a burst for a fleet that runs `places` requests at a time (B3).
pub fn is_burst(grew: u32, places: u32) -> bool {
    let share = u64::from(grew) * 100 >= u64::from(places) * u64::from(BURST_SHARE);
    grew >= BURST_LEAST && share
}

#[cfg(test)]
mod tests;
