//! The first seconds of a replica that joins others at work (C-040): it is empty, so that every placement by load would
//! go there, and cold. Until it has warmed up it gets at most twice its share of the requests.
//!
//! Says only when it has had enough; a request for which nobody else has room goes there all the same (Q4), so that its
//! limit is whole from the start. Knows one replica and no request.

use tidegate_shared::time::{Duration, Instant};

/// How long a replica warms up.
pub const WARM_UP: Duration = Duration::from_secs(10);
/// By how much it may be ahead of its share meanwhile.
const AHEAD: u128 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct SlowStart {
    until: Instant,
    /// Requests that the whole fleet had got before.
    before: u64,
    got: u64,
}

impl SlowStart {
    /// A replica joins a fleet that has got `total` requests so far.
    pub fn begin(now: Instant, total: u64) -> Self {
        Self { until: now + WARM_UP, before: total, got: 0 }
    }

    /// It got a request.
    pub fn got(&mut self) {
        self.got += 1;
    }

    /// Whether one more of `total` requests so far would put it over twice its share, which is `weight` of `all`.
    pub fn has_enough(&self, now: Instant, total: u64, weight: u64, all: u128) -> bool {
        let since = u128::from(total.saturating_sub(self.before)) + 1;
        now < self.until && u128::from(self.got) * all >= AHEAD * since * u128::from(weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn c_040_in_every_stretch_from_its_start_it_gets_twice_its_share_at_most() {
        let mut start = SlowStart::begin(s(0), 1000);
        let mut got = 0;
        for n in 0..600 {
            if !start.has_enough(s(n / 60), 1000 + n, 1, 4) {
                start.got();
                got += 1;
            }
            assert!(got * 2 <= n + 2, "{got} of {}", n + 1);
        }
        assert_eq!(got, 300);
        assert!(!start.has_enough(s(10), 1600, 1, 4), "it is warm");
    }
}
