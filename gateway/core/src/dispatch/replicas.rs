//! The replicas of one deployment as requests see them: phase, size, what is in progress there, and, in order, those
//! with a free place.
//!
//! The order is kept, not made: a request costs a few steps, however many replicas there are. Decides nothing about a
//! particular request; that is `dispatch`.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::Tokens;
use tidegate_shared::time::Instant;

use super::replica::Replica;
use crate::route::{Member, Members, Order, Rank, Share};

/// Placements of a replica, on average, of which half is forgotten.
const LATE: u64 = 64;

#[cfg(test)]
thread_local! {
    /// Replicas that were looked at one after the other by this thread.
    pub(super) static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// All replicas that are not gone.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    /// In order of id.
    list: Vec<Replica>,
    /// Open ones with a free place, least loaded first.
    ranked: Order,
    /// The mean of the concurrency limits.
    mean: u32,
    load_percent: u32,
    /// How many of the ranked are under their load limit in requests.
    under: u32,
    /// How many take only the requests of those that are at home there.
    own_only: u32,
    open: u32,
    /// Requests that the open ones take, all together.
    places: u64,
    /// How many are on their way and may become ready.
    coming: u32,
    open_weight: u128,
    open_load: u128,
    /// Placements of late, of all open ones together.
    placed: u64,
    /// Another number whenever one came or went, or may have another size.
    version: u64,
    /// Sizes are those that the engines tell, in tokens; else those declared.
    by_tokens: bool,
}

impl Replicas {
    /// None yet; each will take `mean` requests at a time, its share by size, and is over its load limit from
    /// `load_percent` of them.
    pub(super) fn new(mean: u32, load_percent: u32) -> Self {
        Self {
            list: Vec::new(),
            ranked: Order::default(),
            mean: mean.max(1),
            load_percent,
            under: 0,
            own_only: 0,
            open: 0,
            places: 0,
            coming: 0,
            open_weight: 0,
            open_load: 0,
            placed: 0,
            version: 0,
            by_tokens: false,
        }
    }

    /// Each takes its share of another mean from now on.
    pub(super) fn set_mean(&mut self, now: Instant, mean: u32) {
        self.mean = mean.max(1);
        self.reorder(now);
    }

    /// The replica `id`.
    pub(super) fn get(&self, id: ReplicaId) -> Option<&Replica> {
        self.position(id).ok().and_then(|at| self.list.get(at))
    }

    /// Adds a replica, or does nothing when it is known.
    pub(super) fn insert(&mut self, now: Instant, replica: Replica) {
        if let Err(at) = self.position(replica.id) {
            self.list.insert(at, replica);
            self.reorder(now);
        }
    }

    /// Changes phase, size or trust of a replica; nothing happens when it is not known.
    pub(super) fn update(&mut self, now: Instant, id: ReplicaId, change: impl FnOnce(&mut Replica)) {
        if let Some(replica) = self.position(id).ok().and_then(|at| self.list.get_mut(at)) {
            change(replica);
            self.reorder(now);
        }
    }

    /// Changes the account or the turn of a replica, and its place in the order with it.
    pub(super) fn account<R>(
        &mut self,
        now: Instant,
        id: ReplicaId,
        change: impl FnOnce(&mut Replica) -> R,
    ) -> Option<R> {
        let at = self.position(id).ok()?;
        let replica = self.list.get_mut(at)?;
        let capacity = replica.ledger.capacity();
        let result = change(replica);
        if replica.ledger.capacity() == capacity {
            self.rerank(now, at);
        } else {
            self.reorder(now);
        }
        Some(result)
    }

    /// Forgets a replica and gives what is left of it.
    pub(super) fn remove(&mut self, now: Instant, id: ReplicaId) -> Option<Replica> {
        let at = self.position(id).ok()?;
        let gone = self.list.remove(at);
        self.reorder(now);
        Some(gone)
    }

