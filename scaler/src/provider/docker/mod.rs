//! Runs engines as containers, through the API of a Docker daemon.
//!
//! The daemon's own list is the record: each container carries labels that say whose it is, which replica and how it
//! was made. So there is nothing to get out of step, and a container without this gateway's labels is never touched.
//! A daemon that does not answer is an error, never an empty list.
//!
//! Never says that a model is loaded: `Up` means that the container runs and its port is its own.

mod daemon;
mod fleet;
mod follow;
mod host;
mod label;
mod spec;
mod start;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::Offer;
use tokio::task::JoinSet;
use tracing::{info, warn};

pub use self::host::DockerHost;
pub use self::spec::{DockerSpec, Gpus, Network, Pull};

use self::daemon::{Daemon, DaemonError, Seen};
use self::fleet::Fleet;
use super::folder::{Folder, write_whole};
use super::ids::Ids;
use super::news::News;
use super::output;
use super::process::port::Ports;
use super::process::table::Marks;
use super::state::{Claim, StateDir};
use super::undo::Undo;
use super::{Instance, Provider, ProviderError};

const KIND: &str = "docker";
/// The file in a deployment's folder that names the daemon which runs its containers.
const HOST_FILE: &str = "docker";

/// The provider of one deployment. Dropping it leaves its containers running; the next one adopts them.
#[derive(Debug)]
pub struct DockerProvider {
    inner: Arc<Inner>,
    /// Follow the daemon; end with the provider.
    followers: Mutex<JoinSet<()>>,
    _claim: Claim,
    _state: Arc<StateDir>,
}

/// What the provider shares with those that follow the daemon.
#[derive(Debug)]
struct Inner {
    spec: DockerSpec,
    recipe: String,
    owner: String,
    /// What marks the processes of the containers.
    marks: Marks,
    daemon: Daemon,
    folder: Folder,
    ids: Ids,
    ports: Ports,
    news: News,
    fleet: Mutex<Fleet>,
    /// Containers that are being taken away because they are nobody's replica.
    leaving: Mutex<BTreeSet<String>>,
}

impl DockerProvider {
    /// Makes the provider. The daemon may be down: what an earlier run of the gateway left is adopted by the first
    /// list that it answers, with the same ids and addresses; what cannot be adopted is ended then. Needs a runtime
    /// with IO and time.
    pub fn new(spec: DockerSpec, state: Arc<StateDir>) -> Result<Self, ProviderError> {
        let (claim, folder) = state.claim(&spec.deployment).map_err(unavailable)?;
        let next = folder.next_id().map_err(failed("read the records"))?;
        let host = spec.host.to_string();
        write_whole(&folder.file(HOST_FILE), host.as_bytes()).map_err(failed("note the daemon"))?;
        let inner = Arc::new(Inner {
            recipe: spec.fingerprint(),
            owner: state.nonce().to_owned(),
            marks: Marks::new(&format!("{KIND}-{}", state.nonce()), spec.deployment.as_str()),
            daemon: Daemon::new(spec.host.clone()),
            ids: Ids::new(folder.clone(), next),
            folder,
            ports: state.ports(),
            news: News::default(),
            fleet: Mutex::default(),
            leaving: Mutex::default(),
            spec,
        });
        let followers = Mutex::new(follow::follow(&inner));
        Ok(Self { inner, followers, _claim: claim, _state: state })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        while followers.try_join_next().is_some() {} // Those that are done.
        followers.spawn(task);
    }

    async fn list_now(&self) -> Result<Vec<Instance>, DaemonError> {
        let inner = &self.inner;
        inner.news.listing();
        let turn = inner.fleet().turn();
        let seen = inner.daemon.list(&inner.owner, &inner.spec.deployment).await?;
        for one in &seen {
            inner.ids.saw(one.tag.replica);
        }
        let todo = inner.fleet().take_in(seen, turn, &inner.recipe, |one| inner.url(one));
        for (id, container) in todo.adopted {
            let short = container.get(..12).unwrap_or(&container);
            info!("{} is adopted: it runs since the last gateway (container {short})", inner.name(id));
            if inner.spec.network == Network::Host {
                inner.fleet().keep_port(id, |port| inner.ports.claim(port));
            }
        }
        for (id, container) in todo.strays {
            if inner.leaving().insert(container.clone()) {
                self.spawn(Arc::clone(inner).end_stray(id, container));
            }
        }
        join_all(todo.ended.iter().map(|(id, container)| inner.examine(*id, container))).await;
        Ok(inner.fleet().instances(inner.spec.price))
    }
}

