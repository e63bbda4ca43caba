//! Which offers new replicas are started on (M1): the cheapest that the model fits on and the price cap allows. It never
//! decides how many are started.

use std::cmp::Reverse;

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::offer::{Offer, Price};
use tidegate_shared::replica::Capacity;

use crate::config::Sizing;

/// Why no further replica can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Every offer that would do costs more than the cap.
    PriceCap {
        /// The cap.
        cap: Price,
        /// The cheapest of them.
        cheapest: Price,
    },
    /// No offer that would do has room.
    NoCapacity,
    /// No offer is known to have the memory that the model needs.
    NoFit,
}

impl From<Blocked> for ScaleReason {
    fn from(blocked: Blocked) -> Self {
        match blocked {
            Blocked::PriceCap { cap, cheapest } => Self::PriceCap { cap, cheapest },
            Blocked::NoCapacity => Self::NoCapacity,
            Blocked::NoFit => Self::NoFit,
        }
    }
}

/// The offers that may come into question, the first to be taken first.
struct Ranked<'a> {
    /// With the memory that the model needs.
    fitting: Vec<&'a Offer>,
    /// And within the price cap.
    good: Vec<&'a Offer>,
}

impl<'a> Ranked<'a> {
    fn new(offers: &'a [Offer], sizing: &Sizing) -> Self {
        let large_enough = |offer: &&Offer| sizing.memory.is_none_or(|need| offer.memory >= Some(need));
        let within_cap = |offer: &&Offer| sizing.price_cap.is_none_or(|cap| offer.price <= cap);
        let mut fitting: Vec<&Offer> = offers.iter().filter(large_enough).collect();
        fitting.sort_by_key(|offer| (offer.price, !offer.cached, Reverse(offer.capacity), &offer.name));
        let good = fitting.iter().copied().filter(within_cap).collect();
        Self { fitting, good }
    }

    /// One for each of `count` replicas, while there is room.
    fn room(&self, count: usize) -> impl Iterator<Item = &'a Offer> {
        let room =
            move |offer: &Offer| offer.free.map_or(count, |free| usize::try_from(free).unwrap_or(count));
        let places =
            self.good.iter().flat_map(move |offer| std::iter::repeat_n(*offer, room(offer).min(count)));
        places.take(count)
    }

    /// The same, and where there is none the offer on which the others wait.
    fn places(&self, count: usize) -> impl Iterator<Item = &'a Offer> {
        let waiting = self.good.iter().copied().find(|offer| offer.queues).into_iter();
        let waiting = waiting.flat_map(move |offer| std::iter::repeat_n(offer, count));
        self.room(count).chain(waiting).take(count)
    }
}

/// What the next `count` replicas are started on, in order; fewer where something blocks the rest.
///
/// Cheapest per hour first; among equals where the weights already are, then the largest, then by name. An offer is
/// taken no more often than it says is free; one that does not say may be taken for all of them. Those that find no room
/// anywhere wait for it on the first offer that lets them.
pub fn choose(offers: &[Offer], sizing: &Sizing, count: usize) -> (Vec<Offer>, Option<Blocked>) {
    let ranked = Ranked::new(offers, sizing);
    let chosen: Vec<Offer> = ranked.places(count).cloned().collect();
    if chosen.len() == count {
        return (chosen, None);
    }
    let cheapest = ranked.fitting.first().map(|offer| offer.price);
    let blocked = match (cheapest, sizing.price_cap) {
        _ if !ranked.good.is_empty() || offers.is_empty() => Blocked::NoCapacity,
        (Some(cheapest), Some(cap)) => Blocked::PriceCap { cap, cheapest },
        _ => Blocked::NoFit,
    };
    (chosen, Some(blocked))
}

/// What the next `count` replicas would be started on where they need not wait, in the order of [`choose`]; fewer where room
/// ends.
pub fn room<'a>(offers: &'a [Offer], sizing: &Sizing, count: usize) -> Vec<&'a Offer> {
    Ranked::new(offers, sizing).room(count).collect()
}

/// The cheapest offer over the price cap that would do and has room; `None` where the cap keeps nobody from room (M1).
pub fn over_cap<'a>(offers: &'a [Offer], sizing: &Sizing) -> Option<&'a Offer> {
    let cap = sizing.price_cap?;
    let mut fitting = Ranked::new(offers, sizing).fitting.into_iter();
    fitting.find(|offer| offer.price > cap && offer.free != Some(0))
}

