//! What is listed of a replica while it is being stopped. Stops nothing.

use tidegate_shared::id::ReplicaId;

use super::Core;

/// While it lives, the list shows the replica as it was before; a stop that is given up shows it as it is.
pub(in crate::provider::slurm) struct Stopping<'a> {
    core: &'a Core,
    id: ReplicaId,
}

impl<'a> Stopping<'a> {
    /// `None` if there is no such replica.
    pub(in crate::provider::slurm) fn begin(core: &'a Core, id: ReplicaId) -> Option<Self> {
        let mut fleet = core.fleet();
        let replica = fleet.replicas.get_mut(&id)?;
        replica.stopping.get_or_insert_with(|| replica.state.clone());
        Some(Self { core, id })
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if let Some(replica) = self.core.fleet().replicas.get_mut(&self.id) {
            replica.stopping = None;
        }
    }
}
