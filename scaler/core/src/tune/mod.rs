//! Finds how many requests a replica should work on at a time (A1), from what was measured at it: which concurrency to
//! try next ([`search`]), what a step brought ([`work`]), when it has been measured long enough ([`step`]), and when live traffic is another one than
//! what was measured ([`drift`]). Sends nothing and knows no engine.

pub mod drift;
pub mod search;
pub mod step;
pub mod work;

use std::collections::BTreeMap;

use tidegate_shared::time::Duration;

/// Latencies that stand for all of a point's where its steps are only guessed.
const FEW: usize = 40;

/// What one step showed: so many requests at a time, for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Requests at a time.
    pub concurrency: u32,
    /// How long it was measured.
    pub window: Duration,
    /// Tokens of answers that came meanwhile.
    pub tokens: u64,
    /// Requests that ended well.
    pub completed: u32,
    /// Requests that failed.
    pub failed: u32,
    /// Requests that the replica had no room for, and said so.
    pub refused: u32,
    /// Throughput varied so much that it is not well known.
    pub noisy: bool,
    /// How far the throughput may be off by that, in thousandths of it: one standard error.
    pub error: u32,
    /// From sending to the first token, of each answer that began.
    pub ttft: Vec<Duration>,
    /// From one token to the next, the mean of each answer that ended.
    pub tpot: Vec<Duration>,
}

/// All that was measured at one concurrency, the visits put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// How often it was measured.
    pub visits: u32,
    /// The sums.
    pub all: Measured,
    /// What each visit showed, as [`Measured::rate`] counts.
    pub rates: Vec<u64>,
    /// The squares of the visits' errors, put together.
    pub squares: u128,
    /// The 95th percentile of [`Measured::ttft`] at each visit that had any.
    pub ttft: Vec<Tail>,
    /// The same of [`Measured::tpot`].
    pub tpot: Vec<Tail>,
}

/// The value at or below which 95 of 100 are, of one visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// It.
    pub value: Duration,
    /// How far it may be off since there were no more values, in thousandths of it: one standard error.
    pub error: u32,
}

impl Tail {
    /// Of these values; `None` of nothing.
    pub fn of(values: &[Duration]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let count = sorted.len();
        let rank = (count * 95).div_ceil(100).max(1) - 1;
        // As many values as the rank may be off by, for it is one of so many draws of which 5 in 100 are larger.
        let off = ((count * 95 * 5).div_ceil(10_000)).isqrt().max(1);
        let value = *sorted.get(rank)?;
        let low = sorted.get(rank.saturating_sub(off)).unwrap_or(&value);
        let high = sorted.get(rank + off).or(sorted.last()).unwrap_or(&value);
        let wide = high.saturating_sub(*low).as_micros() * 1000 / value.as_micros().max(1) / 2;
        Some(Self { value, error: u32::try_from(wide).unwrap_or(u32::MAX) })
    }
}

impl Measured {
    /// Tokens of answers in a thousand seconds: exact enough to compare, and a whole number.
    pub fn rate(&self) -> u64 {
        let micros = self.window.as_micros().max(1);
        u64::try_from(u128::from(self.tokens) * 1_000_000_000 / micros).unwrap_or(u64::MAX)
    }

    /// Whether `self` brings at least `percent` of what `other` does.
    pub fn reaches(&self, other: &Self, percent: u32) -> bool {
        u128::from(self.rate()) * 100 >= u128::from(other.rate()) * u128::from(percent)
    }

    /// Whether the replica had no room, or failed more than one request in twenty.
    pub fn broke(&self) -> bool {
        self.refused > 0 || u64::from(self.failed) * 20 > u64::from(self.failed) + u64::from(self.completed)
    }

    /// The same rate and latencies with little in it, for guesses, which are put together again and again: what is
    /// measured may be hours of requests.
    fn thinned(&self) -> Self {
        let Self { concurrency, window, tokens, noisy, error, .. } = *self;
        let (ttft, tpot) = (thinned(&self.ttft), thinned(&self.tpot));
        let refused = self.broke().into();
        Self { concurrency, window, tokens, refused, noisy, error, ttft, tpot, ..Self::default() }
    }

    fn square(&self) -> u128 {
        u128::from(self.error).pow(2)
    }