impl Inner {
    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, id: ReplicaId) -> String {
        replica_name(&self.spec.deployment, id)
    }

    /// The address of a container that runs, where the list tells it.
    fn url(&self, one: &Seen) -> Option<String> {
        match &self.spec.network {
            Network::Host => None,
            Network::Docker { publish, .. } => {
                let port = one.published?;
                Some(format!("http://{}", std::net::SocketAddr::new(*publish, port)))
            }
        }
    }

    /// Finds out how a replica ended and what it said. Where Docker does not tell, the next list asks again.
    async fn examine(&self, id: ReplicaId, container: &str) {
        if let Ok(end) = self.daemon.how(container).await {
            if end.running {
                return self.fleet().revived(id);
            }
            let tail = self.daemon.tail(container).await;
            self.fleet().ended(id, container, &end, tail);
        }
    }

    /// Ends a container that is nobody's replica.
    async fn end_stray(self: Arc<Self>, id: ReplicaId, container: String) {
        let name = self.name(id);
        match self.daemon.end(&container).await {
            Ok(()) => info!("{name}: ended a container that an earlier run or a failed start left"),
            Err(error) => warn!("{name}: cannot end a container that was left: {error}"),
        }
        self.leaving().remove(&container);
        self.news.tell();
    }

    /// Pauses a replica, or lets it go on. The error is for people.
    async fn pause(&self, id: ReplicaId, paused: bool) -> Result<(), String> {
        let container = self.fleet().container(id).ok_or("it has no container")?;
        let done =
            if paused { self.daemon.pause(&container).await } else { self.daemon.unpause(&container).await };
        done.map_err(|error| error.to_string())?;
        self.fleet().set_paused(id, paused);
        self.news.tell();
        Ok(())
    }

    /// Ends a replica and forgets it. The error is for people.
    async fn stop(&self, id: ReplicaId) -> Result<(), String> {
        let Some((container, last_words)) = self.fleet().stop(id) else { return Ok(()) };
        // Given up, it is shown as it is and no longer as it was when its stop began.
        let stopping = Undo::new(|| self.fleet().unstop(id));
        self.daemon.end(&container).await.map_err(|error| error.to_string())?;
        if let Some(lines) = &last_words {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            write_whole(&self.folder.log(id), text.as_bytes())
                .map_err(|error| format!("cannot keep its log: {error}"))?;
        }
        self.folder
            .forget(id, last_words.is_some())
            .map_err(|error| format!("cannot remove its files: {error}"))?;
        stopping.done();
        self.fleet().remove(id);
        self.news.tell();
        Ok(())
    }
}

impl Provider for DockerProvider {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        async { self.list_now().await.map_err(|error| unavailable(error.to_string())) }.boxed()
    }

    /// One. Its room is known where replicas have GPUs of their own.
    fn offers(&self) -> Vec<Offer> {
        let spec = &self.inner.spec;
        let free = match &spec.gpus {
            Gpus::Of { ids, each } => {
                let most = u32::try_from(ids.len()).unwrap_or(u32::MAX) / (*each).max(1);
                Some(most.saturating_sub(self.inner.fleet().alive()))
            }
            Gpus::None | Gpus::All => None,
        };
        let cached = spec.pull == Pull::Never;
        vec![Offer { free, cached, ..Offer::new(KIND, spec.capacity, spec.price) }]
    }

    fn start(&self, id: ReplicaId, _: Offer) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.inner.start(id).await.map_err(|why| why.of(id)) }.boxed()
    }

    fn stop(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.inner.stop(id).await.map_err(|why| ProviderError::Stop { id, why }) }.boxed()
    }

    fn park(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.inner.pause(id, true).await.map_err(|why| ProviderError::Park { id, why }) }.boxed()
    }

    fn unpark(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.inner.pause(id, false).await.map_err(|why| ProviderError::Park { id, why }) }
            .boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.inner.news.changed().boxed()
    }

    fn output(&self, id: ReplicaId) -> Vec<String> {
        let tail = self.inner.fleet().tail(id);
        if tail.is_empty() { output::last_lines(&self.inner.folder.log(id)) } else { tail }
    }

    fn next_id(&self) -> ReplicaId {
        self.inner.ids.next()
    }
}

/// Ends the containers of deployments that have none any more, or have them at another daemon now; returns the names
/// of those deployments. Call it once at start, with every deployment that has a docker provider. A daemon that does
/// not answer is logged and left for the next time.
pub async fn clean_up(state: &StateDir, wanted: &[(DeploymentName, DockerHost)]) -> io::Result<Vec<String>> {
    let mut cleaned = Vec::new();
    for name in state.deployments()? {
        let deployment = DeploymentName::new(&name);
        let (_claim, folder) = state.claim(&deployment).map_err(io::Error::other)?;
        let file = folder.file(HOST_FILE);
        let Some(host) = std::fs::read_to_string(&file).ok().and_then(|text| DockerHost::parse(&text).ok())
        else {
            continue;
        };
        if wanted.iter().any(|(name, wanted)| *name == deployment && *wanted == host) {
            continue;
        }
        let daemon = Daemon::new(host);
        match end_all(&daemon, state.nonce(), &deployment).await {
            Ok(0) => std::fs::remove_file(&file)?,
            Ok(_) => {
                std::fs::remove_file(&file)?;
                cleaned.push(name);
            }
            Err(error) => warn!("cannot end the containers of {name}, which has none here any more: {error}"),
        }
    }
    Ok(cleaned)
}

/// Ends every container of a deployment; tells how many there were.
async fn end_all(daemon: &Daemon, owner: &str, deployment: &DeploymentName) -> Result<usize, DaemonError> {
    let seen = daemon.list(owner, deployment).await?;
    let ended = join_all(seen.iter().map(|one| daemon.end(&one.container))).await;
    ended.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(seen.len())
}

fn unavailable(why: String) -> ProviderError {
    ProviderError::Unavailable { kind: KIND, why }
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> ProviderError {
    move |error| unavailable(format!("cannot {action}: {error}"))
}
