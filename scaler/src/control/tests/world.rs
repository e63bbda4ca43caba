//! A scripted gateway and provider in one: replicas boot, load and stop in virtual time, requests come and go as the
//! test says, and everything that the control loop does is written into a log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::{Capacity, ReplicaFacts};
use tokio::sync::Notify;

use super::super::*;
use crate::fleet::NoSleep;
use crate::provider::InstanceState;

mod asleep;
mod streams;

/// How the next replicas behave.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// From the start call to an address.
    pub boot: Duration,
    /// From the address to readiness.
    pub load: Duration,
    /// How long a stop call takes.
    pub stop: Duration,
    /// The start call fails.
    pub refuse_start: bool,
    /// There is no room, which a start call finds out after so long.
    pub no_room: Option<Duration>,
    /// The engine ends after `boot`, with this output.
    pub exit: Option<String>,
    /// The provider does not answer.
    pub silent: bool,
    /// In how long the provider looks by itself.
    pub looks: Option<Duration>,
    /// The provider takes for ever to list.
    pub hang: bool,
    /// The start call panics.
    pub panic_at_start: bool,
    /// Calls of stop that fail from here on.
    pub failing_stops: u32,
    /// How long engines take to fall asleep when asked; `None`: they know no sleep.
    pub sleep: Option<Duration>,
    /// How long engines that are woken take to say that they are awake.
    pub rouse: Duration,
    /// How long they take from there to readiness; `None`: they refuse to wake up.
    pub wake: Option<Duration>,
    /// The provider can keep replicas from running.
    pub keeps: bool,
    /// The provider never answers when it is to keep one from running, or to let it run.
    pub stuck: bool,
}

#[derive(Default)]
struct State {
    replicas: BTreeMap<ReplicaId, ReplicaFacts>,
    instances: BTreeMap<ReplicaId, InstanceState>,
    queued: u32,
    queued_since: Instant,
    last_id: u32,
    /// How long requests take; `None`: until they are finished by hand.
    lasts: Option<Duration>,
    /// The replicas of those that have begun.
    begun: Vec<ReplicaId>,
    served: u32,
    /// Requests whose replica was stopped under them.
    cut: u32,
    /// No start is tried before.
    starts_from: Option<Instant>,
    /// What that was when each start failed.
    told: Vec<Instant>,
    log: Vec<(Duration, String)>,
}

pub(super) struct World {
    state: Mutex<State>,
    script: Mutex<Script>,
    pressed: Notify,
    changed: Notify,
    logged: Notify,
    origin: tokio::time::Instant,
    myself: std::sync::Weak<World>,
}

