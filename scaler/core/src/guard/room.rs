//! Which offers have said that they have no room for a start, and when one of them is asked again (M1, C2). No room is no
//! failed start: the pause does not grow, and there is one try at a time, since whether there is room by now only a try can
//! tell. It never says whether anybody needs one.

use std::collections::BTreeMap;

use tidegate_shared::offer::Offer;
use tidegate_shared::time::{Duration, Instant};

/// How long an offer without room is left alone after the last try has ended.
pub const PAUSE: Duration = Duration::from_secs(2);

/// How a start on an offer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartEnd {
    /// It is under way.
    Taken,
    /// There is no room for it.
    NoRoom,
    /// It came to nothing for another reason.
    Failed,
}

/// What is known of the room of each offer, by its name.
#[derive(Clone, Debug, Default)]
pub struct Rooms(BTreeMap<String, State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Start calls that run.
    under_way: u32,
    /// It has no room, and is not asked again before.
    full: Option<Instant>,
    /// What runs began after it had said so.
    again: bool,
}

impl State {
    fn is_due(&self, now: Instant) -> bool {
        self.under_way == 0 && self.full.is_some_and(|until| now >= until)
    }
}

impl Rooms {
    /// A start on `offer` is called.
    pub fn begins(&mut self, offer: &str) {
        let state = self.0.entry(offer.to_owned()).or_default();
        state.under_way = state.under_way.saturating_add(1);
        state.again = state.full.is_some();
    }

    /// That call has ended. Only one that was taken, and began after the offer had no room, tells that it has some again: of
    /// one that came to nothing nobody knows what it would have found.
    pub fn ends(&mut self, offer: &str, how: StartEnd, now: Instant) {
        let Some(state) = self.0.get_mut(offer) else { return };
        state.under_way = state.under_way.saturating_sub(1);
        match how {
            StartEnd::NoRoom => state.full = Some(now + PAUSE),
            StartEnd::Taken if state.again => state.full = None,
            StartEnd::Failed if state.full.is_some() => state.full = Some(now + PAUSE),
            StartEnd::Taken | StartEnd::Failed => {}
        }
        self.0.retain(|_, state| state.under_way > 0 || state.full.is_some());
    }

    /// The same offers, those without room as such; and of these, as their provider tells them, the ones that may be asked
    /// again `now`.
    pub fn mark(&self, mut offers: Vec<Offer>, now: Instant) -> (Vec<Offer>, Vec<Offer>) {
        let mut again = Vec::new();
        for offer in &mut offers {
            let Some(state) = self.0.get(&offer.name).filter(|state| state.full.is_some()) else { continue };
            if state.is_due(now) && offer.free != Some(0) {
                again.push(offer.clone());
            }
            (offer.free, offer.queues) = (Some(0), false);
        }
        (offers, again)
    }

    /// Those that could be asked again `now` are not: whether they have room is not known any more.
    pub fn forget(&mut self, now: Instant) {
        self.0.retain(|_, state| !state.is_due(now));
    }

    /// Whether some offer is known to have none.
    pub fn is_full(&self) -> bool {
        self.0.values().any(|state| state.full.is_some())
    }

    /// In how long the next one may be asked again; `None` where none waits for that.
    pub fn next(&self, now: Instant) -> Option<Duration> {
        let idle = self.0.values().filter(|state| state.under_way == 0);
        idle.filter_map(|state| state.full).filter(|until| *until > now).min().map(|until| until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::offer::Price;
    use tidegate_shared::replica::Capacity;

    use super::*;

    /// Room as told, and who may be asked again.
    fn told(rooms: &Rooms, now: Instant) -> (Option<u32>, usize) {
        let (offers, again) = rooms.mark(vec![Offer::new("any", Capacity::ONE, Price::FREE)], now);
        (offers[0].free, again.len())
    }

    #[test]
    fn m1_no_room_is_asked_about_again_after_the_same_pause_each_time_one_at_a_time() {
        let (mut rooms, mut now) = (Rooms::default(), Instant::ZERO);
        rooms.begins("any");
        assert_eq!(told(&rooms, now), (None, 0));
        for _ in 0..40 {
            rooms.ends("any", StartEnd::NoRoom, now);
            assert_eq!((rooms.next(now), told(&rooms, now)), (Some(PAUSE), (Some(0), 0)));
            now = now + PAUSE;
            assert_eq!(told(&rooms, now), (Some(0), 1));
            rooms.begins("any");
            now = now + Duration::from_secs(60);
            assert_eq!((rooms.next(now), told(&rooms, now)), (None, (Some(0), 0)), "one is under way");
            rooms.forget(now);
            assert!(rooms.is_full(), "and it will tell");
        }
        rooms.ends("any", StartEnd::Taken, now);
        assert_eq!((rooms.is_full(), told(&rooms, now)), (false, (None, 0)));
    }

    #[test]
    fn m1_only_one_that_is_taken_and_began_after_that_tells_that_there_is_room_again() {
        for end in [StartEnd::Taken, StartEnd::Failed] {
            let (mut rooms, now) = (Rooms::default(), Instant::ZERO);
            (0..3).for_each(|_| rooms.begins("any"));
            rooms.ends("any", StartEnd::NoRoom, now);
            assert_eq!(told(&rooms, now + PAUSE), (Some(0), 0), "two that were asked together still run");
            rooms.ends("any", end, now + PAUSE);
            rooms.ends("any", StartEnd::NoRoom, now + PAUSE);
            assert_eq!(told(&rooms, now + PAUSE), (Some(0), 0), "the pause begins as the last one ends");
            assert_eq!(told(&rooms, now + PAUSE + PAUSE), (Some(0), 1));
            rooms.begins("any");
            rooms.ends("any", end, now + PAUSE + PAUSE);
            assert_eq!(rooms.is_full(), end == StartEnd::Failed);
        }
    }

    #[test]
    fn m1_what_nobody_asks_any_more_is_forgotten_and_what_the_provider_knows_is_not_asked() {
        let (mut rooms, now) = (Rooms::default(), Instant::ZERO);
        rooms.begins("any");
        rooms.ends("any", StartEnd::NoRoom, now);
        let known = Offer { free: Some(0), ..Offer::new("any", Capacity::ONE, Price::FREE) };
        assert_eq!(rooms.mark(vec![known.clone()], now + PAUSE), (vec![known], vec![]));
        rooms.forget(now);
        assert!(rooms.is_full());
        rooms.forget(now + PAUSE);
        assert!(!rooms.is_full());
    }
}
