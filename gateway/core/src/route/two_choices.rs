//! The less loaded of two replicas drawn at random: what many gateways do that see only part of the traffic, since
//! gateways that all take the least loaded run after each other.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::rng::Rng;

use super::{Field, Policy, PolicyName};

/// Draws two, takes the one that comes first in the order.
#[derive(Clone, Copy, Debug)]
pub struct TwoChoices {
    rng: Rng,
}

impl TwoChoices {
    /// `seed` begins its random numbers.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }
}

impl Policy for TwoChoices {
    fn name(&self) -> PolicyName {
        PolicyName::TwoChoices
    }

    fn twin(&self) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        // Two different ones: the second is drawn from those that are left.
        let first = field.draw(&mut self.rng, None)?;
        let second = field.draw(&mut self.rng, Some(first.id));
        Some(second.map_or(first, |second| second.min(first)).id)
    }
}
