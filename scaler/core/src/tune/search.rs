//! Which concurrency to measure next, and which one is the target (A1).
//!
//! The target is the knee: the smallest concurrency that brings [`NEAR`] percent of the best throughput, among those at which
//! the replica refuses nothing. More than that makes each request slower and hardly any more of them. Where there is a goal
//! for latency, it says how slow a request may be; then the target is the largest concurrency that keeps it and brings as
//! much, which takes the fewest replicas. The search doubles until throughput stops growing, then halves the gap below the knee, and at last
//! measures once more what the verdict hangs on: a machine that others use too is not the same from minute to minute.
//!
//! It remembers nothing: it looks at all that was measured, so a recorded run repeats its decisions.

use std::collections::BTreeMap;

use tidegate_shared::time::Duration;

use super::{Measured, Point, curve, percentile};

/// A doubling that brings less than this many percent of what fewer brought has brought nothing: each request takes nearly
/// twice as long then, for next to no more of them. Steps are measured until their error is 2 %, two of them compare to
/// within 3 %, and so 5 % is the least growth that is not noise.
pub const GAIN: u32 = 105;
/// Percent of the best throughput that count as all of it: the same growth, seen from above.
pub const NEAR: u32 = 95;
/// The gap below the knee that is not worth another step: a sixteenth of it.
const FINE: u32 = 16;
/// Visits that a point takes on which the verdict hangs,
const VISITS: u32 = 2;
/// and where it is a matter of a few percent, or noise is large: the error is half of that of one visit then.
const VISITS_CLOSE: u32 = 4;
/// Percent of the best throughput from which on it is.
const CLOSE: u32 = 90;
/// Steps that are measured at most. Finding a knee of 500 takes 21.
pub const MOST_STEPS: usize = 32;
/// Concurrency beyond which nothing is tried, whatever is told.
pub const MOST: u32 = 1024;

/// What must hold at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goals {
    /// Most time to the first token, for 95 of 100 requests.
    pub ttft: Option<Duration>,
    /// Most time for each further token, for 95 of 100 requests.
    pub tpot: Option<Duration>,
}

impl Goals {
    /// Whether there is any.
    pub const fn any(&self) -> bool {
        self.ttft.is_some() || self.tpot.is_some()
    }

    fn broken_by(&self, seen: &Measured) -> Option<Limit> {
        let over = |values: &[Duration], goal: Option<Duration>| {
            goal.is_some_and(|goal| percentile(values, 95).is_some_and(|value| value > goal))
        };
        match () {
            () if seen.broke() => Some(Limit::Refused),
            () if over(&seen.ttft, self.ttft) => Some(Limit::Ttft),
            () if over(&seen.tpot, self.tpot) => Some(Limit::Tpot),
            () => None,
        }
    }
}

/// What bounds the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The goals.
    pub goals: Goals,
    /// The largest concurrency that is tried.
    pub cap: u32,
    /// Requests that the engine says it runs at a time: no target is larger.
    pub places: Option<u32>,
    /// Measure these, in this order, and nothing else.
    pub only: Option<Vec<u32>>,
}

/// The largest concurrency worth trying at an engine that told its places, and how many requests its memory holds: its
/// places, since more would wait inside it, where no other replica can take them; and twice the other, which is worked out from means. [`MOST`]
/// where nothing is told.
pub fn cap(places: Option<u32>, memory: Option<u32>) -> u32 {
    let memory = memory.map(|holds| holds.saturating_mul(2));
    let told = places.into_iter().chain(memory).filter(|told| *told > 0).min();
    told.map_or(MOST, |told| told.min(MOST))
}

/// Why a concurrency is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is the next that was asked for.
    Asked,
    /// Throughput has grown so far.
    Growing,
    /// The last doubling brought nothing: once more, for it decides.
    Again,
    /// The best lies, or the goal breaks, in this gap.
    Peak,
    /// The knee lies in this gap.
    Knee,
    /// The verdict hangs on it, and it was measured once.
    Confirm,
}

