//! Keeps the record of the jobs that are here, so that they are told of once their deployment is gone.

use super::super::left::{self, Left};
use super::{Core, Fleet};
use crate::provider::state::StateDir;

impl Core {
    /// Keeps which replicas have a job here, or may have.
    pub(super) fn keep(&self, fleet: &Fleet) {
        let replicas = fleet.replicas.keys().map(|id| id.0).chain(fleet.earlier.iter().copied()).collect();
        let cluster = left::cluster(&self.spec.access);
        let left = Left { cluster, owner: self.owner.clone(), replicas };
        if let Err(error) = left::write(&self.record, &left) {
            tracing::warn!("{} does not tell which jobs are there: {error}", self.record.display());
        }
    }

    /// All jobs here were listed, and those of deployments that are not `wanted` are cancelled: their records, and what an earlier
    /// run of this one left, are settled.
    pub(in crate::provider::slurm) fn settle_earlier(&self, state: &StateDir, wanted: &[String]) {
        let mut fleet = self.fleet();
        fleet.earlier.clear();
        self.keep(&fleet);
        drop(fleet);
        let cluster = left::cluster(&self.spec.access);
        for name in state.deployments().unwrap_or_default().into_iter().filter(|name| !wanted.contains(name))
        {
            let records = left::all(&state.folder_of(&name)).into_iter();
            for (path, left) in
                records.filter(|(_, left)| left.cluster == cluster && left.owner == self.owner)
            {
                let none = Left { replicas: Default::default(), ..left };
                if let Err(error) = left::write(&path, &none) {
                    tracing::warn!("cannot remove {}: {error}", path.display());
                }
            }
        }
    }
}
