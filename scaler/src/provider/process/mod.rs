//! Runs engines as processes of this machine: any command line with `{port}`.
//!
//! Engines outlive the gateway. Each is known again by a record (pid, start time, boot, port) and by a marker in its
//! environment that all its descendants inherit; a process that has neither is never signalled. Linux 5.3 or later.
//!
//! Never says that a model is loaded: `Up` means that the engine listens at a port that is proven to be its own.

mod adopt;
mod core;
mod handle;
mod park;
pub(super) mod port;
mod recipe;
mod record;
mod stop;
mod supervise;
pub(super) mod table;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tokio::process::Child;
use tokio::task::JoinSet;

pub use self::adopt::clean_up;
pub use self::recipe::{PORT, ProcessSpec};

use self::core::Core;
use self::port::{Owner, Ports};
use self::record::Record;
use self::supervise::{Leader, supervise};
use self::table::{Identity, Marks};
use super::state::{Claim, StateDir};
use super::{Instance, Provider, ProviderError, output};

const KIND: &str = "process";

/// The provider of one deployment. Dropping it leaves its engines running; the next one adopts them.
#[derive(Debug)]
pub struct ProcessProvider {
    spec: ProcessSpec,
    boot: String,
    recipe: String,
    ports: Ports,
    core: Arc<Core>,
    /// Follow the engines; end with the provider.
    followers: Mutex<JoinSet<()>>,
    _claim: Claim,
    _state: Arc<StateDir>,
}

impl ProcessProvider {
    /// Makes the provider and adopts what an earlier run of the gateway left of this deployment, with the same ids
    /// and ports. What cannot be adopted (no valid record, another command line, its first process dead) is ended
    /// first, which takes up to 15 s if it resists. Needs a runtime with IO and time.
    pub async fn new(spec: ProcessSpec, state: Arc<StateDir>) -> Result<Self, ProviderError> {
        if spec.command.is_empty() {
            return Err(unavailable(format!("deployment {} has an empty command", spec.deployment)));
        }
        let (claim, folder) = state.claim(&spec.deployment).map_err(unavailable)?;
        let marks = Marks::new(state.nonce(), spec.deployment.as_str());
        let boot = record::boot_id().map_err(failed("read the boot id"))?;
        let next = folder.next_id().map_err(failed("read the records"))?;
        let core = Arc::new(Core::new(spec.deployment.clone(), folder, marks, next, spec.price));
        let (ports, recipe) = (state.ports(), spec.fingerprint());
        let followers = Mutex::default();
        let this = Self { spec, boot, recipe, ports, core, followers, _claim: claim, _state: state };
        this.adopt().await.map_err(failed("adopt what an earlier run left"))?;
        Ok(this)
    }

    async fn adopt(&self) -> io::Result<()> {
        for (record, leader) in adopt::adopt(&self.core, Some(self.recipe.clone())).await?.living {
            let id = record.id;
            let Some(port) = self.ports.claim(record.port) else {
                return Err(io::Error::other(format!("two replicas have port {}", record.port)));
            };
            let (leader, pid, number) = (Leader::Adopted(leader), record.leader.pid, record.port);
            self.core.insert(record, "adopted; it does not listen yet", port);
            if self.core.look(id).await? == Owner::Replica {
                self.core.set_up(id);
            }
            if self.core.is_parked(id)
                && let Err(why) = self.core.park(id).await
            {
                // A run that ended in the middle of it may have left some of it running; the loop sees it as it is.
                tracing::warn!("{}: {why}", self.core.name(id));
            }
            let name = self.core.name(id);
            tracing::info!("{name} is adopted: it runs since the last gateway (pid {pid}, port {number})");
            self.follow(id, leader);
        }
        Ok(())
    }

