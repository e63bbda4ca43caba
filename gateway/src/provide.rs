//! Makes the provider of each deployment, and the folder in which providers keep their records.
//!
//! Ends what an earlier run left of deployments that are gone. Starts no replica: the control loop does.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use tidegate_scaler::house::House;
use tidegate_scaler::provider::Provider;
use tidegate_scaler::provider::docker::{self, DockerHost, DockerProvider};
use tidegate_scaler::provider::exec::ExecProvider;
use tidegate_scaler::provider::fixed::Fixed;
use tidegate_scaler::provider::process::{self, ProcessProvider, ProcessSpec};
use tidegate_scaler::provider::slurm::SlurmProvider;
use tidegate_scaler::provider::state::StateDir;
use tidegate_scaler::store::{self, Epoch, KeptSetting, Store};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::time::Duration;

use crate::app::AppError;
use crate::clock::Clock;
use crate::config::{Config, Deployment, Process, Source};

/// The folder for records, where some provider keeps any; what deployments that are gone left running is ended.
pub(crate) async fn state_dir(config: &Config) -> Result<Option<Arc<StateDir>>, AppError> {
    if !config.deployments.iter().any(|deployment| deployment.source.can_start()) {
        return Ok(None);
    }
    let state = StateDir::open(&config.state_dir)?;
    let cleaned = clean_up(config, &state).await;
    cleaned.map_err(|error| AppError::System {
        what: "cannot clean up after an earlier run",
        error: error.to_string(),
    })?;
    Ok(Some(state))
}

/// What survives restarts, and the budget that goes on from it.
#[derive(Debug)]
pub(crate) struct Records {
    /// `None` where every fleet is static: then there is nothing to keep.
    pub(crate) store: Option<Store>,
    pub(crate) house: House,
    /// What was set while an earlier run lasted.
    pub(crate) settings: Vec<KeptSetting>,
    pub(crate) epoch: Epoch,
}

/// Opens the store in the folder for records, which is taken already; without such a folder, nothing is kept.
pub(crate) fn records(
    config: &Config,
    state: Option<&Arc<StateDir>>,
    clock: Clock,
) -> Result<Records, AppError> {
    let epoch = clock.epoch();
    if state.is_none() {
        let (store, house, settings) = (None, House::new(config.budget), Vec::new());
        return Ok(Records { store, house, settings, epoch });
    }
    let sized = config.deployments.iter().filter(|deployment| deployment.source.can_start());
    let names: BTreeSet<_> = sized.map(|deployment| deployment.name.clone()).collect();
    let (store, mut kept) = Store::open(&config.state_dir.join(store::FILE), epoch.clone(), &names)?;
    let settings = std::mem::take(&mut kept.settings);
    let names: Vec<_> = names.into_iter().collect();
    let house = House::kept(config.budget, store.clone(), kept, &names);
    Ok(Records { store: Some(store), house, settings, epoch })
}

async fn clean_up(config: &Config, state: &StateDir) -> io::Result<()> {
    let processes = named(config, |source| matches!(source, Source::Process(_)));
    let containers: Vec<_> = config.deployments.iter().filter_map(containers).collect();
    for replica in process::clean_up(state, &processes).await? {
        tracing::info!("{replica} is ended: its deployment has no processes any more");
    }
    for deployment in docker::clean_up(state, &containers).await? {
        tracing::info!("the containers of {deployment} are ended: it has none there any more");
    }
    Ok(())
}

/// A deployment of containers, and its daemon.
fn containers(deployment: &Deployment) -> Option<(DeploymentName, DockerHost)> {
    match &deployment.source {
        Source::Docker(spec) => Some((deployment.name.clone(), spec.host.clone())),
        Source::Process(_) | Source::Exec(_) | Source::Slurm(_) | Source::Static(_) => None,
    }
}

/// The names of the deployments of one kind.
pub(crate) fn named(config: &Config, kind: impl Fn(&Source) -> bool) -> Vec<DeploymentName> {
    let found = config.deployments.iter().filter(|deployment| kind(&deployment.source));
    found.map(|deployment| deployment.name.clone()).collect()
}

/// The provider of a deployment, with what it left at an earlier run, and how long a start may take; no such limit
/// where nothing is started. `jobs` are all deployments on Slurm: their providers end the jobs of those that are gone.
pub(crate) async fn provider(
    settings: &Deployment,
    state: Option<&Arc<StateDir>>,
    jobs: &[DeploymentName],
) -> Result<(Arc<dyn Provider>, Option<Duration>), AppError> {
    let state = || {
        let missing = AppError::System { what: "cannot start replicas", error: "no state folder".into() };
        state.map(Arc::clone).ok_or(missing)
    };
    Ok(match &settings.source {
        Source::Process(process) => {
            let provider = ProcessProvider::new(spec(settings, process), state()?).await?;
            (Arc::new(provider), Some(process.start_limit))
        }
        Source::Docker(spec) => {
            (Arc::new(DockerProvider::new((**spec).clone(), state()?)?), Some(spec.start_limit))
        }
        Source::Exec(spec) => {
            (Arc::new(ExecProvider::new((**spec).clone(), state()?)?), Some(spec.start_limit))
        }
        Source::Slurm(spec) => {
            (Arc::new(SlurmProvider::new((**spec).clone(), state()?, jobs)?), Some(spec.start_limit))
        }
        Source::Static(replicas) => {
            let replicas = replicas.iter().map(|replica| (replica.url.to_string(), replica.capacity));
            (Arc::new(Fixed::new(replicas)), None)
        }
    })
}

fn spec(settings: &Deployment, process: &Process) -> ProcessSpec {
    ProcessSpec {
        deployment: settings.name.clone(),
        command: process.command.clone(),
        env: process.env.clone(),
        dir: Some(process.dir.clone()),
        capacity: process.capacity,
        price: process.price,
    }
}
