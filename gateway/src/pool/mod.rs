//! One deployment at work: the dispatcher under its one lock, the addresses of its replicas, and whoever waits.
//!
//! The only module that names the dispatcher. It decides nothing: it takes the time, locks, asks, unlocks, and hands
//! verdicts to those who wait for them. Leases and places in the line are guards, so that a future that is dropped at
//! any moment gives back what it held (Q4, Q5, H7).

mod fleet;
mod held;
mod holding;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_gateway_core::config::Limits;
use tidegate_gateway_core::dispatch::{Dispatcher, Ejection, Elsewhere, TicketId, Verdict};
use tidegate_shared::demand::Observation;
use tidegate_shared::explained::RouteDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::replica::{EngineReport, Starts};
use tidegate_shared::request::{RequestFacts, Tokens};
use tidegate_shared::span::whole;
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

pub use fleet::PoolFleet;
pub use held::{Held, Waiting};
pub use holding::{Holding, Needed};
pub use tidegate_gateway_core::dispatch::{
    Cause, Change, Fault, NOTHING_STARTS, NoHold, RECENTLY, Recent, Rejection, Sign, Spent, Trust, Unfit, Way,
};

use crate::clock::Clock;
use crate::endpoint::Endpoint;

/// What becomes of a request at the door.
#[derive(Debug)]
pub enum Admission {
    /// Send it there.
    Now(Held),
    /// Wait for this.
    Later(Waiting),
    /// Answer 503.
    No(Rejection),
}

/// What becomes of a request that a replica was too busy for.
#[derive(Debug)]
pub enum Second {
    /// Send it there.
    Now(Held),
    /// Nobody else has room now.
    Nobody,
    /// Somebody has, but the retry budget is spent.
    Spent,
}

/// See the module.
#[derive(Debug)]
pub struct Pool {
    name: DeploymentName,
    clock: Clock,
    state: Mutex<State>,
    /// The earliest deadline of the line moved closer.
    rearm: Notify,
    /// The scaler should look now.
    pressed: Notify,
}

#[derive(Debug)]
struct State {
    dispatcher: Dispatcher,
    endpoints: BTreeMap<ReplicaId, Arc<Endpoint>>,
    waiters: BTreeMap<TicketId, oneshot::Sender<Result<Held, Rejection>>>,
    armed: Instant,
    /// What the dispatcher was told last.
    latest: Instant,
}

impl State {
    /// Whether this very endpoint is the replica of its id now.
    fn has(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoints.get(&endpoint.id()).is_some_and(|known| Arc::ptr_eq(known, endpoint))
    }
}

/// One replica, for status and metrics.
#[derive(Clone, Debug)]
pub struct ReplicaDetail {
    /// Its address and name, once it has one.
    pub endpoint: Option<Arc<Endpoint>>,
    /// Tokens in progress there.
    pub load: Tokens,
    /// Requests that it works on at most (Q1).
    pub limit: u32,
    /// What it is trusted with.
    pub trust: Trust,
    /// Why it cannot serve, and since when.
    pub unfit: Option<(Unfit, Instant)>,
    /// Whether it is over its load limit, so that conversations at home there detour (R4).
    pub over: bool,
}

/// What was decided about replicas and retries since the beginning, for metrics.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Replicas taken out, by each fault that can be the last one.
    pub ejections: Vec<(&'static str, u64)>,
    /// Retries refused because the budget was spent.
    pub retries_refused: u64,
}

impl Pool {
    /// A deployment without replicas. `startable`: a replica can be started when there is none.
    pub fn new(name: DeploymentName, limits: Limits, startable: bool, clock: Clock) -> Arc<Self> {
        let policy = limits.policy;
        let state = State {
            dispatcher: Dispatcher::new(limits, startable, clock.now()).with_policy(policy, seed()),
            endpoints: BTreeMap::new(),
            waiters: BTreeMap::new(),
            armed: Instant::NEVER,
            latest: Instant::ZERO,
        };
        let (rearm, pressed) = (Notify::new(), Notify::new());
        Arc::new(Self { name, clock, state: Mutex::new(state), rearm, pressed })
    }

    /// Another concurrency limit, and whether a replica can be started (see [`Dispatcher::resize`]).
    pub fn resize(self: &Arc<Self>, concurrency: u32, startable: bool) {
        self.locked(|state, now| state.dispatcher.resize(now, concurrency, startable));
    }

    /// The deployment's name.
    pub fn name(&self) -> &DeploymentName {
        &self.name
    }

