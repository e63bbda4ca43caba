//! The start of one replica: an id, a port, GPUs, a container; each given back where a later step fails.
//!
//! Whatever a crash cuts off leaves at most a container that carries the labels of a replica which nobody knows; the
//! next list ends it.

use std::time::Duration;

use tidegate_shared::id::ReplicaId;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::super::no_start::NoStart;
use super::Inner;
use super::daemon::DaemonError;
use super::label::{DEPLOYMENT, OWNER, Tag, choose_gpus};
use super::spec::{Gpus, Network, Pull};

/// Held from the choice of GPUs until a container says that it has them: no two starts of this process choose alike.
static CHOOSING: Mutex<()> = Mutex::const_new(());

/// How long a start waits for GPUs of containers that are just being taken away.
const GPU_PATIENCE: Duration = Duration::from_secs(20);

impl Inner {
    /// Starts a replica. Without GPUs for it there is no room; any other error is a failure.
    pub(super) async fn start(&self, id: ReplicaId) -> Result<(), NoStart> {
        self.ids.take(id)?;
        let begun = Begun::new(self, id);
        self.news.tell();
        let lease = match &self.spec.network {
            Network::Docker { .. } => None,
            Network::Host => Some(self.ports.free().map_err(|error| format!("cannot get a port: {error}"))?),
        };
        let port = match (&self.spec.network, &lease) {
            (Network::Docker { port, .. }, _) => *port,
            (Network::Host, lease) => lease.as_ref().map_or(0, |lease| lease.number()),
        };
        let (gpus, choosing) = self.gpus().await?;
        let recipe = self.recipe.clone();
        let tag = Tag { replica: id, recipe, capacity: self.spec.capacity, port, gpus };
        let container = self.create(&tag).await?;
        drop(choosing);
        self.fleet().made(id, &container);
        if let Err(error) = self.daemon.start(&container).await {
            let why = error.to_string();
            let left = match self.daemon.end(&container).await {
                Ok(()) => why,
                // It stays on the daemon's list, and the next list of ours tries again.
                Err(error) => format!("{why}; its container cannot be removed yet: {error}"),
            };
            return Err(NoStart::Failed(left));
        }
        begun.finish(&container, port, lease);
        Ok(())
    }

    /// Makes the container, with the image pulled first where that is wanted and needed.
    async fn create(&self, tag: &Tag) -> Result<String, String> {
        let name = self.spec.container_name(&self.owner, tag.replica);
        let mark = self.marks.value(tag.replica);
        let create = || self.daemon.create(&name, self.spec.container(tag, &mark, &self.owner));
        let mut made = create().await;
        if made.as_ref().is_err_and(|error| error.is(404) && names_image(error)) {
            match self.spec.pull {
                Pull::Never => {
                    let image = &self.spec.image;
                    return Err(format!(
                        "there is no image {image:?} at {}; fetch it (docker pull {image}) or set pull = \"missing\"",
                        self.spec.host
                    ));
                }
                Pull::Missing => {
                    self.fleet().progress(tag.replica, "its image is being pulled");
                    let pulled = self.daemon.pull(&self.spec.image).await;
                    pulled.map_err(|error| format!("cannot pull image {:?}: {error}", self.spec.image))?;
                    made = create().await;
                }
            }
        }
        if made.as_ref().is_err_and(|error| error.is(409)) {
            self.clear(&name, tag.replica).await?;
            made = create().await;
        }
        made.map_err(|error| error.to_string())
    }

    /// Takes away a container of ours that has the name; one of somebody else's stays, and is an error.
    async fn clear(&self, name: &str, id: ReplicaId) -> Result<(), String> {
        let Some((container, labels)) = self.daemon.find(name).await.map_err(|error| error.to_string())?
        else {
            return Ok(());
        };
        let is = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
        let ours = is(OWNER, &self.owner) && is(DEPLOYMENT, self.spec.deployment.as_str());
        if !ours || Tag::read(&labels).is_none_or(|tag| tag.replica != id) {
            return Err(format!(
                "the name {name} is taken by a container that is not Tidegate's ({container:.12})"
            ));
        }
        self.daemon.end(&container).await.map_err(|error| error.to_string())
    }

    /// GPUs for one replica, and the right to put them on a container.
    async fn gpus(&self) -> Result<(Vec<String>, Option<MutexGuard<'static, ()>>), NoStart> {
        let Gpus::Of { ids, each } = &self.spec.gpus else { return Ok((Vec::new(), None)) };
        let patience = Instant::now() + GPU_PATIENCE;
        loop {
            let news = self.news.changed();
            let choosing = CHOOSING.lock().await;
            let taken = self.daemon.taken_gpus().await.map_err(|error| error.to_string())?;
            match choose_gpus(ids, *each, &taken) {
                Ok(chosen) => return Ok((chosen, Some(choosing))),
                Err(why) if self.leaving().is_empty() => return Err(NoStart::NoRoom(why)),
                Err(why) => {
                    drop(choosing);
                    timeout_at(patience, news).await.map_err(|_| NoStart::NoRoom(why))?;
                }
            }
        }
    }
}

/// Whether what Docker cannot find is the image.
fn names_image(error: &DaemonError) -> bool {
    let text = error.to_string().to_lowercase();
    text.contains("image") && ["no such", "not found", "not known"].iter().any(|words| text.contains(words))
}

/// A start under way. Dropped before it is finished, the replica is forgotten, and its container, if one was made, is
/// a stray for the next list.
struct Begun<'a> {
    inner: &'a Inner,
    id: ReplicaId,
    finished: bool,
}

impl<'a> Begun<'a> {
    fn new(inner: &'a Inner, id: ReplicaId) -> Self {
        inner.fleet().begin(id, inner.spec.capacity, "its container is being made");
        Self { inner, id, finished: false }
    }

    fn finish(mut self, container: &str, port: u16, lease: Option<super::super::process::port::PortLease>) {
        self.finished = true;
        self.inner.fleet().started(self.id, container, port, lease);
        self.inner.news.tell();
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.inner.fleet().remove(self.id);
            self.inner.news.tell();
        }
    }
}