/// What a larger concurrency runs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The replica refuses requests, or fails them.
    Refused,
    /// The goal for the first token.
    Ttft,
    /// The goal for further tokens.
    Tpot,
}

/// Why the target is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// More brings no more: the best was measured at `best`.
    Knee {
        /// The concurrency with the most throughput.
        best: u32,
    },
    /// Throughput still grew, and at `beyond` this limit was met.
    Limit {
        /// Which.
        limit: Limit,
        /// Where.
        beyond: u32,
    },
    /// Throughput still grew where the engine has no more places.
    Places,
    /// Throughput still grew at the largest that may be tried.
    Bound {
        /// That one.
        most: u32,
    },
}

/// The target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Requests at a time, at least 1.
    pub target: u32,
    /// Why.
    pub because: Because,
    /// Whether the search came to its end; else time was up, and this is what was known by then.
    pub settled: bool,
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Measure this many requests at a time.
    Try(u32, Why),
    /// The target is found.
    Found(Found),
    /// There is none: even one request at a time meets this.
    Nothing(Limit),
    /// There is none: nothing was measured in the time that there was.
    TooLittle,
}

/// What follows from `steps`; `late`: there is no time for another.
pub fn next(steps: &[Measured], bounds: &Bounds, late: bool) -> Next {
    let curve = curve(steps);
    if let Some(only) = &bounds.only {
        return match only.get(steps.len()) {
            Some(concurrency) if !late => Next::Try((*concurrency).max(1), Why::Asked),
            _ => verdict(&curve, bounds, steps.len() >= only.len()),
        };
    }
    match wanted(&curve, bounds) {
        Some((concurrency, why)) if !late && steps.len() < MOST_STEPS => Next::Try(concurrency, why),
        more => verdict(&curve, bounds, more.is_none()),
    }
}

/// How many steps are to come if throughput is between two measured points what they say, and grows no more: a guess, for
/// people who wait. `None` before there is anything to go by.
pub fn left(steps: &[Measured], bounds: &Bounds) -> Option<usize> {
    let mut seen = steps.to_vec();
    while let Next::Try(concurrency, _) = next(&seen, bounds, false) {
        seen.push(guess(&curve(&seen), concurrency)?);
    }
    Some(seen.len() - steps.len())
}

/// What a step at `concurrency` would likely show.
fn guess(curve: &BTreeMap<u32, Point>, concurrency: u32) -> Option<Measured> {
    let below = curve.range(..=concurrency).next_back();
    let above = curve.range(concurrency..).next();
    let (near, rate) = match (below, above) {
        (Some((low, less)), Some((high, more))) if low < high => {
            let part = |rate: u64, weight: u32| u128::from(rate) * u128::from(weight);
            let sum = part(less.all.rate(), high - concurrency) + part(more.all.rate(), concurrency - low);
            (less, u64::try_from(sum / u128::from(high - low)).unwrap_or(u64::MAX))
        }
        (Some((_, near)), _) | (None, Some((_, near))) => (near, near.all.rate()),
        (None, None) => return None,
    };
    let window = Duration::from_secs(1000);
    Some(Measured { concurrency, window, tokens: rate, noisy: false, ..near.all.clone() })
}

