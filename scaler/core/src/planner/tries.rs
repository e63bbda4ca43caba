//! Offers that had no room for a start: what is asked again, and that they count as full until one is taken (M1, C2). What
//! is tried is no replica before it is taken, so that a try changes no number and nothing that is told.

use tidegate_shared::offer::Offer;
use tidegate_shared::time::Instant;

use super::blocks::Missing;
use super::{Planner, Supply};
use crate::guard::room::StartEnd;

impl Planner {
    /// A start on `offer` is called.
    pub fn start_begins(&mut self, offer: &str) {
        self.rooms.begins(offer);
    }

    /// That call has ended. One that failed is told to [`Planner::start_failed`] too, and one without room is not (C1).
    pub fn start_ends(&mut self, offer: &str, how: StartEnd, now: Instant) {
        self.rooms.ends(offer, how, now);
    }

    /// Whether some offer had no room when it was asked last.
    pub fn lacks_room(&self) -> bool {
        self.rooms.is_full()
    }

    /// What the provider offers, for [`Supply::offers`], and what of that may be asked again, for [`Supply::again`].
    pub fn offers(&self, offers: Vec<Offer>, now: Instant) -> (Vec<Offer>, Vec<Offer>) {
        self.rooms.mark(offers, now)
    }

    /// Who of those that are missing beside that for `orders` asks again for room: one each on what may be asked. What nobody
    /// would ask, were there neither a pause nor the gateway's cap, is not known to be full any more.
    pub(super) fn tries(
        &mut self,
        missing: Missing,
        orders: usize,
        supply: &Supply,
        now: Instant,
    ) -> Vec<Offer> {
        let orders = u32::try_from(orders).unwrap_or(u32::MAX);
        let one = |offer: &Offer| Offer { free: Some(1), queues: false, ..offer.clone() };
        let again: Vec<Offer> = supply.again.iter().map(one).collect();
        let asked = |starts: u32| {
            let starts = starts.saturating_sub(orders);
            self.affordable(&again, &supply.grant, starts, missing.lost.min(starts))
        };
        let tries = asked(self.startable(missing, supply, now));
        if supply.trying == 0 && asked(missing.starts.min(missing.places)).is_empty() {
            self.rooms.forget(now);
        }
        tries
    }
}
