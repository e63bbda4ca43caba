//! What was measured up to the first concurrency that is not well, and what that tells in spite of noise: the best, the
//! knee, which other knees are left open, and what would close them. Never says when the search is over.

use std::collections::BTreeMap;

use super::super::{Measured, Point};
use super::{CLOSE, FINE, GAIN, Goals, Limit, NEAR};

/// Tenths of a standard error that count as sure: one comparison in a hundred is wrong then.
pub(super) const SURE: u128 = 23;
/// Thousandths that the knee must bring for sure of what a clearly larger one does: halfway between all of it, and what it
/// would bring if it were too low and each request brought as much as another; within these.
const ENOUGH: std::ops::RangeInclusive<u128> = 750..=850;
/// The error that is no matter of luck, in thousandths: that of a few visits of a steady machine.
const LUCK: u128 = 15;
/// The error of one visit, in thousandths, from which on a machine's speed wanders.
const WANDERS: u128 = 50;

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
}

impl<'a> Seen<'a> {
    pub(super) fn of(curve: &'a BTreeMap<u32, Point>, goals: &Goals) -> Self {
        let broken = |(at, point): (&u32, &Point)| goals.broken_by(&point.all).map(|limit| (*at, limit));
        let limit = curve.iter().find_map(broken);
        let before = |at: u32| limit.is_none_or(|(beyond, _)| at < beyond);
        let well = curve.iter().filter(|(at, point)| before(**at) && point.all.tokens > 0);
        let variance = variance(curve);
        Self { curve, variance, well: well.map(|(at, point)| (*at, &point.all)).collect(), limit }
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

    /// Whether noise could hide that throughput grows beyond the largest: another doubling then says more than a repetition.
    /// After two doublings that brought nothing it is told by the range.
    pub(super) fn may_grow_on(&self) -> bool {
        let Some(best) = self.best().filter(|best| *best > self.top() / 4) else { return false };
        let (ratio, off) = self.ratio(self.top(), best);
        ratio + off >= 1_000_000 / *ENOUGH.end()
    }

    /// Those clearly below the knee that may be as good as the best; and of those clearly above it those that may bring a lot
    /// more, and the one that is the knee unless the best was lucky.
    fn open(&self) -> impl Iterator<Item = u32> {
        let (knee, best) = (self.knee().unwrap_or(0), self.best().unwrap_or(0));
        let guess = self.guess().map_or(knee, |(guess, _)| guess);
        let slack = fine(knee);
        let enough = 500 + 500 * u128::from(knee) / u128::from(knee + slack + 1);
        let enough = enough.clamp(*ENOUGH.start(), *ENOUGH.end());
        self.well.iter().map(|(at, _)| *at).filter(move |at| match *at {
            at if at + slack < knee => {
                let (ratio, off) = self.ratio(at, best);
                ratio + off >= u128::from(NEAR) * 10
            }
            at if at > knee + slack => {
                let (ratio, off) = self.ratio(knee, at);
                at == guess || ratio < enough + off
            }
            _ => false,
        })
    }

    /// The least and the most that the knee may be, where noise leaves open that it is another one.
    pub(super) fn range(&self) -> Option<(u32, u32)> {
        let knee = self.knee()?;
        self.open().fold(None, |range, at| {
            let (low, high) = range.unwrap_or((knee, knee));
            Some((low.min(at), high.max(at)))
        })
    }

    /// Of what leaves the knee open, and what it is compared with, the one that was measured least.
    pub(super) fn unsure(&self) -> Option<u32> {
        let knee = self.knee()?;
        // The neighbour below the knee may be as good, so what is below that must be known.
        let clear = knee.saturating_sub(fine(knee) + 1);
        let near = self.well.iter().any(|(at, _)| (clear..knee - 1).contains(at));
        if self.variance > WANDERS.pow(2) && clear > 0 && !near {
            return Some(clear);
        }
        let mut open: Vec<u32> = self.open().collect();
        if open.is_empty() {
            return None;
        }
        open.extend([knee].into_iter().chain(self.best()));
        open.into_iter().min_by_key(|at| self.visits(*at))
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
