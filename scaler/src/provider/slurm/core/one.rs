//! What is known of one replica. Changes nothing but whether it costs, and has run.

use tidegate_shared::id::ReplicaId;
use tokio::time::Duration;

use super::{Core, JobOf};
use crate::provider::{InstanceState, output};

impl Core {
    /// How long ago its submission was begun, or it was adopted.
    pub(in crate::provider::slurm) fn age(&self, id: ReplicaId) -> Duration {
        self.fleet().replicas.get(&id).map_or(Duration::ZERO, |replica| replica.since.elapsed())
    }

    /// Whether a job waits, or starts, that is younger than `age`.
    pub(in crate::provider::slurm) fn has_younger(&self, age: Duration) -> bool {
        let fleet = self.fleet();
        let on_its_way = |state: &InstanceState| {
            matches!(state, InstanceState::Pending { .. } | InstanceState::Queued { .. })
        };
        fleet.replicas.values().any(|one| on_its_way(&one.state) && one.since.elapsed() < age)
    }

    /// The first run of its job that is this replica's.
    pub(in crate::provider::slurm) fn run(&self, id: ReplicaId) -> u32 {
        self.fleet().replicas.get(&id).map_or(0, |replica| replica.run)
    }

    /// The last lines of a replica, or where they are; none of one whose job never had a node.
    pub(in crate::provider::slurm) fn output(&self, id: ReplicaId) -> Vec<String> {
        let JobOf::Known(job) = self.job(id) else { return Vec::new() };
        if !self.fleet().replicas.get(&id).is_some_and(|replica| replica.ran) {
            return Vec::new();
        }
        let path = self.spec.log_of(id, job);
        if path.exists() {
            return output::last_lines(&path);
        }
        vec![format!("its output is in {} on its node; that is not readable from here", path.display())]
    }

    /// Its job has or had a node.
    pub(in crate::provider::slurm) fn set_ran(&self, id: ReplicaId) {
        if let Some(replica) = self.fleet().replicas.get_mut(&id) {
            replica.ran = true;
        }
    }

    /// Whether a replica is up.
    pub(in crate::provider::slurm) fn is_up(&self, id: ReplicaId) -> bool {
        let fleet = self.fleet();
        fleet.replicas.get(&id).is_some_and(|replica| matches!(replica.state, InstanceState::Up { .. }))
    }

    /// Whether the job of a replica has a node.
    pub(in crate::provider::slurm) fn set_costs(&self, id: ReplicaId, costs: bool) {
        if let Some(replica) = self.fleet().replicas.get_mut(&id) {
            replica.costs = costs;
            replica.ran |= costs;
        }
    }
}
