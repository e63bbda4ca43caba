//! The line of requests that wait (Q1, Q4): the more urgent first, and first come, first served among equals; its length
//! in number and bytes, and who would make room for whom.
//!
//! Knows no replica and no limit on time; `dispatch` says who may leave and who has waited too long.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::{Priority, RequestFacts};
use tidegate_shared::time::{Duration, Instant};

/// A place in the line: by priority, then in the order in which the requests first arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId {
    priority: Priority,
    arrived: Instant,
    serial: u64,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// What it wants.
    pub facts: Arc<RequestFacts>,
    /// Replicas that failed it already; it goes elsewhere if there is an elsewhere.
    pub tried: Vec<ReplicaId>,
    /// Since when it waits this time.
    pub since: Instant,
    /// How much longer than others it may wait.
    pub extra: Duration,
    /// It came back when it was told to, or a replica failed it: it makes room for nobody.
    pub promised: bool,
    /// When its client is gone; [`Instant::NEVER`] where it did not say.
    pub start_by: Instant,
}

impl TicketId {
    /// How urgent the request is.
    pub fn priority(self) -> Priority {
        self.priority
    }

    /// When the request first arrived.
    pub fn arrived(self) -> Instant {
        self.arrived
    }
}

/// The line.
#[derive(Debug, Default)]
pub struct Queue {
    line: BTreeMap<TicketId, Waiter>,
    by_wait: BTreeSet<(Instant, TicketId)>,
    by_patience: BTreeSet<(Instant, TicketId)>,
    /// Those whose client said until when it waits.
    by_deadline: BTreeSet<(Instant, TicketId)>,
    /// How much longer than others those may wait by themselves who are held.
    held: BTreeMap<TicketId, Duration>,
    /// Those that may have to make room.
    yielding: BTreeSet<TicketId>,
    /// By priority: all of them, and of these the ones that may have to make room.
    lengths: [(Length, Length); Priority::ALL.len()],
    bytes: u64,
    serial: u64,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// Requests.
    pub requests: u32,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Length {
    fn plus(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, bytes: self.bytes + other.bytes }
    }

    fn minus(self, other: Self) -> Self {
        Self { requests: self.requests - other.requests, bytes: self.bytes - other.bytes }
    }
}

impl Queue {
    /// Takes a place by priority and the time of first arrival, so that a request that was refused and came back as told,
    /// or that a replica failed, stands where it would have stood.
    pub fn enter(&mut self, arrived: Instant, waiter: Waiter) -> TicketId {
        let id = self.place(waiter.facts.priority, arrived);
        self.serial += 1;
        self.bytes += waiter.facts.body_bytes;
        self.by_wait.insert((waiter.since, id));
        self.by_patience.insert((waiter.since + waiter.extra, id));
        if waiter.start_by != Instant::NEVER {
            self.by_deadline.insert((waiter.start_by, id));
        }
        if !waiter.promised {
            self.yielding.insert(id);
        }
        self.count(&waiter, Length::plus);
        self.line.insert(id, waiter);
        id
    }

    /// Whoever stands in the line now may wait as if he came at `from`, but for `most` longer than others at most.
    pub fn hold(&mut self, from: Instant, most: Duration) {
        for (id, waiter) in &mut self.line {
            let extra = from.since(waiter.since).min(most);
            if extra > waiter.extra {
                self.held.entry(*id).or_insert(waiter.extra);
                self.by_patience.remove(&(waiter.since + waiter.extra, *id));
                waiter.extra = extra;
                self.by_patience.insert((waiter.since + extra, *id));
            }
        }
    }

    /// Whoever was held may wait as if he came at `from`, and no longer.
    pub fn hold_no_longer(&mut self, from: Instant) {
        for (id, own) in &self.held {
            let Some(waiter) = self.line.get_mut(id) else { continue };
            self.by_patience.remove(&(waiter.since + waiter.extra, *id));
            waiter.extra = from.since(waiter.since).min(waiter.extra).max(*own);
            self.by_patience.insert((waiter.since + waiter.extra, *id));
        }
    }

