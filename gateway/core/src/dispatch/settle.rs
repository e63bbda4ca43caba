//! After growth: which conversations get a new home on a replica that has just come (R2, R3, C-040).
//!
//! New conversations find a newcomer by themselves. But those that were there before would stay where they are for ever,
//! and a crowd that waited for the first replica all lives on it. So, while a newcomer is short of its share of homes, the
//! next turn of a conversation may move there from a home that has more than its share, where little is lost by it:
//!
//! - its cache there is probably cold, since it was idle for [`COLD`];
//! - or prefilling its prompt anew is measured to take no longer than [`CHEAP`];
//! - or it was opened by the crowd of a cold start that this growth belongs to ([`CROWD`]): it has one prefill to lose;
//! - or its home is over its load limit, and the prompt would be prefilled elsewhere anyway (R4).
//!
//! It ends by itself: each move brings the newcomer closer to its share, a conversation moves once for each growth, and
//! a fleet whose homes are in balance when a replica comes begins nothing. Moves are spaced, so that newcomers spend half
//! of their time on them at most; those that would detour anyway cost nothing and need no spacing.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::RequestFacts;
use tidegate_shared::time::{Duration, Instant};

use super::Dispatcher;
use super::place::{Ask, BALANCE};
use super::replica::Replica;
use crate::conversation::Found;

/// Idle for longer, a conversation is taken to have lost its cache: hosted APIs keep theirs for five to ten minutes.
const COLD: Duration = Duration::from_secs(5 * 60);
/// A prefill that hardly anybody notices.
const CHEAP: Duration = Duration::from_millis(200);
/// Replicas that come within this time of the first one belong to the same cold start.
const CROWD: Duration = Duration::from_secs(60);
/// Time between two moves: twice what the last one takes to prefill, within these; the first of them where that was never
/// measured.
const GAP: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// What is remembered of the last growth.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    /// Replicas that came and are short of their share of homes.
    newcomers: Vec<ReplicaId>,
    /// The growth with which the last cold start began, and until when others belong to it.
    crowd_from: u32,
    crowd_until: Instant,
    /// When the next conversation may move.
    next: Instant,
}

impl Settling {
    pub(super) fn new(now: Instant) -> Self {
        Self { newcomers: Vec::new(), crowd_from: 0, crowd_until: now, next: now }
    }
}

/// Homes against sizes, over all open replicas.
struct Sums {
    homes: u128,
    weight: u128,
}

impl Dispatcher {
    /// A replica takes requests for the first time; `first`: it is the only one.
    pub(super) fn grew(&mut self, now: Instant, id: ReplicaId, first: bool) {
        let growth = self.conversations.grew();
        if first {
            self.settling.crowd_until = now + CROWD;
        }
        if first || now > self.settling.crowd_until {
            self.settling.crowd_from = growth;
        }
        let sums = self.sums();
        let overfull = |replica: &Replica| {
            let homes = u128::from(self.conversations.at(replica.id));
            let share = sums.homes * u128::from(self.replicas.weight(replica));
            replica.is_open() && homes * sums.weight * 100 > share * u128::from(BALANCE)
        };
        let begins = self.replicas.iter().any(overfull);
        self.prune(&sums);
        if begins && self.is_short(id, &sums) {
            self.settling.newcomers.push(id);
        }
    }

    /// The newcomer that a conversation moves to with this turn, if it moves.
    pub(super) fn newcomer(
        &self,
        ask: &Ask<'_>,
        facts: &RequestFacts,
        found: Found,
        home: &Replica,
    ) -> Option<ReplicaId> {
        if self.settling.newcomers.is_empty() || !ask.tried.is_empty() {
            return None;
        }
        let sheds = !self.bounds().is_under(home, ask);
        let spaced = sheds || ask.now >= self.settling.next;
        if !spaced || !found.may_settle() || !(sheds || self.is_cheap_to_move(facts, found)) {
            return None;
        }
        let sums = self.sums();
        let homes = |replica: &Replica| u128::from(self.conversations.at(replica.id));
        let weight = |replica: &Replica| u128::from(self.replicas.weight(replica));
        if home.own_only || homes(home) * sums.weight <= sums.homes * weight(home) {
            return None;
        }
        let known = self.settling.newcomers.iter().filter_map(|id| self.replicas.get(*id));
        let good = known.filter(|newcomer| {
            // Afterwards the old home is still no emptier than the new one.
            let better = (homes(home) - 1) * weight(newcomer) >= (homes(newcomer) + 1) * weight(home);
            let open = newcomer.id != home.id && newcomer.is_open() && self.bounds().is_free(newcomer, ask);
            open && better && self.is_short(newcomer.id, &sums)
        });
        // The emptiest by size: a/w < b/v where a·v < b·w.
        let emptier = |a: &&Replica, b: &&Replica| {
            (homes(a) * weight(b)).cmp(&(homes(b) * weight(a))).then(a.id.cmp(&b.id))
        };
        good.min_by(emptier).map(|newcomer| newcomer.id)
    }

    /// Whoever came and has its share by now is done with, for good: what comes and goes later moves nobody.
    pub(super) fn settle(&mut self) {
        if !self.settling.newcomers.is_empty() {
            let sums = self.sums();
            self.prune(&sums);
        }
    }

    /// A conversation has moved to a newcomer.
    pub(super) fn moved(&mut self, now: Instant, facts: &RequestFacts) {
        let prefill = self.estimate.prefill(self.estimate.prompt(facts));
        let gap = prefill.map_or(GAP.0, |prefill| prefill.saturating_mul(2).clamp(GAP.0, GAP.1));
        self.settling.next = now + gap;
    }

    fn is_cheap_to_move(&self, facts: &RequestFacts, found: Found) -> bool {
        let prefill = self.estimate.prefill(self.estimate.prompt(facts));
        let crowd = found.settled() >= self.settling.crowd_from;
        crowd || found.idle() >= COLD || prefill.is_some_and(|prefill| prefill <= CHEAP)
    }

    /// Whether one home more leaves a replica within its share.
    fn is_short(&self, id: ReplicaId, sums: &Sums) -> bool {
        let Some(replica) = self.replicas.get(id) else { return false };
        let homes = u128::from(self.conversations.at(id)) + 1;
        homes * sums.weight <= sums.homes * u128::from(self.replicas.weight(replica))
    }

    /// Newcomers that have their share, or are gone, are newcomers no more.
    fn prune(&mut self, sums: &Sums) {
        let mut newcomers = std::mem::take(&mut self.settling.newcomers);
        newcomers.retain(|id| self.is_short(*id, sums));
        self.settling.newcomers = newcomers;
    }

    fn sums(&self) -> Sums {
        let open = || self.replicas.iter().filter(|replica| replica.is_open());
        Sums {
            homes: open().map(|replica| u128::from(self.conversations.at(replica.id))).sum(),
            weight: open().map(|replica| u128::from(self.replicas.weight(replica))).sum(),
        }
    }
}
