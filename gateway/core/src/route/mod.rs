//! Which replica a request goes to when nothing binds it to one: one policy a file, all behind [`Policy`].

mod least_load;

pub use least_load::LeastLoad;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Capacity;
use tidegate_shared::request::Tokens;

/// A replica that may take the request: ready, not at its limit, not tried before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which one.
    pub id: ReplicaId,
    /// Its size.
    pub capacity: Capacity,
    /// Tokens of the requests in progress there, reservations included.
    pub load: Tokens,
    /// Requests in progress there.
    pub in_flight: u32,
    /// Its turn; see [`Turn`].
    pub turn: Turn,
}

/// Start-time fair queueing: each placement moves a replica's turn on by 1/capacity, the smallest turn is next. So
/// placements on an idle fleet, where all loads are equal, follow the capacities (R3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u128);

impl Turn {
    /// The turn after one more placement on a replica of this capacity.
    pub fn after(self, capacity: Capacity) -> Self {
        Self(self.0.saturating_add((1u128 << 64) / u128::from(capacity.units())))
    }
}

/// A placement policy. Contract: never picks outside of `candidates`; `None` only when there are none; the same inputs
/// give the same pick.
pub trait Policy: std::fmt::Debug + Send {
    /// The replica to take.
    fn choose(&self, candidates: &[Candidate]) -> Option<ReplicaId>;
}
