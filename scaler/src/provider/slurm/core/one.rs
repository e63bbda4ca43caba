//! What is known of one replica. Changes nothing but whether it costs.

use tidegate_shared::id::ReplicaId;
use tokio::time::Duration;

use super::Core;
use crate::provider::InstanceState;

impl Core {
    /// How long ago its submission was begun, or it was adopted.
    pub(in crate::provider::slurm) fn age(&self, id: ReplicaId) -> Duration {
        self.fleet().replicas.get(&id).map_or(Duration::ZERO, |replica| replica.since.elapsed())
    }

    /// The first run of its job that is this replica's.
    pub(in crate::provider::slurm) fn run(&self, id: ReplicaId) -> u32 {
        self.fleet().replicas.get(&id).map_or(0, |replica| replica.run)
    }

    /// Whether its job waits for a node, so that nothing of it has run.
    pub(in crate::provider::slurm) fn is_waiting(&self, id: ReplicaId) -> bool {
        let waits = |state: &InstanceState| {
            matches!(state, InstanceState::Queued { .. } | InstanceState::Held { .. })
        };
        self.fleet().replicas.get(&id).is_some_and(|replica| waits(&replica.state))
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
        }
    }
}
