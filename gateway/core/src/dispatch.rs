//! The state machine of one deployment: which replica serves a request, who waits, who is refused (R1–R5, Q1–Q5).
//!
//! The sole mutator of the deployment's state. It takes `now` with every input, reads no clock, locks nothing and
//! sends nothing; its driver holds it under one lock, asks [`Dispatcher::deadline`] when to wake up, and hands out what
//! [`Dispatcher::take_woken`] gives.
//!
//! Order of stages for a request: candidates (ready, with room) → home → policy → ledger; without a candidate: the
//! bounds of the queue → the measured drain → the line. Invariant (Q4): whenever a call returns, nobody waits while a
//! replica that may serve him has room that nobody before him waits for (`line`).

use std::sync::Arc;

use tidegate_shared::decision::Refusal;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::EngineReport;
use tidegate_shared::request::{RequestFacts, Tokens};
use tidegate_shared::time::{Duration, Instant};

mod bounds;
mod change;
mod explain;
mod hold;
mod judge;
mod line;
mod place;
mod replica;
mod replicas;
mod settle;
mod tell;
mod unfit;
mod verdict;
mod wait;

pub use hold::NoHold;
pub use unfit::Unfit;
pub use verdict::{Change, Ejection, Elsewhere, Lease, Rejection, Verdict};
pub use wait::NOTHING_STARTS;

use crate::config::Limits;
use crate::conversation::Conversations;
use crate::drain::Drain;
use crate::estimate::Estimate;
pub use crate::estimate::Spent;
pub use crate::health::{Cause, Fault, Sign, Trust};
use crate::inflow::Inflow;
use crate::lately::Lately;
pub use crate::lately::{Recent, WINDOW as RECENTLY, Way};
use crate::prefixes::Prefixes;
use crate::promise::{Kept, Promises};
pub use crate::queue::TicketId;
use crate::queue::{Queue, Waiter};
use crate::retry::Budget;
use crate::route::{LeastLoad, Policy, PolicyName, Turn, policy};
use judge::Judge;
use line::Claims;
use place::Choice;
use replica::Replica;
use replicas::Replicas;
use settle::Settling;

/// How much longer than others a client may wait that comes back when told: as long again as it was told, because an
/// estimate may be off by as much and its promise is kept all the same (Q2); but no longer than this.
const MORE_PATIENCE: Duration = Duration::from_secs(60);

/// How a request comes to the door.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it first came, and how long it stayed away since.
    kept: Kept,
    /// It was here before, and was told to come back or failed by a replica.
    promised: bool,
    /// Others as urgent who were told to come back and can be expected to.
    told: u32,
    /// When its client is gone; [`Instant::NEVER`] where it did not say.
    start_by: Instant,
}

impl Entry {
    /// `kept`: the promise that it keeps by coming `now`, if any.
    fn new(now: Instant, facts: &RequestFacts, kept: Option<Kept>, told: u32) -> Self {
        let start_by = start_by(facts, now);
        Self { kept: kept.unwrap_or(Kept::new(now)), promised: kept.is_some(), told, start_by }
    }
}

/// What is to become of a request, before anything of it is done.
#[derive(Debug)]
enum Decision {
    Take(Choice),
    Refuse(Rejection),
    /// It may wait so much longer than others.
    Wait(Duration),
}

/// See the module.
#[derive(Debug)]
pub struct Dispatcher {
    limits: Limits,
    /// When it began. A fleet that is there is told of a moment later.
    born: Instant,
    /// Whether a replica can be started when there is none.
    startable: bool,
    replicas: Replicas,
    prefixes: Prefixes,
    estimate: Estimate,
    conversations: Conversations,
    queue: Queue,
    claims: Claims,
    drain: Drain,
    inflow: Inflow,
    promises: Promises,
    policy: Box<dyn Policy>,
    /// The latest turn served: a replica that was passed over for long does not catch up in one burst.
    turn: Turn,
    /// Since when at least one replica is ready, or none is.
    warm_since: Instant,
    cold_since: Instant,
    start_failures: u32,
    start_took: Option<Duration>,
    wake_took: Option<Duration>,
    /// No start is tried before.
    starts_from: Instant,
    /// Since when none can be ordered, whoever waits (C2).
    startless: Option<Instant>,
    /// Requests sent to replicas so far.
    sent: u64,
    /// Requests sent to the replica that is held, when it became so.
    sent_before_hold: u64,
    judge: Judge,
    budget: Budget,
    woken: Vec<(TicketId, Result<Lease, Rejection>)>,
    pressed: bool,
    settling: Settling,
    lately: Lately,
}

