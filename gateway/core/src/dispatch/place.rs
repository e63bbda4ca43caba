//! Which replica takes a request: home, detour, a holder of its beginning, or the policy's pick (R2–R6); and what is
//! remembered of it.

use std::sync::Arc;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::policy::PolicyName;
use tidegate_shared::replica::Phase;
use tidegate_shared::request::{ConversationKey, Identity, RequestFacts, Route, Tokens};
use tidegate_shared::time::{Duration, Instant};

use super::bounds::Bounds;
use super::line::Claim;
use super::replica::Replica;
use super::{Dispatcher, Lease};
use crate::conversation::Found;
use crate::health::Sign;
use crate::ledger::Ledger;
use crate::queue::TicketId;
use crate::route::{Field, Policy};
use crate::slow_start::SlowStart;

/// Fuller than this percentage of the mean, a holder of a shared beginning is passed over (R6).
pub(super) const BALANCE: u32 = 125;
/// Placements by which a holder may be ahead of its turn, so that sharing a beginning does not gather an idle fleet's
/// conversations in one place (R6).
const AHEAD: u128 = 1;

/// For so long a conversation waits for its home to be trusted again; beyond, it is given another (R5).
const AWAY: Duration = Duration::from_secs(30);

/// What a request asks of a replica.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) now: Instant,
    pub(super) cost: Tokens,
    pub(super) tried: &'a [ReplicaId],
    /// Every open replica was tried; they get another chance.
    pub(super) all_tried: bool,
    /// What those claim that stand before it in the line.
    pub(super) claims: &'a [Claim],
}

impl Ask<'_> {
    pub(super) fn may_try(&self, id: ReplicaId) -> bool {
        self.all_tried || !self.tried.contains(&id)
    }

    /// Whether somebody who stands before it waits for the room there.
    pub(super) fn is_claimed(&self, id: ReplicaId) -> bool {
        self.claims.iter().any(|claim| claim.replica == id)
    }

    /// Whether its room there, if there is any, is its own to take.
    pub(super) fn may_use(&self, id: ReplicaId) -> bool {
        self.may_try(id) && !self.is_claimed(id)
    }
}

/// Whether a holder of the beginning of a prompt comes before the policy's pick (R6). `prefix` gathers by itself, and those
/// that are there for comparison are left as they are.
pub(super) fn gathers(policy: PolicyName) -> bool {
    matches!(policy, PolicyName::LeastLoad | PolicyName::TwoChoices)
}

/// Where a request comes from: what is known of the prompt that it continues.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A conversation, and, where its prefix tells, which boundary of it is known.
    Own(Option<usize>, Found),
    /// A prompt that several have asked, so that it says nobody's home.
    Shared(ConversationKey),
    /// Nothing, or nothing was looked up: it opens a conversation, or has none.
    New,
}

impl Origin {
    /// The conversation, if it is known.
    pub(super) fn own(self) -> Option<Found> {
        match self {
            Self::Own(_, found) => Some(found),
            Self::Shared(_) | Self::New => None,
        }
    }

    /// The prompt that several have asked, if that is what it is.
    pub(super) fn shared(self) -> Option<ConversationKey> {
        match self {
            Self::Shared(key) => Some(key),
            Self::Own(..) | Self::New => None,
        }
    }
}

/// A replica for a request, before the place there is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Where the conversation is known from.
    pub(super) origin: Origin,
    /// Which one.
    pub(super) replica: ReplicaId,
    /// How it is found.
    pub(super) route: Route,
    /// What the request will hold there.
    pub(super) cost: Tokens,
}

impl Dispatcher {
    /// Finds a replica with a place for the request, which stands there in the line or would. Changes nothing but `policy`.
    pub(super) fn place(
        &self,
        now: Instant,
        facts: &RequestFacts,
        tried: &[ReplicaId],
        stands: TicketId,
        policy: &mut dyn Policy,
    ) -> Option<Choice> {
        // Nobody has a free place: nothing else needs to be looked up under the lock.
        if self.replicas.ranked().is_empty() && !self.replicas.any_own_only() {
            return None;
        }
        let origin = self.origin(now, facts);
        let ask = self.ask_for(now, facts, tried, stands);
        let (replica, route) = self.choose(&ask, facts, origin, policy)?;
        Some(Choice { origin, replica, route, cost: ask.cost })
    }

