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
use super::replicas::Replica;
use crate::queue::{Queue, TicketId};
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

    /// Who has left the line claims nothing, and the fleet may have become smaller.
    fn prune(&mut self, queue: &Queue, most: usize) {
        self.list.retain(|claim| queue.contains(claim.ticket));
        self.list.truncate(most);
    }

    /// Enters a claim; whoever stands behind and has claimed the same must look for another. Beyond `most`, the last
    /// lose theirs.
    fn enter(&mut self, claim: Claim, most: usize) {
        self.list.retain(|known| known.ticket != claim.ticket && known.replica != claim.replica);
        let at = self.list.partition_point(|known| known.ticket < claim.ticket);
        self.list.insert(at, claim);
        self.list.truncate(most);
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

    /// Lets whoever may go leave the line, in order, and keeps room for who must wait for it. Takes a step for each
    /// that waits where some replica has a free place and none has room for the first.
    pub(super) fn pump(&mut self, now: Instant) {
        self.turn_away_late(now);
        let most = usize::try_from(self.replicas.ready() / 2).unwrap_or(MOST).clamp(1, MOST);
        self.claims.prune(&self.queue, most);
        // Who goes may give a home to somebody before him in the line.
        while self.pass(now, most) {}
        self.claims.look_again = self.look_again(now);
    }

    /// Goes along the line once. Gives whether somebody went past another and gave his conversation a home.
    fn pass(&mut self, now: Instant, most: usize) -> bool {
        let (mut last, mut room) = (None, None);
        let mut moved = false;
        while let Some((ticket, waiter)) = self.queue.next(last) {
            let before = self.claims.before(ticket).len();
            let Some(left) = room.or_else(|| self.most_room(now, ticket)) else { break };
            room = Some(left);
            let fits = self.estimate.cost(&waiter.facts) <= left;
            if !fits && before >= most {
                last = Some(ticket);
                continue;
            }
            let (facts, tried) = (Arc::clone(&waiter.facts), waiter.tried.clone());
            room = None;
            let place =
                |this: &Self, policy: &mut dyn Policy| this.place(now, &facts, &tried, ticket, policy);
            match fits.then(|| self.with_own_policy(place)).flatten() {
                Some(choice) => {
                    let lease = self.commit(now, &facts, choice);
                    moved |= last.is_some() && matches!(choice.route, Route::Placed | Route::Rehomed);
                    self.queue.leave(ticket);
                    self.claims.drop(ticket);
                    self.woken.push((ticket, Ok(lease)));
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

    /// The largest room for who stands at `stands`, on any replica with a free place that nobody before him has claimed;
    /// `None` where there is no such replica. One that works on nothing, or holds nothing that is known, takes anything.
    fn most_room(&self, now: Instant, stands: TicketId) -> Option<Tokens> {
        let claims = self.claims.before(stands);
        let mut most = None;
        for rank in self.replicas.ranked() {
            let Some(replica) = self.replicas.get(rank.id) else { continue };
            if claims.iter().any(|claim| claim.replica == rank.id) {
                continue;
            }
            let room = match replica.ledger.capacity() {
                Some(Tokens(holds)) if replica.ledger.in_flight() > 0 => {
                    Tokens(holds.saturating_sub(replica.ledger.load(now).0))
                }
                _ => return Some(Tokens(u64::MAX)),
            };
            most = most.max(Some(room));
        }
        most
    }

    fn claim(
        &mut self,
        now: Instant,
        facts: &RequestFacts,
        tried: &[ReplicaId],
        ticket: TicketId,
        most: usize,
    ) {
        let ask = self.ask_for(now, facts, tried, ticket);
        let may =
            |replica: &&Replica| replica.is_open() && replica.health.admits() && ask.may_use(replica.id);
        let kept = self.claims.of(ticket).and_then(|id| self.replicas.get(id)).filter(may);
        let nearest = || {
            let candidates = self.replicas.iter().filter(may);
            candidates.min_by_key(|replica| (self.part_to_end(replica, &ask), self.rank(replica)))
        };
        match kept.or_else(nearest).map(|replica| replica.id) {
            Some(replica) => self.claims.enter(Claim { ticket, replica }, most),
            None => self.claims.drop(ticket),
        }
    }

    /// The part of what runs on a replica that has to end until a request fits there.
    fn part_to_end(&self, replica: &Replica, ask: &Ask<'_>) -> Share {
        let load = replica.ledger.load(ask.now).0;
        let over = replica.ledger.capacity().map_or(0, |Tokens(holds)| {
            let limit = u128::from(holds) * u128::from(self.limits.load_percent) / 100;
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            load.saturating_add(ask.cost.0).saturating_sub(limit)
        });
        let of_load = Share::of(Tokens(over.min(load)), load);
        let of_places = match self.replicas.has_room(replica) {
            true => Share::default(),
            false => Share::of(Tokens(1), u64::from(replica.ledger.in_flight())),
        };
        of_load.max(of_places)
    }

    fn rank(&self, replica: &Replica) -> Rank {
        Rank { share: self.replicas.share(replica), turn: replica.turn, id: replica.id }
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
