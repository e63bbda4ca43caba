//! Makes the provider of each deployment, and the folder in which providers keep their records.
//!
//! Ends what an earlier run left of deployments that are gone. Starts no replica: the control loop does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use tidegate_scaler::control::Helm;
use tidegate_scaler::house::{Asleep, Credit, House};
use tidegate_scaler::orphans::Orphanage;
use tidegate_scaler::provider::Provider;
use tidegate_scaler::provider::docker::{self, DockerHost, DockerProvider};
use tidegate_scaler::provider::exec::ExecProvider;
use tidegate_scaler::provider::fixed::Fixed;
use tidegate_scaler::provider::process::{self, ProcessProvider, ProcessSpec};
use tidegate_scaler::provider::slurm::{Place, SlurmProvider};
use tidegate_scaler::provider::state::StateDir;
use tidegate_scaler::store::{self, Epoch, KeptDrain, KeptSetting, KeptTuned, Past, Store};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::offer::Money;
use tidegate_shared::time::{Duration, Instant};

use crate::app::AppError;
use crate::clock::Clock;
use crate::config::{Config, Deployment, Process, Source};

/// The command by which this program becomes another one, in a session of its own.
pub(crate) const LAUNCH: &str = "launch";

/// The folder for records, where some provider keeps any or did when this configuration was used last; what deployments
/// that are gone left running is ended.
pub(crate) async fn state_dir(config: &Config) -> Result<Option<Arc<StateDir>>, AppError> {
    let path = config.path().canonicalize().ok();
    let starts = config.deployments.iter().any(|deployment| deployment.source.can_start());
    if !starts && !path.as_deref().is_some_and(|path| StateDir::is_of(&config.state_dir, path)) {
        return Ok(None);
    }
    let state = StateDir::open(&config.state_dir)?;
    let folder = state.path().display();
    tracing::info!("what survives a restart is in {folder} (`state_dir`)");
    if let Some(before) = path.as_deref().map(|path| state.used_with(path)).transpose()?.flatten() {
        tracing::warn!(
            "{folder} was used with {} before: what was set by hand, tuned, spent and added there goes on here; give \
             each gateway a `state_dir` of its own if that is not meant",
            before.display()
        );
    }
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
    /// `None` where every fleet is static, and was when the configuration was used last: then there is nothing to keep.
    pub(crate) store: Option<Store>,
    pub(crate) house: House,
    /// What deployments that are gone left running.
    pub(crate) orphans: Orphanage,
    /// What was set while an earlier run lasted.
    pub(crate) settings: Vec<KeptSetting>,
    pub(crate) tuned: Vec<KeptTuned>,
    /// Who was taken out.
    pub(crate) drained: Vec<KeptDrain>,
    pub(crate) epoch: Epoch,
    /// The last decisions of earlier runs, newest first.
    pub(crate) past: BTreeMap<DeploymentName, Vec<Past>>,
}

impl Records {
    /// Nothing is kept.
    pub(crate) fn none(config: &Config, epoch: Epoch) -> Self {
        let (settings, tuned, drained) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            store: None,
            house: House::new(config.budget),
            orphans: Orphanage::default(),
            settings,
            tuned,
            drained,
            epoch,
            past: BTreeMap::new(),
        }
    }
}

/// Opens the store in the folder for records, which is taken already; without such a folder, nothing is kept.
pub(crate) fn records(
    config: &Config,
    state: Option<&Arc<StateDir>>,
    clock: Clock,
) -> Result<Records, AppError> {
    let epoch = clock.epoch();
    let Some(state) = state else { return Ok(Records::none(config, epoch)) };
    let names: BTreeSet<_> = config.deployments.iter().map(|deployment| deployment.name.clone()).collect();
    let (store, mut kept) = Store::open(&config.state_dir.join(store::FILE), epoch.clone(), &names)?;
    let (settings, tuned) = (std::mem::take(&mut kept.settings), std::mem::take(&mut kept.tuned));
    let (drained, past) = (std::mem::take(&mut kept.drained), std::mem::take(&mut kept.past));
    let (sized, accounts) = (named(config, Source::can_start), kept.accounts.clone());
    let house = House::kept(config.budget, store.clone(), kept, &sized);
    let house = house.that_sleeps(Asleep::new(move || clock.asleep()));
    let place = |deployment: &Deployment| match &deployment.source {
        Source::Slurm(spec) => Some((deployment.name.clone(), Place::of(&spec.access))),
        _ => None,
    };
    let places: Vec<_> = config.deployments.iter().filter_map(place).collect();
    let names: Vec<_> = names.into_iter().collect();
    let orphans = Orphanage::find((&accounts, &names, &places), state, &house, clock.now());
    tokio::spawn(orphans.clone().keep_settling(house.clone(), move || clock.now()));
    Ok(Records { store: Some(store), house, orphans, settings, tuned, drained, epoch, past })
}

/// Tells where the credit is another than the configuration's, since an earlier run spent of it or added to it.
pub(crate) fn tell_credit(records: &Records, now: Instant) {
    let Some(Credit { configured, added, left }) = records.house.credit(now) else { return };
    if (added, left) != (Money::default(), configured) {
        let spent = Money(configured.0.saturating_add(added.0).saturating_sub(left.0));
        tracing::info!(
            "credit: {left} is left; {configured} are in the configuration, {added} were added by hand and {spent} spent before"
        );
    }
}

/// Takes out again who was taken out before. A fixed replica is known by its URL: one that has another now is another.
pub(crate) fn take_out(settings: &Deployment, records: &Records, helm: &Helm, now: Instant) {
    let lasting = records.house.lasting(now);
    let own = records.drained.iter().filter(|kept| kept.deployment == settings.name);
    for KeptDrain { replica, url, at, .. } in own {
        let still = match &settings.source {
            Source::Static(replicas) => {
                let place = usize::try_from(replica.0).ok().and_then(|id| id.checked_sub(1));
                let found = place.and_then(|place| replicas.get(place));
                found.is_some_and(|found| found.url.to_string().trim_end_matches('/') == url)
            }
            _ => url.is_empty(),
        };
        if still {
            helm.drained_before(*replica, now, records.epoch.since(at, lasting));
        } else if let Some(store) = &records.store {
            store.drained(&settings.name, *replica, None, lasting);
        }
    }
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
    let made: (Arc<dyn Provider>, _) = match &settings.source {
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
    };
    if settings.source.can_start() {
        state()?.runs(&settings.name, settings.source.kind())?;
    }
    Ok(made)
}

/// This program, which then becomes the engine in a session of its own. The path is looked up by the new process, which
/// is this program still, even if its file has been replaced meanwhile.
fn launcher() -> Vec<String> {
    ["/proc/self/exe", LAUNCH].map(str::to_owned).to_vec()
}

fn spec(settings: &Deployment, process: &Process) -> ProcessSpec {
    ProcessSpec {
        deployment: settings.name.clone(),
        command: process.command.clone(),
        env: process.env.clone(),
        dir: Some(process.dir.clone()),
        capacity: process.capacity,
        price: process.price,
        launcher: if settings.sizing.parked > 0 { launcher() } else { Vec::new() },
    }
}