    /// Takes the place that was found just now, for a request that `tried` have failed.
    pub(super) fn commit(
        &mut self,
        now: Instant,
        facts: &Arc<RequestFacts>,
        tried: &[ReplicaId],
        choice: Choice,
    ) -> Lease {
        let Choice { origin, replica, route, cost } = choice;
        let found = origin.own();
        self.remember(now, facts, tried, choice);
        self.lately.sent(now, route, found.map(|found| found.home));
        let home = found.and_then(|found| self.replicas.get(found.home));
        if route == Route::Rehomed && home.is_some_and(Replica::is_open) {
            self.moved(now, facts);
        }
        self.settle();
        let number = self.drain.began(now);
        let counts = matches!(route, Route::Placed | Route::Any | Route::Rehomed);
        let weight = self.replicas.get(replica).map_or(1, |chosen| self.replicas.weight(chosen));
        if counts {
            self.replicas.placed(replica);
        }
        let turn = &mut self.turn;
        self.sent += 1;
        let taken = self.replicas.account(now, replica, |chosen| {
            if counts {
                *turn = chosen.turn.max(*turn);
                chosen.turn = turn.after(weight);
            }
            chosen.slow_start.iter_mut().for_each(SlowStart::got);
            (chosen.health.send(), chosen.ledger.charge(now, cost))
        });
        let (reserved, sign) = (self.estimate.output(facts), Sign::Neutral);
        // A replica that was chosen is known.
        let (trial, charge) = taken.unwrap_or_else(|| (false, Ledger::default().charge(now, cost)));
        Lease { replica, route, reserved, sign, trial, number, charge, facts: Arc::clone(facts) }
    }

    /// Where the request comes from. The longest known prompt that it continues counts, and where that is shared, what is
    /// shorter says no more.
    pub(super) fn origin(&self, now: Instant, facts: &RequestFacts) -> Origin {
        let known = match &facts.identity {
            Identity::Named(key) => self.conversations.find(now, *key).map(|found| (None, found)),
            Identity::Prefix { chain, follows_up: true } => {
                self.conversations.find_longest(now, chain).map(|(at, found)| (Some(at), found))
            }
            Identity::Prefix { .. } | Identity::None => None,
        };
        match (known, &facts.identity) {
            (Some((_, found)), Identity::Prefix { .. }) if found.is_shared() => Origin::Shared(found.key),
            (Some((at, found)), _) => Origin::Own(at, found),
            (None, _) => Origin::New,
        }
    }

