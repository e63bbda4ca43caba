//! How fast requests of each priority come (Q1, Q2): whoever waits is also behind the more urgent ones that come while he
//! waits, and what he is told reckons with them.
//!
//! Counts arrivals over the last twenty to forty seconds, and smooths how long a request holds its place: the share of
//! the fleet that the more urgent take is in the denominator of what is told, where noise is magnified. Knows no line and
//! no replica.

use tidegate_shared::request::Priority;
use tidegate_shared::time::{Duration, Instant};

/// Arrivals are counted over one to two of these. A crowd that comes at once counts as if it had come in one.
const WINDOW: Duration = Duration::from_secs(20);
/// The smoothed length of a request moves by this fraction of what is new at each arrival.
const MEMORY: u128 = 256;
/// Places that more urgent requests are thought to take at most, in percent: what is told stays finite.
const MOST: u64 = 90;

/// Arrivals by priority.
type Counts = [u64; Priority::ALL.len()];

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Inflow {
    before: Counts,
    current: Counts,
    /// When the current window began.
    began: Instant,
    /// How long a request holds its place; `None` while that was never measured.
    length: Option<Duration>,
}

/// How many came, over what time, and how long each of them holds a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    came: u64,
    over: Duration,
    length: Duration,
}

impl Inflow {
    /// A request came for the first time. `length` is how long one holds its place, as measured last.
    pub fn came(&mut self, now: Instant, priority: Priority, length: Option<Duration>) {
        self.length = match (self.length, length) {
            (Some(old), Some(new)) => Some(smoothed(old, new)),
            (old, new) => new.or(old),
        };
        let passed = now.since(self.began);
        if passed >= WINDOW * 2 {
            (self.before, self.current, self.began) = (Counts::default(), Counts::default(), now);
        } else if passed >= WINDOW {
            (self.before, self.began) = (std::mem::take(&mut self.current), self.began + WINDOW);
        }
        if let Some(count) = self.current.get_mut(priority as usize) {
            *count += 1;
        }
    }

    /// How fast those come that are more urgent than `priority`.
    pub fn above(&self, now: Instant, priority: Priority) -> Rate {
        let passed = now.since(self.began);
        let sum = |counts: &Counts| counts.iter().take(priority as usize).sum::<u64>();
        let (came, over) = match passed {
            _ if passed >= WINDOW * 2 => (0, WINDOW),
            _ if passed >= WINDOW => (sum(&self.current), passed),
            _ => (sum(&self.before) + sum(&self.current), WINDOW + passed),
        };
        Rate { came, over, length: self.length.unwrap_or_default() }
    }
}

impl Rate {
    /// How long something takes on so many `places` that takes `alone` while nobody else comes: never longer than ten
    /// times that.
    pub fn stretch(self, alone: Duration, places: u64) -> Duration {
        let over = self.over.as_micros().max(1);
        let taken = self.length.as_micros().saturating_mul(u128::from(self.came)) / u128::from(places.max(1));
        let left = over - taken.min(over * u128::from(MOST) / 100);
        let micros = alone.as_micros().saturating_mul(over) / left.max(1);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

fn smoothed(old: Duration, new: Duration) -> Duration {
    let sum = old.as_micros().saturating_mul(MEMORY - 1).saturating_add(new.as_micros());
    Duration::from_micros(u64::try_from(sum / MEMORY).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Option<Duration> = Some(Duration::from_secs(1));

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn q2_who_waits_is_behind_those_that_come_before_his_turn() {
        let mut inflow = Inflow::default();
        // 5 urgent ones in a second, for a minute, on a fleet that serves 10 in a second.
        (0..300).for_each(|n| inflow.came(at(n * 200), Priority::High, SECOND));
        let (alone, places) = (Duration::from_secs(3), 10);
        let told = |priority| inflow.above(at(60_000), priority).stretch(alone, places);
        assert_eq!(told(Priority::High), alone, "nobody is more urgent");
        assert_eq!(told(Priority::Normal), alone * 2);
        assert_eq!(told(Priority::Low), alone * 2);
        let later = inflow.above(at(100_000), Priority::Low);
        assert_eq!(later.stretch(alone, places), alone, "they come no more");
    }

    #[test]
    fn q2_what_is_told_stays_finite() {
        let mut inflow = Inflow::default();
        (0..100_000).for_each(|_| inflow.came(at(0), Priority::Normal, SECOND));
        let (alone, places) = (Duration::from_secs(3), 10);
        assert_eq!(inflow.above(at(0), Priority::Low).stretch(alone, places), alone * 10);
        assert_eq!(inflow.above(at(0), Priority::Normal).stretch(alone, places), alone);
        inflow.came(at(0), Priority::Normal, Some(Duration::MAX));
        assert!(inflow.above(at(0), Priority::Low).stretch(Duration::MAX, 0) > alone);
    }
}