impl Dispatcher {
    /// A deployment without replicas. `startable`: somebody can start one, so a request may be held from zero (Q3).
    pub fn new(limits: Limits, startable: bool, now: Instant) -> Self {
        Self {
            born: now,
            conversations: Conversations::new(limits.conversations, limits.conversation_idle),
            replicas: Replicas::new(limits.concurrency, limits.load_percent),
            prefixes: Prefixes::new(limits.conversations),
            estimate: Estimate::default(),
            startable,
            queue: Queue::default(),
            claims: Claims::default(),
            drain: Drain::default(),
            inflow: Inflow::default(),
            promises: Promises::default(),
            policy: policy(limits.policy, 0),
            turn: Turn::default(),
            warm_since: now,
            cold_since: now,
            start_failures: 0,
            start_took: None,
            wake_took: None,
            starts_from: Instant::ZERO,
            startless: None,
            sent: 0,
            sent_before_hold: 0,
            judge: Judge::default(),
            budget: Budget::default(),
            woken: Vec::new(),
            pressed: false,
            settling: Settling::new(now),
            lately: Lately::default(),
            limits,
        }
    }

    /// The same, still empty, with this policy; `seed` (0 unless said) begins its random numbers, if it takes any, and is
    /// the secret of the tables. It is the driver that knows a seed: gateways side by side must not draw alike, clients
    /// must not know it, and a replay must repeat it.
    pub fn with_policy(self, name: PolicyName, seed: u64) -> Self {
        let (conversations, prefixes) = (self.conversations.keyed(seed), self.prefixes.keyed(seed));
        Self { policy: policy(name, seed), conversations, prefixes, ..self }
    }

    /// A request arrived.
    pub fn arrive(&mut self, now: Instant, facts: &Arc<RequestFacts>) -> Verdict {
        self.budget.request(now);
        let kept = self.promises.redeem(now, facts.fingerprint, facts.retry);
        let entry = Entry::new(now, facts, kept, self.promises.expected_before(facts.priority));
        let verdict = self.admit(now, facts, &[], entry);
        if !entry.promised {
            self.inflow.came(now, facts.priority, self.drain.time_for(now, 1, 1));
        }
        verdict
    }

    /// A replica failed a request before the first byte of its answer; its lease was ended. `tried` are the replicas
    /// that failed it, `arrived` is when it first came, from which its client's deadline counts.
    pub fn retry(
        &mut self,
        now: Instant,
        facts: &Arc<RequestFacts>,
        tried: &[ReplicaId],
        arrived: Instant,
    ) -> Verdict {
        let (kept, told) = (Kept::new(arrived), self.promises.expected_before(facts.priority));
        let start_by = start_by(facts, arrived);
        self.admit(now, facts, tried, Entry { kept, promised: true, told, start_by })
    }

    /// An answer turns out longer than was reserved for it (R8).
    pub fn grow(&mut self, now: Instant, lease: &mut Lease, more: Tokens) {
        let charge = &mut lease.charge;
        self.replicas.account(now, lease.replica, |replica| replica.ledger.grow(charge, more));
    }

    /// A request ended, however it did; its place is free at once (Q5). `spent` is what its replica said of it.
    pub fn end(&mut self, now: Instant, lease: Lease, spent: &Spent) {
        self.drain.ended(now, lease.number);
        self.estimate.learn(&lease.facts, spent);
        spent.first_byte.into_iter().for_each(|took| self.lately.ended(now, lease.route, took));
        let idle = self.replicas.account(now, lease.replica, |replica| {
            replica.ledger.release(&lease.charge);
            let why = if lease.trial { None } else { replica.health.note(now, lease.sign) };
            (replica.is_drained(), why)
        });
        let (idle, why) = idle.unwrap_or_default();
        self.pressed |= idle;
        self.judge(now, &lease, why);
        self.pump(now);
    }

    /// A replica's engine is asked for its figures now (G2).
    pub fn ask(&mut self, now: Instant, id: ReplicaId) {
        self.replicas.account(now, id, |replica| replica.ledger.ask(now));
    }

    /// It answered. Dropped where it was not asked, or counts as another since ([`Change::Failed`]).
    pub fn report(&mut self, now: Instant, id: ReplicaId, report: EngineReport) {
        self.replicas.account(now, id, |replica| replica.ledger.report(now, report));
        self.pump(now);
    }

    /// A waiter left (Q4). Nothing happens when its verdict was given already.
    pub fn abandon(&mut self, now: Instant, ticket: TicketId) {
        if self.queue.leave(ticket).is_some() {
            self.pump(now);
        }
    }

