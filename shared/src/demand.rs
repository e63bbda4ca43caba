//! What the gateway tells the scaler (G1): no scrape is needed, the figures are handed over in process.

use serde::{Deserialize, Serialize};

use crate::replica::ReplicaFacts;
use crate::time::{Duration, Instant};

/// One deployment at one moment, as a planner sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// When it was taken.
    pub at: Instant,
    /// Requests that a replica works on, over all replicas.
    pub in_flight: u32,
    /// Requests in the queue.
    pub queued: u32,
    /// How long the oldest of them has waited; zero when nothing waits.
    pub oldest_wait: Duration,
    /// Every replica that is not gone, in order of id.
    pub replicas: Vec<ReplicaFacts>,
}

impl Observation {
    /// Requests in flight including the queue (A2).
    pub fn demand(&self) -> u32 {
        self.in_flight.saturating_add(self.queued)
    }
}