    /// A request arrived.
    pub fn arrive(self: &Arc<Self>, facts: &Arc<RequestFacts>) -> Admission {
        self.locked(|state, now| {
            let verdict = state.dispatcher.arrive(now, facts);
            self.admission(state, verdict)
        })
    }

    /// The replicas `tried` failed the request before the first byte of an answer; it first came at `arrived`.
    pub fn retry(
        self: &Arc<Self>,
        facts: &Arc<RequestFacts>,
        tried: &[ReplicaId],
        arrived: Instant,
    ) -> Admission {
        self.locked(|state, now| {
            let verdict = state.dispatcher.retry(now, facts, tried, arrived);
            self.admission(state, verdict)
        })
    }

    /// What [`Pool::arrive`] would say to a request now, and why (E3). Sends nothing and changes nothing.
    pub fn explain(&self, facts: &RequestFacts) -> RouteDecision {
        let state = self.state.lock();
        state.dispatcher.explain(self.clock.now(), facts)
    }

    /// What is wrong with a replica, for people, where something is known.
    pub fn trouble(&self, id: ReplicaId) -> Option<String> {
        let endpoint = self.state.lock().endpoints.get(&id).cloned();
        endpoint.and_then(|endpoint| endpoint.trouble()).map(|why| why.to_string())
    }

    /// The base URL of a replica, for operators only; `None` while it has none.
    pub fn url(&self, id: ReplicaId) -> Option<String> {
        self.state.lock().endpoints.get(&id).map(|endpoint| endpoint.url().to_owned())
    }

    /// Whether a failed request may be sent again, at the cost of a replica's work; if so, it counts.
    pub fn may_retry(self: &Arc<Self>) -> bool {
        self.locked(|state, now| state.dispatcher.may_retry(now))
    }

    /// A replica is too busy for the request, and says so: another one with room now, if there is one. `tried` are the
    /// replicas that did not serve it.
    pub fn elsewhere(self: &Arc<Self>, facts: &Arc<RequestFacts>, tried: &[ReplicaId]) -> Second {
        self.locked(|state, now| match state.dispatcher.elsewhere(now, facts, tried) {
            Elsewhere::Forward(lease) => Held::new(self, state, lease).map_or(Second::Nobody, Second::Now),
            Elsewhere::Nobody => Second::Nobody,
            Elsewhere::Spent => Second::Spent,
        })
    }

    /// A replica that is ready answers its health check too slowly, and no worse. Gives whether it counts as failed now.
    pub fn too_slow(self: &Arc<Self>, id: ReplicaId) -> bool {
        self.locked(|state, now| state.dispatcher.too_slow(now, id))
    }

    /// A replica that is ready says that it takes no requests now. Gives whether it gets none from now on.
    pub fn not_now(self: &Arc<Self>, id: ReplicaId) -> bool {
        self.locked(|state, now| state.dispatcher.not_now(now, id))
    }

    /// What was decided about replicas and retries.
    pub fn judged(&self) -> Judged {
        let dispatcher = &self.state.lock().dispatcher;
        let count = |fault| dispatcher.ejections().get(&fault).copied().unwrap_or_default();
        let ejections = Fault::ALL.map(|fault| (fault.as_str(), count(fault)));
        Judged { ejections: ejections.to_vec(), retries_refused: dispatcher.retries_refused() }
    }

    /// Something happened to a replica.
    pub fn change(self: &Arc<Self>, id: ReplicaId, change: Change) {
        self.locked(|state, now| {
            if matches!(change, Change::Gone | Change::StartFailed)
                && let Some(endpoint) = state.endpoints.remove(&id)
            {
                endpoint.close();
            }
            state.dispatcher.change(now, id, change);
        });
    }

    /// When the next replica can be ordered (C1, C2).
    pub fn hold_starts(self: &Arc<Self>, starts: Starts) {
        self.locked(|state, now| state.dispatcher.hold_starts(now, starts));
    }

