//! Replicas that an earlier run left, of deployments that are in the configuration no more and whose provider cannot be
//! asked without them: those of `exec`, and jobs, billed or pending, on a cluster of Slurm where no deployment of their user
//! is left that ends them. Tells of them and bills them until an operator has settled them. It stops none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::house::House;
use crate::provider::exec;
use crate::provider::slurm::{self, Place};
use crate::provider::state::StateDir;
use crate::store::KeptAccount;

/// How often it is looked whether an operator has settled some.
const LOOK: Duration = Duration::from_secs(2);

/// The replicas that one deployment left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphans {
    /// Whose they were.
    pub deployment: DeploymentName,
    /// The kind of its provider.
    pub kind: String,
    /// Which ones; never empty.
    pub replicas: Vec<ReplicaId>,
    /// What they cost each hour.
    pub rate: Price,
    /// What the deployment has cost in all, they included, restarts too.
    pub spent: Money,
    /// They are settled once it is deleted: of jobs, the record that names them.
    pub note: PathBuf,
    /// Where their jobs are, of those that are jobs.
    pub jobs: Option<Jobs>,
}

/// Jobs that were left on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// The URL of the cluster.
    pub cluster: String,
    /// Whose they are there, for people.
    pub user: String,
    /// The command that cancels all of them, and any that is named nowhere.
    pub settle: String,
}

impl Orphans {
    /// Their public names (H5).
    pub fn names(&self) -> Vec<String> {
        self.replicas.iter().map(|id| replica_name(&self.deployment, *id)).collect()
    }

    /// What is the matter and what to do, as a sentence.
    pub fn sentence(&self) -> String {
        let Self { deployment, kind, rate, spent, note, .. } = self;
        let names = self.names();
        let (was, them, they_are) = match names.len() {
            1 => ("was", "it", "it is"),
            _ => ("were", "them", "they are"),
        };
        let billed = match *rate {
            Price::FREE => String::new(),
            rate => {
                format!(
                    ", and counts {rate} for {them} until then: {deployment} has cost {spent} in all so far"
                )
            }
        };
        if let Some(Jobs { cluster, user, settle }) = &self.jobs {
            return format!(
                "{} ({kind} on {cluster}, as {user}) {was} left there by an earlier run, running or pending, and no deployment of this \
                 gateway is there any more that ends {them}: the gateway cannot stop {them}{billed}. Put {deployment} back \
                 there and restart, and {they_are} taken over, or cancel all its jobs there with `{settle}` and then run `rm {}`",
                names.join(", "),
                word(note)
            );
        }
        format!(
            "{} ({kind}) {was} left running by an earlier run, and {deployment} is not in the configuration any more: the \
             gateway cannot stop {them}{billed}. Put {deployment} back and restart, and {they_are} taken over, or stop {them} \
             by hand and then run `rm {}`",
            names.join(", "),
            word(note)
        )
    }
}

/// A handle on all that are not settled yet; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Orphanage(Arc<Mutex<Vec<Orphans>>>);

impl Orphanage {
    /// Finds them in the `accounts` that an earlier run kept and in the records of jobs, has them billed by `house` and tells
    /// the log. `names` are the deployments that there are, `places` where those on Slurm are: each ends the jobs there, of its
    /// user, of deployments that are on Slurm no more.
    pub fn find(
        (accounts, names, places): (&[KeptAccount], &[DeploymentName], &[(DeploymentName, Place)]),
        state: &StateDir,
        house: &House,
        now: Instant,
    ) -> Self {
        let mut found = Vec::new();
        let account = |name: &DeploymentName| accounts.iter().find(|account| account.name == *name);
        let kept = accounts.iter().map(|account| account.name.clone());
        let folders =
            state.deployments().unwrap_or_default().into_iter().map(|name| DeploymentName::new(&name));
        for name in kept.chain(folders).collect::<BTreeSet<_>>() {
            let account = account(&name).filter(|_| !names.contains(&name));
            let running: BTreeMap<_, _> =
                account.map(|one| one.spent.running().collect()).unwrap_or_default();
            let mut left = jobs(state, &name, places);
            left.extend(beside_jobs(state, &name, &running));
            let told = |id: &ReplicaId| left.iter().any(|(_, replicas, _)| replicas.contains(id));
            let still: Vec<_> = running.keys().copied().filter(told).collect();
            if let Some(account) = account.filter(|_| !still.is_empty()) {
                house.goes_on(account, &still, now);
            }
            for (note, replicas, jobs) in left {
                let prices = replicas.iter().filter_map(|id| running.get(id)).map(|price| price.0);
                let rate = Price(prices.fold(0, u64::saturating_add));
                let kind = if jobs.is_some() { slurm::KIND } else { exec::KIND }.to_owned();
                let (deployment, spent) = (name.clone(), house.spent(&name, now));
                let orphans = Orphans { deployment, kind, replicas, rate, spent, note, jobs };
                warn!("{}", orphans.sentence());
                found.push(orphans);
            }
        }
        Self(Arc::new(Mutex::new(found)))
    }

