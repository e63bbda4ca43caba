//! The one place that reads clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_scaler::store::Epoch;
use tidegate_shared::time::{Duration, Instant};

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

    /// When this clock started, told so that a later run understands it.
    pub fn epoch(&self) -> Epoch {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let run = self.now().since(Instant::ZERO);
        let monotonic = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        let wall = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Epoch {
            boot: boot.trim().to_owned(),
            monotonic: monotonic.saturating_sub(run),
            wall: wall.saturating_sub(run),
        }
    }
}

/// The wall clock, for logs and records only (C4).
pub fn wall() -> SystemTime {
    SystemTime::now()
}
