//! An offer that had no room for a start (M1, C2): what is told does not change by a try, and there is one at a time.

use tidegate_shared::offer::Money;

use super::*;
use crate::budget::Room;
use crate::guard::room::{PAUSE, StartEnd};

/// A fleet that wants `wanted` and has none, of which `offers` had no room when each was asked just now.
struct Full {
    story: Story,
    offers: Vec<Offer>,
    grant: Grant,
    trying: u32,
}

impl Full {
    fn new(sizing: Sizing, offers: &[(&str, u64)], full: &[&str]) -> Self {
        let offer = |(name, price): &(&str, u64)| Offer::new(name, Capacity::ONE, Price(*price));
        let mut story = Story::new(sizing, 0);
        for name in full {
            story.planner.start_begins(name);
            story.planner.start_ends(name, StartEnd::NoRoom, story.now);
        }
        Self { story, offers: offers.iter().map(offer).collect(), grant: Grant::default(), trying: 0 }
    }

    /// One evaluation: the blocks, what is ordered and what is tried, by name.
    fn tick(&mut self) -> (Vec<&'static str>, Vec<String>, Vec<String>) {
        let (offers, again) = self.story.planner.offers(self.offers.clone(), self.story.now);
        let (grant, trying) = (self.grant.clone(), self.trying);
        let supply = Supply { offers, again, grant, trying, ..Supply::default() };
        let plan = self.story.planner.tick(&self.story.observation(0, 0, Duration::ZERO), &supply);
        let names = |offers: &[Offer]| offers.iter().map(|offer| offer.name.clone()).collect::<Vec<_>>();
        for name in names(&plan.tries) {
            self.story.planner.start_begins(&name);
            self.trying += 1;
        }
        let blocks = plan.why.blocks().map(ScaleReason::as_str).collect();
        (blocks, names(&plan.orders), names(&plan.tries))
    }

    fn ends(&mut self, name: &str, how: StartEnd) {
        self.story.planner.start_ends(name, how, self.story.now);
        self.trying -= 1;
    }

    fn pass(&mut self, time: Duration) {
        self.story.now = self.story.now + time;
    }
}

#[test]
fn c2_m1_what_blocks_is_the_same_while_one_tries_however_many_are_wanted() {
    let none = Vec::<String>::new();
    // At max, and with as little room under the gateway's cap.
    for (max, room) in [(3, None), (8, None), (3, Some(3))] {
        let mut full = Full::new(sizing(3, max), &[("own", 0)], &["own"]);
        let left = |left| room.map(|cap| Room { cap, left, tried: cap - left, comes: false });
        full.grant.room = left(3);
        for _ in 0..20 {
            assert_eq!(full.tick(), (vec!["no_capacity"], none.clone(), none.clone()));
            full.pass(PAUSE);
            assert_eq!(full.tick(), (vec!["no_capacity"], none.clone(), vec!["own".to_owned()]));
            full.grant.room = left(2);
            full.pass(PAUSE * 30);
            assert_eq!(full.tick(), (vec!["no_capacity"], none.clone(), none.clone()), "one at a time");
            full.ends("own", StartEnd::NoRoom);
            full.grant.room = left(3);
        }
        full.pass(PAUSE);
        full.tick();
        full.ends("own", StartEnd::Taken);
        full.story.starting = 1;
        assert_eq!(full.tick(), (vec![], vec!["own".to_owned(); 2], none.clone()), "there is room again");
    }
}

