//! One replica of a deployment as requests see it: what is known of it, and whose requests it takes.
//!
//! Decides nothing about a particular request, nor how it stands beside the others; that is `replicas`.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Capacity, Hold, Phase};
use tidegate_shared::time::Instant;

use super::Unfit;
use crate::health::{Health, Trust};
use crate::ledger::Ledger;
use crate::route::{Rank, Turn};
use crate::slow_start::SlowStart;

/// One replica.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    /// Which one.
    pub(super) id: ReplicaId,
    /// Its phase.
    pub(super) phase: Phase,
    /// Since when it is in that phase.
    pub(super) since: Instant,
    /// When it was ordered, first seen, or last to be woken.
    pub(super) ordered: Instant,
    /// Its size as declared.
    pub(super) capacity: Capacity,
    /// What is in progress there.
    pub(super) ledger: Ledger,
    /// A request could not even connect: it takes none until somebody has looked.
    pub(super) suspect: bool,
    /// Nothing listens there: what was at home there has none, unless the next probe finds it well.
    pub(super) refused: bool,
    /// It was ready at least once, or would have been, had it not drained.
    pub(super) loaded: bool,
    /// Its probe gave up on it, in whatever phase, and has not taken that back.
    pub(super) down: bool,
    /// Why it cannot serve, and since when that is known; only while it is not ready.
    pub(super) unfit: Option<(Unfit, Instant)>,
    /// It is failed, and was never more than slow.
    pub(super) slow: bool,
    /// Whether an operator holds it (A1).
    pub(super) hold: Option<Hold>,
    /// Somebody takes it out: it drains as soon as it could serve, however it came to that (C5).
    pub(super) out: bool,
    /// It takes the requests of conversations that are at home there, and no others (C-129).
    pub(super) own_only: bool,
    /// How its exchanges went.
    pub(super) health: Health,
    /// It joined a fleet at work (C-040).
    pub(super) slow_start: Option<SlowStart>,
    /// Its turn among equals.
    pub(super) turn: Turn,
    /// Placements that it had of late.
    pub(super) placed: u64,
    /// Its load when it was last accounted.
    pub(super) load: u64,
    /// Its place in the order, while it is in it.
    pub(super) rank: Option<Rank>,
    /// Requests that it takes at a time (Q1): its share by size of what all of them take.
    pub(super) limit: u32,
    /// Whether it is in the order and under its load limit in requests.
    pub(super) under: bool,
}

impl Replica {
    /// Whether it drains and nothing runs there.
    pub(super) fn is_drained(&self) -> bool {
        self.phase == Phase::Draining && self.ledger.in_flight() == 0
    }

    /// One that was ordered just now.
    pub(super) fn new(now: Instant, id: ReplicaId, phase: Phase, capacity: Capacity, turn: Turn) -> Self {
        Self {
            id,
            phase,
            since: now,
            ordered: now,
            capacity,
            ledger: Ledger::default(),
            suspect: false,
            refused: false,
            loaded: false,
            down: false,
            unfit: None,
            slow: false,
            hold: None,
            out: false,
            own_only: false,
            health: Health::default(),
            slow_start: None,
            turn,
            placed: 0,
            load: 0,
            rank: None,
            limit: 1,
            under: false,
        }
    }

    /// Whether it takes requests of anybody.
    pub(super) fn is_open(&self) -> bool {
        self.is_open_to_own() && !self.own_only
    }

    /// Whether it takes requests of conversations that are at home there.
    pub(super) fn is_open_to_own(&self) -> bool {
        let aside = self.hold == Some(Hold::Aside);
        self.is_there() && !aside && !matches!(self.health.trust(), Trust::Out { .. })
    }

    /// Whether it could take requests of anybody, had it always answered well.
    pub(super) fn is_present(&self) -> bool {
        self.is_there() && !self.own_only
    }

    /// Whether it has a free place for those whose requests it takes (Q1); on trial it has one.
    pub(super) fn has_room(&self) -> bool {
        self.is_open_to_own()
            && self.health.admits()
            && (self.health.is_on_trial() || self.ledger.in_flight() < self.limit)
    }

    fn is_there(&self) -> bool {
        self.phase == Phase::Ready && !self.suspect
    }

    /// Whether it was ordered, or is being woken, and is not ready yet.
    pub(super) fn is_on_its_way(&self) -> bool {
        matches!(self.phase, Phase::Provisioning | Phase::Starting | Phase::Waking)
    }

    /// Whether it is on its way and nothing is known that keeps it from becoming ready.
    pub(super) fn may_come(&self) -> bool {
        self.is_on_its_way() && self.unfit.is_none()
    }
}