    /// All without a wait: a start that was begun is carried through.
    fn start_now(&self, id: ReplicaId) -> Result<(), Refusal> {
        self.core.ids.take(id)?;
        let port = self.ports.free().map_err(|error| format!("cannot get a port: {error}"))?;
        let path = self.core.folder.log(id);
        let log =
            output::create(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let started = self.spec.spawn(port.number(), &self.core.marks.value(id), log);
        let child = started.inspect_err(|_| self.tidy(id))?;
        match self.record(id, child.id(), port.number()) {
            Ok(record) => {
                self.core.insert(record, "the engine does not listen yet", port);
                self.follow(id, Leader::Child(child));
                Ok(())
            }
            Err(error) => {
                let why = format!("cannot keep a record of it: {error}");
                Err(Refusal { why, child: Some(Box::new(child)) })
            }
        }
    }

    fn record(&self, id: ReplicaId, pid: Option<u32>, port: u16) -> io::Result<Record> {
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).ok_or(io::ErrorKind::NotFound)?;
        // Nobody has waited for the child, so the pid is its own even if it has ended.
        let leader = Identity::of(pid).ok_or(io::ErrorKind::NotFound)?;
        let (boot, recipe) = (self.boot.clone(), self.recipe.clone());
        let (members, parked, capacity) = (Vec::new(), false, self.spec.capacity);
        let record = Record { id, leader, members, boot, parked, port, capacity, recipe };
        match record::save(&self.core.folder, &record) {
            // It serves all the same. Its mark tells the next run that it is ours; what has no record is ended then.
            Err(error) if is_full(&error) => {
                let name = self.core.name(id);
                tracing::warn!("{name} has no record on disk, and a restart would end it: {error}");
                Ok(record)
            }
            saved => saved.map(|()| record),
        }
    }

    /// Ends an engine that could not be put on record, even if the caller loses patience.
    async fn abandon(&self, id: ReplicaId, mut child: Box<Child>) {
        self.tidy(id);
        let core = Arc::clone(&self.core);
        let ended = tokio::spawn(async move {
            if let Err(why) = core.terminate(id).await {
                tracing::warn!("{}: cannot end its engine: {why}", core.name(id));
            }
            child.wait().await.ok();
        });
        ended.await.ok();
    }

    /// Removes what a start that came to nothing left in the folder.
    fn tidy(&self, id: ReplicaId) {
        if let Err(error) = self.core.folder.forget(id, false) {
            tracing::warn!("{}: cannot remove its files: {error}", self.core.name(id));
        }
    }

    fn follow(&self, id: ReplicaId, leader: Leader) {
        self.spawn(supervise(Arc::clone(&self.core), id, leader));
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        while followers.try_join_next().is_some() {} // Those that are done.
        followers.spawn(task);
    }
}

/// Whether a disk has no room, or takes nothing.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

/// Why a start came to nothing.
struct Refusal {
    /// For people.
    why: String,
    /// What has to be ended before that is true.
    child: Option<Box<Child>>,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { why, child: None }
    }
}

impl Drop for ProcessProvider {
    fn drop(&mut self) {
        self.core.let_ports_go();
    }
}

impl Provider for ProcessProvider {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        async { Ok(self.core.list()) }.boxed()
    }

    /// One, of unknown room: this machine.
    fn offers(&self) -> Vec<Offer> {
        vec![Offer { cached: true, ..Offer::new(KIND, self.spec.capacity, self.spec.price) }]
    }

    fn start(&self, id: ReplicaId, _: Offer) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move {
            let refusal = match self.start_now(id) {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            };
            if let Some(child) = refusal.child {
                self.abandon(id, child).await;
            }
            Err(ProviderError::Start { id, why: refusal.why })
        }
        .boxed()
    }

    fn stop(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.core.stop(id).await.map_err(|why| ProviderError::Stop { id, why }) }.boxed()
    }

    fn park(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.core.park(id).await.map_err(|why| ProviderError::Park { id, why }) }.boxed()
    }

    fn unpark(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.core.unpark(id).await.map_err(|why| ProviderError::Park { id, why }) }.boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.core.news.changed().boxed()
    }

    fn output(&self, id: ReplicaId) -> Vec<String> {
        output::last_lines(&self.core.folder.log(id))
    }

    fn next_id(&self) -> ReplicaId {
        self.core.ids.next()
    }
}

fn unavailable(why: String) -> ProviderError {
    ProviderError::Unavailable { kind: KIND, why }
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> ProviderError {
    move |error| unavailable(format!("cannot {action}: {error}"))
}
