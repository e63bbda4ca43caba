//! Replicas that the operator's own commands start, stop and list, whatever they are.
//!
//! What the commands are told is in `spec`, what they answer in `answer`. The list is the record: a replica is what it
//! names. A list that fails holds the fleet as it is, and is never taken for an empty one. A start that fails is
//! followed by a stop, and by further ones as long as a list still names it.
//!
//! Never looks behind the commands: whether an address is the replica's own is their word.

mod answer;
mod fleet;
mod run;
mod spec;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use tidegate_shared::id::{ReplicaId, replica_name};
use tidegate_shared::offer::Offer;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, timeout};
use tracing::{info, warn};

pub use self::spec::{ExecSpec, LIST_EVERY, TIME_LIMIT};

use self::answer::Told;
use self::fleet::Fleet;
use self::run::{Complaints, run};
use self::spec::Action;
use super::folder::Folder;
use super::ids::{Ids, LARGEST};
use super::news::News;
use super::no_start::NoStart;
use super::state::{Claim, StateDir};
use super::undo::Undo;
use super::{Instance, Provider, ProviderError, output};

pub(crate) const KIND: &str = "exec";
/// The exit code of a `start` for which there is no room: `EX_TEMPFAIL` of `sysexits.h`.
const NO_ROOM: i32 = 75;
/// How many starts and stops of one deployment run at a time.
const AT_ONCE: usize = 4;

/// The provider of one deployment. Dropping it leaves its replicas running; the next one adopts them.
#[derive(Debug)]
pub struct ExecProvider {
    inner: Arc<Inner>,
    /// Lists again and again; ends with the provider.
    _lister: JoinSet<()>,
    _claim: Claim,
    _state: Arc<StateDir>,
}

#[derive(Debug)]
struct Inner {
    spec: ExecSpec,
    owner: String,
    folder: Folder,
    ids: Ids,
    news: News,
    fleet: Mutex<Fleet>,
    places: Semaphore,
    /// Somebody wants a list now.
    wanted: Notify,
    /// What came of the last list; `None` before the first.
    last: watch::Sender<Option<Result<(), String>>>,
    /// When the next one begins, where nobody wants it sooner.
    next: Mutex<Instant>,
    /// An id in the last list that none of ours can have: told where it is new.
    strange: Mutex<Option<ReplicaId>>,
}

impl ExecProvider {
    /// Makes the provider, which begins to list at once. What an earlier run of the gateway started is adopted by the
    /// first list that succeeds, with the same ids and addresses. Needs a runtime with IO and time.
    pub fn new(spec: ExecSpec, state: Arc<StateDir>) -> Result<Self, ProviderError> {
        let (claim, folder) = state.claim(&spec.deployment).map_err(unavailable)?;
        let next =
            folder.next_id().map_err(|error| unavailable(format!("cannot read the records: {error}")))?;
        let inner = Arc::new(Inner {
            spec,
            owner: state.nonce().to_owned(),
            ids: Ids::new(folder.clone(), next),
            folder,
            news: News::default(),
            fleet: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
            wanted: Notify::new(),
            last: watch::Sender::new(None),
            next: Mutex::new(Instant::now()),
            strange: Mutex::default(),
        });
        let mut lister = JoinSet::new();
        lister.spawn(Arc::clone(&inner).keep_listing());
        Ok(Self { inner, _lister: lister, _claim: claim, _state: state })
    }

    async fn list_now(&self) -> Result<Vec<Instance>, String> {
        let inner = &self.inner;
        inner.news.listing();
        let mut last = inner.last.subscribe();
        // The sender lives as long as the provider.
        let result = last.wait_for(Option::is_some).await.map_err(|error| error.to_string())?.clone();
        result.unwrap_or(Ok(()))?;
        Ok(inner.fleet().instances(inner.spec.price))
    }
}

impl Inner {
    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep_listing(self: Arc<Self>) {
        loop {
            let turn = self.fleet().turn();
            let listed = self.ask_for_list().await;
            *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.spec.list_every;
            let changed = match listed {
                Ok(listed) => {
                    let changed = self.take_in(listed, turn).await;
                    !matches!(self.last.send_replace(Some(Ok(()))), Some(Ok(()))) || changed
                }
                // Told again only where it changes: a list that goes on failing is no news.
                Err(why) => self.last.send_replace(Some(Err(why.clone()))) != Some(Err(why)),
            };
            if changed {
                self.news.tell();
            }
            self.trim_logs();
            timeout(self.spec.list_every, self.wanted.notified()).await.ok();
        }
    }

