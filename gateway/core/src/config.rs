//! What an operator may set about the admission of a deployment's requests, with the one default of each number.
//!
//! Only the numbers; it neither reads nor checks them. Whoever reads a configuration holds it to the bounds given
//! here.

use serde::{Deserialize, Serialize};
use tidegate_shared::policy::PolicyName;
use tidegate_shared::time::Duration;

/// The usual concurrency limit of a replica whose deployment aims at `target` requests in flight per replica:
/// ⌈1.25 × `target`⌉ (Q1). Exact, and saturates at the largest `u32`.
pub const fn usual_concurrency(target: u32) -> u32 {
    target.saturating_add(target.div_ceil(4))
}

/// The limits of one dispatcher, and how it places what is bound to no replica (Q1–Q3, R3, R4, R7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests that one replica works on at a time, at least 1 (Q1).
    pub concurrency: u32,
    /// Share of its capacity that a replica may fill before it sheds, in percent, 1 to 100 (R4).
    pub load_percent: u32,
    /// Where new conversations, and requests that belong to none, go (R3).
    pub policy: PolicyName,
    /// Requests that may wait in the queue; 0: none waits (Q1).
    pub queue_requests: u32,
    /// Bytes of body that may wait in the queue; 0: only requests without a body wait (Q1).
    pub queue_bytes: u64,
    /// How long a request may wait while some replica is ready; zero: not at all (Q2).
    pub headroom: Duration,
    /// How long a request may wait for the first replica to become ready; zero: not at all (Q3).
    pub cold_start: Duration,
    /// Conversations whose home is remembered, at least 1; beyond, the least recently used is forgotten (R7).
    pub conversations: u32,
    /// How long a conversation may be idle before its home is forgotten (R7).
    pub conversation_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: usual_concurrency(32),
            load_percent: 90,
            policy: PolicyName::LeastLoad,
            queue_requests: 1000,
            queue_bytes: 256 << 20,
            headroom: Duration::from_secs(2),
            cold_start: Duration::from_secs(10 * 60),
            conversations: 100_000,
            conversation_idle: Duration::from_secs(60 * 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q1_usual_concurrency_is_a_quarter_above_the_target_rounded_up() {
        let usual: Vec<u32> = [1, 2, 3, 4, 5, 32, 256].into_iter().map(usual_concurrency).collect();
        assert_eq!(usual, [2, 3, 4, 5, 7, 40, 320]);
        assert_eq!(usual_concurrency(u32::MAX), u32::MAX);
    }
}
