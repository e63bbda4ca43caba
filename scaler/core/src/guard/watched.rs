//! Watched time: how long somebody has looked, which is all that a window may count (C3, C4). A clock that stands, goes
//! back or leaps adds nothing, or one step at most.

use tidegate_shared::time::{Duration, Instant};

/// The most that the time between two observations counts. Whoever was not watched for an hour was not seen low for
/// an hour (C4).
pub const LONGEST_STEP: Duration = Duration::from_secs(2);

/// Watched time since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    total: Duration,
    last: Instant,
}

impl Watched {
    /// None yet.
    pub fn new(now: Instant) -> Self {
        Self { total: Duration::ZERO, last: now }
    }

    /// An observation was made; gives the step since the one before, as far as it counts.
    pub fn see(&mut self, now: Instant) -> Duration {
        let step = now.since(self.last).min(LONGEST_STEP);
        self.total = self.total.saturating_add(step);
        self.last = self.last.max(now);
        step
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        self.total
    }
}
