//! The control loop's calls of its provider, and of engines that are to sleep or to wake up: each in a task of its own,
//! at most one for a replica at a time. Decides neither what is started nor what is stopped.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tidegate_scaler_core::guard::room::StartEnd;
use tidegate_scaler_core::planner::Planner;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::timeout;
use tracing::Instrument;

use super::book::{News, Way};
use super::{Control, STOP_RETRY};
use crate::fleet::{Change, Fleet, NoSleep};
use crate::house::Recorded;
use crate::provider::{NoStart, Provider, ProviderError};

/// How long an engine may take to fall asleep: it may have to move all its weights to the machine's memory. So long may its
/// provider take then, where the engine knows no sleep.
const SLEEP_LIMIT: Duration = Duration::from_secs(120);
/// How long a replica may take to wake up, and again how long it may take from there until it is ready. A start takes its
/// place: what wakes no sooner is not worth waiting for.
pub(super) const WAKE_LIMIT: Duration = Duration::from_secs(60);

/// A provider call that has ended.
pub(super) struct Call {
    id: ReplicaId,
    ended: Ended,
}

/// What it was, and what came of it.
enum Ended {
    /// On the offer of that name.
    Start(String, Result<(), NoStart>),
    /// How it sleeps.
    Park(Result<Way, String>),
    Wake(Result<(), String>),
    Stop(Result<(), String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Start(Offer),
    Park,
    Wake(Way),
    Stop,
}

impl CallKind {
    /// The end of a call that `why` has cut off.
    fn failed(&self, why: String) -> Ended {
        match self {
            Self::Start(offer) => Ended::Start(offer.name.clone(), Err(NoStart::Failed(why))),
            Self::Park => Ended::Park(Err(why)),
            Self::Wake(_) => Ended::Wake(Err(why)),
            Self::Stop => Ended::Stop(Err(why)),
        }
    }
}

impl Control {
    pub(super) fn call_stops(&mut self, now: Instant) {
        // Nobody waits for an engine that has to go whatever it answers.
        for id in self.book.ending_and_busy() {
            self.waits.remove(&id);
        }
        for id in self.book.stops_due(now) {
            let recorded = self.house.about_to_end(&self.name, id, now);
            self.call_after(recorded, id, CallKind::Stop);
        }
    }

    /// Calls the provider at once.
    pub(super) fn call(&mut self, id: ReplicaId, kind: CallKind) {
        self.call_after(Recorded::default(), id, kind);
    }

    /// Calls the provider in a task of its own: a slow stop holds up nobody. A start or a stop is never cut off;
    /// a sleep or a wake is, at its limit, and the replica is stopped then. What it changes for the account is on record before.
    pub(super) fn call_after(&mut self, recorded: Recorded, id: ReplicaId, kind: CallKind) {
        let (fleet, provider) = (Arc::clone(&self.fleet), Arc::clone(&self.provider));
        let (wait, given_up) = oneshot::channel();
        if matches!(kind, CallKind::Park | CallKind::Wake(_)) {
            self.waits.insert(id, wait);
        }
        let asked = kind.clone();
        let work = async move {
            recorded.written().await;
            match asked {
                CallKind::Start(offer) => {
                    let name = offer.name.clone();
                    Ended::Start(name, provider.start(id, offer).await.map_err(NoStart::from))
                }
                CallKind::Park => Ended::Park(park(&*fleet, &*provider, id, given_up).await),
                CallKind::Wake(Way::Engine) => {
                    let woken = patiently(fleet.wake(id), WAKE_LIMIT, given_up).await;
                    Ended::Wake(woken.and_then(|woken| woken))
                }
                CallKind::Wake(Way::Provider) => {
                    let unparked = within(provider.unpark(id), WAKE_LIMIT).await;
                    Ended::Wake(unparked.and_then(|unparked| unparked.map_err(ProviderError::reason)))
                }
                CallKind::Stop => Ended::Stop(provider.stop(id).await.map_err(ProviderError::reason)),
            }
        };
        let call = async move {
            let ended = AssertUnwindSafe(work).catch_unwind().await;
            let ended = ended.unwrap_or_else(|_| kind.failed("the provider panicked over it".to_owned()));
            Call { id, ended }
        };
        self.calls.spawn(call.in_current_span());
    }

