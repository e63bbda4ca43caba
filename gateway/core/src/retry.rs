//! Which failures are tried again, how often, and how many of all requests may be (R5, C-078).
//!
//! A request is sent again only while no byte of an answer was seen. The body is replayed from memory. Never picks a
//! replica; that is `dispatch`.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::time::Instant;

/// Attempts at one request, the first included.
pub const ATTEMPTS: usize = 4;
/// Times that one replica is sent the same request: it may have worked on it each time.
pub const SENDS: usize = 2;
/// Replicas that may break off under one request. What looks like a dead connection may be an engine that died of the
/// request, and a third one should not.
pub const BROKEN: usize = 2;
/// Attempts that met an engine which was loading its model; they cost it nothing.
pub const LOADING: usize = 8;

/// Why an attempt came to nothing, with no byte of an answer seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was not sent: nobody could be connected to.
    Connect,
    /// The connection ended under it, and the replica lives.
    Broken,
    /// The connection ended under it, because the replica died: it takes no other until it is back.
    Died,
    /// The engine says that it is full.
    Busy,
    /// The engine is loading its model: it became ready and has begun anew (C-028).
    Loading,
}

impl Failure {
    /// Whether trying again takes of the budget: an engine has, or may have, worked for it, and may do so again and
    /// again. Nothing was asked of one that could not be connected to, nothing was lost by one that loads, and a death
    /// happens once: what it leaves behind is served by others, however much that is (R5).
    pub const fn costs(self) -> bool {
        matches!(self, Self::Broken | Self::Busy)
    }
}

/// The failed attempts at one request.
#[derive(Clone, Debug, Default)]
pub struct Tries {
    tried: SmallVec<[ReplicaId; ATTEMPTS]>,
    sent: SmallVec<[ReplicaId; ATTEMPTS]>,
    broken: usize,
    loading: usize,
}

impl Tries {
    /// An attempt at `replica` failed, in which it was sent the request so often: not at all where nobody listens, and
    /// twice where an idle connection had died.
    pub fn failed(&mut self, replica: ReplicaId, failure: Failure, sends: usize) {
        self.tried.push(replica);
        self.broken += usize::from(matches!(failure, Failure::Broken | Failure::Died));
        if failure == Failure::Loading {
            self.loading += 1;
        } else {
            self.sent.extend(std::iter::repeat_n(replica, sends));
        }
    }

    /// The replica of each failed attempt.
    pub fn tried(&self) -> &[ReplicaId] {
        &self.tried
    }

    /// How often `replica` was sent the request, and may have worked on it.
    pub fn sends_to(&self, replica: ReplicaId) -> usize {
        self.sent.iter().filter(|sent| **sent == replica).count()
    }

    /// Whether `replica` may be sent the request once more.
    pub fn may_send_to(&self, replica: ReplicaId) -> bool {
        self.sends_to(replica) < SENDS
    }

    /// Whether another attempt may follow.
    pub fn may_go_on(&self) -> bool {
        self.tried.len() - self.loading < ATTEMPTS && self.broken < BROKEN && self.loading < LOADING
    }
}

/// For how long requests and retries are remembered, in seconds.
const SLOTS: u64 = 10;
/// Of so many requests, one may be sent again: 20 %.
const ONE_IN: u64 = 5;
/// Retries that are allowed within [`SLOTS`], however few requests there are: a quiet deployment may retry too.
const FLOOR: u64 = 100;

/// What happened within one second.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    second: u64,
    requests: u64,
    retries: u64,
}

/// How many requests of a deployment may be sent again: one in five of those that came within the last ten seconds, or
/// a hundred where that is more. Beyond, failures are told instead of multiplied. The numbers are those of Finagle's
/// budget.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// Time that steps back counts as this second.
    current: Slot,
    /// The seconds before, oldest first; those without anything are left out.
    past: VecDeque<Slot>,
    refused: u64,
}

impl Budget {
    /// A request came.
    pub fn request(&mut self, now: Instant) {
        self.pass(now);
        self.current.requests += 1;
    }

    /// One wants to be sent again. Gives whether it may; if so, it counts.
    pub fn retry(&mut self, now: Instant) -> bool {
        self.pass(now);
        let slots = self.past.iter().chain([&self.current]);
        let (requests, retries) =
            slots.fold((0, 0), |sum, slot| (sum.0 + slot.requests, sum.1 + slot.retries));
        let may = retries < FLOOR.max(requests / ONE_IN);
        if may {
            self.current.retries += 1;
        } else {
            self.refused += 1;
        }
        may
    }

    /// Retries refused since the beginning.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn pass(&mut self, now: Instant) {
        let second = now.since(Instant::ZERO).as_secs();
        if second <= self.current.second {
            return;
        }
        let over = std::mem::replace(&mut self.current, Slot { second, ..Slot::default() });
        self.past.push_back(over);
        while self.past.front().is_some_and(|oldest| oldest.second + SLOTS <= second) {
            self.past.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
