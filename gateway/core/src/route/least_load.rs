//! The default policy: most free capacity, weighted by capacity (R3).

use tidegate_shared::id::ReplicaId;

use super::{Field, Policy, PolicyName};

/// Picks the replica with the smallest share of its capacity in use; among equals the one whose turn it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoad;

impl Policy for LeastLoad {
    fn name(&self) -> PolicyName {
        PolicyName::LeastLoad
    }

    fn twin(&self) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        field.first().map(|rank| rank.id)
    }
}
