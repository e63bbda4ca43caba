//! The record of the jobs that one deployment has on one cluster as one user, billed or pending: which replicas, where, and
//! how whoever can stop them finds them once the deployment is gone. A file in the deployment's folder; an empty one is none.
//!
//! Never talks to Slurm.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tidegate_shared::id::{DeploymentName, ReplicaId};

use super::super::fingerprint::Fingerprint;
use super::super::folder::write_whole;
use super::spec::SlurmAccess;
use super::whose::Whose;

/// How names of such files begin; a fingerprint of the cluster follows.
const PREFIX: &str = "jobs-";

/// Where a deployment has its jobs, and whose they are: it sees no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The URL of the cluster.
    pub(crate) cluster: String,
    /// Whose they are; `None` where that cannot be told now.
    pub(crate) whose: Option<Whose>,
}

impl Place {
    /// The place that `access` leads to.
    pub fn of(access: &SlurmAccess) -> Self {
        Self { cluster: cluster(access), whose: Whose::of(access).ok() }
    }
}

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The URL of the cluster.
    pub(crate) cluster: String,
    /// Whose jobs they are there.
    pub(crate) whose: Whose,
    /// The state directory that they belong to, by its nonce.
    pub(crate) owner: String,
    /// The replicas, by number.
    pub(crate) replicas: BTreeSet<u32>,
}

impl Left {
    /// The command that cancels every job of `deployment` here, those too that are named nowhere.
    pub(crate) fn settle(&self, deployment: &DeploymentName) -> String {
        format!(
            "squeue -h -o '%i %k' | grep -F 'owner={} deployment={deployment} ' | cut -d ' ' -f 1 | xargs -r scancel",
            self.owner
        )
    }

    /// The replicas.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas.iter().map(|id| ReplicaId(*id))
    }
}

/// The cluster as it is told apart from others.
pub(crate) fn cluster(access: &SlurmAccess) -> String {
    access.site.to_string()
}

/// The name of the record of the jobs on `cluster` that are `whose`.
pub(super) fn file(cluster: &str, whose: &Whose) -> String {
    let mut name = Fingerprint::default();
    name.add(cluster);
    name.add(whose.to_string());
    format!("{PREFIX}{}", name.finish())
}

/// Every record in the folder at `path` that tells of some job.
pub(crate) fn all(path: &Path) -> Vec<(PathBuf, Left)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let ours =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)));
    let mut found: Vec<_> = ours.filter_map(|entry| Some((entry.path(), read(&entry.path())?))).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// What the record at `path` tells; `None` where there is none.
pub(super) fn read(path: &Path) -> Option<Left> {
    let left: Left = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (!left.replicas.is_empty()).then_some(left)
}

/// Keeps `left` at `path`; removes it where nothing is left.
pub(super) fn write(path: &Path, left: &Left) -> io::Result<()> {
    if left.replicas.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    write_whole(path, &serde_json::to_vec(left)?)
}