impl World {
    pub(super) fn new() -> Arc<Self> {
        let script = Script {
            boot: Duration::from_secs(1),
            load: Duration::from_secs(2),
            stop: Duration::from_secs(1),
            refuse_start: false,
            no_room: None,
            exit: None,
            silent: false,
            looks: None,
            hang: false,
            panic_at_start: false,
            failing_stops: 0,
            sleep: None,
            rouse: Duration::ZERO,
            wake: Some(Duration::from_millis(100)),
            keeps: false,
            stuck: false,
        };
        Arc::new_cyclic(|myself| Self {
            state: Mutex::default(),
            script: Mutex::new(script),
            pressed: Notify::new(),
            changed: Notify::new(),
            logged: Notify::new(),
            origin: tokio::time::Instant::now(),
            myself: myself.clone(),
        })
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A replica that an earlier run started.
    pub(super) fn left_over(&self, id: u32) {
        let mut state = self.state();
        state.last_id = state.last_id.max(id);
        state.instances.insert(ReplicaId(id), InstanceState::Up { url: format!("http://replica-{id}") });
    }

    /// Its provider ends replica `id`.
    pub(super) fn is_ending(&self, id: u32) {
        let why = "its node goes".to_owned();
        self.state().instances.insert(ReplicaId(id), InstanceState::Ending { why });
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Before which the loop had said that no start is tried, as each start failed.
    pub(super) fn told(&self) -> Vec<Instant> {
        self.state().told.clone()
    }

    /// Takes the log: what happened since the last call.
    pub(super) fn log(&self) -> Vec<String> {
        self.timed_log().into_iter().map(|(_, entry)| entry).collect()
    }

    pub(super) fn timed_log(&self) -> Vec<(Duration, String)> {
        std::mem::take(&mut self.state().log)
    }

    /// Waits until the log holds `entry`.
    pub(super) async fn reaches(&self, entry: &str) {
        let limit = Duration::from_secs(24 * 3600);
        let found = async {
            while !self.state().log.iter().any(|(_, logged)| logged == entry) {
                self.logged.notified().await;
            }
        };
        assert!(timeout(limit, found).await.is_ok(), "no {entry:?} within a day, but {:?}", self.state().log);
    }

    fn note(&self, entry: impl Into<String>) {
        let entry = (self.elapsed(), entry.into());
        self.state().log.push(entry);
        self.logged.notify_one();
    }

    fn at(&self) -> Instant {
        Instant::ZERO + self.elapsed()
    }

    fn later(&self, wait: Duration, then: impl FnOnce(&Self) + Send + 'static) {
        let Some(world) = self.myself.upgrade() else { return };
        tokio::spawn(async move {
            sleep(wait).await;
            then(&world);
        });
    }

    fn become_ready(&self, id: ReplicaId) {
        let now = self.at();
        let mut state = self.state();
        let Some(facts) = state.replicas.get_mut(&id).filter(|facts| facts.phase != Phase::Parked) else {
            return;
        };
        (facts.phase, facts.since) = (Phase::Ready, now);
        state.dispatch();
        drop(state);
        self.run_out();
        self.note(format!("ready {id}"));
        self.pressed.notify_one();
    }

    fn booted(&self, id: ReplicaId) {
        let state = match self.script().exit.clone() {
            Some(line) => InstanceState::Exited { how: "exit code 1".to_owned(), output: vec![line] },
            None => InstanceState::Up { url: format!("http://replica-{id}") },
        };
        if let Some(instance) = self.state().instances.get_mut(&id) {
            *instance = state;
        }
        self.changed.notify_one();
    }
}

impl Fleet for World {
    fn observe(&self) -> Observation {
        let at = self.at();
        let state = self.state();
        Observation {
            at,
            in_flight: state.replicas.values().map(|facts| facts.in_flight).sum(),
            queued: state.queued,
            promised: 0,
            oldest_wait: if state.queued > 0 { at.since(state.queued_since) } else { Duration::ZERO },
            replicas: state.replicas.values().cloned().collect(),
        }
    }

    fn pressed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.pressed.notified())
    }

    fn sleep(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), NoSleep>> {
        Box::pin(async move {
            let Some(takes) = self.script().sleep else { return Err(NoSleep::Unknown) };
            self.note(format!("sleep {id}"));
            sleep(takes).await;
            Ok(())
        })
    }

    fn wake(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), String>> {
        self.note(format!("wake {id}"));
        let wakes = self.script().wake.map(drop).ok_or_else(|| "/wake_up answers 500".to_owned());
        let takes = self.script().rouse;
        Box::pin(async move {
            sleep(takes).await;
            wakes
        })
    }

    fn hold_starts(&self, starts: Starts) {
        self.state().starts_from = match starts {
            Starts::From(until) => Some(until),
            Starts::Stalled | Starts::Blocked => None,
        };
    }

