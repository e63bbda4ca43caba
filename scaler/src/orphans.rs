//! Replicas that an earlier run left running, of deployments that are in the configuration no more and whose provider
//! cannot be asked without them: those of `exec`, and jobs where no deployment on Slurm is left. Tells of them and bills
//! them until an operator has settled them. It stops none: the commands for that went with the deployment.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::house::House;
use crate::provider::state::StateDir;
use crate::provider::{exec, slurm};
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
    /// What tells the kind: they are settled once it is deleted.
    pub note: PathBuf,
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
    /// Finds them in the `accounts` that an earlier run kept, has them billed by `house` and tells the log. `names` are the
    /// deployments that there are, `jobs` whether some of them are on Slurm: those end the jobs of the others.
    pub fn find(
        (accounts, names, jobs): (&[KeptAccount], &[DeploymentName], bool),
        state: &StateDir,
        house: &House,
        now: Instant,
    ) -> Self {
        let mut found = Vec::new();
        for account in accounts.iter().filter(|account| !names.contains(&account.name)) {
            let Some((note, kind)) = state.ran(&account.name) else { continue };
            let replicas: Vec<_> = account.spent.running().collect();
            if replicas.is_empty() || !(kind == exec::KIND || kind == slurm::KIND && !jobs) {
                continue;
            }
            house.goes_on(account, now);
            let (deployment, rate) = (account.name.clone(), house.rate(&account.name));
            let spent = house.spent(&deployment, now);
            let orphans = Orphans { deployment, kind, replicas, rate, spent, note };
            warn!("{}", orphans.sentence());
            found.push(orphans);
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
            info!(
                "{} settled: an operator has deleted {}",
                orphans.names().join(", "),
                orphans.note.display()
            );
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
