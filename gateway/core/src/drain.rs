//! How fast places become free (Q2): completions per second, measured, and what that means for whoever waits.

use std::collections::VecDeque;

use tidegate_shared::time::{Duration, Instant};

const REMEMBERED: usize = 64;
const WINDOW: Duration = Duration::from_secs(60);

/// Remembers the last completions, at most 64 and none older than a minute.
#[derive(Debug, Default)]
pub struct Drain {
    ended: VecDeque<Instant>,
}

impl Drain {
    /// A request ended and its place is free.
    pub fn ended(&mut self, now: Instant) {
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(now);
    }

    /// How long until `places` more places become free at the measured rate; `None` while too little is known (fewer
    /// than two completions within the last minute).
    pub fn time_for(&self, now: Instant, places: u32) -> Option<Duration> {
        let recent = self.ended.iter().filter(|ended| now.since(**ended) <= WINDOW);
        let (mut count, mut first) = (0u64, None);
        for ended in recent {
            first.get_or_insert(*ended);
            count += 1;
        }
        let first = first?;
        if count < 2 {
            return None;
        }
        // Up to now, not up to the last completion: when nothing ends any more, the estimate grows.
        let span = u64::try_from(now.since(first).as_micros()).unwrap_or(u64::MAX).max(1);
        Some(Duration::from_micros(span.saturating_mul(u64::from(places)) / count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn q2_ten_a_second_means_a_second_for_ten() {
        let mut drain = Drain::default();
        assert_eq!(drain.time_for(at(0), 1), None);
        (1..=20).for_each(|i| drain.ended(at(i * 100)));
        assert_eq!(drain.time_for(at(2100), 10), Some(Duration::from_secs(1)));
    }

    #[test]
    fn q2_the_estimate_grows_when_nothing_ends_any_more() {
        let mut drain = Drain::default();
        (1..=10).for_each(|i| drain.ended(at(i * 100)));
        let soon = drain.time_for(at(1100), 1);
        let later = drain.time_for(at(30_000), 1);
        assert!(later > soon, "{later:?} > {soon:?}");
        assert_eq!(drain.time_for(at(120_000), 1), None, "what is older than a minute says nothing");
    }
}