/// The target by what was measured, however little; by the same definition for a search and for a sweep.
fn verdict(measured: &BTreeMap<u32, Point>, bounds: &Bounds, settled: bool) -> Next {
    let places = bounds.places.filter(|places| *places > 0);
    let within = measured.range(..=places.unwrap_or(u32::MAX));
    let curve = &within.map(|(at, point)| (*at, point.clone())).collect();
    if let (Some(places), true) = (places, BTreeMap::is_empty(curve) && !measured.is_empty()) {
        return Next::Found(Found { target: places, because: Because::Places, settled });
    }
    let bound = |most: u32| match places {
        Some(places) if places <= most => Because::Places,
        _ => Because::Bound { most },
    };
    let seen = Seen::of(curve, &bounds.goals);
    let (Some(knee), Some(best)) = (seen.knee(), seen.best()) else {
        return seen.limit.map_or(Next::TooLittle, |(_, limit)| Next::Nothing(limit));
    };
    // Beyond the last of a sweep nothing is known.
    let last = bounds.only.iter().flatten().max();
    let cap = last.map_or(bounds.cap, |last| bounds.cap.min(*last));
    // By one for one up to the end, the knee is in the last tenth.
    if bounds.goals.any() {
        let target = seen.last().unwrap_or(knee);
        let because = match seen.limit {
            Some((beyond, limit)) if seen.top() == target => Because::Limit { limit, beyond },
            None if target >= cap => bound(target),
            _ => Because::Knee { best },
        };
        return Next::Found(Found { target, because, settled });
    }
    let grows = seen.top() == best && u64::from(knee) * 10 >= u64::from(best) * 9;
    let because = match seen.limit {
        Some((beyond, limit)) if grows => Because::Limit { limit, beyond },
        None if grows && best >= cap => bound(best),
        _ => Because::Knee { best },
    };
    Next::Found(Found { target: knee, because, settled })
}

/// What is worth another step.
fn wanted(curve: &BTreeMap<u32, Point>, bounds: &Bounds) -> Option<(u32, Why)> {
    let seen = Seen::of(curve, &bounds.goals);
    let (Some(knee), Some(best)) = (seen.knee(), seen.best()) else {
        return (curve.is_empty()).then_some((1, Why::Growing));
    };
    let top = seen.top();
    if bounds.goals.any() {
        return wanted_by_goal(&seen, bounds.cap);
    }
    if seen.limit.is_none() && top < bounds.cap {
        let doubled = (top.saturating_mul(2).min(bounds.cap), Why::Growing);
        match seen.growth_at_top() {
            true => return Some(doubled),
            false if seen.visits(top) < VISITS => return Some((top, Why::Again)),
            false => {}
        }
    }
    let between = |low: u32, high: u32| low + (high - low) / 2;
    // The limit is somewhere above the largest that is well, and throughput grows until there.
    if let Some((beyond, _)) = seen.limit.filter(|_| best == top)
        && beyond - top > fine(top)
    {
        return Some((between(top, beyond), Why::Peak));
    }
    // It falls after the best: the real best may lie between.
    if let Some(above) = seen.falls_after(best)
        && above - best > fine(best).max(best / 4)
    {
        return Some((between(best, above), Why::Peak));
    }
    let below = seen.below(knee);
    let low = below.unwrap_or(0);
    if knee - low > fine(knee) {
        return Some((between(low, knee), Why::Knee));
    }
    let beyond = seen.limit.filter(|(_, limit)| best == top && *limit != Limit::Refused);
    // What is only just below the knee may be there by chance, and the knee much lower.
    let noisy = || [below, Some(best)].into_iter().flatten().any(|at| seen.is_noisy(at));
    let visits = if seen.is_close(below, best) || noisy() { VISITS_CLOSE } else { VISITS };
    let hangs = [
        (below, visits),
        (Some(best), visits),
        (Some(knee), VISITS),
        (beyond.map(|(beyond, _)| beyond), VISITS),
    ];
    // In turns, so that a machine that gets slower does so for all of them.
    let open = hangs.into_iter().filter_map(|(at, least)| at.filter(|at| seen.visits(*at) < least));
    let open = open.min_by_key(|at| seen.visits(*at));
    open.map(|at| (at, Why::Confirm))
}

