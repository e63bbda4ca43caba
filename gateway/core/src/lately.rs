//! Which ways requests went in the last five minutes, and how long their first tokens took, so that an operator is told
//! why some are slow (E2, R4). Only counts: nothing is decided by it.

use std::collections::VecDeque;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::Route;
use tidegate_shared::time::{Duration, Instant};

/// How far back it looks.
pub const WINDOW: Duration = Duration::from_secs(300);
/// What is counted together, and forgotten together.
const SLICE: Duration = Duration::from_secs(10);
/// One for each [`Route`].
const WAYS: usize = 5;

/// Requests that went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// How many were sent; one that was tried twice counts twice.
    pub sent: u64,
    /// Streams among those that ended, whose first token was timed.
    pub timed: u64,
    /// From sending to the first token, of all of these together.
    pub first_token: Duration,
}

impl Way {
    /// How long a first token took on average; `None` where none was timed.
    pub fn mean(&self) -> Option<Duration> {
        let micros = self.first_token.as_micros().checked_div(u128::from(self.timed))?;
        u64::try_from(micros).ok().map(Duration::from_micros)
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.timed += other.timed;
        self.first_token = self.first_token.saturating_add(other.first_token);
    }
}

/// What was counted since a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    ways: [Way; WAYS],
    /// The homes that requests were detoured from, in order of id.
    pub left: Vec<(ReplicaId, u64)>,
}

impl Recent {
    /// Requests that came to their replica by `route`.
    pub fn way(&self, route: Route) -> Way {
        self.ways.get(route as usize).copied().unwrap_or_default()
    }

    /// All requests that were sent.
    pub fn sent(&self) -> u64 {
        self.ways.iter().map(|way| way.sent).sum()
    }

    /// One request was sent by `route`; `home` is where its conversation lives.
    pub fn count(&mut self, route: Route, home: Option<ReplicaId>) {
        if let Some(way) = self.ways.get_mut(route as usize) {
            way.sent += 1;
        }
        if let Some(home) = home.filter(|_| route == Route::Detour) {
            self.leave(home, 1);
        }
    }

    /// The first token of a request that came by `route` took so long.
    pub fn time(&mut self, route: Route, first_token: Duration) {
        if let Some(way) = self.ways.get_mut(route as usize) {
            way.timed += 1;
            way.first_token = way.first_token.saturating_add(first_token);
        }
    }

    fn leave(&mut self, home: ReplicaId, count: u64) {
        match self.left.binary_search_by_key(&home, |(id, _)| *id) {
            Ok(at) => self.left.iter_mut().skip(at).take(1).for_each(|(_, known)| *known += count),
            Err(at) => self.left.insert(at, (home, count)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.ways.iter_mut().zip(&other.ways).for_each(|(way, more)| way.add(more));
        other.left.iter().for_each(|(home, count)| self.leave(*home, *count));
    }
}

/// See the module. At most 31 slices, each with a number for every home that shed in it.
#[derive(Clone, Debug, Default)]
pub struct Lately {
    /// When each began, the oldest first.
    past: VecDeque<(Instant, Recent)>,
    began: Instant,
    current: Recent,
}

impl Lately {
    /// A request is sent by `route`; `home` is where its conversation lives.
    pub fn sent(&mut self, now: Instant, route: Route, home: Option<ReplicaId>) {
        self.current(now).count(route, home);
    }

    /// A stream has ended whose first token took so long after it was sent.
    pub fn ended(&mut self, now: Instant, route: Route, first_token: Duration) {
        self.current(now).time(route, first_token);
    }

    /// The last five minutes, to within ten seconds.
    pub fn recent(&self, now: Instant) -> Recent {
        let mut all = Recent::default();
        let slices = self.past.iter().map(|(began, slice)| (*began, slice));
        let slices = slices.chain([(self.began, &self.current)]);
        slices.filter(|(began, _)| now.since(*began) < WINDOW).for_each(|(_, slice)| all.add(slice));
        all
    }

    fn current(&mut self, now: Instant) -> &mut Recent {
        if now.since(self.began) >= SLICE {
            self.past.push_back((self.began, std::mem::take(&mut self.current)));
            self.began = now;
            while self.past.front().is_some_and(|(began, _)| now.since(*began) >= WINDOW) {
                self.past.pop_front();
            }
        }
        &mut self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::ZERO + SECOND * seconds
    }

    #[test]
    fn e2_ways_are_counted_with_the_homes_that_were_left() {
        let mut lately = Lately::default();
        for (route, home) in [
            (Route::Home, Some(2)),
            (Route::Detour, Some(2)),
            (Route::Detour, Some(1)),
            (Route::Detour, Some(2)),
            (Route::Placed, None),
        ] {
            lately.sent(at(1), route, home.map(ReplicaId));
        }
        lately.ended(at(2), Route::Detour, SECOND);
        lately.ended(at(2), Route::Detour, SECOND * 2);
        let recent = lately.recent(at(3));
        assert_eq!((recent.sent(), recent.way(Route::Detour).sent), (5, 3));
        assert_eq!(recent.left, [(ReplicaId(1), 1), (ReplicaId(2), 2)]);
        assert_eq!(recent.way(Route::Detour).mean(), Some(SECOND * 3 / 2));
        assert_eq!(recent.way(Route::Home).mean(), None, "none was timed");
    }

    #[test]
    fn e2_what_is_older_than_five_minutes_counts_no_more_and_takes_no_room() {
        let mut lately = Lately::default();
        (0..100_000).for_each(|second| lately.sent(at(second), Route::Detour, Some(ReplicaId(second))));
        assert!(lately.past.len() <= 30, "{}", lately.past.len());
        let recent = lately.recent(at(99_999));
        assert!((290..=300).contains(&recent.sent()), "{}", recent.sent());
        assert_eq!(recent.left.len() as u64, recent.sent());
        assert_eq!(lately.recent(at(100_400)), Recent::default(), "and nobody needs to come for that");
    }
}
