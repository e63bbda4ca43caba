//! Makes the provider of each deployment, and the folder in which providers keep their records.
//!
//! Ends what an earlier run left of deployments that are gone. Starts no replica: the control loop does.

use std::sync::Arc;

use tidegate_scaler::provider::Provider;
use tidegate_scaler::provider::fixed::Fixed;
use tidegate_scaler::provider::process::{self, ProcessProvider, ProcessSpec};
use tidegate_scaler::provider::slurm::SlurmProvider;
use tidegate_scaler::provider::state::StateDir;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::offer::Price;
use tidegate_shared::time::Duration;

use crate::app::AppError;
use crate::config::{Config, Deployment, Process, Source};

/// The folder for records, where some provider keeps any; what deployments that are gone left running is ended.
pub(crate) async fn state_dir(config: &Config) -> Result<Option<Arc<StateDir>>, AppError> {
    if !config.deployments.iter().any(|deployment| deployment.source.can_start()) {
        return Ok(None);
    }
    let state = StateDir::open(&config.state_dir)?;
    let names = named(config, |source| matches!(source, Source::Process(_)));
    let ended = process::clean_up(&state, &names).await.map_err(|error| AppError::System {
        what: "cannot clean up after an earlier run",
        error: error.to_string(),
    })?;
    for replica in ended {
        tracing::info!("{replica} is ended: its deployment is gone from the configuration");
    }
    Ok(Some(state))
}

/// The names of the deployments of one kind.
pub(crate) fn named(config: &Config, kind: impl Fn(&Source) -> bool) -> Vec<DeploymentName> {
    let found = config.deployments.iter().filter(|deployment| kind(&deployment.source));
    found.map(|deployment| deployment.name.clone()).collect()
}

/// The provider of a deployment, with what it left at an earlier run, and how long a start may take; no such limit
/// where nothing is started. `jobs` are all deployments on Slurm.
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
        price: Price::FREE,
    }
}
