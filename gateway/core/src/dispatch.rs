//! The state machine of one deployment: which replica serves a request, who waits, who is refused (R1–R5, Q1–Q5).
//!
//! The sole mutator of the deployment's state. It takes `now` with every input, reads no clock, locks nothing and
//! sends nothing; its driver holds it under one lock, asks [`Dispatcher::deadline`] when to wake up, and hands out what
//! [`Dispatcher::take_woken`] gives.
//!
//! Order of stages for a request: candidates (ready, with room) → home → policy → ledger; without a candidate: the
//! bounds of the queue → the measured drain → the line. Invariant (Q4): whenever a call returns, nobody waits while a
//! replica that may serve him has room.

use std::sync::Arc;

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{EngineReport, Phase, ReplicaFacts};
use tidegate_shared::request::{RequestFacts, Tokens};
use tidegate_shared::time::{Duration, Instant};

mod change;
mod place;
mod replicas;
mod verdict;
mod wait;

pub use verdict::{Change, Lease, Rejection, Verdict};

use crate::config::Limits;
use crate::conversation::Conversations;
use crate::drain::Drain;
use crate::estimate::Estimate;
pub use crate::estimate::Spent;
use crate::prefixes::Prefixes;
use crate::promise::{Kept, Promises};
pub use crate::queue::TicketId;
use crate::queue::{Queue, Waiter};
use crate::route::{LeastLoad, Policy, Turn};
use replicas::Replicas;

/// How much longer than others a client may wait that comes back when told: as long again as it was told, because an
/// estimate may be off by as much and its promise is kept all the same (Q2); but no longer than this.
const MORE_PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct Dispatcher {
    limits: Limits,
    /// Whether a replica can be started when there is none.
    startable: bool,
    replicas: Replicas,
    prefixes: Prefixes,
    estimate: Estimate,
    conversations: Conversations,
    queue: Queue,
    drain: Drain,
    promises: Promises,
    policy: Box<dyn Policy>,
    /// The latest turn served: a replica that was passed over for long does not catch up in one burst.
    turn: Turn,
    /// Since when at least one replica is ready, or none is.
    warm_since: Instant,
    cold_since: Instant,
    start_failures: u32,
    start_took: Option<Duration>,
    woken: Vec<(TicketId, Result<Lease, Rejection>)>,
    pressed: bool,
}

impl Dispatcher {
    /// A deployment without replicas. `startable`: somebody can start one, so a request may be held from zero (Q3).
    pub fn new(limits: Limits, startable: bool, now: Instant) -> Self {
        Self {
            conversations: Conversations::new(limits.conversations, limits.conversation_idle),
            replicas: Replicas::new(limits.concurrency),
            prefixes: Prefixes::new(limits.conversations),
            estimate: Estimate::default(),
            limits,
            startable,
            queue: Queue::default(),
            drain: Drain::default(),
            promises: Promises::default(),
            policy: Box::new(LeastLoad),
            turn: Turn::default(),
            warm_since: now,
            cold_since: now,
            start_failures: 0,
            start_took: None,
            woken: Vec::new(),
            pressed: false,
        }
    }

    /// A request arrived.
    pub fn arrive(&mut self, now: Instant, facts: &Arc<RequestFacts>) -> Verdict {
        let kept = self.promises.redeem(now, facts.fingerprint, facts.retry);
        self.admit(now, facts, &[], kept.unwrap_or(Kept::new(now)), kept.is_some())
    }

    /// A replica failed a request before the first byte of its answer; its lease was ended. `tried` are the replicas
    /// that failed it, `arrived` is when it first came.
    pub fn retry(
        &mut self,
        now: Instant,
        facts: &Arc<RequestFacts>,
        tried: &[ReplicaId],
        arrived: Instant,
    ) -> Verdict {
        self.admit(now, facts, tried, Kept::new(arrived), true)
    }

    /// An answer turns out longer than was reserved for it (R8).
    pub fn grow(&mut self, now: Instant, lease: &mut Lease, more: Tokens) {
        let charge = &mut lease.charge;
        self.replicas.account(now, lease.replica, |replica| replica.ledger.grow(charge, more));
    }

    /// A request ended, however it did; its place is free at once (Q5). `spent` is what its replica said of it.
    pub fn end(&mut self, now: Instant, lease: Lease, spent: &Spent) {
        self.drain.ended(now);
        self.estimate.learn(&lease.facts, spent);
        let idle = self.replicas.account(now, lease.replica, |replica| {
            replica.ledger.release(&lease.charge);
            replica.phase == Phase::Draining && replica.ledger.in_flight() == 0
        });
        self.pressed |= idle.unwrap_or(false);
        self.pump(now);
    }

    /// A replica's engine is asked for its figures now (G2).
    pub fn ask(&mut self, now: Instant, id: ReplicaId) {
        self.replicas.account(now, id, |replica| replica.ledger.ask(now));
    }

    /// It answered.
    pub fn report(&mut self, now: Instant, id: ReplicaId, report: EngineReport) {
        self.replicas.account(now, id, |replica| replica.ledger.report(report));
        self.pump(now);
    }

    /// A waiter left (Q4). Nothing happens when its verdict was given already.
    pub fn abandon(&mut self, ticket: TicketId) {
        self.queue.leave(ticket);
    }

