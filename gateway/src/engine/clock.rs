//! The engine's clock: the only place here that reads time. Decides nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_shared::time::{Duration, Instant};

/// Counts microseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }

    pub(super) fn now(self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// Ends at `moment` (to the millisecond, never early); never ends for [`Instant::NEVER`].
    pub(super) async fn reach(self, moment: Instant) {
        if moment == Instant::NEVER {
            return std::future::pending().await;
        }
        let since_origin = Duration::from_micros(moment.as_micros());
        match self.origin.checked_add(since_origin) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Whole seconds since 1970, for the field `created`.
    pub(super) fn unix_seconds() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