    /// The engine behind `endpoint` is about to be asked how it is (G2): what is sent from now on is kept beside the
    /// coming report (R8). Gives the moment, for [`EngineReport::asked`].
    pub fn ask(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> Instant {
        self.locked(|state, now| {
            if state.has(endpoint) {
                state.dispatcher.ask(now, endpoint.id());
            }
            now
        })
    }

    /// What the engine behind `endpoint` said. Dropped where that replica is gone or has been replaced meanwhile, even
    /// by one with the same id or address (C-104).
    pub fn report(self: &Arc<Self>, endpoint: &Arc<Endpoint>, report: EngineReport) {
        self.locked(|state, now| {
            if state.has(endpoint) {
                endpoint.note_report(report);
                state.dispatcher.report(now, endpoint.id(), report);
            }
        });
    }

    /// What the scaler may know, as of now (G1).
    pub fn observe(&self) -> Observation {
        self.state.lock().dispatcher.observe(self.clock.now())
    }

    /// The same with what status and metrics want of each replica, in the same order, and the number of conversations.
    pub fn inspect(&self) -> (Observation, Vec<ReplicaDetail>, u32) {
        let state = self.state.lock();
        let seen = state.dispatcher.observe(self.clock.now());
        let replicas = seen.replicas.iter().map(|replica| ReplicaDetail {
            endpoint: state.endpoints.get(&replica.id).cloned(),
            load: state.dispatcher.load(seen.at, replica.id),
            limit: state.dispatcher.limit(replica.id),
            trust: state.dispatcher.trust(replica.id),
            unfit: state.dispatcher.unfit(replica.id),
            over: state.dispatcher.is_over(seen.at, replica.id),
        });
        let replicas = replicas.collect();
        (seen, replicas, state.dispatcher.conversations())
    }

    /// Why a replica cannot serve, if that is so.
    pub fn unfit(&self, id: ReplicaId) -> Option<Unfit> {
        self.state.lock().dispatcher.unfit(id).map(|(why, _)| why)
    }

    /// Which ways requests went in the last five minutes, and how long the last start took (E2).
    pub fn lately(&self) -> (Recent, Option<Duration>) {
        let dispatcher = &self.state.lock().dispatcher;
        (dispatcher.recent(self.clock.now()), dispatcher.start_took())
    }

    /// Requests that a replica works on; none for one that is not known.
    pub fn in_flight(&self, id: ReplicaId) -> u32 {
        self.state.lock().dispatcher.in_flight(id)
    }

    /// Refuses whoever has waited too long, when it is time; for ever.
    pub async fn keep_deadlines(self: Arc<Self>) {
        loop {
            let armed = self.state.lock().armed;
            tokio::select! {
                () = self.rearm.notified() => {}
                () = tokio::time::sleep_until(self.clock.timer(armed)), if armed != Instant::NEVER => {
                    self.locked(|state, now| {
                        state.armed = Instant::NEVER;
                        state.dispatcher.on_deadline(now);
                    });
                }
            }
        }
    }

    fn admission(self: &Arc<Self>, state: &mut State, verdict: Verdict) -> Admission {
        match verdict {
            Verdict::Forward(lease) => match Held::new(self, state, lease) {
                Ok(held) => Admission::Now(held),
                Err(rejection) => Admission::No(rejection),
            },
            Verdict::Wait(ticket) => {
                let (sender, receiver) = oneshot::channel();
                state.waiters.insert(ticket, sender);
                Admission::Later(Waiting::new(self, ticket, receiver))
            }
            Verdict::Reject(rejection) => Admission::No(rejection),
        }
    }

    fn tell(&self, news: &Ejection) {
        let (name, pause) = (replica_name(&self.name, news.replica), whole(news.pause));
        tracing::warn!("{name} is taken out for {pause}: {}", news.why);
    }

    /// Runs `f` under the lock; then, without it, delivers the verdicts that came of it and wakes whoever must look.
    fn locked<R>(self: &Arc<Self>, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.state.lock();
        // The dispatcher never sees time go back, whichever core's turn began first.
        let now = state.latest.max(self.clock.in_turn());
        state.latest = now;
        let result = f(&mut state, now);
        let mut woken = Vec::new();
        // A lease without an address is ended, which may wake the next.
        loop {
            let more = state.dispatcher.take_woken();
            if more.is_empty() {
                break;
            }
            for (ticket, end) in more {
                let end = end.and_then(|lease| Held::new(self, &mut state, lease));
                woken.push((state.waiters.remove(&ticket), end));
            }
        }
        let deadline = state.dispatcher.deadline();
        let rearm = deadline < state.armed;
        if rearm {
            state.armed = deadline;
        }
        let pressed = state.dispatcher.take_pressed();
        let ejections = state.dispatcher.take_ejections();
        drop(state);
        ejections.iter().for_each(|news| self.tell(news));
        if rearm {
            self.rearm.notify_one();
        }
        if pressed {
            self.pressed.notify_one();
        }
        for (waiter, end) in woken {
            // A waiter that left in this very moment drops the guard, which gives the place to the next.
            drop(waiter.map(|waiter| waiter.send(end)));
        }
        result
    }
}

/// From the system's randomness, by way of the keys that the standard library draws for its maps.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
