//! How fast places become free (Q2): measured on places in use, and what that means for whoever waits.
//!
//! The measure is completions per second of a place that is in use. So idle time says nothing (a quiet hour is not
//! a slow one), a fleet that grows or shrinks is as fast as its places at once, and when nothing ends any more the
//! estimate grows. It knows no replica: its caller says how many places there are.
//!
//! Until the first epoch is full that would call a fleet slow where a crowd has just begun: all the place-time is there
//! and hardly an end. Until then requests are thought to take as long as the shortest did, and from there on to end as
//! fast as those did that had lasted so long (a shifted exponential lifetime, of which some are still running).

use tidegate_shared::time::{Duration, Instant};

/// Completions that an epoch has at least.
const EPOCH: u64 = 32;
/// Requests of the first epoch that are followed one by one.
const FIRST: usize = 64;

/// Place-time in use, in microseconds, and the requests that ended in it.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    used: u64,
    ended: u64,
}

/// Remembers this epoch and the one before. An epoch spans at least twice as many completions as requests ran at a
/// time, so that a batch that ends all at once is weighed with the time that it took.
#[derive(Debug, Default)]
pub struct Drain {
    before: Epoch,
    current: Epoch,
    running: u64,
    most_running: u64,
    at: Instant,
    /// Requests that began.
    began: u64,
    /// The first epoch is over.
    grown: bool,
    /// When the first ones of the first epoch began, and how long those took that have ended.
    first: Vec<(Instant, Option<Duration>)>,
}

impl Drain {
    /// A request takes a place. Gives its number, by which its end is told.
    pub fn began(&mut self, now: Instant) -> u64 {
        let number = self.began;
        self.began += 1;
        if !self.grown && self.first.len() < FIRST {
            self.first.push((now, None));
        }
        self.pass(now);
        self.running += 1;
        self.most_running = self.most_running.max(self.running);
        number
    }

    /// A request ended, however it did, and its place is free.
    pub fn ended(&mut self, now: Instant, number: u64) {
        let known = usize::try_from(number).ok().and_then(|number| self.first.get_mut(number));
        if let Some((began, took)) = known {
            *took = Some(now.since(*began));
        }
        self.pass(now);
        self.running = self.running.saturating_sub(1);
        self.current.ended += 1;
        if self.current.ended >= EPOCH.max(2 * self.most_running) {
            self.before = std::mem::take(&mut self.current);
            self.most_running = self.running;
            (self.grown, self.first) = (true, Vec::new());
        }
    }

