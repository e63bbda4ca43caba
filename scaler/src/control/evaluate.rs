//! One evaluation of the control loop: observe, see what may be had, tick, act; or hold the fleet as it is, while its provider
//! does not answer. Decides no size.

use std::sync::Arc;

use tidegate_scaler_core::budget::Moment;
use tidegate_scaler_core::planner::Supply;
use tidegate_scaler_core::reconcile::{Action, reconcile};
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::{ReplicaFacts, Starts};
use tidegate_shared::time::Instant;

use super::basis::Made;
use super::book::Purpose;
use super::calls::WAKE_LIMIT;
use super::{Control, FIXED_TICK, Outlook, Rest, SILENCE, book};
use crate::provider::ProviderError;

impl Control {
    /// Takes in what an operator has changed.
    fn steer(&mut self, now: Instant) {
        if let (Some(planner), Some((sizing, base_fee))) = (self.planner.as_mut(), self.helm.take()) {
            self.house
                .with_budget(now, |budget, now| budget.change(&self.name, base_fee, sizing.floor(), now));
            planner.resize(sizing);
        }
    }

    pub(super) fn evaluate(&mut self) -> Rest {
        self.release();
        let observed = self.fleet.observe();
        let now = observed.at;
        self.steer(now);
        self.end_released(&observed);
        self.notice_ready(&observed);
        if self.planner.is_some() {
            let (fleet, provider) = (&self.fleet, &self.provider);
            let explain = |id| book::explain(fleet.trouble(id), &provider.output(id));
            let late = self.book.end_overdue(now, self.start_limit, explain);
            let asleep = self.book.end_sleepers(now, self.start_limit.min(WAKE_LIMIT), explain);
            self.tell_all(late);
            asleep.iter().for_each(|(id, why)| self.not_woken(*id, why));
        }
        let seen = self.book.refine(observed);
        let Some(planner) = self.planner.as_mut() else {
            return Rest { longest: FIXED_TICK, pressed: true, changed: true };
        };
        let wants = seen.queued > 0 && !seen.replicas.iter().any(ReplicaFacts::is_ready);
        let (offers, again) = planner.offers(self.provider.offers(), now);
        let (waiting, held, trying) = (self.book.waiting(), self.book.held(), self.book.trying());
        let (falling, all) = (self.book.falling(now), self.book.with_tries(&seen));
        let (room, plan, actions, supply) = self.house.with_budget(now, |budget, paid| {
            budget.tries(&self.name, trying);
            let grant = budget.see(&self.name, &all, wants, Moment { now, paid });
            let room = grant.room;
            let supply = Supply { offers: offers.clone(), grant, waiting, held, falling, again, trying };
            let plan = planner.tick(&seen, &supply);
            let actions = reconcile(&plan.goal(), &seen.replicas, now, planner.sizing());
            let starts = actions.iter().filter(|action| matches!(action, Action::Start(_))).count();
            let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
            budget.ordered(&self.name, count(starts + plan.tries.len()));
            budget.tries(&self.name, trying.saturating_add(count(plan.tries.len())));
            budget.capped(&self.name, plan.needs_room);
            (room, plan, actions, supply)
        });
        let starts = plan.starts(planner.starts_from());
        self.house.keep(&self.name, now);
        let (check, broke, paid) = (planner.next_check(now), plan.broke, planner.needs_credit(&supply));
        self.status.looks_ahead(Outlook { check, offers, room, broke, paid });
        self.record(&plan.why);
        for action in actions {
            self.execute(action, &seen, &plan);
        }
        for offer in plan.tries {
            self.order(offer, Purpose::Try, now);
        }
        self.fleet.hold_starts(starts);
        self.call_stops(now);
        self.lay(supply, false);
        Rest { longest: plan.next.since(now), pressed: true, changed: true }
    }

    /// The provider does not answer: everything stays as it is, and it is asked again after a pause, or when it tells
    /// of a change: it is back (C2). One that looks by itself says when that is. What an operator changes meanwhile counts,
    /// and so does what else blocks growth.
    pub(super) fn hold(&mut self, error: &ProviderError) -> Rest {
        let again = self.provider.looks_in().unwrap_or(self.silence);
        self.log.held(error, again);
        let observed = self.fleet.observe();
        let now = observed.at;
        self.status.silent(error.to_string(), now + again);
        self.steer(now);
        self.hold_on(observed);
        let longest = self.silence;
        self.silence = (self.silence * 2).min(SILENCE.1);
        Rest { longest, pressed: false, changed: true }
    }

    /// What an operator has changed holds at once for whoever shows the fleet, though the provider is being asked, which may
    /// take as long as it likes.
    pub(super) fn changed_meanwhile(&mut self) {
        let observed = self.fleet.observe();
        self.steer(observed.at);
        if self.status.is_silent() {
            self.hold_on(observed);
        } else if let Some(planner) = &self.planner {
            self.status.basis.renew(planner, &self.book);
        }
    }

    /// Decides that everything stays as it is, and what else blocks growth.
    fn hold_on(&self, observed: Observation) {
        let Some(planner) = &self.planner else { return };
        let now = observed.at;
        let at = |paid| Moment { now, paid };
        let grant = self.house.with_budget(now, |budget, paid| budget.grant(&self.name, at(paid)));
        let (room, broke) = (grant.room, grant.is_spent());
        let (offers, _) = planner.offers(self.provider.offers(), now);
        let supply = Supply { offers, grant, trying: self.book.trying(), ..Supply::default() };
        let (check, paid) = (planner.next_check(now), planner.needs_credit(&supply));
        let (offers, broke) = (supply.offers.clone(), broke && paid);
        self.status.looks_ahead(Outlook { check, offers, room, broke, paid });
        self.record(&planner.hold(&self.book.refine(observed), &supply));
        self.fleet.hold_starts(Starts::Stalled);
        self.lay(supply, true);
    }

    /// Leaves what was gone by for whoever shows the fleet.
    fn lay(&self, supply: Supply, silent: bool) {
        if let Some(planner) = self.planner.clone() {
            let (name, house) = (self.name.clone(), self.house.clone());
            let (book, provider) = (self.book.clone(), Arc::downgrade(&self.provider));
            self.status.basis.lay(Made { planner, book, supply, name, house, provider, silent });
        }
    }
}
