//! Time as a number: microseconds since an arbitrary origin, so that a recorded run replays bit for bit.
//!
//! Never reads a clock. The one place that does is `clock` in the gateway.

use std::ops::{Add, Sub};
pub use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on the monotonic clock, in whole microseconds since the origin of that clock (C4: a jump of the
/// wall clock does not move it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every deadline: "no wake-up wanted".
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::NEVER`].
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::ZERO`].
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(rhs.as_micros()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Instant::ZERO - second, Instant::ZERO);
        assert_eq!(Instant::NEVER + second, Instant::NEVER);
        assert_eq!(Instant::ZERO.since(Instant::NEVER), Duration::ZERO);
        assert_eq!((Instant::ZERO + second).since(Instant::ZERO), second);
    }
}
