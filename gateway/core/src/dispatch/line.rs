//! Who leaves the line and goes where (Q1, Q4), and whose room is kept until he fits.
//!
//! Where room is counted in tokens, a small request fits where a large one that came before it does not. The rule:
//!
//! 1. The line is served in order. Nobody takes room that somebody before him in the line can use or has claimed,
//!    whether he waits himself or has just come.
//! 2. Who fits nowhere claims a replica: the one of which the smallest part has to end until he fits. The claim stays
//!    there until he goes, or the replica takes no more requests, or somebody who stands before him claims it.
//! 3. At most half of the replicas are claimed, and at most [`MOST`], by those that stand first; but always one.
//! 4. All other room goes to whoever fits, in order.
//!
//! So the first in line is passed by nobody on the replica that he waits for: however many small ones come, he is served at
//! the latest when what runs there has ended. Everybody behind him is first some time. And small ones have the rest of
//! the fleet meanwhile; where that is one replica, they wait behind him as they came. Who is more urgent stands before
//! everybody who is less, and heeds no claim of theirs.
//!
//! Knows no limit on time; that is `wait`.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::{RequestFacts, Route, Tokens};
use tidegate_shared::time::Instant;

use super::Dispatcher;
use super::place::{Ask, Choice};
use super::replica::Replica;
use crate::queue::{Queue, TicketId, Waiter};
use crate::route::{Policy, Rank, Share};

/// Replicas that are claimed at most: each costs a look at the fleet whenever a place is free.
const MOST: usize = 8;

/// Somebody waits for room on this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) ticket: TicketId,
    pub(super) replica: ReplicaId,
}

/// All claims, in the order of the line.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    list: SmallVec<[Claim; MOST]>,
    /// When the load of a replica is another one though nothing happens, because its last report says no more.
    look_again: Option<Instant>,
}

impl Claims {
    /// Those of somebody who stands before `stands`.
    pub(super) fn before(&self, stands: TicketId) -> &[Claim] {
        let count = self.list.partition_point(|claim| claim.ticket < stands);
        self.list.get(..count).unwrap_or_default()
    }

    /// When to look again at who fits; [`Instant::NEVER`] where only something that happens can change that.
    pub(super) fn look_again(&self) -> Instant {
        self.look_again.unwrap_or(Instant::NEVER)
    }

    fn of(&self, ticket: TicketId) -> Option<ReplicaId> {
        self.list.iter().find(|claim| claim.ticket == ticket).map(|claim| claim.replica)
    }

    fn drop(&mut self, ticket: TicketId) {
        self.list.retain(|claim| claim.ticket != ticket);
    }

    /// Who has left the line claims nothing, and the fleet may have become smaller. Gives whether any was dropped.
    fn prune(&mut self, queue: &Queue, most: usize) -> bool {
        let count = self.list.len();
        self.list.retain(|claim| queue.contains(claim.ticket));
        self.list.truncate(most);
        self.list.len() < count
    }

    /// Enters a claim; whoever stands behind and has claimed the same must look for another. Beyond `most`, the last
    /// lose theirs. Gives whether anybody else lost his.
    fn enter(&mut self, claim: Claim, most: usize) -> bool {
        self.drop(claim.ticket);
        let others = self.list.len();
        self.list.retain(|known| known.replica != claim.replica);
        let at = self.list.partition_point(|known| known.ticket < claim.ticket);
        self.list.insert(at, claim);
        self.list.truncate(most);
        self.list.len() <= others
    }
}

/// What each replica with a free place has room for, looked up once for the whole line.
struct Rooms {
    /// Within the load limit, largest first; `None` for one that is over it.
    list: Vec<(Option<Tokens>, ReplicaId)>,
    /// The largest up to all that an engine can hold, which only those have that are at home there (R4). It may be
    /// more than is left by now.
    at_home: Option<Tokens>,
}

