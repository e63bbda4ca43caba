//! The scale-down window (A4): the largest need seen during the last `length` of time, and whether that time was
//! really watched (C3, C4). It never shrinks anything itself.

use std::collections::VecDeque;

use tidegate_shared::time::{Duration, Instant};

use super::watched::Watched;
use crate::config::MAX_REPLICAS;

/// A running maximum over a window of watched time.
///
/// A need holds from the observation that showed it until the next one. Only needs that no later need reaches are
/// kept, so there are never more entries than [`MAX_REPLICAS`] + 1, however often it is asked.
#[derive(Clone, Debug)]
pub struct Window {
    length: Duration,
    watched: Watched,
    /// The watched time from which on everything counts.
    from: Duration,
    /// Strictly falling needs, oldest first; the last one is the newest.
    peaks: VecDeque<Peak>,
}

#[derive(Clone, Copy, Debug)]
struct Peak {
    need: u32,
    /// Watched time at which this need was last true.
    until: Duration,
}

impl Window {
    /// An empty window; it is whole after `length` of watching (C3).
    pub fn new(length: Duration, now: Instant) -> Self {
        Self { length, watched: Watched::new(now), from: Duration::ZERO, peaks: VecDeque::new() }
    }

    /// Takes in the need of this moment.
    pub fn see(&mut self, need: u32, now: Instant) {
        self.watched.see(now);
        let (need, until) = (need.min(MAX_REPLICAS), self.watched.total());
        if let Some(newest) = self.peaks.back_mut() {
            newest.until = until;
        }
        while self.peaks.back().is_some_and(|peak| peak.need <= need) {
            self.peaks.pop_back();
        }
        while self.peaks.front().is_some_and(|peak| self.age(peak) >= self.length) {
            self.peaks.pop_front();
        }
        self.peaks.push_back(Peak { need, until });
    }

    /// The largest need within the window, up to [`MAX_REPLICAS`]; 0 when nothing was seen yet.
    pub fn peak(&self) -> u32 {
        self.peaks.front().map_or(0, |peak| peak.need)
    }

    /// The largest need since it was `current` or more.
    pub fn peak_below(&self, current: u32) -> u32 {
        self.peaks.iter().map(|peak| peak.need).find(|need| *need < current).unwrap_or_default()
    }

    /// Whether the need stayed below `current` for the whole window.
    pub fn stayed_below(&self, current: u32) -> bool {
        self.low_for(current) >= self.length && self.peak() < current
    }

    /// For how long the need has been below `current`, at most the length of the window.
    pub fn low_for(&self, current: u32) -> Duration {
        let counted = self.watched.total().saturating_sub(self.from).min(self.length);
        match self.peaks.iter().rev().find(|peak| peak.need >= current) {
            Some(peak) => counted.min(self.age(peak)),
            None => counted,
        }
    }

    /// Its length.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Starts the window anew; the needs already seen stay.
    pub fn restart(&mut self) {
        self.from = self.watched.total();
    }

    /// Changes the length. What lies further back than the old length was not kept and must be watched anew.
    pub fn resize(&mut self, length: Duration) {
        self.from = self.from.max(self.watched.total().saturating_sub(self.length));
        self.length = length;
    }

    fn age(&self, peak: &Peak) -> Duration {
        self.watched.total().saturating_sub(peak.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    fn watch(window: &mut Window, seconds: impl IntoIterator<Item = u64>, need: u32) {
        seconds.into_iter().for_each(|second| window.see(need, at(second)));
    }

    #[test]
    fn a4_whole_after_its_length_and_not_a_second_before() {
        let mut window = Window::new(LENGTH, at(0));
        watch(&mut window, 0..=10, 4);
        watch(&mut window, 11..=40, 1);
        assert!(!window.stayed_below(4), "low since second 11: {:?}", window.low_for(4));
        assert_eq!(window.low_for(4), Duration::from_secs(29));
        assert_eq!((window.peak(), window.peak_below(4)), (4, 1));
        watch(&mut window, [41], 1);
        assert!(window.stayed_below(4));
        assert_eq!(window.peak(), 1);
    }

    #[test]
    fn a4_a_touch_begins_the_window_again() {
        let mut window = Window::new(LENGTH, at(0));
        watch(&mut window, 0..=1, 4);
        watch(&mut window, 2..=30, 1);
        watch(&mut window, [31], 4);
        watch(&mut window, 32..=61, 1);
        assert!(!window.stayed_below(4));
        watch(&mut window, [62], 1);
        assert!(window.stayed_below(4));
    }

    #[test]
    fn a4_the_peak_is_the_largest_need_of_the_window() {
        let mut window = Window::new(LENGTH, at(0));
        watch(&mut window, 0..=1, 4);
        watch(&mut window, 2..=10, 3);
        watch(&mut window, 11..=20, 1);
        watch(&mut window, 21..=32, 2);
        assert!(window.stayed_below(4));
        assert_eq!(window.peak(), 3);
        watch(&mut window, 33..=41, 0);
        assert_eq!(window.peak(), 2);
    }

    #[test]
    fn c3_a_new_window_is_not_whole() {
        let mut window = Window::new(LENGTH, at(1000));
        watch(&mut window, 1000..1030, 0);
        assert!(!window.stayed_below(3));
        watch(&mut window, [1030], 0);
        assert!(window.stayed_below(3));
    }

    #[test]
    fn c4_an_hour_that_nobody_watched_counts_as_one_step() {
        let mut window = Window::new(LENGTH, at(0));
        watch(&mut window, 0..=20, 0);
        watch(&mut window, [3620], 0);
        assert_eq!(window.low_for(3), Duration::from_secs(22));
    }

    #[test]
    fn c4_a_clock_that_goes_back_counts_nothing_twice() {
        let mut window = Window::new(LENGTH, at(0));
        watch(&mut window, 0..=20, 0);
        watch(&mut window, 1..=20, 0);
        assert_eq!(window.low_for(3), Duration::from_secs(20));
    }

    #[test]
    fn a_longer_window_must_be_watched_anew_where_nothing_was_kept() {
        let mut window = Window::new(LENGTH, at(0));
        watch(&mut window, 0..=100, 0);
        window.resize(Duration::from_secs(120));
        assert_eq!(window.low_for(3), Duration::from_secs(30));
        window.resize(Duration::from_secs(10));
        assert!(window.stayed_below(3));
    }

    #[test]
    fn memory_is_bounded() {
        let mut window = Window::new(Duration::from_secs(1_000_000), at(0));
        for second in 0..10_000 {
            window.see(u32::try_from(10_000 - second).unwrap(), at(second));
        }
        assert!(window.peaks.len() <= MAX_REPLICAS as usize + 1);
    }
}
