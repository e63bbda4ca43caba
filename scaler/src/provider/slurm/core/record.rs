//! Keeps the record of the jobs that are here, so that they are told of once their deployment is gone.

use std::path::PathBuf;

use super::super::left::{self, Left};
use super::super::whose::Whose;
use super::{Core, Fleet};
use crate::provider::state::StateDir;

/// Where the record is, and whose jobs it names.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    whose: Whose,
}

impl Core {
    /// Finds the record and what an earlier run left in it, as soon as it is known whose jobs are here: no job is submitted
    /// before.
    pub(super) fn open(&self, fleet: &mut Fleet) {
        if fleet.record.is_some() {
            return;
        }
        let Ok(whose) = self.client.whose() else { return };
        let path = self.folder.file(&left::file(&left::cluster(&self.spec.access), &whose));
        fleet.earlier = left::read(&path).map(|left| left.replicas).unwrap_or_default();
        fleet.record = Some(Record { path, whose });
    }

    /// Keeps which replicas have a job here, or may have.
    pub(super) fn keep(&self, fleet: &mut Fleet) {
        self.open(fleet);
        let Some(Record { path, whose }) = &fleet.record else { return };
        let replicas = fleet.replicas.keys().map(|id| id.0).chain(fleet.earlier.iter().copied()).collect();
        let (cluster, owner) = (left::cluster(&self.spec.access), self.owner.clone());
        let left = Left { cluster, whose: whose.clone(), owner, replicas };
        if let Err(error) = left::write(path, &left) {
            tracing::warn!("{} does not tell which jobs are there: {error}", path.display());
        }
    }

    /// All jobs here were listed, and those of deployments that are not `wanted` are cancelled: their records, and what an earlier
    /// run of this one left, are settled. Jobs of another user were not seen, and stay on record.
    pub(in crate::provider::slurm) fn settle_earlier(&self, state: &StateDir, wanted: &[String]) {
        let mut fleet = self.fleet();
        self.open(&mut fleet);
        fleet.earlier.clear();
        self.keep(&mut fleet);
        let Some(whose) = fleet.record.as_ref().map(|record| record.whose.clone()) else { return };
        drop(fleet);
        let cluster = left::cluster(&self.spec.access);
        let here = |left: &Left| left.cluster == cluster && left.whose == whose && left.owner == self.owner;
        for name in state.deployments().unwrap_or_default().into_iter().filter(|name| !wanted.contains(name))
        {
            let records = left::all(&state.folder_of(&name)).into_iter();
            for (path, left) in records.filter(|(_, left)| here(left)) {
                let none = Left { replicas: Default::default(), ..left };
                if let Err(error) = left::write(&path, &none) {
                    tracing::warn!("cannot remove {}: {error}", path.display());
                }
            }
        }
    }
}