impl Rooms {
    /// The largest that the request may use; `None` where all are claimed. The inner is `None` where it has none.
    fn largest(&self, ask: &Ask<'_>) -> Option<Option<Tokens>> {
        let mut unclaimed = self.list.iter().filter(|(_, id)| !ask.is_claimed(*id)).peekable();
        unclaimed.peek()?;
        Some(unclaimed.find(|(_, id)| ask.may_try(*id)).and_then(|(room, _)| *room))
    }

    /// A replica has another room by now, or none where it has no free place.
    fn update(&mut self, id: ReplicaId, room: Option<Option<Tokens>>) {
        self.list.retain(|(_, known)| *known != id);
        if let Some(room) = room {
            let at = self.list.partition_point(|(known, _)| *known >= room);
            self.list.insert(at, (room, id));
        }
    }
}

impl Dispatcher {
    /// A request was placed past the line. Where it gave its conversation a home, another request of the same may wait
    /// that fits there now, since homes are filled up for their own (R4).
    pub(super) fn pump_if_moved(&mut self, now: Instant, choice: Choice) {
        if matches!(choice.route, Route::Placed | Route::Rehomed) && !self.queue.is_empty() {
            self.pump(now);
        }
    }

    /// Lets whoever may go leave the line, in order, and keeps room for who must wait for it. Looks at the fleet once, and
    /// again for each that goes and each that claims; where some replica has a free place, it takes a step for each that
    /// waits, which is to compare two numbers and, where only a home can have room for him, to look his up.
    pub(super) fn pump(&mut self, now: Instant) {
        self.turn_away_late(now);
        let most = self.most_claims();
        self.claims.prune(&self.queue, most);
        // Who goes may give a home to somebody before him in the line.
        while self.pass(now, most) {}
        self.claims.look_again = self.look_again(now);
    }

    /// Somebody has entered the line just now, because he fits nowhere. That lets nobody else go, so it is he alone that
    /// may claim; the line is gone along only where others lost a claim to him, or left for him.
    pub(super) fn pump_for(&mut self, now: Instant, ticket: TicketId) {
        self.turn_away_late(now);
        let most = self.most_claims();
        if self.claims.prune(&self.queue, most) || self.claim_alone(now, ticket, most) {
            return self.pump(now);
        }
        self.claims.look_again = self.look_again(now);
    }

    fn most_claims(&self) -> usize {
        usize::try_from(self.replicas.ready() / 2).unwrap_or(MOST).clamp(1, MOST)
    }

    /// Claims as [`Dispatcher::pass`] would for who fits nowhere. Gives whether anybody else lost his claim.
    fn claim_alone(&mut self, now: Instant, ticket: TicketId, most: usize) -> bool {
        let claims = self.claims.before(ticket);
        let is_claimed = |rank: &Rank| claims.iter().any(|claim| claim.replica == rank.id);
        if claims.len() >= most || self.replicas.ranked().iter().all(is_claimed) {
            return false;
        }
        let Some(waiter) = self.queue.waiter(ticket) else { return false };
        let (facts, tried) = (Arc::clone(&waiter.facts), waiter.tried.clone());
        self.claim(now, &facts, &tried, ticket, most)
    }