    /// What the list has, without what cannot be a replica of ours.
    async fn ask_for_list(&self) -> Result<Vec<Told>, String> {
        let text = self.run(Action::List, Complaints::Kept).await?;
        let mut listed = answer::listed(&text).map_err(|why| format!("list: {why}"))?;
        let strange = listed.iter().map(|told| told.id).find(|id| *id > LARGEST);
        listed.retain(|told| told.id <= LARGEST);
        let mut told = self.strange.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(id)) = (std::mem::replace(&mut *told, strange) != strange, strange) {
            let deployment = &self.spec.deployment;
            warn!("{deployment}: its list has replica {id}, which is left out: ids are 1 to {LARGEST}");
        }
        Ok(listed)
    }

    /// Whether anything changed by it.
    async fn take_in(&self, listed: Vec<Told>, turn: u64) -> bool {
        for told in &listed {
            self.ids.saw(told.id);
        }
        let todo = {
            let mut fleet = self.fleet();
            let todo = fleet.take_in(listed, turn, self.spec.capacity);
            fleet.complete(|id| output::last_lines(&self.folder.log(id)));
            todo
        };
        for id in &todo.adopted {
            info!("{} is adopted: it runs since the last gateway (its list names it)", self.name(*id));
        }
        for id in todo.stop {
            match self.run(Action::Stop(id), Complaints::Kept).await {
                Ok(_) => {
                    self.fleet().remove(id);
                    info!("{}: stopped what a failed start left", self.name(id));
                }
                Err(why) => warn!("{}: cannot stop what a failed start left: {why}", self.name(id)),
            }
        }
        todo.changed
    }

    fn name(&self, id: ReplicaId) -> String {
        replica_name(&self.spec.deployment, id)
    }

    /// Runs a command; the error names it.
    async fn run(&self, action: Action<'_>, complaints: Complaints) -> Result<Vec<u8>, String> {
        self.outcome(action, complaints).await.map_err(|(why, _)| why)
    }

    /// The same; the error has the exit code, where there is one.
    async fn outcome(
        &self,
        action: Action<'_>,
        complaints: Complaints,
    ) -> Result<Vec<u8>, (String, Option<i32>)> {
        let name = action.name();
        let command =
            self.spec.command(action, &self.owner).map_err(|why| (format!("{name}: {why}"), None))?;
        let ran = run(command, complaints, self.spec.time_limit).await;
        ran.map_err(|error| (format!("{name}: {error}"), error.code()))
    }

    async fn start(&self, id: ReplicaId, offer: Offer) -> Result<(), NoStart> {
        self.ids.take(id)?;
        self.fleet().begin(id, offer.capacity);
        self.news.tell();
        // Cut off in the middle, what comes of it is seen in the next list, and adopted from there.
        let begun = Undo::new(|| {
            self.fleet().remove(id);
            self.news.tell();
        });
        let told = self.start_command(id, &offer.name).await;
        begun.done();
        let result = match told {
            Ok(told) => {
                self.fleet().started(told);
                Ok(())
            }
            Err(NoStart::NoRoom(why)) => {
                self.fleet().doom(id);
                Err(NoStart::NoRoom(self.undo(id, why).await))
            }
            Err(NoStart::Failed(why)) => {
                self.fleet().doom(id);
                Err(NoStart::Failed(self.undo(id, why).await))
            }
        };
        self.news.tell();
        self.wanted.notify_one();
        result
    }

    async fn start_command(&self, id: ReplicaId, offer: &str) -> Result<Told, NoStart> {
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        let path = self.folder.log(id);
        let log =
            output::create(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let ran = self.outcome(Action::Start(id, offer), Complaints::File(log)).await;
        let (why, code) = match ran {
            Ok(text) => match answer::started(&text, id) {
                Ok(told) => return Ok(told),
                Err(why) => (format!("start: {why}"), None),
            },
            Err(failed) => failed,
        };
        let said = output::last_lines(&path).join("\n");
        Err(match (code, said.as_str()) {
            (Some(NO_ROOM), "") => NoStart::NoRoom(format!("`start` ended with exit code {NO_ROOM}")),
            (Some(NO_ROOM), said) => NoStart::NoRoom(said.to_owned()),
            (_, "") => NoStart::Failed(why),
            (_, said) => NoStart::Failed(format!("{why}; it said:\n{said}")),
        })
    }

    /// Stops what a failed start may have left; returns the whole story.
    async fn undo(&self, id: ReplicaId, why: String) -> String {
        match self.run(Action::Stop(id), Complaints::Kept).await {
            Ok(_) => {
                self.fleet().remove(id);
                if let Err(error) = self.folder.forget(id, true) {
                    warn!("{}: cannot remove its files: {error}", self.name(id));
                }
                why
            }
            Err(error) => format!("{why}; what it left cannot be stopped yet: {error}"),
        }
    }

    async fn stop(&self, id: ReplicaId) -> Result<(), String> {
        let Some(had_ended) = self.fleet().stop(id) else { return Ok(()) };
        // Given up, it is shown as it is and no longer as it was when its stop began.
        let stopping = Undo::new(|| self.fleet().unstop(id));
        {
            let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
            self.run(Action::Stop(id), Complaints::Kept).await?;
        }
        self.folder.forget(id, had_ended).map_err(|error| format!("cannot remove its files: {error}"))?;
        stopping.done();
        self.fleet().remove(id);
        self.news.tell();
        self.wanted.notify_one();
        Ok(())
    }

    fn trim_logs(&self) {
        for id in self.fleet().ids() {
            if let Err(error) = output::trim(&self.folder.log(id))
                && error.kind() != io::ErrorKind::NotFound
            {
                warn!("{}: cannot cut its log back: {error}", self.name(id));
            }
        }
    }
}

impl Provider for ExecProvider {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        async { self.list_now().await.map_err(unavailable) }.boxed()
    }

    /// One, of unknown room, whatever the start command makes of it.
    fn offers(&self) -> Vec<Offer> {
        vec![Offer::new(KIND, self.inner.spec.capacity, self.inner.spec.price)]
    }

    fn start(&self, id: ReplicaId, offer: Offer) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.inner.start(id, offer).await.map_err(|why| why.of(id)) }.boxed()
    }

    fn stop(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.inner.stop(id).await.map_err(|why| ProviderError::Stop { id, why }) }.boxed()
    }

    fn looks_in(&self) -> Option<Duration> {
        let next = *self.inner.next.lock().unwrap_or_else(PoisonError::into_inner);
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.inner.news.changed().boxed()
    }

    fn output(&self, id: ReplicaId) -> Vec<String> {
        let told = self.inner.fleet().output(id);
        if told.is_empty() { output::last_lines(&self.inner.folder.log(id)) } else { told }
    }

    fn next_id(&self) -> ReplicaId {
        self.inner.ids.next()
    }
}

fn unavailable(why: String) -> ProviderError {
    ProviderError::Unavailable { kind: KIND, why }
}
