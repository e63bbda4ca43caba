//! How full a replica may be, and whether it takes one request more (Q1, R4). Looks at one replica and never chooses.

use tidegate_shared::request::Tokens;
use tidegate_shared::time::Instant;

use super::place::Ask;
use super::replica::Replica;
use super::replicas::Replicas;
use crate::config::Limits;
use crate::slow_start::SlowStart;

/// How full a replica may be.
pub(super) struct Bounds<'a> {
    pub(super) replicas: &'a Replicas,
    pub(super) limits: &'a Limits,
    /// Requests sent so far.
    pub(super) sent: u64,
}

impl Bounds<'_> {
    /// Whether it has a free place (Q1).
    pub(super) fn has_place(&self, replica: &Replica) -> bool {
        replica.has_room()
    }

    /// Whether the request leaves it within `percent` of what its engine can hold. One that holds nothing takes
    /// anything: it has nothing better to offer later. Room that is claimed is none.
    fn holds(&self, replica: &Replica, ask: &Ask<'_>, percent: u32) -> bool {
        if ask.is_claimed(replica.id) {
            return false;
        }
        self.room_within(replica, ask.now, percent).is_some_and(|room| ask.cost <= room)
    }

    /// The largest request that leaves it within `percent` of what its engine can hold; `None` where it is beyond that
    /// already. One that works on nothing, or of which nothing is known, takes anything.
    pub(super) fn room_within(&self, replica: &Replica, now: Instant, percent: u32) -> Option<Tokens> {
        match self.limit(replica, percent) {
            Some(Tokens(limit)) if replica.ledger.in_flight() > 0 => {
                limit.checked_sub(replica.ledger.load(now).0).map(Tokens)
            }
            _ => Some(Tokens(u64::MAX)),
        }
    }

    /// The same within the load limit.
    pub(super) fn room(&self, replica: &Replica, now: Instant) -> Option<Tokens> {
        self.room_within(replica, now, self.limits.load_percent)
    }

    /// So many percent of what its engine can hold, rounded down, where that is known.
    pub(super) fn limit(&self, replica: &Replica, percent: u32) -> Option<Tokens> {
        let limit = u128::from(replica.ledger.capacity()?.0) * u128::from(percent) / 100;
        Some(Tokens(u64::try_from(limit).unwrap_or(u64::MAX)))
    }

    /// Whether it may take a request that is at home there though it is over its load limit (R4).
    pub(super) fn keeps(&self, home: &Replica, ask: &Ask<'_>) -> bool {
        !home.health.is_full(ask.now) && self.has_place(home) && self.holds(home, ask, 100)
    }

    /// Whether it is left to its own, of which the request is, and may take it at all: nobody else would.
    pub(super) fn takes_own(&self, home: &Replica, ask: &Ask<'_>) -> bool {
        home.own_only && self.fits(home, ask)
    }

    /// Whether it may take the request at all (Q1).
    pub(super) fn fits(&self, replica: &Replica, ask: &Ask<'_>) -> bool {
        self.has_place(replica) && self.holds(replica, ask, self.limits.load_percent)
    }

    /// Whether it is under its load limit, in places and in tokens (R4), and has not just said that it is full (C-032).
    pub(super) fn is_under(&self, replica: &Replica, ask: &Ask<'_>) -> bool {
        self.replicas.is_under_in_places(replica)
            && !replica.health.is_full(ask.now)
            && self.holds(replica, ask, self.limits.load_percent)
    }

    /// Whether it is that, and has not had more than it should while it warms up (C-040).
    pub(super) fn is_free(&self, replica: &Replica, ask: &Ask<'_>) -> bool {
        let (weight, all) = (self.replicas.weight(replica), self.replicas.open_weight());
        let warms_up = |start: SlowStart| start.has_enough(ask.now, self.sent, weight, all);
        !replica.slow_start.is_some_and(warms_up) && self.is_under(replica, ask)
    }

    /// Requests that must end there until it is under its limit in places, at least 1.
    pub(super) fn over_by(&self, replica: &Replica) -> u64 {
        let limit = u64::from(replica.limit) * u64::from(self.limits.load_percent) / 100;
        (u64::from(replica.ledger.in_flight()) + 1).saturating_sub(limit).max(1)
    }
}