/// The same where a goal says how far to go.
fn wanted_by_goal(seen: &Seen<'_>, cap: u32) -> Option<(u32, Why)> {
    let (top, last) = (seen.top(), seen.last()?);
    let end = match seen.limit {
        // Throughput falls: more is of no use, goal or not.
        _ if last < top => seen.well.iter().map(|(at, _)| *at).find(|at| *at > last),
        Some((beyond, _)) => Some(beyond),
        None if top < cap => return Some((top.saturating_mul(2).min(cap), Why::Growing)),
        None => None,
    };
    if let Some(end) = end.filter(|end| end - last > fine(last)) {
        return Some((last + (end - last) / 2, Why::Peak));
    }
    let refused = seen.limit.is_some_and(|(_, limit)| limit == Limit::Refused);
    let hangs = [Some(last), end.filter(|_| !refused)];
    let open = hangs.into_iter().flatten().find(|at| seen.visits(*at) < VISITS);
    open.map(|at| (at, Why::Confirm))
}

fn fine(concurrency: u32) -> u32 {
    (concurrency / FINE).max(1)
}

/// The curve up to the first concurrency that is not well.
struct Seen<'a> {
    curve: &'a BTreeMap<u32, Point>,
    well: Vec<(u32, &'a Measured)>,
    /// Where it ends, and what was met there.
    limit: Option<(u32, Limit)>,
}

impl<'a> Seen<'a> {
    fn of(curve: &'a BTreeMap<u32, Point>, goals: &Goals) -> Self {
        let broken = |(at, point): (&u32, &Point)| goals.broken_by(&point.all).map(|limit| (*at, limit));
        let limit = curve.iter().find_map(broken);
        let before = |at: u32| limit.is_none_or(|(beyond, _)| at < beyond);
        let well = curve.iter().filter(|(at, point)| before(**at) && point.all.tokens > 0);
        Self { curve, well: well.map(|(at, point)| (*at, &point.all)).collect(), limit }
    }

    fn top(&self) -> u32 {
        self.well.last().map_or(0, |(at, _)| *at)
    }

    fn visits(&self, at: u32) -> u32 {
        self.curve.get(&at).map_or(0, |point| point.visits)
    }

    fn most(of: &[(u32, &'a Measured)]) -> Option<(u32, &'a Measured)> {
        // The first of equals: less is better.
        of.iter().rev().max_by_key(|(_, seen)| seen.rate()).copied()
    }

    fn best(&self) -> Option<u32> {
        Self::most(&self.well).map(|(at, _)| at)
    }

    fn knee(&self) -> Option<u32> {
        let (_, best) = Self::most(&self.well)?;
        self.well.iter().find(|(_, seen)| seen.reaches(best, NEAR)).map(|(at, _)| *at)
    }

    /// The largest that brings as much as the best.
    fn last(&self) -> Option<u32> {
        let (_, best) = Self::most(&self.well)?;
        self.well.iter().rev().find(|(_, seen)| seen.reaches(best, NEAR)).map(|(at, _)| *at)
    }

    /// The largest that was measured below `at`.
    fn below(&self, at: u32) -> Option<u32> {
        self.well.iter().rev().map(|(found, _)| *found).find(|found| *found < at)
    }

    /// The next that was measured above `at`, where it brings less.
    fn falls_after(&self, at: u32) -> Option<u32> {
        let mut from = self.well.iter().skip_while(|(found, _)| *found < at);
        let ((_, here), (above, less)) = (from.next()?, from.next()?);
        (!less.reaches(here, NEAR)).then_some(*above)
    }

    /// Whether a point is so near to the best that noise could hide that it is as good.
    fn is_close(&self, at: Option<u32>, best: u32) -> bool {
        let of = |at: u32| self.curve.get(&at).map(|point| &point.all);
        at.and_then(of).zip(of(best)).is_some_and(|(seen, best)| seen.reaches(best, CLOSE))
    }

    fn is_noisy(&self, at: u32) -> bool {
        self.curve.get(&at).is_some_and(|point| point.all.noisy)
    }

    /// Whether the largest brings more than all below it.
    fn growth_at_top(&self) -> bool {
        let Some((top, below)) = self.well.split_last() else { return false };
        Self::most(below).is_none_or(|(_, most)| top.1.reaches(most, GAIN))
    }
}

#[cfg(test)]
mod tests;
