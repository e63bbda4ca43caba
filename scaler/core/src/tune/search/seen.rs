//! What was measured up to the first concurrency that is not well, and what that tells in spite of noise: the best, the
//! knee, which other knees are left open, and what would close them. Never says when the search is over.

use std::collections::BTreeMap;

use super::super::{Measured, Point};
use super::{Bounds, CLOSE, FINE, GAIN, Limit, NEAR};

/// Tenths of a standard error that count as sure: one comparison in a hundred is wrong then.
pub(super) const SURE: u128 = 23;
/// Thousandths of each other one that the most that the knee may be brings for sure.
const ENOUGH: u128 = 920;
/// The error that is no matter of luck, in thousandths: that of a few visits of a steady machine.
const LUCK: u128 = 15;

pub(super) fn fine(concurrency: u32) -> u32 {
    (concurrency / FINE).max(1)
}

/// The curve up to the first concurrency that is not well.
pub(super) struct Seen<'a> {
    pub(super) curve: &'a BTreeMap<u32, Point>,
    /// Variance of one visit, in millionths of the throughput squared.
    pub(super) variance: u128,
    pub(super) well: Vec<(u32, &'a Measured)>,
    /// Where it ends, and what was met there.
    pub(super) limit: Option<(u32, Limit)>,
    /// Nobody looks between those that were asked for.
    asked: bool,
}

impl<'a> Seen<'a> {
    pub(super) fn of(curve: &'a BTreeMap<u32, Point>, bounds: &Bounds) -> Self {
        let broken =
            |(at, point): (&u32, &Point)| bounds.goals.broken_by(&point.all).map(|limit| (*at, limit));
        let limit = curve.iter().find_map(broken);
        let before = |at: u32| limit.is_none_or(|(beyond, _)| at < beyond);
        let well = curve.iter().filter(|(at, point)| before(**at) && point.all.tokens > 0);
        let variance = variance(curve);
        let well = well.map(|(at, point)| (*at, &point.all)).collect();
        Self { curve, variance, well, limit, asked: bounds.only.is_some() }
    }

    pub(super) fn top(&self) -> u32 {
        self.well.last().map_or(0, |(at, _)| *at)
    }

    pub(super) fn visits(&self, at: u32) -> u32 {
        self.curve.get(&at).map_or(0, |point| point.visits)
    }