/// How large the next `count` replicas are, in the order of [`choose`]; the last stands for all further ones. What has no
/// room or is over the cap counts as what it would be started on if it were allowed, so that what blocks growth changes no
/// count. Empty where no offer fits.
pub fn sizes(offers: &[Offer], sizing: &Sizing, count: usize) -> Vec<Capacity> {
    let ranked = Ranked::new(offers, sizing);
    let mut sizes: Vec<Capacity> = ranked.places(count).map(|offer| offer.capacity).collect();
    let allowed = ranked.good.first().or(ranked.fitting.first());
    sizes.extend(allowed.filter(|_| sizes.len() < count.max(1)).map(|offer| offer.capacity));
    while let [.., before, last] = sizes.as_slice()
        && before == last
    {
        sizes.pop();
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn offer(name: &str, price: u64, free: Option<u32>) -> Offer {
        Offer { free, ..Offer::new(name, Capacity::ONE, Price(price)) }
    }

    fn names(chosen: &(Vec<Offer>, Option<Blocked>)) -> Vec<&str> {
        chosen.0.iter().map(|offer| offer.name.as_str()).collect()
    }

    #[test]
    fn m1_the_cheapest_that_fits_and_cached_weights_win_among_equals_only() {
        let plain = offer("a", 100, None);
        let cached = Offer { cached: true, ..offer("b", 100, None) };
        let dear = Offer { cached: true, ..offer("c", 101, None) };
        let all = [dear.clone(), plain, cached];
        assert_eq!(names(&choose(&all, &Sizing::default(), 1)), ["b"]);
        assert_eq!(names(&choose(&all[..2], &Sizing::default(), 1)), ["a"]);
    }

    #[test]
    fn m1_among_equals_the_largest_then_by_name() {
        let large = Offer { capacity: Capacity::new(8), ..offer("z", 100, None) };
        let all = [offer("b", 100, None), large, offer("a", 100, None)];
        assert_eq!(names(&choose(&all, &Sizing::default(), 1)), ["z"]);
        assert_eq!(names(&choose(&[all[0].clone(), all[2].clone()], &Sizing::default(), 1)), ["a"]);
    }

    #[test]
    fn m1_no_more_than_are_free_then_the_next_cheapest() {
        let all = [offer("dear", 300, Some(9)), offer("cheap", 100, Some(1)), offer("mid", 200, Some(1))];
        let chosen = choose(&all, &Sizing::default(), 4);
        assert_eq!((names(&chosen), chosen.1), (vec!["cheap", "mid", "dear", "dear"], None));
    }

    #[test]
    fn m1_who_finds_no_room_waits_for_the_cheapest_where_that_is_possible() {
        let queues = |name, price, free| Offer { queues: true, ..offer(name, price, Some(free)) };
        let all = [queues("cheap", 100, 0), queues("mid", 200, 1), queues("dear", 300, 9)];
        let sizing = Sizing { price_cap: Some(Price(200)), ..Sizing::default() };
        let chosen = choose(&all, &sizing, 3);
        assert_eq!((names(&chosen), chosen.1), (vec!["mid", "cheap", "cheap"], None));
        assert_eq!(names(&choose(&all, &Sizing::default(), 3)), ["mid", "dear", "dear"]);
        let capped = Sizing { price_cap: Some(Price(99)), ..Sizing::default() };
        assert!(matches!(choose(&all, &capped, 1).1, Some(Blocked::PriceCap { .. })));
    }

    #[test]
    fn c2_what_blocks_is_told_apart() {
        let cap = Price(150);
        let capped = Sizing { price_cap: Some(cap), ..Sizing::default() };
        let (full, dear) = (offer("cheap", 100, Some(0)), offer("dear", 200, None));
        let cases = [
            (vec![], capped.clone(), Blocked::NoCapacity),
            (vec![dear.clone()], capped.clone(), Blocked::PriceCap { cap, cheapest: Price(200) }),
            (vec![full, dear.clone()], capped, Blocked::NoCapacity),
            (vec![dear], Sizing { memory: Some(GIB), ..Sizing::default() }, Blocked::NoFit),
        ];
        for (offers, sizing, blocked) in cases {
            assert_eq!(choose(&offers, &sizing, 1), (vec![], Some(blocked)), "{offers:?}");
        }
        let some = choose(&[offer("one", 100, Some(1))], &Sizing::default(), 3);
        assert_eq!((names(&some), some.1), (vec!["one"], Some(Blocked::NoCapacity)));
    }

    #[test]
    fn b2_c2_the_next_ones_are_as_large_as_what_they_are_started_on_or_would_be() {
        let sized =
            |units, price, free| Offer { capacity: Capacity::new(units), ..offer("one", price, free) };
        let capped = Sizing { price_cap: Some(Price(150)), ..Sizing::default() };
        let (small, large, dear) = (sized(2, 100, Some(1)), sized(4, 120, Some(0)), sized(8, 200, None));
        let cases = [
            (vec![], 3, vec![]),
            (vec![dear.clone()], 3, vec![8]),
            (vec![dear.clone(), large.clone()], 3, vec![4]),
            (vec![dear.clone(), small.clone()], 3, vec![2]),
            (vec![Offer { free: None, ..large.clone() }, small], 3, vec![2, 4]),
            (vec![dear, Offer { queues: true, ..large }], 0, vec![4]),
        ];
        for (offers, count, expected) in cases {
            let found: Vec<u32> = sizes(&offers, &capped, count).iter().map(|size| size.units()).collect();
            assert_eq!(found, expected, "{offers:?}");
        }
        let none_fits = Sizing { memory: Some(GIB), ..Sizing::default() };
        assert_eq!(sizes(&[sized(8, 1, None)], &none_fits, 1), []);
    }

    #[test]
    fn m1_memory_that_is_not_told_fits_no_demand_for_it() {
        let sized = |gib| Offer { memory: Some(gib * GIB), ..offer("sized", 100, None) };
        let need = Sizing { memory: Some(24 * GIB), ..Sizing::default() };
        assert_eq!(choose(&[sized(23)], &need, 1).1, Some(Blocked::NoFit));
        assert_eq!(choose(&[sized(24)], &need, 1).1, None);
        assert_eq!(choose(&[offer("silent", 1, None)], &Sizing::default(), 1).1, None);
    }
}
