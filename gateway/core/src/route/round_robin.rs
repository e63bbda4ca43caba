//! One replica after the other, in order of their numbers. For comparison, and for engines that are all alike and
//! requests that are all alike.

use tidegate_shared::id::ReplicaId;

use super::{Field, Policy, PolicyName};

/// Goes round.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    last: Option<ReplicaId>,
}

impl Policy for RoundRobin {
    fn name(&self) -> PolicyName {
        PolicyName::RoundRobin
    }

    fn twin(&self) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        let next = field.next_after(self.last);
        self.last = next.or(self.last);
        next
    }
}
