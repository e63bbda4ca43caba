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
        let ids = || field.iter().map(|rank| rank.id);
        let next = ids().filter(|id| Some(*id) > self.last).min().or_else(|| ids().min());
        self.last = next.or(self.last);
        next
    }
}