    pub(super) fn ask_for<'a>(
        &'a self,
        now: Instant,
        facts: &RequestFacts,
        tried: &'a [ReplicaId],
        stands: TicketId,
    ) -> Ask<'a> {
        let (cost, claims) = (self.estimate.cost(facts), self.claims.before(stands));
        let mut open = self.replicas.iter().filter(|replica| replica.is_open() && replica.health.admits());
        let all_tried = !tried.is_empty() && open.all(|replica| tried.contains(&replica.id));
        Ask { now, cost, tried, all_tried, claims }
    }

    pub(super) fn choose(
        &self,
        ask: &Ask<'_>,
        facts: &RequestFacts,
        origin: Origin,
        policy: &mut dyn Policy,
    ) -> Option<(ReplicaId, Route)> {
        let (bounds, found) = (self.bounds(), origin.own());
        let Some(home) = self.home(ask, found) else {
            let route = match (found, &facts.identity) {
                // Suspected, or tried in vain: it may be well in a moment.
                (Some(found), _) if self.is_ready(found.home) => Route::Detour,
                (Some(_), _) => Route::Rehomed,
                (None, Identity::None) => Route::Any,
                (None, _) => Route::Placed,
            };
            let gathers = route == Route::Placed && gathers(policy.name());
            let holder = if gathers { self.holder(ask, facts, origin) } else { None };
            return Some((holder.or_else(|| self.pick(ask, facts, policy))?, route));
        };
        if let Some(newcomer) =
            found.filter(|_| gathers(policy.name())).and_then(|found| self.newcomer(ask, facts, found, home))
        {
            return Some((newcomer, Route::Rehomed));
        }
        if bounds.is_under(home, ask) {
            return Some((home.id, Route::Home));
        }
        let stays = bounds.keeps(home, ask);
        let under = |id: ReplicaId| {
            id != home.id
                && ask.may_try(id)
                && self.replicas.get(id).is_some_and(|replica| bounds.is_free(replica, ask))
        };
        let any = self.replicas.any_under_in_places();
        let freer = if any { policy.choose(&self.field(&under, facts)) } else { None };
        match freer {
            Some(_) if stays && !self.pays(ask, facts, home) => Some((home.id, Route::Home)),
            Some(freer) => Some((freer, Route::Detour)),
            None if stays => Some((home.id, Route::Home)),
            None => {
                let away = self.pick(ask, facts, policy).map(|pick| (pick, Route::Detour));
                away.or_else(|| bounds.takes_own(home, ask).then_some((home.id, Route::Home)))
            }
        }
    }

    /// The home of a conversation, where it takes requests and did not fail this one.
    pub(super) fn home(&self, ask: &Ask<'_>, found: Option<Found>) -> Option<&Replica> {
        let home = self.replicas.get(found?.home)?;
        (home.is_open_to_own() && home.health.admits() && ask.may_try(home.id)).then_some(home)
    }

    /// Whether it can be hoped to serve again in a moment.
    fn is_ready(&self, id: ReplicaId) -> bool {
        let soon = |replica: &Replica| !replica.health.is_out() || replica.health.pause() <= AWAY;
        let ready = |replica: &Replica| replica.phase == Phase::Ready && !replica.refused && soon(replica);
        self.replicas.get(id).is_some_and(ready)
    }

    pub(super) fn bounds(&self) -> Bounds<'_> {
        Bounds { replicas: &self.replicas, limits: &self.limits, sent: self.sent }
    }

    /// What a detour costs and what it saves (R4): prefilling the prompt elsewhere, against the wait until home is under
    /// its limit. `None` for what was not measured yet.
    pub(super) fn price(
        &self,
        ask: &Ask<'_>,
        facts: &RequestFacts,
        home: &Replica,
    ) -> (Option<Duration>, Option<Duration>) {
        let places = u64::from(home.ledger.in_flight());
        let wait = self.drain.time_for(ask.now, self.bounds().over_by(home), places);
        (self.estimate.prefill(self.estimate.prompt(facts)), wait)
    }

    /// Whether a detour pays; it does while nobody knows better.
    fn pays(&self, ask: &Ask<'_>, facts: &RequestFacts, home: &Replica) -> bool {
        !matches!(self.price(ask, facts, home), (Some(prefill), Some(wait)) if prefill > wait)
    }

    /// The least loaded replica that holds the beginning of the prompt, as long as that keeps the balance (R6): of the load,
    /// of the turns where that is equal, and of the latest placements, since a load is only as true as the last report.
    /// Where none does, one that holds a shorter beginning.
    pub(super) fn holder(&self, ask: &Ask<'_>, facts: &RequestFacts, origin: Origin) -> Option<ReplicaId> {
        let Identity::Prefix { chain, .. } = &facts.identity else { return None };
        let goes_on = origin.shared().filter(|shared| chain.last() != Some(shared));
        if let Some(emptiest) = goes_on.and_then(|shared| self.emptiest(ask, shared)) {
            return Some(emptiest);
        }
        let bounds = self.bounds();
        let mean = self.replicas.mean_share();
        let first = self.replicas.ranked().first()?;
        let good = |replica: &&Replica| {
            let (share, weight) = (self.replicas.share(replica), self.replicas.weight(replica));
            replica.is_open()
                && ask.may_try(replica.id)
                && bounds.is_free(replica, ask)
                && share.within(BALANCE, mean)
                && self.replicas.may_have_more(replica, BALANCE)
                && (share > first.share || replica.turn.ahead_of(first.turn, weight) <= AHEAD)
        };
        let best = |holders: &[ReplicaId]| {
            let known = holders.iter().filter_map(|id| self.replicas.get(*id)).filter(good);
            known.map(|replica| self.replicas.rank_of(replica)).min()
        };
        self.prefixes.by_length(chain, origin.shared()).find_map(best).map(|rank| rank.id)
    }

    /// Of the replicas that hold a shared prompt, and whose load keeps the balance, the one with the fewest homes by size:
    /// here a conversation that was opened before gets its home.
    fn emptiest(&self, ask: &Ask<'_>, shared: ConversationKey) -> Option<ReplicaId> {
        let (bounds, mean) = (self.bounds(), self.replicas.mean_share());
        let holders = self.prefixes.by_length(&[], Some(shared)).next()?;
        let good = holders.iter().filter_map(|id| self.replicas.get(*id)).filter(|replica| {
            let balanced = self.replicas.share(replica).within(BALANCE, mean);
            replica.is_open() && ask.may_try(replica.id) && bounds.is_free(replica, ask) && balanced
        });
        let homes = |replica: &Replica| u128::from(self.conversations.at(replica.id));
        let weight = |replica: &Replica| u128::from(self.replicas.weight(replica));
        let emptier = |a: &&Replica, b: &&Replica| {
            let homes = (homes(a) * weight(b)).cmp(&(homes(b) * weight(a)));
            homes.then_with(|| self.replicas.rank_of(a).cmp(&self.replicas.rank_of(b)))
        };
        good.min_by(emptier).map(|replica| replica.id)
    }

    /// The policy's pick among those that are free, else among those under their limit, else among those that have room
    /// at all.
    fn pick(&self, ask: &Ask<'_>, facts: &RequestFacts, policy: &mut dyn Policy) -> Option<ReplicaId> {
        let bounds = self.bounds();
        let allowed = |id: ReplicaId, good: &dyn Fn(&Replica) -> bool| {
            ask.may_try(id) && self.replicas.get(id).is_some_and(good)
        };
        if !self.replicas.any_under_in_places() {
            let fits = |id| allowed(id, &|replica| bounds.fits(replica, ask));
            return policy.choose(&self.field(&fits, facts));
        }
        let free = |id| allowed(id, &|replica| bounds.is_free(replica, ask));
        if let Some(pick) = policy.choose(&self.field(&free, facts)) {
            return Some(pick);
        }
        let under = |id| allowed(id, &|replica| bounds.is_under(replica, ask));
        if let Some(pick) = policy.choose(&self.field(&under, facts)) {
            return Some(pick);
        }
        let fits = |id| allowed(id, &|replica| bounds.fits(replica, ask));
        policy.choose(&self.field(&fits, facts))
    }

    fn field<'a>(&'a self, may: &'a dyn Fn(ReplicaId) -> bool, facts: &RequestFacts) -> Field<'a> {
        let mut field = Field::new(self.replicas.ranked(), may);
        field.key = match &facts.identity {
            Identity::Named(key) => Some(*key),
            Identity::Prefix { chain, .. } => chain.first().copied(),
            Identity::None => None,
        };
        field.mean = self.replicas.mean_share();
        field.members = Some(self.replicas.members());
        field.one = self.replicas.mean_share_of(self.estimate.cost(facts));
        field
    }

    fn remember(&mut self, now: Instant, facts: &RequestFacts, tried: &[ReplicaId], choice: Choice) {
        let Choice { origin, replica, route, .. } = choice;
        let named = matches!(facts.identity, Identity::Named(_));
        let key = match &facts.identity {
            Identity::Named(key) => Some(*key),
            Identity::Prefix { chain, .. } => {
                self.prefixes.hold(chain, replica);
                chain.last().copied()
            }
            Identity::None => None,
        };
        let Some(key) = key else { return };
        if let Some(shared) = origin.shared() {
            self.prefixes.hold_whole(shared, replica);
        }
        match origin {
            Origin::Own(_, mut found) => {
                if route == Route::Rehomed {
                    found = self.conversations.rehome(now, found, replica);
                }
                // A name is no prompt, and what the gateway sends again was asked once.
                let same = found.key == key && (named || !tried.is_empty());
                if same {
                    self.conversations.heard(now, found);
                } else if self.conversations.advance(now, found, key) {
                    self.prefixes.hold_whole(found.key, found.home);
                }
            }
            Origin::Shared(_) | Origin::New => {
                if let Some(other) = self.conversations.open(now, key, replica, tried) {
                    [other, replica].into_iter().for_each(|holder| self.prefixes.hold_whole(key, holder));
                }
            }
        }
    }
}
