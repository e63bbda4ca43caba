//! Replicas that an operator takes out (C5): they get no new request, what runs there ends by itself, and then they are
//! stopped. Those that their provider ends get nothing new either. Decides neither who is taken out nor who takes their place:
//! for the planner they are gone, the ones let go and the others dead.

use tidegate_scaler_core::planner::Planner;
use tidegate_shared::demand::Observation;

use super::Control;
use crate::fleet::Change;

impl Control {
    /// Announces who is taken out and who is back, before anything is observed: what is counted afterwards came before.
    pub(super) fn release(&mut self) {
        let drained = self.helm.drained();
        for (id, change) in self.book.let_go(&drained) {
            // What its provider ends has died, whether or not it says so beforehand (M3).
            if change == Change::Drain && drained.contains_key(&id) {
                self.planner.iter_mut().for_each(|planner| Planner::let_go(planner, id));
            }
            self.tell(id, change);
        }
    }

    /// Ends those of them where nothing runs any more, or has run for longer than the drain limit.
    pub(super) fn end_released(&mut self, seen: &Observation) {
        let Some(planner) = &self.planner else { return };
        let limit = planner.sizing().drain_limit;
        for (id, drained) in self.helm.drained() {
            let facts = seen.replicas.iter().find(|facts| facts.id == id);
            let late = seen.at.since(drained.at) >= limit;
            let why = match facts.map_or(0, |facts| facts.in_flight) {
                0 => "an operator drained it",
                _ if late => "its drain took longer than the drain limit",
                _ => continue,
            };
            if !drained.ends && self.book.is_let_go(id) && self.helm.ends(id) {
                self.log.stopping(id, why);
                let news = self.book.end(id, why, false);
                self.tell_all(news);
            }
        }
    }

    /// Who is gone needs not be taken out any more. Called when the provider has listed all that there is.
    pub(super) fn forget_released(&mut self) {
        let there = self.book.ids();
        for id in self.helm.drained().into_keys().filter(|id| !there.contains(id)) {
            self.helm.forget(id);
            self.house.undrained(&self.name, id, self.now());
        }
    }
}