    fn most(of: &[(u32, &'a Measured)]) -> Option<(u32, &'a Measured)> {
        // The first of equals: less is better.
        of.iter().rev().max_by_key(|(_, seen)| seen.rate()).copied()
    }

    pub(super) fn best(&self) -> Option<u32> {
        self.well.iter().rev().map(|(at, _)| *at).max_by_key(|at| self.sober(*at))
    }

    /// The throughput at `at` less what luck may have added: the best of several that are equal is the luckiest.
    fn sober(&self, at: u32) -> u128 {
        let rate = self.curve.get(&at).map_or(0, |point| u128::from(point.all.rate()));
        let error = (self.variance / u128::from(self.visits(at).max(1))).isqrt();
        rate - rate * error.saturating_sub(LUCK).min(1000) / 1000
    }

    pub(super) fn knee(&self) -> Option<u32> {
        let all = self.best().map(|best| self.sober(best))?;
        let near = |seen: &Measured| u128::from(seen.rate()) * 100 >= all * u128::from(NEAR);
        self.well.iter().find(|(_, seen)| near(seen)).map(|(at, _)| *at)
    }

    /// The knee and the best by the figures as they were seen, luck and all.
    pub(super) fn guess(&self) -> Option<(u32, u32)> {
        let (best, most) = Self::most(&self.well)?;
        self.well.iter().find(|(_, seen)| seen.reaches(most, NEAR)).map(|(at, _)| (*at, best))
    }

    /// The largest that brings as much as the best.
    pub(super) fn last(&self) -> Option<u32> {
        let (_, best) = Self::most(&self.well)?;
        self.well.iter().rev().find(|(_, seen)| seen.reaches(best, NEAR)).map(|(at, _)| *at)
    }

    /// The largest that was measured below `at`.
    pub(super) fn below(&self, at: u32) -> Option<u32> {
        self.well.iter().rev().map(|(found, _)| *found).find(|found| *found < at)
    }

    /// The next that was measured above `at`, where it brings less.
    pub(super) fn falls_after(&self, at: u32) -> Option<u32> {
        let mut from = self.well.iter().skip_while(|(found, _)| *found < at);
        let ((_, here), (above, less)) = (from.next()?, from.next()?);
        (!less.reaches(here, NEAR)).then_some(*above)
    }

    /// Whether a point is so near to the best that noise could hide that it is as good.
    pub(super) fn is_close(&self, at: Option<u32>, best: u32) -> bool {
        let of = |at: u32| self.curve.get(&at).map(|point| &point.all);
        at.and_then(of).zip(of(best)).is_some_and(|(seen, best)| seen.reaches(best, CLOSE))
    }

    pub(super) fn is_noisy(&self, at: u32) -> bool {
        self.curve.get(&at).is_some_and(|point| point.all.noisy)
    }

    /// Whether the largest brings more than all below it.
    pub(super) fn growth_at_top(&self) -> bool {
        let Some((top, below)) = self.well.split_last() else { return false };
        let grown = |most: &Measured| self.sober(top.0) * 100 >= u128::from(most.rate()) * u128::from(GAIN);
        Self::most(below).is_none_or(|(_, most)| grown(most))
    }

    /// The throughput at `at` in thousandths of that at `of`, and how far that may be off by noise.
    fn ratio(&self, at: u32, of: u32) -> (u128, u128) {
        let rate = |at: u32| self.curve.get(&at).map_or(0, |point| u128::from(point.all.rate()));
        let ratio = rate(at) * 1000 / rate(of).max(1);
        let [here, there] = [at, of].map(|at| u128::from(self.visits(at).max(1)));
        let error = (self.variance * (here + there) / (here * there)).isqrt();
        (ratio, SURE * error * ratio / 10_000)
    }

    /// Whether noise could hide that as much is brought at `at` as at the best.
    pub(super) fn may_bring_all(&self, at: u32) -> bool {
        let (ratio, off) = Self::most(&self.well).map_or((0, 0), |(best, _)| self.ratio(at, best));
        ratio + off >= u128::from(NEAR) * 10
    }

    /// Whether throughput may grow beyond the largest, a doubling above the best: unless it surely falls there. What an engine
    /// computes together comes in steps, so that one doubling may bring nothing and the next one much. After two that brought
    /// nothing it is over.
    pub(super) fn may_grow_on(&self) -> bool {
        self.best().filter(|best| *best > self.top() / 4).is_some_and(|_| self.may_bring_all(self.top()))
    }

    /// The least and the most that the knee may be. Whatever was measured below the least surely brings less than [`NEAR`]
    /// percent of the best; the most surely brings [`ENOUGH`] of each other one.
    fn span(&self) -> Option<(u32, u32)> {
        let best = self.best()?;
        let all = |at: u32| {
            let (ratio, off) = self.ratio(at, best);
            ratio + off >= u128::from(NEAR) * 10
        };
        let enough = |at: u32| {
            self.well.iter().all(|(other, _)| {
                let (ratio, off) = self.ratio(at, *other);
                *other == at || ratio >= ENOUGH + off
            })
        };
        let measured = || self.well.iter().map(|(at, _)| *at);
        let low = measured().find(|at| all(*at))?;
        let high = measured().find(|at| *at >= low && enough(*at)).unwrap_or(self.top());
        let least = if self.asked { low } else { self.below(low).unwrap_or(0) + 1 };
        Some((least, high))
    }

    /// The target that is within the slack of the least and of the most that the knee may be; of several that which is
    /// nearest to what was seen. `None` where noise leaves more open than that.
    pub(super) fn target(&self) -> Option<u32> {
        let ((low, high), (guess, _)) = (self.span()?, self.guess()?);
        let near = |at: &u32| *at + fine(*at) >= high && *at <= low + fine(*at);
        self.well.iter().map(|(at, _)| *at).filter(near).min_by_key(|at| at.abs_diff(guess))
    }

    /// The least and the most that the knee may be, what was seen among them, where that is more than one.
    pub(super) fn range(&self) -> Option<(u32, u32)> {
        let ((low, high), (guess, _)) = (self.span()?, self.guess()?);
        (low < high).then(|| (low.min(guess), high.max(guess)))
    }

    /// What was not measured and has to be, or else, of what leaves the target open, the one that was measured least.
    pub(super) fn unsure(&self) -> Option<u32> {
        let ((low, high), (guess, _), best) = (self.span()?, self.guess()?, self.best()?);
        if self.target().is_some() {
            return None;
        }
        let middle = low + (high - low) / 2;
        let unseen =
            self.visits(middle) == 0 && middle + fine(middle) >= high && middle <= low + fine(middle);
        let above = self.well.iter().map(|(at, _)| *at).find(|at| *at >= low).unwrap_or(low);
        match () {
            () if unseen => return Some(middle),
            () if above - low > fine(above) => return Some(low + (above - low) / 2),
            () => {}
        }
        let rivals = self.well.iter().map(|(at, _)| *at).filter(|other| {
            let (ratio, off) = self.ratio(guess, *other);
            ratio < ENOUGH + off
        });
        rivals.chain([above, guess, best]).min_by_key(|at| self.visits(*at))
    }
}

/// The variance of one visit, in millionths of the throughput squared: what the visits of the same concurrency differ by, all
/// put together since few have many, and no less than what is told by the slices of each.
fn variance(curve: &BTreeMap<u32, Point>) -> u128 {
    let square =
        |rate: u64, mean: u64| (u128::from(rate) * 1000 / u128::from(mean.max(1))).abs_diff(1000).pow(2);
    let (mut between, mut free, mut within, mut visits) = (0, 0, 0, 0);
    for point in curve.values().filter(|point| point.all.tokens > 0) {
        let mean = point.all.rate();
        between += point.rates.iter().map(|rate| square(*rate, mean)).sum::<u128>();
        free += u128::from(point.visits.saturating_sub(1));
        within += point.squares;
        visits += u128::from(point.visits);
    }
    (between / free.max(1)).max(within / visits.max(1))
}
