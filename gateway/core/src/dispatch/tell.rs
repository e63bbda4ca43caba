//! What a deployment tells of itself: to the scaler, to status and to metrics. Decides and changes nothing.

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::request::Tokens;
use tidegate_shared::time::{Duration, Instant};

use super::place::Ask;
use super::{Dispatcher, Recent};

impl Dispatcher {
    /// What the scaler may know (G1).
    pub fn observe(&self, now: Instant) -> Observation {
        let replicas: Vec<_> = self
            .replicas
            .iter()
            .map(|replica| {
                let report = replica.ledger.fresh(now);
                let told = report.and_then(|report| report.kv_used).is_some();
                let (load, waiting) = (replica.ledger.load(now), report.and_then(|report| report.waiting));
                // What it is measured with is nobody's demand.
                let own = |figure| if replica.hold.is_some() { 0 } else { figure };
                ReplicaFacts {
                    in_flight: replica.ledger.in_flight(),
                    conversations: self.conversations.at(replica.id),
                    load: told.then(|| Tokens(own(load.0))),
                    memory: replica.ledger.capacity(),
                    waiting: waiting.map(|waiting| if replica.hold.is_some() { 0 } else { waiting }),
                    hold: replica.hold,
                    own_only: replica.own_only,
                    out: replica.health.is_out() || replica.unfit.is_some(),
                    ..ReplicaFacts::new(replica.id, replica.phase, replica.since, replica.capacity)
                }
            })
            .collect();
        Observation {
            at: now,
            in_flight: replicas.iter().map(|replica| replica.in_flight).sum(),
            queued: self.queue.len(),
            promised: self.promises.expected_at(now),
            oldest_wait: self.queue.oldest().map_or(Duration::ZERO, |since| now.since(since)),
            replicas,
        }
    }

    /// Tokens in progress on a replica; zero for one that is not known.
    pub fn load(&self, now: Instant, id: ReplicaId) -> Tokens {
        self.replicas.get(id).map_or(Tokens(0), |replica| replica.ledger.load(now))
    }

    /// Requests that a replica works on; 0 for one that is not known.
    pub fn in_flight(&self, id: ReplicaId) -> u32 {
        self.replicas.get(id).map_or(0, |replica| replica.ledger.in_flight())
    }

    /// Requests that a replica works on at most (Q1); 0 for one that is not known.
    pub fn limit(&self, id: ReplicaId) -> u32 {
        self.replicas.get(id).map_or(0, |replica| replica.limit)
    }

    /// Conversations remembered (R7).
    pub fn conversations(&self) -> u32 {
        self.conversations.len()
    }

    /// Bytes of bodies in the queue (Q1).
    pub fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Whether a replica that takes requests is over its load limit now, or says that it is full, so that conversations
    /// at home there detour (R4).
    pub fn is_over(&self, now: Instant, id: ReplicaId) -> bool {
        let ask = Ask { now, cost: Tokens(0), tried: &[], all_tried: false, claims: &[] };
        let open = self.replicas.get(id).filter(|replica| replica.is_open());
        open.is_some_and(|replica| !self.bounds().is_under(replica, &ask))
    }

    /// Which ways requests went in the last five minutes (E2).
    pub fn recent(&self, now: Instant) -> Recent {
        self.lately.recent(now)
    }

    /// Tokens of the usual prompt and of the usual answer, and of how many requests engines told them (A1).
    pub fn usual(&self) -> Option<(Tokens, Tokens, u64)> {
        self.estimate.usual()
    }

    /// From order to readiness, of the replica that became ready last; `None` before the first.
    pub fn start_took(&self) -> Option<Duration> {
        self.start_took
    }
}