    /// Goes along the line once. Gives whether somebody went past another and gave his conversation a home.
    fn pass(&mut self, now: Instant, most: usize) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let mut rooms = self.rooms(now);
        let (mut last, mut moved) = (None, false);
        while let Some((ticket, waiter)) = self.queue.next(last) {
            let Some(fits) = self.fits_now(now, ticket, waiter, &rooms) else { break };
            let before = self.claims.before(ticket).len();
            if !fits && before >= most {
                last = Some(ticket);
                continue;
            }
            let (facts, tried) = (Arc::clone(&waiter.facts), waiter.tried.clone());
            let place =
                |this: &Self, policy: &mut dyn Policy| this.place(now, &facts, &tried, ticket, policy);
            match fits.then(|| self.with_own_policy(place)).flatten() {
                Some(choice) => {
                    let lease = self.commit(now, &facts, &tried, choice);
                    moved |= last.is_some() && matches!(choice.route, Route::Placed | Route::Rehomed);
                    self.queue.leave(ticket);
                    self.claims.drop(ticket);
                    self.woken.push((ticket, Ok(lease)));
                    let taken = self.replicas.get(choice.replica);
                    let taken = taken.filter(|known| known.is_open() && known.has_room());
                    rooms.update(choice.replica, taken.map(|known| self.bounds().room(known, now)));
                }
                None => {
                    if before < most {
                        self.claim(now, &facts, &tried, ticket, most);
                    }
                    last = Some(ticket);
                }
            }
        }
        moved
    }

    fn rooms(&self, now: Instant) -> Rooms {
        let bounds = self.bounds();
        let ranked = || self.replicas.ranked().iter().filter_map(|rank| self.replicas.get(rank.id));
        let mut list: Vec<_> = ranked().map(|replica| (bounds.room(replica, now), replica.id)).collect();
        list.sort_unstable_by(|a, b| b.cmp(a));
        let at_home = ranked().map(|replica| bounds.room_within(replica, now, 100)).max().flatten();
        Rooms { list, at_home }
    }

    /// Whether [`Dispatcher::place`] finds something for a waiter, told without asking the policy; `None` where nothing is
    /// left for him nor anybody behind him.
    fn fits_now(&self, now: Instant, ticket: TicketId, waiter: &Waiter, rooms: &Rooms) -> Option<bool> {
        let ask = self.ask_for(now, &waiter.facts, &waiter.tried, ticket);
        let keeps = || {
            let found = self.origin(now, &waiter.facts).own();
            let bounds = self.bounds();
            self.home(&ask, found)
                .is_some_and(|home| bounds.keeps(home, &ask) || bounds.takes_own(home, &ask))
        };
        // These are in no order, so only who lives there can tell.
        let elsewhere = self.replicas.any_own_only();
        let Some(largest) = rooms.largest(&ask) else { return elsewhere.then(keeps) };
        if largest.is_some_and(|room| ask.cost <= room) {
            return Some(true);
        }
        if !elsewhere && rooms.at_home.is_none_or(|room| ask.cost > room) {
            return Some(false);
        }
        Some(keeps())
    }

    /// Claims the replica of which the smallest part has to end until the request fits there, unless it has claimed one
    /// that it may still use. Gives whether anybody else lost his claim.
    fn claim(
        &mut self,
        now: Instant,
        facts: &RequestFacts,
        tried: &[ReplicaId],
        ticket: TicketId,
        most: usize,
    ) -> bool {
        let ask = self.ask_for(now, facts, tried, ticket);
        let may =
            |replica: &&Replica| replica.is_open() && replica.health.admits() && ask.may_use(replica.id);
        let kept = self.claims.of(ticket).and_then(|id| self.replicas.get(id)).filter(may);
        let nearest = || {
            let candidates = self.replicas.iter().filter(may);
            candidates.min_by_key(|replica| (self.part_to_end(replica, &ask), self.replicas.rank_of(replica)))
        };
        match kept.or_else(nearest).map(|replica| replica.id) {
            Some(replica) => self.claims.enter(Claim { ticket, replica }, most),
            None => {
                self.claims.drop(ticket);
                false
            }
        }
    }

    /// The part of what runs on a replica that has to end until a request fits there.
    fn part_to_end(&self, replica: &Replica, ask: &Ask<'_>) -> Share {
        let load = replica.ledger.load(ask.now).0;
        let limit = self.bounds().limit(replica, self.limits.load_percent);
        let over = limit.map_or(0, |limit| load.saturating_add(ask.cost.0).saturating_sub(limit.0));
        let of_load = Share::of(Tokens(over.min(load)), load);
        let of_places = match replica.has_room() {
            true => Share::default(),
            false => Share::of(Tokens(1), u64::from(replica.ledger.in_flight())),
        };
        of_load.max(of_places)
    }

    /// When the first report of a replica with a free place is too old to say anything, while somebody waits.
    fn look_again(&self, now: Instant) -> Option<Instant> {
        if self.queue.is_empty() {
            return None;
        }
        let ranked = self.replicas.ranked().iter().filter_map(|rank| self.replicas.get(rank.id));
        ranked.filter_map(|replica| replica.ledger.stale_from(now)).min()
    }
}