    /// All of them, in order of id. Nothing that each request asks for may come here: there may be thousands.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Replica> {
        let all = self.list.iter();
        #[cfg(test)]
        let all = all.inspect(|_| LOOKED_AT.set(LOOKED_AT.get() + 1));
        all
    }

    /// Open ones with a free place, least loaded first, by [`Rank`].
    pub(super) fn ranked(&self) -> &Order {
        &self.ranked
    }

    /// How many take requests.
    pub(super) fn ready(&self) -> u32 {
        self.open
    }

    /// How many were ordered, are not ready yet, and may become so.
    pub(super) fn on_their_way(&self) -> u32 {
        self.coming
    }

    /// Those that were ordered, are not ready yet, and may become so. Latest first, for they are among the latest: no
    /// more of the others are looked at than came after them, and none when there are none.
    pub(super) fn coming(&self) -> impl Iterator<Item = &Replica> {
        let coming = usize::try_from(self.coming).unwrap_or(usize::MAX);
        let all = self.list.iter().rev();
        #[cfg(test)]
        let all = all.inspect(|_| LOOKED_AT.set(LOOKED_AT.get() + 1));
        all.filter(|replica| replica.may_come()).take(coming)
    }

    /// Whether some replica takes only the requests of those that are at home there; it is in no order.
    pub(super) fn any_own_only(&self) -> bool {
        self.own_only > 0
    }

    /// Requests that the open replicas take at a time, all together.
    pub(super) fn places(&self) -> u64 {
        self.places
    }

    /// Those that a policy may pick from, by their place in the list.
    pub(super) fn members(&self) -> Members<'_> {
        Members { count: self.list.len(), at: self, version: self.version }
    }

    /// Whether a replica has a free place and is under its load limit in requests (R4).
    pub(super) fn is_under_in_places(&self, replica: &Replica) -> bool {
        replica.has_room() && self.is_below_limit(replica)
    }

    fn is_below_limit(&self, replica: &Replica) -> bool {
        let (used, limit) = (replica.ledger.in_flight(), replica.limit);
        u64::from(used) * 100 < u64::from(limit) * u64::from(self.load_percent)
    }

    /// Whether any with a free place is. Told without looking at each, for it is asked most when none is.
    pub(super) fn any_under_in_places(&self) -> bool {
        self.under > 0
    }

    /// Its share by size of the requests that all take, rounded up, at least 1 (Q1).
    fn limit_of(&self, replica: &Replica) -> u32 {
        if self.open_weight == 0 {
            return self.mean;
        }
        let share = u128::from(self.mean) * u128::from(self.open) * u128::from(self.weight(replica));
        u32::try_from(share.div_ceil(self.open_weight)).unwrap_or(u32::MAX).max(1)
    }

    /// The sizes of the open ones, added up.
    pub(super) fn open_weight(&self) -> u128 {
        self.open_weight
    }

    /// The size of a replica, in the unit that all of them are compared in.
    pub(super) fn weight(&self, replica: &Replica) -> u64 {
        match replica.ledger.capacity() {
            Some(Tokens(tokens)) if self.by_tokens => tokens,
            _ => u64::from(replica.capacity.units()),
        }
    }

    /// How full a replica is, as last accounted.
    pub(super) fn share(&self, replica: &Replica) -> Share {
        Share::of(Tokens(replica.load), self.weight(replica))
    }

    /// Where it stands, as last accounted.
    pub(super) fn rank_of(&self, replica: &Replica) -> Rank {
        Rank::of(Tokens(replica.load), self.weight(replica), replica.turn, replica.id)
    }

    /// How full the open ones are, all together.
    pub(super) fn mean_share(&self) -> Share {
        let load = u64::try_from(self.open_load).unwrap_or(u64::MAX);
        Share::of(Tokens(load), u64::try_from(self.open_weight).unwrap_or(u64::MAX))
    }

    /// How full `tokens` make an open one of mean size.
    pub(super) fn mean_share_of(&self, tokens: Tokens) -> Share {
        let load = tokens.0.saturating_mul(u64::from(self.open.max(1)));
        Share::of(Tokens(load), u64::try_from(self.open_weight).unwrap_or(u64::MAX))
    }

    /// A replica gets a placement. Half of all is forgotten now and then, so that only late ones count.
    pub(super) fn placed(&mut self, id: ReplicaId) {
        if let Some(replica) = self.position(id).ok().and_then(|at| self.list.get_mut(at)) {
            replica.placed += 1;
            self.placed += 1;
        }
        if self.placed >= LATE * u64::from(self.open.max(1)) {
            self.list.iter_mut().for_each(|replica| replica.placed /= 2);
            let open = self.list.iter().filter(|replica| replica.is_open());
            self.placed = open.map(|replica| replica.placed).sum();
        }
    }

    /// Whether one placement more leaves a replica within `percent` of its share of late ones, or ahead of it by one.
    pub(super) fn may_have_more(&self, replica: &Replica, percent: u32) -> bool {
        let share = u128::from(self.placed + 1) * u128::from(self.weight(replica));
        let with = u128::from(replica.placed + 1) * self.open_weight;
        with * 100 <= share * u128::from(percent) || with <= share + self.open_weight
    }

    fn position(&self, id: ReplicaId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |replica| replica.id)
    }

    /// The fleet changed: sizes, limits and the whole order are made anew. Declared sizes count where any differs from
    /// the others; where all are the same, the engines' own figures do, if all told theirs (R3).
    fn reorder(&mut self, now: Instant) {
        self.version += 1;
        let all: Vec<&Replica> = self.list.iter().filter(|replica| replica.is_open_to_own()).collect();
        let same = all.windows(2).all(|pair| matches!(pair, [a, b] if a.capacity == b.capacity));
        self.by_tokens =
            same && !all.is_empty() && all.iter().all(|replica| replica.ledger.capacity().is_some());
        self.own_only = u32::try_from(all.iter().filter(|known| known.own_only).count()).unwrap_or(u32::MAX);
        let open: Vec<&Replica> = all.into_iter().filter(|replica| replica.is_open()).collect();
        self.open = u32::try_from(open.len()).unwrap_or(u32::MAX);
        self.open_weight = open.iter().map(|replica| u128::from(self.weight(replica))).sum();
        self.placed = open.iter().map(|replica| replica.placed).sum();
        for at in 0..self.list.len() {
            let Some(limit) = self.list.get(at).map(|replica| self.limit_of(replica)) else { continue };
            if let Some(replica) = self.list.get_mut(at) {
                replica.limit = limit;
            }
        }
        let open = self.list.iter().filter(|replica| replica.is_open());
        self.places = open.map(|replica| u64::from(replica.limit)).sum();
        let coming = self.list.iter().filter(|replica| replica.may_come()).count();
        self.coming = u32::try_from(coming).unwrap_or(u32::MAX);
        self.bound_turns();
        self.ranked.clear();
        (self.open_load, self.under) = (0, 0);
        self.list.iter_mut().for_each(|replica| {
            (replica.rank, replica.load, replica.under) = (None, 0, false);
        });
        (0..self.list.len()).for_each(|at| self.rerank(now, at));
    }

    /// Nobody is ahead of the last by more than one placement of its present size. A turn that was taken at another
    /// size, in another unit above all, would else keep its replica from ever being next.
    fn bound_turns(&mut self) {
        let open = self.list.iter().filter(|replica| replica.is_open());
        let Some(last) = open.map(|replica| replica.turn).min() else { return };
        for at in 0..self.list.len() {
            let Some(weight) = self.list.get(at).map(|replica| self.weight(replica)) else { continue };
            if let Some(replica) = self.list.get_mut(at).filter(|replica| replica.is_open()) {
                replica.turn = replica.turn.min(last.after(weight));
            }
        }
    }

    fn rerank(&mut self, now: Instant, at: usize) {
        let Some(replica) = self.list.get_mut(at) else { return };
        let before = std::mem::replace(&mut replica.load, replica.ledger.load(now).0);
        if replica.is_open() {
            self.open_load = (self.open_load + u128::from(replica.load)).saturating_sub(u128::from(before));
        }
        let Some(replica) = self.list.get(at) else { return };
        let has_room = replica.is_open() && replica.has_room();
        let rank = has_room.then(|| self.rank_of(replica));
        let under = has_room && self.is_below_limit(replica);
        let Some(replica) = self.list.get_mut(at) else { return };
        let was_under = std::mem::replace(&mut replica.under, under);
        self.under = self.under + u32::from(under) - u32::from(was_under);
        match (&replica.rank, rank) {
            (Some(old), Some(new)) if *old == new => return,
            (Some(old), Some(new)) => self.ranked.replace(old, new),
            (Some(old), None) => self.ranked.remove(old),
            (None, Some(new)) => self.ranked.insert(new),
            (None, None) => return,
        }
        replica.rank = rank;
    }
}

impl Member for Replicas {
    fn id(&self, at: usize) -> Option<ReplicaId> {
        self.list.get(at).map(|replica| replica.id)
    }

    fn rank(&self, at: usize) -> Option<Rank> {
        self.list.get(at).and_then(|replica| replica.rank)
    }

    fn size(&self, at: usize) -> u64 {
        self.list.get(at).map_or(0, |replica| self.weight(replica))
    }
}
