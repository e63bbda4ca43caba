//! Where a request would go and why (E3), told without doing any of it.
//!
//! The verdict comes from [`Dispatcher::decide`], which serves requests too; the rest are the figures that it looked
//! at. It takes the dispatcher by reference and a twin of the policy, so no turn moves, no conversation is remembered,
//! no promise is kept or lapses and no random number is drawn. It decides nothing of its own.

use tidegate_shared::decision::Refusal;
use tidegate_shared::explained::{
    Candidate, ChosenBy, DetourPrice, Known, RouteDecision, RouteVerdict, Standing,
};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Phase;
use tidegate_shared::request::{Identity, RequestFacts, Route};
use tidegate_shared::time::Instant;

use super::place::{Ask, Origin, gathers};
use super::replica::Replica;
use super::{Choice, Decision, Dispatcher, Entry, Unfit};

impl Dispatcher {
    /// What [`Dispatcher::arrive`] would say to this request at `now`, and why. Costs a step for each replica.
    pub fn explain(&self, now: Instant, facts: &RequestFacts) -> RouteDecision {
        let coming = self.promises.foresee(now, facts.fingerprint, facts.priority, facts.retry);
        let entry = Entry::new(now, facts, coming.kept, coming.expected);
        let decision = self.decide(now, facts, &[], entry, self.policy.twin().as_mut());
        let stands = self.queue.place(facts.priority, entry.kept.arrived);
        let ask = self.ask_for(now, facts, &[], stands);
        let origin = self.origin(now, facts);
        let home = origin.own().and_then(|found| self.replicas.get(found.home));
        // As `choose` has it: a home that takes requests, and is not simply taken.
        let weighed = home.filter(|home| {
            home.is_open_to_own() && home.health.admits() && !self.bounds().is_under(home, &ask)
        });
        let detour = weighed.map(|home| {
            let (prefill, wait) = self.price(&ask, facts, home);
            DetourPrice { prefill, wait }
        });
        RouteDecision {
            at: now,
            prompt: self.estimate.prompt(facts),
            output: self.estimate.output(facts),
            known: match origin {
                Origin::Own(boundary, found) => Some(Known {
                    home: found.home,
                    boundary: boundary.map(|at| u32::try_from(at + 1).unwrap_or(u32::MAX)),
                }),
                Origin::Shared(_) | Origin::New => None,
            },
            holders: self.holders(facts, origin),
            detour,
            promised: coming.kept.is_some(),
            policy: self.policy.name().as_str(),
            candidates: self.candidates(&ask, origin.own().map(|found| found.home)),
            verdict: self.tell(now, facts, &ask, entry, decision),
        }
    }

    /// Who holds a beginning of the prompt, those of the longest one first.
    fn holders(&self, facts: &RequestFacts, origin: Origin) -> Vec<ReplicaId> {
        let mut all = Vec::new();
        if let Identity::Prefix { chain, .. } = &facts.identity {
            for id in self.prefixes.by_length(chain, origin.shared()).flatten() {
                if !all.contains(id) {
                    all.push(*id);
                }
            }
        }
        all
    }

    fn tell(
        &self,
        now: Instant,
        facts: &RequestFacts,
        ask: &Ask<'_>,
        entry: Entry,
        decision: Decision,
    ) -> RouteVerdict {
        match decision {
            Decision::Take(Choice { origin, replica, route, .. }) => {
                let home = origin.own().and_then(|found| self.replicas.get(found.home));
                let gathers = route == Route::Placed && gathers(self.policy.name());
                let by_prefix = || gathers && self.holder(ask, facts, origin) == Some(replica);
                let chosen_by = match route {
                    Route::Home => ChosenBy::Home,
                    _ if by_prefix() => ChosenBy::Prefix,
                    Route::Rehomed if home.is_some_and(Replica::is_open) => ChosenBy::Growth,
                    _ => ChosenBy::Policy,
                };
                RouteVerdict::Forward { replica, route, chosen_by }
            }
            Decision::Refuse(no) => RouteVerdict::Refuse { reason: no.reason, retry_after: no.retry_after },
            Decision::Wait(extra) => {
                let before = self.queue.arrived_by(facts.priority, entry.kept.arrived);
                let patience = self.patience(now + extra);
                let (until, then) = patience.min((entry.start_by, Refusal::MissedDeadline));
                let expected = self.measured_wait(now, facts.priority, before, entry.told);
                RouteVerdict::Wait { before, expected, at_most: until.since(now), then }
            }
        }
    }

    fn candidates(&self, ask: &Ask<'_>, home: Option<ReplicaId>) -> Vec<Candidate> {
        let mut order: Vec<(ReplicaId, u32)> =
            self.replicas.ranked().iter().map(|rank| rank.id).zip(1..).collect();
        order.sort_unstable();
        let open = || self.replicas.iter().filter(|replica| replica.is_open());
        let size: u128 = open().map(|replica| u128::from(self.replicas.weight(replica))).sum();
        let mean = self.replicas.mean_share();
        let candidate = |replica: &Replica| {
            let weight = if replica.is_open() { u128::from(self.replicas.weight(replica)) } else { 0 };
            let place = order.binary_search_by_key(&replica.id, |(id, _)| *id).ok();
            Candidate {
                id: replica.id,
                phase: replica.phase,
                standing: self.standing(replica, ask, home == Some(replica.id)),
                order: place.and_then(|at| order.get(at)).map(|(_, order)| *order),
                in_flight: replica.ledger.in_flight(),
                limit: replica.limit,
                load: replica.ledger.load(ask.now),
                holds: replica.ledger.capacity(),
                capacity: replica.capacity,
                share_percent: u32::try_from(weight * 100 / size.max(1)).unwrap_or(100),
                fullness_percent: self.replicas.share(replica).percent_of(mean),
            }
        };
        self.replicas.iter().map(candidate).collect()
    }

    fn standing(&self, replica: &Replica, ask: &Ask<'_>, home: bool) -> Standing {
        let bounds = self.bounds();
        if replica.own_only && replica.is_open_to_own() && !home {
            return Standing::OwnOnly;
        }
        if !replica.is_open_to_own() {
            return match replica.phase {
                _ if let Some((why, _)) = replica.unfit => match why {
                    Unfit::OtherModel => Standing::OtherModel,
                    Unfit::Unreachable => Standing::Unreachable,
                },
                Phase::Ready if replica.refused => Standing::Refused,
                Phase::Ready if replica.suspect => Standing::Suspect,
                Phase::Ready if replica.health.is_out() => Standing::Ejected,
                Phase::Ready => Standing::Aside,
                _ => Standing::NotReady,
            };
        }
        if !replica.health.admits() {
            Standing::OnTrial
        } else if !bounds.has_place(replica) {
            Standing::Full
        } else if ask.is_claimed(replica.id) {
            Standing::Claimed
        } else if !bounds.fits(replica, ask) {
            Standing::NoRoom
        } else if replica.health.is_full(ask.now) {
            Standing::Busy
        } else if !bounds.is_under(replica, ask) {
            Standing::OverLimit
        } else if !bounds.is_free(replica, ask) {
            Standing::WarmingUp
        } else {
            Standing::Free
        }
    }
}
