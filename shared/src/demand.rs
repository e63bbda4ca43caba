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
    /// Clients that were refused and told when to come back, as far as they can be expected to (Q2): they wait too,
    /// only not here.
    pub promised: u32,
    /// Every replica that is not gone, in order of id.
    pub replicas: Vec<ReplicaFacts>,
}

impl Observation {
    /// Requests in flight including the queue (A2), and those that were sent away to come back: else a fleet that
    /// refuses would look as if nobody wanted more of it.
    pub fn demand(&self) -> u32 {
        self.in_flight.saturating_add(self.queued).saturating_add(self.promised)
    }
}