    /// Something happened to a replica.
    pub fn change(&mut self, now: Instant, id: ReplicaId, change: Change) {
        let was_ready = self.replicas.ready();
        let comes = self.replicas.get(id).is_some_and(Replica::is_on_its_way);
        self.apply(now, id, change);
        self.keep_enough(now);
        if comes && self.replicas.get(id).is_some_and(Replica::is_open) {
            self.grew(now, id, was_ready == 0);
        }
        self.pressed |= matches!(change, Change::Ready | Change::Failed | Change::Undrain);
        // One that is idle already needs no drain. It is looked at once more, since a request may come until it is told.
        self.pressed |= change == Change::Draining && self.replicas.get(id).is_some_and(Replica::is_drained);
        // Its probe says so at each look.
        self.pressed |= comes && change == Change::Asleep;
        let is_ready = self.replicas.ready();
        if was_ready == 0 && is_ready > 0 {
            self.warm_since = now;
            self.hold_for_the_next(now);
        } else if was_ready > 0 && is_ready == 0 {
            self.cold_since = now;
        }
        if comes && !self.replicas.get(id).is_some_and(Replica::is_on_its_way) {
            self.hold_no_longer(now);
        }
        self.pump(now);
        self.on_deadline(now);
    }

    /// Time passed: who was out long enough is tried again, and whoever has waited too long is refused.
    pub fn on_deadline(&mut self, now: Instant) {
        self.wake(now);
        self.turn_away_late(now);
        while let Some((since, ticket)) = self.queue.least_patient() {
            let (limit, reason) = self.patience(since);
            if limit > now {
                break;
            }
            let before = self.queue.before(ticket);
            self.turn_away(now, ticket, before, reason);
        }
        self.pump(now);
    }

    /// When to call [`Dispatcher::on_deadline`]; [`Instant::NEVER`] when nobody waits and no replica is out.
    pub fn deadline(&self) -> Instant {
        let patience = self.queue.least_patient().map_or(Instant::NEVER, |(since, _)| self.patience(since).0);
        let gone = self.queue.first_deadline().map_or(Instant::NEVER, |(due, _)| due);
        patience.min(gone).min(self.judge.wakes()).min(self.claims.look_again())
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

    /// The stages of a decision, in order. Changes nothing but the state of the policy that it is given, so that
    /// `admit`, which goes on to do it, and `explain`, which only tells it, decide alike.
    fn decide(
        &self,
        now: Instant,
        facts: &RequestFacts,
        tried: &[ReplicaId],
        entry: Entry,
        policy: &mut dyn Policy,
    ) -> Decision {
        let late = entry.start_by <= now;
        let stands = self.queue.place(facts.priority, entry.kept.arrived);
        if !late && let Some(choice) = self.place(now, facts, tried, stands, policy) {
            return Decision::Take(choice);
        }
        let closed = if late { Some(Refusal::MissedDeadline) } else { self.closed(now, facts, entry) };
        if let Some(reason) = closed {
            let before = self.queue.ahead_of(facts.priority);
            let retry_after = self.retry_after(now, reason, facts.priority, (before, entry.told));
            return Decision::Refuse(Rejection { reason, retry_after });
        }
        Decision::Wait(entry.kept.away.min(MORE_PATIENCE))
    }

    fn admit(
        &mut self,
        now: Instant,
        facts: &Arc<RequestFacts>,
        tried: &[ReplicaId],
        entry: Entry,
    ) -> Verdict {
        match self.with_own_policy(|this, policy| this.decide(now, facts, tried, entry, policy)) {
            Decision::Take(choice) => {
                let lease = self.commit(now, facts, tried, choice);
                self.pump_if_moved(now, choice);
                Verdict::Forward(lease)
            }
            Decision::Refuse(rejection) => {
                self.promise(now, facts, entry.kept.arrived, rejection);
                Verdict::Reject(rejection)
            }
            Decision::Wait(extra) => {
                self.make_room(now, facts);
                self.pressed |= self.replicas.ready() == 0 && self.replicas.on_their_way() == 0;
                let (facts, tried) = (Arc::clone(facts), tried.to_vec());
                let Entry { promised, start_by, .. } = entry;
                let waiter = Waiter { facts, tried, since: now, extra, promised, start_by };
                let ticket = self.queue.enter(entry.kept.arrived, waiter);
                self.pump_for(now, ticket);
                Verdict::Wait(ticket)
            }
        }
    }

    /// The policy is taken out for the while, since it is changed by what reads the rest. The stand-in has no size and
    /// costs nothing.
    fn with_own_policy<R>(&mut self, f: impl FnOnce(&Self, &mut dyn Policy) -> R) -> R {
        let mut policy = std::mem::replace(&mut self.policy, Box::new(LeastLoad));
        let result = f(self, policy.as_mut());
        self.policy = policy;
        result
    }
}

/// When the client of a request that was admitted at `from` is gone.
fn start_by(facts: &RequestFacts, from: Instant) -> Instant {
    facts.start_within.map_or(Instant::NEVER, |within| from + within)
}

#[cfg(test)]
mod tests;
