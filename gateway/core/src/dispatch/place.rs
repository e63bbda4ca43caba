//! Which replica takes a request: home, detour, or the policy's pick (R2–R5); and what is remembered of it.

use smallvec::SmallVec;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::{ConversationKey, Identity, RequestFacts, Route, Tokens};
use tidegate_shared::time::Instant;

use super::{Dispatcher, Lease};
use crate::conversation::Found;
use crate::replicas::Replica;
use crate::route::{Candidate, Turn};

impl Dispatcher {
    /// Finds a replica and takes a place there.
    pub(super) fn take(&mut self, now: Instant, facts: &RequestFacts, tried: &[ReplicaId]) -> Option<Lease> {
        let found = match &facts.identity {
            Identity::Named(key) => self.conversations.find(now, *key),
            Identity::Prefix { chain, follows_up: true } => self.conversations.find_longest(now, chain),
            Identity::Prefix { .. } | Identity::None => None,
        };
        let (replica, route) = self.choose(facts, tried, found)?;
        self.remember(now, facts, found, replica, route);
        self.drain.began(now);
        let load = Tokens(facts.prompt.0.saturating_add(facts.output.0));
        let floor = self.turn;
        let chosen = self.replicas.get_mut(replica)?;
        chosen.in_flight += 1;
        chosen.load = Tokens(chosen.load.0.saturating_add(load.0));
        if matches!(route, Route::Placed | Route::Any | Route::Rehomed) {
            self.turn = chosen.turn.max(floor);
            chosen.turn = self.turn.after(chosen.capacity);
        }
        Some(Lease { replica, route, load })
    }

    fn choose(
        &self,
        facts: &RequestFacts,
        tried: &[ReplicaId],
        found: Option<Found>,
    ) -> Option<(ReplicaId, Route)> {
        let room = self.replicas.with_room(self.limits.concurrency, tried);
        let Some(found) = found else {
            let route = if facts.identity == Identity::None { Route::Any } else { Route::Placed };
            return Some((self.pick(room.iter().copied())?, route));
        };
        let home = self.replicas.get(found.home).filter(|home| home.is_open());
        let Some(home) = home else { return Some((self.pick(room.iter().copied())?, Route::Rehomed)) };
        let at_home = room.iter().any(|replica| replica.id == home.id);
        if at_home && !self.is_over(home) {
            return Some((home.id, Route::Home));
        }
        let elsewhere = || room.iter().copied().filter(|replica| replica.id != home.id);
        if let Some(freer) = self.pick(elsewhere().filter(|replica| !self.is_over(replica))) {
            return Some((freer, Route::Detour));
        }
        if at_home {
            return Some((home.id, Route::Home));
        }
        Some((self.pick(elsewhere())?, Route::Detour))
    }

    /// Whether a replica is over its load limit (R4).
    fn is_over(&self, replica: &Replica<Turn>) -> bool {
        let limit = u64::from(self.replicas.limit(replica, self.limits.concurrency));
        u64::from(replica.in_flight) * 100 >= limit * u64::from(self.limits.load_percent)
    }

    fn pick<'a>(&self, replicas: impl Iterator<Item = &'a Replica<Turn>>) -> Option<ReplicaId> {
        let candidates: SmallVec<[Candidate; 16]> = replicas
            .map(|replica| Candidate {
                id: replica.id,
                capacity: replica.capacity,
                load: replica.load,
                in_flight: replica.in_flight,
                turn: replica.turn.max(self.turn),
            })
            .collect();
        self.policy.choose(&candidates)
    }

    fn remember(
        &mut self,
        now: Instant,
        facts: &RequestFacts,
        found: Option<Found>,
        replica: ReplicaId,
        route: Route,
    ) {
        let key: Option<ConversationKey> = match &facts.identity {
            Identity::Named(key) => Some(*key),
            Identity::Prefix { chain, .. } => chain.last().copied(),
            Identity::None => None,
        };
        let Some(key) = key else { return };
        match found {
            Some(mut found) => {
                if route == Route::Rehomed {
                    found = self.conversations.rehome(now, found, replica);
                }
                self.conversations.advance(now, found, key);
            }
            None => self.conversations.open(now, key, replica),
        }
    }
}