    pub(super) fn settle(&mut self, call: Result<Call, JoinError>) {
        // A call catches its own panics and is never aborted, so this only happens when the runtime goes down.
        let Ok(Call { id, ended }) = call else { return };
        let news = match ended {
            Ended::Start(offer, result) => self.start_ended(id, &offer, result),
            Ended::Park(result) => {
                self.waits.remove(&id);
                if let Some(why) = self.book.park_ended(id, result) {
                    self.log.not_kept(id, &why);
                    self.status.failed(format!("{} is stopped: {why}", self.log.replica(id)));
                }
                None
            }
            Ended::Wake(result) => {
                self.waits.remove(&id);
                match self.book.wake_ended(id, result, self.now()) {
                    Ok(true) => Some((id, Change::Woken)),
                    Ok(false) => None,
                    Err(why) => {
                        self.not_woken(id, &why);
                        None
                    }
                }
            }
            Ended::Stop(result) => self.stop_ended(id, result),
        };
        self.tell_all(news);
    }

    fn start_ended(&mut self, id: ReplicaId, offer: &str, result: Result<(), NoStart>) -> Option<News> {
        let now = self.now();
        if result.is_err() {
            self.house.ends(&self.name, id, now);
        }
        let (how, said) = match &result {
            Ok(()) => (StartEnd::Taken, None),
            Err(NoStart::NoRoom(why)) => (StartEnd::NoRoom, Some(why.clone())),
            Err(NoStart::Failed(_)) => (StartEnd::Failed, None),
        };
        self.planner.iter_mut().for_each(|planner| planner.start_ends(offer, how, now));
        // What was asked for before is no news of room.
        if said.is_some() || !self.planner.as_ref().is_some_and(Planner::lacks_room) {
            self.status.room(said);
        }
        self.book.start_ended(id, result)
    }

    fn stop_ended(&mut self, id: ReplicaId, result: Result<(), String>) -> Option<News> {
        let stopped = result.is_ok();
        match result {
            Ok(()) => {
                self.status.stopped(id);
                self.house.ends(&self.name, id, self.now());
            }
            Err(why) => {
                self.log.stop_failed(id, &why, STOP_RETRY);
                self.status.stop_failed(id, format!("{} could not be stopped: {why}", self.log.replica(id)));
            }
        }
        self.book.stop_ended(id, stopped, self.now() + STOP_RETRY)
    }

    /// A stop of which its provider said that it is done has left it there.
    pub(super) fn still_listed(&self, id: ReplicaId) {
        let why = "its provider says that it is stopped, and still lists it";
        self.log.stop_failed(id, why, STOP_RETRY);
        self.status.stop_failed(id, format!("{} could not be stopped: {why}", self.log.replica(id)));
    }

    /// A parked replica does not come back: it is stopped, and a start takes its place.
    pub(super) fn not_woken(&self, id: ReplicaId, why: &str) {
        self.log.not_kept(id, why);
        self.status.wake_failed(format!("{} is stopped: {why}", self.log.replica(id)));
    }
}

/// Puts a replica to sleep: its engine, where that knows how, else by its provider.
async fn park(
    fleet: &dyn Fleet,
    provider: &dyn Provider,
    id: ReplicaId,
    given_up: oneshot::Receiver<()>,
) -> Result<Way, String> {
    match patiently(fleet.sleep(id), SLEEP_LIMIT, given_up).await? {
        Ok(()) => Ok(Way::Engine),
        Err(NoSleep::Failed(why)) => Err(why),
        Err(NoSleep::Unknown) => match within(provider.park(id), SLEEP_LIMIT).await? {
            Ok(()) => Ok(Way::Provider),
            Err(ProviderError::NoParking { kind, .. }) => {
                Err(format!("its engine knows no sleep, and provider {kind} none either"))
            }
            Err(error) => Err(error.reason()),
        },
    }
}

/// Waits for a provider until `limit`.
async fn within<T>(asked: impl Future<Output = T>, limit: Duration) -> Result<T, String> {
    timeout(limit, asked).await.map_err(|_| format!("its provider does not answer within {limit:?}"))
}

/// Waits for an engine until `limit`, or until that is given up.
async fn patiently<T>(
    asked: impl Future<Output = T>,
    limit: Duration,
    given_up: oneshot::Receiver<()>,
) -> Result<T, String> {
    tokio::select! {
        biased;
        _ = given_up => Err("nobody waits for it any more".to_owned()),
        answer = timeout(limit, asked) => {
            answer.map_err(|_| format!("its engine does not answer within {limit:?}"))
        }
    }
}