    /// Leaves the line; `None` when it has left already.
    pub fn leave(&mut self, id: TicketId) -> Option<Waiter> {
        let waiter = self.line.remove(&id)?;
        self.held.remove(&id);
        self.by_wait.remove(&(waiter.since, id));
        self.by_patience.remove(&(waiter.since + waiter.extra, id));
        self.by_deadline.remove(&(waiter.start_by, id));
        self.yielding.remove(&id);
        self.count(&waiter, Length::minus);
        self.bytes -= waiter.facts.body_bytes;
        Some(waiter)
    }

    /// The place that somebody as urgent as `priority` would have who first arrived at `arrived` and enters now.
    pub fn place(&self, priority: Priority, arrived: Instant) -> TicketId {
        TicketId { priority, arrived, serial: self.serial }
    }

    /// Whether somebody stands in that place.
    pub fn contains(&self, id: TicketId) -> bool {
        self.line.contains_key(&id)
    }

    /// Who stands in that place.
    pub fn waiter(&self, id: TicketId) -> Option<&Waiter> {
        self.line.get(&id)
    }

    /// Requests in the line.
    pub fn len(&self) -> u32 {
        u32::try_from(self.line.len()).unwrap_or(u32::MAX)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Bytes of bodies in the line.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first in the line behind `id`; the first of all for `None`.
    pub fn next(&self, id: Option<TicketId>) -> Option<(TicketId, &Waiter)> {
        let behind = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.line.range((behind, Bound::Unbounded)).next().map(|(id, waiter)| (*id, waiter))
    }

    /// How many stand before somebody as urgent as `priority` who first arrived at `arrived` and enters now. Takes time
    /// in proportion to the answer.
    pub fn arrived_by(&self, priority: Priority, arrived: Instant) -> u32 {
        self.before(self.place(priority, arrived))
    }

    /// How many stand before `id` in the line. Takes time in proportion to the answer.
    pub fn before(&self, id: TicketId) -> u32 {
        u32::try_from(self.line.range(..id).count()).unwrap_or(u32::MAX)
    }

    /// How many wait that are at least as urgent as `priority`: whom a newcomer stands behind.
    pub fn ahead_of(&self, priority: Priority) -> u32 {
        self.lengths.iter().take(priority as usize + 1).map(|(all, _)| all.requests).sum()
    }

    /// What would be free if all made room that have to for a request of `priority`.
    pub fn yielding_to(&self, priority: Priority) -> Length {
        let below = self.lengths.iter().skip(priority as usize + 1);
        below.fold(Length::default(), |sum, (_, yielding)| sum.plus(*yielding))
    }

    /// Who makes room first for a request of `priority`: of the least urgent, the one that came last.
    pub fn first_to_yield(&self, priority: Priority) -> Option<TicketId> {
        self.yielding.last().copied().filter(|last| last.priority > priority)
    }

    /// Whose client leaves first, and when.
    pub fn first_deadline(&self) -> Option<(Instant, TicketId)> {
        self.by_deadline.first().copied()
    }

    /// Since when the one that waits longest has waited.
    pub fn oldest(&self) -> Option<Instant> {
        self.by_wait.first().map(|(since, _)| *since)
    }

    /// Whose limit ends first, and from when it counts.
    pub fn least_patient(&self) -> Option<(Instant, TicketId)> {
        self.by_patience.first().copied()
    }

    fn count(&mut self, waiter: &Waiter, change: fn(Length, Length) -> Length) {
        let length = Length { requests: 1, bytes: waiter.facts.body_bytes };
        if let Some((all, yielding)) = self.lengths.get_mut(waiter.facts.priority as usize) {
            *all = change(*all, length);
            if !waiter.promised {
                *yielding = change(*yielding, length);
            }
        }
    }
}
