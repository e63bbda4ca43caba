//! What noise leaves open where a goal says how slow a request may be: which smaller concurrency may break the goal, and which
//! larger one may keep it. Never says which is the target.

use std::collections::BTreeMap;

use tidegate_shared::time::Duration;

use super::super::{Point, Tail, percentile};
use super::Goals;
use super::seen::{SURE, Seen, fine};

/// One latency as it was measured, beside its goal.
struct Slowness<'a> {
    curve: &'a BTreeMap<u32, Point>,
    goal: Duration,
    /// Its values of all visits, and what each visit showed.
    values: fn(&Point) -> &[Duration],
    /// Variance of one visit, in millionths of the latency squared.
    variance: u128,
}

impl<'a> Slowness<'a> {
    /// `least`: the variance of throughput; a machine whose speed wanders makes requests wait as unevenly.
    fn of(
        curve: &'a BTreeMap<u32, Point>,
        goal: Duration,
        values: fn(&Point) -> &[Duration],
        tails: fn(&Point) -> &[Tail],
        least: u128,
    ) -> Self {
        let variance = variance(curve, tails).max(least);
        Self { curve, goal, values, variance }
    }

    /// The latency at `at` in thousandths of its goal, and how far that may be off by noise.
    fn ratio(&self, at: u32) -> Option<(u128, u128)> {
        let point = self.curve.get(&at)?;
        let value = percentile((self.values)(point), 95)?;
        let ratio = value.as_micros() * 1000 / self.goal.as_micros().max(1);
        let error = (self.variance / u128::from(point.visits.max(1))).isqrt();
        Some((ratio, SURE * error * ratio / 10_000))
    }

    fn may_break(&self, at: u32) -> bool {
        self.ratio(at).is_some_and(|(ratio, off)| ratio + off > 1000)
    }

    fn may_keep(&self, at: u32) -> bool {
        self.ratio(at).is_some_and(|(ratio, off)| ratio <= 1000 + off)
    }
}

/// The variance of one visit, as [`Slowness::variance`]: what the visits of the same concurrency differ by, all put together,
/// and no less than what the values of each visit tell.
fn variance(curve: &BTreeMap<u32, Point>, tails: fn(&Point) -> &[Tail]) -> u128 {
    let (mut between, mut free, mut within, mut visits) = (0, 0, 0, 0);
    for tails in curve.values().map(tails).filter(|tails| !tails.is_empty()) {
        let count = u128::try_from(tails.len()).unwrap_or(1);
        let mean = (tails.iter().map(|tail| tail.value.as_micros()).sum::<u128>() / count).max(1);
        let square = |tail: &Tail| (tail.value.as_micros() * 1000 / mean).abs_diff(1000).pow(2);
        between += tails.iter().map(square).sum::<u128>();
        free += count - 1;
        within += tails.iter().map(|tail| u128::from(tail.error).pow(2)).sum::<u128>();
        visits += count;
    }
    (between / free.max(1)).max(within / visits.max(1))
}

/// What is open about the target that the goals leave.
pub(super) struct Open {
    /// Those clearly below it that may break a goal, and those clearly above that may keep all and bring as much.
    those: Vec<u32>,
    /// What is not known and has to be: the next clearly below or above, where the target or its neighbour is open itself.
    unknown: Option<u32>,
    target: u32,
    /// Where it ends, if it does.
    end: Option<u32>,
}

impl Open {
    /// About `target`; the first that breaks a goal or brings less is `end`; nothing over `cap` is tried.
    pub(super) fn of(seen: &Seen<'_>, goals: &Goals, target: u32, end: Option<u32>, cap: u32) -> Self {
        let (curve, least) = (seen.curve, seen.variance);
        let ttft = goals
            .ttft
            .map(|goal| Slowness::of(curve, goal, |point| &point.all.ttft, |point| &point.ttft, least));
        let tpot = goals
            .tpot
            .map(|goal| Slowness::of(curve, goal, |point| &point.all.tpot, |point| &point.tpot, least));
        let all: Vec<Slowness<'_>> = ttft.into_iter().chain(tpot).collect();
        let refuses = curve.iter().find(|(_, point)| point.all.broke()).map_or(u32::MAX, |(at, _)| *at);
        let breaks = |at: u32| all.iter().any(|slow| slow.may_break(at));
        let keeps =
            |at: u32| at < refuses && all.iter().all(|slow| slow.may_keep(at)) && seen.may_bring_all(at);
        let slack = fine(target);
        let (low, high) = (target.saturating_sub(slack + 1), target.saturating_add(slack + 1));
        let open = |at: &u32| *at <= low && breaks(*at) || *at >= high && keeps(*at);
        let those = curve.keys().copied().filter(open).collect();
        let near =
            |from: u32, to: u32, is: &dyn Fn(u32) -> bool| curve.range(from..=to).any(|(at, _)| is(*at));
        let known = |from: u32, to: u32| curve.range(from..=to).next().is_some();
        // Between there and the next that was measured nobody has looked.
        let above = high <= cap.min(refuses - 1)
            && near(target + 1, high - 1, &keeps)
            && !known(high, high.saturating_add(slack));
        let below = low > 0 && near(low + 1, target, &breaks) && !known(low.saturating_sub(slack), low);
        let unknown = if above { Some(high) } else { below.then_some(low) };
        Self { those, unknown, target, end }
    }

    /// The least and the most that the target may be; `None` where nothing is open.
    pub(super) fn range(&self) -> Option<(u32, u32)> {
        // What may break a goal leaves only fewer.
        let span = |range: Option<(u32, u32)>, at: u32| {
            let (low, high) = range.unwrap_or((self.target, self.target));
            Some((low.min(at.saturating_sub(u32::from(at < self.target)).max(1)), high.max(at)))
        };
        self.those.iter().chain(&self.unknown).copied().fold(None, span)
    }

    /// What to measure next to close it: of all that it hangs on the one that was measured least.
    pub(super) fn unsure(&self, seen: &Seen<'_>) -> Option<u32> {
        if self.unknown.is_some() {
            return self.unknown;
        }
        let all = self.those.iter().copied().chain([self.target]).chain(self.end);
        (!self.those.is_empty()).then(|| all.min_by_key(|at| seen.visits(*at))).flatten()
    }
}
