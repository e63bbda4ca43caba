//! Any replica, each as likely as the others. For comparison.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::rng::Rng;

use super::{Field, Policy, PolicyName};

/// Draws one.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    rng: Rng,
}

impl Random {
    /// `seed` begins its random numbers.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }
}

impl Policy for Random {
    fn name(&self) -> PolicyName {
        PolicyName::Random
    }

    fn twin(&self) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        field.draw(&mut self.rng, None).map(|rank| rank.id)
    }
}