    /// How long until `count` more requests have ended on `places` places in use; `None` while fewer than two have
    /// ever ended, and without places.
    pub fn time_for(&self, now: Instant, count: u64, places: u64) -> Option<Duration> {
        let ended = self.before.ended + self.current.ended;
        if ended < 2 || places == 0 {
            return None;
        }
        let used = self.before.used.saturating_add(self.used(now));
        let (used, ended) = self.young(now).unwrap_or((u128::from(used), u128::from(ended)));
        let micros = used.saturating_mul(u128::from(count)) / (ended * u128::from(places));
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    /// Place-time that so many ends take, by those of the first epoch that are followed; `None` once it is over, and
    /// while fewer than two of them have ended.
    fn young(&self, now: Instant) -> Option<(u128, u128)> {
        let ended = self.first.iter().filter_map(|(_, took)| *took);
        let (count, shortest) = (ended.clone().count() as u128, ended.min()?);
        let beyond = |(began, took): &(Instant, Option<Duration>)| {
            took.unwrap_or_else(|| now.since(*began)).saturating_sub(shortest).as_micros()
        };
        let beyond: u128 = self.first.iter().map(beyond).sum();
        (count >= 2).then(|| (shortest.as_micros() * count + beyond, count))
    }

    /// The same by guess, while no more than one request has ever ended: those that run are in the middle of what they
    /// take. `None` while nothing runs.
    pub fn guess_for(&self, now: Instant, count: u64, places: u64) -> Option<Duration> {
        if self.running == 0 || places == 0 {
            return None;
        }
        let each = u128::from(self.used(now)) * 2 / u128::from(self.running);
        let micros = each * u128::from(count) / u128::from(places);
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    fn pass(&mut self, now: Instant) {
        self.current.used = self.used(now);
        self.at = self.at.max(now);
    }

    /// Place-time of the current epoch up to `now`.
    fn used(&self, now: Instant) -> u64 {
        let passed = u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX);
        self.current.used.saturating_add(passed.saturating_mul(self.running))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    /// A drain that saw `places` places in use for so many requests each, `length` milliseconds long; and the time.
    fn seen(places: u64, rounds: u64, length: u64) -> (Drain, u64) {
        let mut drain = Drain::default();
        for round in 0..rounds {
            let all: Vec<_> = (0..places).map(|_| drain.began(at(round * length))).collect();
            all.into_iter().for_each(|one| drain.ended(at((round + 1) * length), one));
        }
        (drain, rounds * length)
    }

    #[test]
    fn q2_ten_places_of_a_second_each_mean_a_second_for_ten() {
        assert_eq!(Drain::default().time_for(at(0), 1, 1), None);
        let (drain, now) = seen(10, 3, 1000);
        assert_eq!(drain.time_for(at(now), 10, 10), Some(Duration::from_secs(1)));
        assert_eq!(
            drain.time_for(at(now), 10, 20),
            Some(Duration::from_millis(500)),
            "a fleet twice the size"
        );
        assert_eq!(drain.time_for(at(now), 10, 0), None);
    }

    #[test]
    fn q2_a_batch_that_ends_at_once_is_no_faster_than_its_requests() {
        for places in [1, 7, 64, 500] {
            for rounds in 2..9 {
                let (drain, now) = seen(places, rounds, 4000);
                assert_eq!(
                    drain.time_for(at(now), places, places),
                    Some(Duration::from_secs(4)),
                    "{places} x {rounds}"
                );
            }
        }
    }

    #[test]
    fn q2_a_quiet_hour_is_not_a_slow_one() {
        let (drain, now) = seen(4, 3, 500);
        assert_eq!(drain.time_for(at(now + 3_600_000), 4, 4), Some(Duration::from_millis(500)));
    }

    #[test]
    fn q2_the_estimate_grows_when_nothing_ends_any_more() {
        let (mut drain, now) = seen(4, 3, 500);
        drain.began(at(now));
        let soon = drain.time_for(at(now + 100), 1, 4);
        let later = drain.time_for(at(now + 60_000), 1, 4);
        assert!(later > soon.map(|soon| soon * 5), "{later:?} > 5 x {soon:?}");
    }

    #[test]
    fn q2_before_anything_ended_those_that_run_are_in_the_middle_of_it() {
        let mut drain = Drain::default();
        assert_eq!(drain.guess_for(at(0), 1, 1), None);
        (0..4).for_each(|_| _ = drain.began(at(0)));
        assert_eq!(drain.time_for(at(2000), 8, 4), None, "nothing is measured");
        assert_eq!(drain.guess_for(at(2000), 8, 4), Some(Duration::from_secs(8)));
    }

    #[test]
    fn q2_the_first_ends_of_a_crowd_do_not_make_it_slow() {
        for length in [50, 500, 60_000] {
            // They begin over nine tenths of what each takes.
            let began = |n| at(n * length * 9 / 1200);
            let mut drain = Drain::default();
            let all: Vec<_> = (0..120).map(|n| drain.began(began(n))).collect();
            for (n, one) in (0..).zip(all) {
                let now = began(n) + Duration::from_millis(length);
                drain.ended(now, one);
                if let Some(each) = drain.time_for(now, 120, 120) {
                    let (each, length) = (each.as_micros(), u128::from(length) * 1000);
                    assert!(each.abs_diff(length) * 20 <= length, "{each} of {length} after {n}");
                }
            }
        }
    }

    #[test]
    fn q2_of_lengths_without_a_memory_a_few_ends_tell_the_mean() {
        // Quantiles of an exponential with a mean of a minute, all begun at once: at each end the rest is as long as ever.
        let quantile = |n: u32| Duration::from_secs_f64(-(1.0 - (f64::from(n) + 0.5) / 120.0).ln() * 60.0);
        let took: Vec<Instant> = (0..120).map(|n| at(0) + quantile(n)).collect();
        let mut drain = Drain::default();
        // Those that are followed are any of them.
        let mut all: Vec<_> = (0..120).map(|_| drain.began(at(0))).collect();
        for (n, took) in took.iter().enumerate() {
            drain.ended(*took, all.remove(n * 71 % all.len()));
            if n >= 10
                && let Some(each) = drain.time_for(*took, 1, 1)
            {
                assert!((30..=120).contains(&each.as_secs()), "{each:?} after {n}");
            }
        }
    }

    #[test]
    fn q2_what_was_long_ago_is_forgotten() {
        let (mut drain, now) = seen(4, 30, 500);
        for n in 0..200 {
            let one = drain.began(at(now + n * 100));
            drain.ended(at(now + (n + 1) * 100), one);
        }
        assert_eq!(drain.time_for(at(now + 20_000), 1, 1), Some(Duration::from_millis(100)));
    }
}