    fn announce(&self, id: ReplicaId, change: Change) {
        let since = self.at();
        let facts = |phase, capacity| ReplicaFacts::new(id, phase, since, capacity);
        let mut state = self.state();
        let entry = match change {
            Change::Ordered { capacity } => {
                state.replicas.insert(id, facts(Phase::Provisioning, capacity));
                format!("ordered {id}")
            }
            Change::Up { url, capacity } => {
                state.replicas.insert(id, facts(Phase::Starting, capacity));
                assert_eq!(url, format!("http://replica-{id}"));
                let load = self.script().load;
                self.later(load, move |world| world.become_ready(id));
                format!("up {id}")
            }
            Change::Drain => {
                let facts = state.replicas.get_mut(&id).unwrap();
                facts.phase = Phase::Draining;
                (facts.in_flight == 0).then(|| self.pressed.notify_one());
                format!("drain {id}")
            }
            Change::Undrain => {
                state.replicas.get_mut(&id).unwrap().phase = Phase::Ready;
                format!("undrain {id}")
            }
            Change::Parked => {
                let facts = state.replicas.get_mut(&id).unwrap();
                (facts.phase, facts.since) = (Phase::Parked, since);
                format!("parked {id}")
            }
            Change::Waking => {
                state.replicas.get_mut(&id).unwrap().phase = Phase::Waking;
                format!("waking {id}")
            }
            Change::Woken => {
                let wake = self.script().wake.unwrap_or_default();
                self.later(wake, move |world| world.become_ready(id));
                format!("woken {id}")
            }
            Change::StartFailed { why } => {
                state.replicas.remove(&id);
                let until = state.starts_from.unwrap_or_default();
                state.told.push(until);
                format!("start failed {id}: {why}")
            }
            Change::Gone { .. } => {
                state.replicas.remove(&id);
                format!("gone {id}")
            }
        };
        drop(state);
        self.note(entry);
    }
}

impl Provider for World {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        if self.script().hang {
            return Box::pin(std::future::pending());
        }
        let answer = if self.script().silent {
            Err(ProviderError::Unavailable { kind: "scripted", why: "it sulks".to_owned() })
        } else {
            let list = |(&id, state): (&ReplicaId, &InstanceState)| {
                let (capacity, price, state) = (Capacity::ONE, Price::FREE, state.clone());
                Instance { id, capacity, price, state, costs: true }
            };
            Ok(self.state().instances.iter().map(list).collect())
        };
        Box::pin(std::future::ready(answer))
    }

    fn offers(&self) -> Vec<Offer> {
        vec![Offer::new("any", Capacity::ONE, Price::FREE)]
    }

    fn start(&self, id: ReplicaId, _: Offer) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.note(format!("start {id}"));
        Box::pin(async move {
            let Script { boot, refuse_start, no_room, panic_at_start, .. } = self.script().clone();
            assert!(!panic_at_start, "as the script says");
            if let Some(takes) = no_room {
                sleep(takes).await;
            }
            let mut state = self.state();
            state.last_id = state.last_id.max(id.0);
            if no_room.is_some() {
                return Err(ProviderError::NoRoom { id, why: "none of 4 is free".to_owned() });
            }
            if refuse_start {
                return Err(ProviderError::Start { id, why: "refused".to_owned() });
            }
            state.instances.insert(id, InstanceState::Pending { why: "booting".to_owned() });
            drop(state);
            self.later(boot, move |world| world.booted(id));
            Ok(())
        })
    }

    fn stop(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.note(format!("stop {id}"));
        self.cut_at(id);
        Box::pin(async move {
            let wait = self.script().stop;
            sleep(wait).await;
            if self.script().failing_stops > 0 {
                self.script().failing_stops -= 1;
                return Err(ProviderError::Stop { id, why: "it clings".to_owned() });
            }
            self.state().instances.remove(&id);
            Ok(())
        })
    }

    fn park(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.keep(id, true)
    }

    fn unpark(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.keep(id, false)
    }

    fn looks_in(&self) -> Option<Duration> {
        self.script().looks
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.changed.notified())
    }

    fn next_id(&self) -> ReplicaId {
        ReplicaId(self.state().last_id + 1)
    }
}
