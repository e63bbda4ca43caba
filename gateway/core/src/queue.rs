//! The line of requests that wait (Q1, Q4): first come, first served, bounded in number and bytes.
//!
//! Knows no replica and no limit on time; `dispatch` says who may leave and who has waited too long.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::RequestFacts;
use tidegate_shared::time::{Duration, Instant};

/// A place in the line, in the order in which the requests first arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId {
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
}

impl TicketId {
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
    bytes: u64,
    serial: u64,
}

impl Queue {
    /// Takes a place by the time of first arrival, so that a request that was refused and came back as told, or that a
    /// replica failed, stands where it would have stood.
    pub fn enter(&mut self, arrived: Instant, waiter: Waiter) -> TicketId {
        let id = TicketId { arrived, serial: self.serial };
        self.serial += 1;
        self.bytes += waiter.facts.body_bytes;
        self.by_wait.insert((waiter.since, id));
        self.by_patience.insert((waiter.since + waiter.extra, id));
        self.line.insert(id, waiter);
        id
    }

    /// Leaves the line; `None` when it has left already.
    pub fn leave(&mut self, id: TicketId) -> Option<Waiter> {
        let waiter = self.line.remove(&id)?;
        self.by_wait.remove(&(waiter.since, id));
        self.by_patience.remove(&(waiter.since + waiter.extra, id));
        self.bytes -= waiter.facts.body_bytes;
        Some(waiter)
    }

    /// Who holds that place.
    #[cfg(test)]
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

    /// How many stand before somebody who first arrived at `arrived` and enters now. Takes time in proportion to the
    /// answer.
    pub fn arrived_by(&self, arrived: Instant) -> u32 {
        self.before(TicketId { arrived, serial: self.serial })
    }

    /// How many stand before `id` in the line. Takes time in proportion to the answer.
    pub fn before(&self, id: TicketId) -> u32 {
        u32::try_from(self.line.range(..id).count()).unwrap_or(u32::MAX)
    }

    /// Since when the one that waits longest has waited.
    pub fn oldest(&self) -> Option<Instant> {
        self.by_wait.first().map(|(since, _)| *since)
    }

    /// Whose limit ends first, and from when it counts.
    pub fn least_patient(&self) -> Option<(Instant, TicketId)> {
        self.by_patience.first().copied()
    }
}