    /// Those that are not settled, with what they have cost until `now`.
    pub fn left(&self, house: &House, now: Instant) -> Vec<Orphans> {
        let left = self.lock().clone().into_iter();
        left.map(|one| Orphans { spent: house.spent(&one.deployment, now), ..one }).collect()
    }

    /// Ends the bill of those whose note is deleted, and forgets them.
    pub fn settle(&self, house: &House, now: Instant) {
        self.lock().retain(|orphans| {
            if orphans.note.exists() {
                return true;
            }
            orphans.replicas.iter().for_each(|id| house.ends(&orphans.deployment, *id, now));
            info!("{} settled: {} is deleted", orphans.names().join(", "), orphans.note.display());
            false
        });
    }

    /// Settles as the operator does, until all are.
    pub async fn keep_settling(self, house: House, now: impl Fn() -> Instant) {
        while !self.lock().is_empty() {
            sleep(LOOK).await;
            self.settle(&house, now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Orphans>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A note, the replicas that go with it, and where their jobs are.
type Found = (PathBuf, Vec<ReplicaId>, Option<Jobs>);

/// The jobs that `name` has left on clusters where nobody ends them, by their records alone: each is written before its job is
/// submitted, and names it until it is over.
fn jobs(state: &StateDir, name: &DeploymentName, places: &[(DeploymentName, Place)]) -> Vec<Found> {
    let swept = !places.iter().any(|(other, _)| other == name);
    let mut found = Vec::new();
    for (record, left) in slurm::left::all(&state.folder_of(name.as_str())) {
        let ends = |(other, place): &(DeploymentName, Place)| match &place.whose {
            _ if place.cluster != left.cluster => false,
            // It adopts its own, once it can tell whose they are. Of others, it may be that nobody does.
            None => other == name,
            Some(whose) => *whose == left.whose && (swept || other == name),
        };
        if places.iter().any(ends) {
            continue;
        }
        let (settle, replicas) = (left.settle(name), left.ids().collect());
        found.push((
            record,
            replicas,
            Some(Jobs { cluster: left.cluster, user: left.whose.to_string(), settle }),
        ));
    }
    found
}

/// Of those that are `running`, the ones that the commands of `name` started: no record of jobs names them.
fn beside_jobs(
    state: &StateDir,
    name: &DeploymentName,
    running: &BTreeMap<ReplicaId, Price>,
) -> Option<Found> {
    let (note, _) = state.ran(name).filter(|(_, kind)| kind == exec::KIND)?;
    let records = slurm::left::all(&state.folder_of(name.as_str()));
    let recorded = |id: &ReplicaId| records.iter().any(|(_, left)| left.replicas.contains(&id.0));
    let replicas: Vec<_> = running.keys().copied().filter(|id| !recorded(id)).collect();
    (!replicas.is_empty()).then_some((note, replicas, None))
}

/// A path as one word of a shell.
fn word(path: &Path) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match path.display().to_string() {
        text if text.chars().all(plain) => text,
        text => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(word(Path::new("/var/lib/chat/provider")), "/var/lib/chat/provider");
        assert_eq!(word(Path::new("/my state/it's/provider")), "'/my state/it'\\''s/provider'");
    }
}
