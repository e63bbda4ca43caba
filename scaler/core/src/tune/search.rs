//! Which concurrency to measure next, and which one is the target (A1).
//!
//! The target is the knee: the smallest concurrency that brings [`NEAR`] percent of the best throughput, among those at which
//! the replica refuses nothing. More than that makes each request slower and hardly any more of them. Where there is a goal
//! for latency, it says how slow a request may be; then the target is the largest concurrency that keeps it and brings as
//! much, which takes the fewest replicas; it is certain where noise leaves open of none clearly below that it breaks the goal, and of none
//! clearly above that it keeps it. The search doubles until throughput falls, or two doublings have brought nothing, then halves the gap below the knee, and at last
//! measures once more what the verdict hangs on, as often as it takes: a machine that others use too is not the same from
//! minute to minute. Where time is up while noise still leaves another target open, the verdict says which.
//!
//! It remembers nothing: it looks at all that was measured, so a recorded run repeats its decisions.

use std::collections::BTreeMap;

use tidegate_shared::time::Duration;

use super::{Measured, Point, curve, percentile};

mod goal;
mod seen;

use goal::Open;
use seen::{Seen, fine};

/// A doubling that brings less than this many percent of what fewer brought has brought nothing: each request takes nearly
/// twice as long then, for next to no more of them. Steps are measured until their error is 2 %, two of them compare to
/// within 3 %, and so 5 % is the least growth that is not noise.
pub const GAIN: u32 = 105;
/// Percent of the best throughput that count as all of it: the same growth, seen from above.
pub const NEAR: u32 = 95;
/// The gap around the knee that is not worth another step: a sixteenth of it, or one.
const FINE: u32 = 16;
/// Visits that a point takes on which the verdict hangs,
const VISITS: u32 = 2;
/// and where it is a matter of a few percent, or noise is large: the error is half of that of one visit then.
const VISITS_CLOSE: u32 = 4;
/// Percent of the best throughput from which on it is.
const CLOSE: u32 = 90;
/// Steps that are measured at most. Finding a knee of 500 takes 23; the rest is for machines whose speed wanders, where a
/// point takes many visits and the time that there is ends the search.
pub const MOST_STEPS: usize = 256;
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
    /// Whether the search came to its end, and whatever noise leaves open is within one of the target, or within a sixteenth
    /// of it; else this is the best guess: the target by the figures as they were seen, luck and all.
    pub settled: bool,
    /// The least and the most that the knee may be, or that keeps the goals, where noise leaves that open.
    pub range: Option<(u32, u32)>,
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
    let mut seen: Vec<_> = steps.iter().map(Measured::thinned).collect();
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
    Some(Measured {
        concurrency,
        window: Duration::from_secs(1000),
        tokens: rate,
        noisy: false,
        error: 0,
        ..near.all.thinned()
    })
}

/// The target by what was measured, however little; by the same definition for a search and for a sweep.
fn verdict(measured: &BTreeMap<u32, Point>, bounds: &Bounds, settled: bool) -> Next {
    let places = bounds.places.filter(|places| *places > 0);
    let within = measured.range(..=places.unwrap_or(u32::MAX));
    let curve = &within.map(|(at, point)| (*at, point.clone())).collect();
    if let (Some(places), true) = (places, BTreeMap::is_empty(curve) && !measured.is_empty()) {
        return Next::Found(Found { target: places, because: Because::Places, settled, range: None });
    }
    let bound = |most: u32| match places {
        Some(places) if places <= most => Because::Places,
        _ => Because::Bound { most },
    };
    let seen = Seen::of(curve, bounds);
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
        let range = Open::of(&seen, &bounds.goals, target, None, cap).range();
        return Next::Found(Found { target, because, settled: settled && range.is_none(), range });
    }
    // Of what is not certain the best guess is what was seen, by the definition.
    let (guess, best) = seen.guess().unwrap_or((knee, best));
    let found = seen.target().filter(|_| settled);
    let (target, settled, range) = (found.unwrap_or(guess), found.is_some(), seen.range());
    let grows = seen.top() == best && u64::from(target) * 10 >= u64::from(best) * 9;
    let because = match seen.limit {
        Some((beyond, limit)) if grows => Because::Limit { limit, beyond },
        None if grows && best >= cap => bound(best),
        _ => Because::Knee { best },
    };
    Next::Found(Found { target, because, settled, range })
}

/// What is worth another step.
fn wanted(curve: &BTreeMap<u32, Point>, bounds: &Bounds) -> Option<(u32, Why)> {
    let seen = Seen::of(curve, bounds);
    let (Some(knee), Some(best)) = (seen.knee(), seen.best()) else {
        let slow = seen.limit.is_some_and(|(_, limit)| limit != Limit::Refused);
        return match (curve.is_empty(), slow && seen.visits(1) < VISITS) {
            (true, _) => Some((1, Why::Growing)),
            (false, again) => again.then_some((1, Why::Confirm)),
        };
    };
    let top = seen.top();
    if bounds.goals.any() {
        return wanted_by_goal(&seen, bounds);
    }
    if seen.limit.is_none() && top < bounds.cap {
        let doubled = (top.saturating_mul(2).min(bounds.cap), Why::Growing);
        if seen.growth_at_top() {
            return Some(doubled);
        }
        // In turns with the best of those below, for the machine may have become slower.
        let open = [best, top].into_iter().filter(|at| seen.visits(*at) < VISITS);
        if let Some(at) = open.min_by_key(|at| seen.visits(*at)) {
            return Some((at, Why::Again));
        }
        if seen.may_grow_on() {
            return Some(doubled);
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
    open.or_else(|| seen.unsure()).map(|at| (at, Why::Confirm))
}

/// The same where a goal says how far to go.
fn wanted_by_goal(seen: &Seen<'_>, bounds: &Bounds) -> Option<(u32, Why)> {
    let cap = bounds.cap;
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
    let unsure = || Open::of(seen, &bounds.goals, last, end.filter(|_| !refused), cap).unsure(seen);
    open.or_else(unsure).map(|at| (at, Why::Confirm))
}

#[cfg(test)]
mod tests;
