//! The one place that reads clocks.

use std::time::SystemTime;

use tidegate_shared::time::Instant;

/// A monotonic clock whose origin is the start of the process (C4: the wall clock decides nothing). Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }

    /// Now, in whole microseconds since the start. Never [`Instant::ZERO`], so that zero can mean "never happened".
    pub fn now(&self) -> Instant {
        let micros = tokio::time::Instant::now().duration_since(self.origin).as_micros();
        Instant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// When `at` is, for a timer of tokio's. Far-away moments become a day from now, after which a timer looks again.
    pub fn timer(&self, at: Instant) -> tokio::time::Instant {
        let day = std::time::Duration::from_secs(86_400);
        tokio::time::Instant::now() + at.since(self.now()).min(day)
    }
}

/// The wall clock, for logs and records only (C4).
pub fn wall() -> SystemTime {
    SystemTime::now()
}
