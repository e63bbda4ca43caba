//! The default policy: most free capacity, weighted by capacity (R3).

use std::cmp::Ordering;

use super::{Candidate, Policy};
use tidegate_shared::id::ReplicaId;

/// Picks the replica with the smallest share of its capacity in use; among equals the one whose turn it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoad;

impl Policy for LeastLoad {
    fn choose(&self, candidates: &[Candidate]) -> Option<ReplicaId> {
        candidates.iter().min_by(|a, b| by_share(a, b)).map(|candidate| candidate.id)
    }
}

/// Compares load/capacity by cross-multiplication: exact.
fn by_share(a: &Candidate, b: &Candidate) -> Ordering {
    let share =
        |own: &Candidate, other: &Candidate| u128::from(own.load.0) * u128::from(other.capacity.units());
    share(a, b).cmp(&share(b, a)).then(a.turn.cmp(&b.turn)).then(a.id.cmp(&b.id))
}
