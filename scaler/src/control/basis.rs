//! What the newest decision was made from, left where whoever shows the fleet can make it anew from figures of the moment, offers
//! and money among them: so that a sentence agrees with the figures beside it. Changes nothing that the loop goes by.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate_scaler_core::budget::{Grant, Moment};
use tidegate_scaler_core::planner::{Planner, Supply};
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::replica::Starts;
use tidegate_shared::time::Duration;

use super::book::Book;
use crate::house::House;
use crate::provider::Provider;

/// A place for it; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Basis(Arc<Mutex<Option<Made>>>);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) planner: Planner,
    pub(super) book: Book,
    /// Of this, what it may keep and who is on the way to it and from it still holds; the rest is asked for anew.
    pub(super) supply: Supply,
    pub(super) name: DeploymentName,
    pub(super) house: House,
    /// As long as the loop lives.
    pub(super) provider: Weak<dyn Provider>,
    /// The provider does not answer.
    pub(super) silent: bool,
}

impl Made {
    /// What may be had may have changed since the loop looked; `None` once there is no loop any more.
    fn look_again(&mut self, seen: &Observation) -> Option<()> {
        let (name, now) = (&self.name, seen.at);
        self.supply.offers = self.planner.offers(self.provider.upgrade()?.offers(), now).0;
        (self.supply.again, self.supply.trying) = (Vec::new(), self.book.trying());
        let grant = self.house.with_budget(now, |budget, paid| budget.grant(name, Moment { now, paid }));
        let Grant { most, parked, .. } = self.supply.grant;
        self.supply.grant = Grant { most, parked, ..grant };
        Some(())
    }
}

impl Basis {
    pub(super) fn lay(&self, made: Made) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }

    /// The planner and the book have changed since.
    pub(super) fn renew(&self, planner: &Planner, book: &Book) {
        if let Some(made) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            (made.planner, made.book) = (planner.clone(), book.clone());
        }
    }

    /// What would be decided on `seen`; `None` before the first evaluation.
    pub(super) fn decide(&self, seen: &Observation) -> Option<ScaleDecision> {
        let (Made { mut planner, supply, silent, .. }, seen) = self.made(seen)?;
        Some(if silent { planner.hold(&seen, &supply) } else { planner.tick(&seen, &supply).why })
    }

    /// In how long its provider looks again by itself; `None` for one that does not, and before the first evaluation.
    pub(super) fn looks_in(&self) -> Option<Duration> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref()?.provider.upgrade()?.looks_in()
    }

    /// When a replica could be ordered on `seen`; `None` before the first evaluation.
    pub(super) fn starts(&self, seen: &Observation) -> Option<Starts> {
        let (Made { mut planner, supply, silent, .. }, seen) = self.made(seen)?;
        Some(if silent {
            Starts::Stalled
        } else {
            planner.tick(&seen, &supply).starts(planner.starts_from())
        })
    }

    /// What a decision on `seen` is made from, and `seen` as the planner needs it.
    fn made(&self, seen: &Observation) -> Option<(Made, Observation)> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        made.look_again(seen)?;
        made.book.became_ready(seen).iter().for_each(|_| made.planner.became_ready());
        let seen = made.book.refine(seen.clone());
        Some((made, seen))
    }
}