    /// Something happened to a replica.
    pub fn change(&mut self, now: Instant, id: ReplicaId, change: Change) {
        let was_ready = self.replicas.ready();
        self.apply(now, id, change);
        self.pressed |= matches!(change, Change::Ready | Change::Failed | Change::Undrain);
        let is_ready = self.replicas.ready();
        if was_ready == 0 && is_ready > 0 {
            self.warm_since = now;
        } else if was_ready > 0 && is_ready == 0 {
            self.cold_since = now;
        }
        self.pump(now);
        self.on_deadline(now);
    }

    /// Time passed: whoever has waited too long is refused.
    pub fn on_deadline(&mut self, now: Instant) {
        while let Some((since, ticket)) = self.queue.least_patient() {
            let (limit, reason) = self.patience(since);
            if limit > now {
                break;
            }
            let before = self.queue.before(ticket);
            let Some(waiter) = self.queue.leave(ticket) else { break };
            let rejection = self.refuse(now, &waiter.facts, ticket.arrived(), before, reason);
            self.woken.push((ticket, Err(rejection)));
        }
    }

    /// When to call [`Dispatcher::on_deadline`]; [`Instant::NEVER`] when nobody waits.
    pub fn deadline(&self) -> Instant {
        self.queue.least_patient().map_or(Instant::NEVER, |(since, _)| self.patience(since).0)
    }

    /// The verdicts for waiters since the last call, in order. The driver must deliver each; a lease that cannot be
    /// delivered goes to [`Dispatcher::end`].
    pub fn take_woken(&mut self) -> Vec<(TicketId, Result<Lease, Rejection>)> {
        std::mem::take(&mut self.woken)
    }

    /// Whether, since the last call, something happened that the scaler should not learn only at its next tick: a
    /// request waits and nothing is ready or coming (Q3), a replica became ready or failed, a draining one is idle.
    pub fn take_pressed(&mut self) -> bool {
        std::mem::take(&mut self.pressed)
    }

    /// What the scaler may know (G1).
    pub fn observe(&self, now: Instant) -> Observation {
        let replicas: Vec<_> = self
            .replicas
            .iter()
            .map(|replica| {
                let report = replica.ledger.fresh(now);
                let told = report.and_then(|report| report.kv_used).is_some();
                ReplicaFacts {
                    in_flight: replica.ledger.in_flight(),
                    conversations: self.conversations.at(replica.id),
                    load: told.then(|| replica.ledger.load(now)),
                    memory: replica.ledger.capacity(),
                    waiting: report.and_then(|report| report.waiting),
                    ..ReplicaFacts::new(replica.id, replica.phase, replica.since, replica.capacity)
                }
            })
            .collect();
        Observation {
            at: now,
            in_flight: replicas.iter().map(|replica| replica.in_flight).sum(),
            queued: self.queue.len(),
            promised: self.promises.expected_at(now),
            oldest_wait: self.queue.oldest().map_or(Duration::ZERO, |since| now.since(since)),
            replicas,
        }
    }

    /// Tokens in progress on a replica; zero for one that is not known.
    pub fn load(&self, now: Instant, id: ReplicaId) -> Tokens {
        self.replicas.get(id).map_or(Tokens(0), |replica| replica.ledger.load(now))
    }

    /// Requests that a replica works on; 0 for one that is not known.
    pub fn in_flight(&self, id: ReplicaId) -> u32 {
        self.replicas.get(id).map_or(0, |replica| replica.ledger.in_flight())
    }

    /// Requests that a replica works on at most (Q1); 0 for one that is not known.
    pub fn limit(&self, id: ReplicaId) -> u32 {
        self.replicas.get(id).map_or(0, |replica| self.replicas.limit(replica))
    }

    /// Conversations remembered (R7).
    pub fn conversations(&self) -> u32 {
        self.conversations.len()
    }

    /// Bytes of bodies in the queue (Q1).
    pub fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn admit(
        &mut self,
        now: Instant,
        facts: &Arc<RequestFacts>,
        tried: &[ReplicaId],
        kept: Kept,
        promised: bool,
    ) -> Verdict {
        if let Some(lease) = self.take(now, facts, tried) {
            return Verdict::Forward(lease);
        }
        if let Some(reason) = self.closed(now, facts, promised) {
            return Verdict::Reject(self.refuse(now, facts, kept.arrived, self.queue.len(), reason));
        }
        self.pressed |= self.replicas.ready() == 0 && self.replicas.on_their_way() == 0;
        let extra = kept.away.min(MORE_PATIENCE);
        let waiter = Waiter { facts: Arc::clone(facts), tried: tried.to_vec(), since: now, extra };
        Verdict::Wait(self.queue.enter(kept.arrived, waiter))
    }

    /// Lets whoever may go leave the line, first come first.
    fn pump(&mut self, now: Instant) {
        let mut last = None;
        while let Some((ticket, waiter)) = self.queue.next(last) {
            let (facts, tried) = (Arc::clone(&waiter.facts), waiter.tried.clone());
            match self.take(now, &facts, &tried) {
                Some(lease) => {
                    self.queue.leave(ticket);
                    self.woken.push((ticket, Ok(lease)));
                }
                // Nobody has room: those behind need not ask. Somebody has, but not for this one: the next may go.
                None if tried.is_empty() => break,
                None => last = Some(ticket),
            }
        }
    }
}

#[cfg(test)]
mod tests;
