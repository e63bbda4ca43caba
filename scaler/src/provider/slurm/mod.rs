//! Runs engines as jobs of Slurm, through slurmrestd: a job for each replica.
//!
//! Jobs outlive the gateway. Each carries in its comment whose it is, which replica it runs and, once proven by its
//! script, its port; a job without such a comment, or of another user, is never touched. While Slurm does not answer,
//! nothing is started or stopped, and what runs goes on serving.
//!
//! Never says that a model is loaded: `Up` means that the engine listens at a port that is proven to be its own.

mod client;
mod core;
mod held;
pub(crate) mod left;
mod mark;
mod reply;
mod room;
mod script;
mod seen;
mod spec;
mod token;
mod watch;
pub(crate) mod whose;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Offer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use self::left::Place;
pub use self::spec::{SlurmAccess, SlurmOffer, SlurmSpec};

use self::client::Failure;
use self::core::{Core, JobOf, LOST_LIMIT, Stopping};
use self::seen::Seen;
use self::watch::Watch;
use super::state::{Claim, StateDir};
use super::{Instance, Provider, ProviderError};

pub(crate) const KIND: &str = "slurm";

/// How long a job that was cancelled may take to be over: Slurm's `KillWait`, and whatever the nodes do afterwards.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The first pause between two looks at a job that is cancelled, and the longest.
const STOP_LOOK: Duration = Duration::from_millis(200);
const STOP_PAUSE: Duration = Duration::from_secs(2);

/// The provider of one deployment. Dropping it leaves its jobs running; the next one adopts them.
#[derive(Debug)]
pub struct SlurmProvider {
    core: Arc<Core>,
    /// Asks Slurm; ends with the provider.
    _watch: JoinSet<()>,
    _claim: Claim,
    _state: Arc<StateDir>,
}

impl SlurmProvider {
    /// Makes the provider. It asks Slurm in the background: what an earlier run of the gateway left of this deployment
    /// is adopted with its ids and addresses, unless another command had started it; that is cancelled, and so is what
    /// is left of deployments that are not among `wanted`, all of those that have a provider of this kind. Needs a
    /// runtime with IO and time.
    pub fn new(
        spec: SlurmSpec,
        state: Arc<StateDir>,
        wanted: &[DeploymentName],
    ) -> Result<Self, ProviderError> {
        if spec.command.is_empty() || spec.offers.is_empty() {
            return Err(unavailable(format!("deployment {} has no command or no offer", spec.deployment)));
        }
        let (claim, folder) = state.claim(&spec.deployment).map_err(unavailable)?;
        let next = folder.next_id();
        let next = next.map_err(|error| unavailable(format!("cannot read the records: {error}")))?;
        let core = Arc::new(Core::new(spec, state.nonce(), folder, next));
        let mut watch = JoinSet::new();
        watch.spawn(Watch::new(Arc::clone(&core), wanted, Arc::downgrade(&state)).run());
        Ok(Self { core, _watch: watch, _claim: claim, _state: state })
    }

    async fn submit(&self, id: ReplicaId, offer: Offer) -> Result<(), String> {
        let core = &self.core;
        let offer =
            core.spec.offer(&offer.name).ok_or_else(|| format!("there is no offer {}", offer.name))?;
        // Before anything is on disk: a version that nobody speaks, or a token that nobody has, is no use of an id.
        let api = core.client.version().await.map_err(|failure| failure.to_string())?;
        core.client.whose()?;
        core.ids.take(id)?;
        core.order(id, offer);
        let body = script::submission(&core.spec, offer, &core.mark(id, offer), api);
        match core.client.submit(&body).await {
            Ok((job, remark)) => {
                tracing::info!("{} is job {job} on {}", core.name(id), offer.name);
                core.submitted(id, job, remark);
                Ok(())
            }
            Err(Failure::Unknown(why)) => {
                tracing::warn!("{}: whether Slurm has taken its job is not known: {why}", core.name(id));
                core.unanswered(id, &why);
                Ok(())
            }
            Err(failure) => {
                core.remove(id);
                Err(failure.to_string())
            }
        }
    }

    async fn end(&self, id: ReplicaId) -> Result<(), String> {
        let core = &self.core;
        let Some(_stopping) = Stopping::begin(core, id) else { return Ok(()) };
        if let JobOf::Unknown(_) = core.job(id) {
            watch::sweep(core, &[], false).await.map_err(|failure| failure.to_string())?;
        }
        match core.job(id) {
            JobOf::Known(job) => self.cancel(id, job).await?,
            JobOf::Unknown(age) if age < LOST_LIMIT => {
                return Err("whether Slurm has taken its job is not known yet".to_owned());
            }
            // One that still comes is cancelled by the watch.
            JobOf::Unknown(_) | JobOf::Nobody => {}
        }
        core.remove(id);
        Ok(())
    }

    /// Cancels a job and waits until nothing of it is left.
    async fn cancel(&self, id: ReplicaId, number: u32) -> Result<(), String> {
        let core = &self.core;
        let until = Instant::now() + STOP_LIMIT;
        let (mut pause, mut cancelled) = (STOP_LOOK, false);
        loop {
            let whose = core.client.whose()?;
            let job = match core.client.job(number).await {
                Ok(job) if core.is_of(id, &job, &whose) => job,
                Ok(_) | Err(Failure::NoJob) => return Ok(()),
                Err(failure) => return Err(failure.to_string()),
            };
            let run = job.restart_cnt.and_then(|run| u32::try_from(run).ok()).unwrap_or_default();
            if let Seen::Over(_) = seen::look(&job, run) {
                return Ok(());
            }
            if !cancelled {
                core.client.cancel(number).await.map_err(|failure| failure.to_string())?;
                cancelled = true;
            }
            if Instant::now() >= until {
                let state = job.job_state.join("+");
                return Err(format!("job {number} was cancelled and is still {state} on {}", job.batch_host));
            }
            sleep(pause).await;
            pause = (pause * 2).min(STOP_PAUSE);
        }
    }
}

impl Provider for SlurmProvider {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        async { self.core.list().await.map_err(unavailable) }.boxed()
    }

    fn offers(&self) -> Vec<Offer> {
        let offer = |one: &SlurmOffer| Offer {
            memory: one.memory,
            cached: one.cached,
            free: self.core.free(one),
            queues: true,
            ..Offer::new(&one.name, one.capacity, one.price)
        };
        self.core.spec.offers.iter().map(offer).collect()
    }

    fn start(&self, id: ReplicaId, offer: Offer) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.submit(id, offer).await.map_err(|why| ProviderError::Start { id, why }) }.boxed()
    }

    fn stop(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move { self.end(id).await.map_err(|why| ProviderError::Stop { id, why }) }.boxed()
    }

    fn looks_in(&self) -> Option<Duration> {
        Some(self.core.asked_in())
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.core.news.changed().boxed()
    }

    fn output(&self, id: ReplicaId) -> Vec<String> {
        self.core.output(id)
    }

    fn next_id(&self) -> ReplicaId {
        self.core.ids.next()
    }
}

fn unavailable(why: String) -> ProviderError {
    ProviderError::Unavailable { kind: KIND, why }
}

#[cfg(test)]
mod tests;
