//! The limits of one dispatcher, with the one default of each number.

use tidegate_shared::time::Duration;

/// What an operator may set about admission and conversations of one deployment (Q1–Q3, R4, R7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight per replica, at least 1 (Q1); default ceil(1.25 × the target concurrency of chat). In a fleet
    /// of mixed sizes this is the mean: each replica gets its share by capacity.
    pub concurrency: u32,
    /// Percent of its limit, 1 to 100, from which a home sheds to others (R4).
    pub load_percent: u32,
    /// Requests that may wait (Q1).
    pub queue_requests: u32,
    /// Bytes of bodies that may wait (Q1).
    pub queue_bytes: u64,
    /// How long a request may wait while something is ready (Q2).
    pub headroom: Duration,
    /// How long it may wait while nothing is ready but something can be started (Q3).
    pub cold_start: Duration,
    /// Conversations remembered, at least 1 (R7).
    pub conversations: u32,
    /// How long an idle conversation is remembered (R7).
    pub conversation_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 40,
            load_percent: 90,
            queue_requests: 1000,
            queue_bytes: 256 << 20,
            headroom: Duration::from_secs(2),
            cold_start: Duration::from_secs(10 * 60),
            conversations: 100_000,
            conversation_idle: Duration::from_secs(60 * 60),
        }
    }
}