    fn absorb(&mut self, other: &Self) {
        self.window += other.window;
        self.tokens += other.tokens;
        self.completed += other.completed;
        self.failed += other.failed;
        self.refused += other.refused;
        self.noisy |= other.noisy;
        self.error = self.error.max(other.error);
        self.ttft.extend_from_slice(&other.ttft);
        self.tpot.extend_from_slice(&other.tpot);
    }
}

/// At most [`FEW`] of the values, evenly among them by size.
fn thinned(values: &[Duration]) -> Vec<Duration> {
    if values.len() <= FEW {
        return values.to_vec();
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    (0..FEW).filter_map(|index| sorted.get((2 * index + 1) * values.len() / (2 * FEW)).copied()).collect()
}

/// The value below or at which `percent` of `values` are (nearest rank); `None` of nothing.
pub fn percentile(values: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// What was measured, by concurrency.
pub fn curve(steps: &[Measured]) -> BTreeMap<u32, Point> {
    let mut curve: BTreeMap<u32, Point> = BTreeMap::new();
    for step in steps {
        let (rate, square) = (step.rate(), step.square());
        let tails = [&step.ttft, &step.tpot].map(|values| Tail::of(values));
        let [ttft, tpot] = tails.map(|tail| tail.into_iter().collect::<Vec<_>>());
        match curve.get_mut(&step.concurrency) {
            Some(point) => {
                point.visits += 1;
                point.all.absorb(step);
                point.rates.push(rate);
                point.squares += square;
                point.ttft.extend(ttft);
                point.tpot.extend(tpot);
            }
            None => {
                let (all, rates) = (step.clone(), vec![rate]);
                let point = Point { visits: 1, all, rates, squares: square, ttft, tpot };
                curve.insert(step.concurrency, point);
            }
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a1_a_percentile_is_a_value_that_was_seen() {
        let values: Vec<_> = (1..=20).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Some(Duration::from_millis(10)));
        assert_eq!(percentile(&values, 95), Some(Duration::from_millis(19)));
        assert_eq!(percentile(&values, 100), Some(Duration::from_millis(20)));
        assert_eq!(percentile(&values[..1], 1), Some(Duration::from_millis(20)));
        assert_eq!(percentile(&[], 95), None);
    }

    #[test]
    fn a1_a_few_latencies_stand_for_many() {
        let values: Vec<_> = (1..=1000).rev().map(Duration::from_millis).collect();
        let few = thinned(&values);
        assert_eq!(few.len(), FEW);
        assert!(
            percentile(&few, 95).is_some_and(|value| (930..=970).contains(&value.as_millis())),
            "{few:?}"
        );
        assert_eq!(thinned(&values[..FEW]), values[..FEW]);
    }

    #[test]
    fn a1_the_tail_of_few_values_is_known_as_well_as_those_around_it_agree() {
        let millis = |values: &[u64]| values.iter().copied().map(Duration::from_millis).collect::<Vec<_>>();
        let told =
            |values: &[u64]| Tail::of(&millis(values)).map(|tail| (tail.value.as_millis(), tail.error));
        assert_eq!(told(&[10; 20]), Some((10, 0)));
        let even: Vec<u64> = (81..=100).collect();
        assert_eq!(told(&even), Some((99, 10)), "98 to 100");
        let many: Vec<u64> = (1..=400).collect();
        assert_eq!(told(&many), Some((380, 10)), "376 to 384");
        assert_eq!((told(&[7]), told(&[])), (Some((7, 0)), None));
    }

    #[test]
    fn a1_visits_are_weighted_by_how_long_they_were() {
        let visit = |seconds, tokens| Measured {
            concurrency: 4,
            window: Duration::from_secs(seconds),
            tokens,
            ..Measured::default()
        };
        let curve = curve(&[visit(1, 200), visit(3, 300)]);
        assert_eq!((curve[&4].visits, curve[&4].all.rate()), (2, 125_000));
    }

    #[test]
    fn a1_one_failure_in_many_breaks_nothing_and_one_refusal_does() {
        let with =
            |completed, failed, refused| Measured { completed, failed, refused, ..Measured::default() };
        assert!(!with(19, 1, 0).broke());
        assert!(with(18, 1, 0).broke());
        assert!(with(1000, 0, 1).broke());
        assert!(!with(0, 0, 0).broke());
    }
}
