//! The shape of one decision in `/status` and in the answer of `/deployments/{name}/decisions`.

use serde::{Deserialize, Serialize};
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::time::Instant;

/// One scaling evaluation (E1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionStatus {
    /// Seconds since it was made; of the newest, whose figures are those of now, since the loop last looked.
    pub age_s: f64,
    /// How the need was worked out: `concurrency`, `token-load`, `jobs`.
    pub rule: String,
    /// Share of the ready replicas' memory that requests held, in percent, where the rule goes by it and knows it.
    pub load: Option<u32>,
    /// Requests in flight, including the queue and those that were told to come back.
    pub demand: u32,
    /// Requests in the queue.
    pub queued: u32,
    /// Clients that were told to come back, as far as they could be expected to.
    pub promised: u32,
    /// Seconds that the oldest in the queue had waited.
    pub oldest_wait_s: f64,
    /// Replicas that counted: ready ones and those on their way.
    pub current: u32,
    /// Replicas that the rule asked for, before any guard.
    pub needed: u32,
    /// Replicas that the guards allowed.
    pub target: u32,
    /// Why, as the word that metrics use too.
    pub reason: String,
    /// Why, for people, with its numbers.
    pub text: String,
    /// Whether the fleet kept its size by itself: several of these in a row can be told as one.
    pub quiet: bool,
    /// All that kept the fleet from growing, as words; nothing where nothing did (C2).
    pub blocked: Vec<String>,
}

impl DecisionStatus {
    /// `decision` as seen at `now`.
    pub fn new(decision: &ScaleDecision, now: Instant) -> Self {
        Self {
            age_s: now.since(decision.at).as_secs_f64(),
            rule: decision.rule.as_str().to_owned(),
            load: decision.load,
            demand: decision.demand,
            queued: decision.queued,
            promised: decision.promised,
            oldest_wait_s: decision.oldest_wait.as_secs_f64(),
            current: decision.current,
            needed: decision.needed,
            target: decision.target,
            reason: decision.reason.as_str().to_owned(),
            text: decision.to_string(),
            quiet: decision.reason.is_quiet(),
            blocked: decision.blocks().map(|block| block.as_str().to_owned()).collect(),
        }
    }
}