#[test]
fn m1_where_another_offer_has_room_the_order_goes_there_at_once() {
    let two = [("cheap", 1), ("dear", 2)];
    let mut full = Full::new(sizing(2, 4), &two, &["cheap"]);
    assert_eq!(full.tick(), (vec![], vec!["dear".to_owned(); 2], vec![]));
    full.pass(PAUSE);
    assert_eq!(full.tick(), (vec![], vec!["dear".to_owned(); 2], vec![]), "nobody asks the cheap one");
    assert_eq!(full.tick().1, ["cheap", "cheap"], "so whether it has room is not known any more");

    // None has room: one asks at each as long as so many are wanted.
    let mut full = Full::new(sizing(2, 4), &two, &["cheap", "dear"]);
    full.pass(PAUSE);
    assert_eq!(full.tick().2, ["cheap", "dear"]);
    let mut full = Full::new(sizing(1, 4), &two, &["cheap", "dear"]);
    full.pass(PAUSE);
    assert_eq!(full.tick().2, ["cheap"]);
    assert_eq!(full.tick(), (vec!["no_capacity"], vec![], vec![]));
    full.ends("cheap", StartEnd::NoRoom);
    assert_eq!(full.tick(), (vec!["no_capacity"], vec![], vec!["dear".to_owned()]), "in turn");
}

#[test]
fn c2_nobody_tries_what_may_not_be_started_or_what_nobody_wants() {
    let full = || Full::new(Sizing { price_cap: Some(Price(5)), ..sizing(1, 4) }, &[("own", 5)], &["own"]);
    let tries = |mut full: Full| {
        full.pass(PAUSE);
        full.tick().2.len()
    };
    assert_eq!(tries(full()), 1);
    let change = |change: fn(&mut Full)| {
        let mut full = full();
        change(&mut full);
        tries(full)
    };
    assert_eq!(change(|full| full.grant.credit = Some(Money(0))), 0);
    assert_eq!(change(|full| full.grant.room = Some(Room { cap: 1, left: 0, tried: 0, comes: true })), 0);
    assert_eq!(change(|full| full.offers[0].price = Price(6)), 0);
    assert_eq!(change(|full| full.offers[0].free = Some(0)), 0, "its provider knows that it has none");
    assert_eq!(change(|full| full.story.planner.resize(sizing(0, 4))), 0);
    let failed = |full: &mut Full| {
        (0..3).for_each(|_| {
            full.story.planner.start_failed(full.story.now);
            full.pass(PAUSE * 2);
        });
        full.story.planner.start_failed(full.story.now);
    };
    assert_eq!(change(failed), 0, "a start has failed just now");
}

#[test]
fn a2_the_next_evaluation_is_when_one_may_be_asked_again() {
    let mut full = Full::new(sizing(1, 4), &[("own", 0)], &["own"]);
    full.pass(PAUSE.saturating_sub(Duration::from_millis(300)));
    let (offers, again) = full.story.planner.offers(full.offers.clone(), full.story.now);
    let seen = full.story.observation(0, 0, Duration::ZERO);
    let plan = full.story.planner.tick(&seen, &Supply { offers, again, ..Supply::default() });
    assert_eq!(plan.next, full.story.now + Duration::from_millis(300));
}

#[test]
fn c2_a6_what_is_full_is_told_so_while_others_try_in_the_last_place_and_while_a_start_has_failed() {
    let full = || Full::new(sizing(1, 4), &[("own", 0)], &["own"]);
    let mut capped = full();
    for (tried, blocks) in [(1, vec!["no_capacity"]), (0, vec!["gateway_cap", "no_capacity"])] {
        capped.grant.room = Some(Room { cap: 1, left: 0, tried, comes: true });
        for _ in 0..30 {
            capped.pass(TICK);
            assert_eq!(capped.tick(), (blocks.clone(), vec![], vec![]));
        }
    }
    capped.grant.room = Some(Room { cap: 1, left: 1, tried: 0, comes: true });
    assert_eq!(capped.tick(), (vec!["no_capacity"], vec![], vec!["own".to_owned()]), "its turn");

    let mut failed = full();
    failed.pass(PAUSE);
    failed.tick();
    failed.ends("own", StartEnd::Failed);
    failed.story.planner.start_failed(failed.story.now);
    assert_eq!(failed.tick(), (vec!["backing_off", "no_capacity"], vec![], vec![]));
    failed.pass(Duration::from_secs(60));
    assert_eq!(failed.tick(), (vec!["no_capacity"], vec![], vec!["own".to_owned()]), "still one at a time");
}
