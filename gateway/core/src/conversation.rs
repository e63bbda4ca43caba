//! Which replica is the home of which conversation (R1, R2, R7): a bounded table with least-recent-use eviction.
//!
//! Knows nothing of loads or phases: whether a home is still good is for `dispatch` to say. A conversation is found
//! under its newest key and under the one before, so that a regenerated answer still finds it; it costs 40 bytes plus
//! at most 2 × 10 bytes of index. How often the fleet grew is counted here, since a conversation remembers during which
//! growth it got its home.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::keyed::Keyed;
use tidegate_shared::request::ConversationKey;
use tidegate_shared::time::{Duration, Instant};

const NIL: u32 = u32::MAX;

/// A conversation in the table.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    before: Option<std::num::NonZeroU64>,
    home: ReplicaId,
    /// Whole milliseconds since the origin of the clock, modulo nothing: 49 days of idleness are beyond every limit.
    used_ms: u32,
    newer: u32,
    older: u32,
    /// The growth during which it got its home.
    settled: u32,
}

/// Where a conversation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    slot: u32,
    /// Its home.
    pub home: ReplicaId,
    /// Found under its newest key; else the request forks off an earlier turn.
    newest: bool,
    /// For how long nothing was heard of it.
    idle: Duration,
    settled: u32,
    /// It has its home from before the last growth.
    older: bool,
}

impl Found {
    /// For how long nothing was heard of it.
    pub fn idle(&self) -> Duration {
        self.idle
    }

    /// The growth during which it got its home.
    pub fn settled(&self) -> u32 {
        self.settled
    }

    /// Whether it may get another home while the one it has is well: not before the fleet has grown since it got that
    /// one, and not where the request forks off it.
    pub fn may_settle(&self) -> bool {
        self.newest && self.older
    }
}

/// Conversation → home.
#[derive(Debug)]
pub struct Conversations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// `slot × 2`, plus 1 where the entry stands for `before`.
    index: HashTable<u32>,
    keyed: Keyed,
    newest: u32,
    oldest: u32,
    count: u32,
    homes: BTreeMap<ReplicaId, u32>,
    max: u32,
    idle: Duration,
    /// How often the fleet grew.
    growth: u32,
}

impl Conversations {
    /// A table of at most `max` conversations (at least 1), each forgotten after `idle` without a request.
    pub fn new(max: u32, idle: Duration) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            keyed: Keyed::default(),
            newest: NIL,
            oldest: NIL,
            count: 0,
            homes: BTreeMap::new(),
            max: max.clamp(1, NIL / 2),
            idle,
            growth: 0,
        }
    }

    /// The same, still empty, with a secret made from `seed`.
    pub fn keyed(self, seed: u64) -> Self {
        Self { keyed: Keyed::new(seed), ..self }
    }

    /// The fleet grew. Gives how often it did so far.
    pub fn grew(&mut self) -> u32 {
        self.growth = self.growth.saturating_add(1);
        self.growth
    }

    /// Conversations remembered now.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Conversations at home on `replica`.
    pub fn at(&self, replica: ReplicaId) -> u32 {
        self.homes.get(&replica).copied().unwrap_or(0)
    }

    /// The conversation under `key`, unless it was idle for too long.
    pub fn find(&self, now: Instant, key: ConversationKey) -> Option<Found> {
        let found = self.known(key).filter(|found| !self.was_idle(now, *found))?;
        let used = self.slots.get(found.slot as usize)?.used_ms;
        let idle = Duration::from_millis(u64::from(millis(now).wrapping_sub(used)));
        Some(Found { idle, ..found })
    }

    /// The conversation with the longest known prefix among `chain` (first boundary first), and which boundary that is.
    pub fn find_longest(&self, now: Instant, chain: &[ConversationKey]) -> Option<(usize, Found)> {
        chain.iter().enumerate().rev().find_map(|(at, key)| Some((at, self.find(now, *key)?)))
    }

    /// A new conversation `key` with its home. An old one under the same key is replaced; the table stays within its
    /// bound by forgetting the least recently used.
    pub fn open(&mut self, now: Instant, key: ConversationKey, home: ReplicaId) {
        match self.known(key) {
            Some(found) if self.was_idle(now, found) => self.remove(found.slot),
            Some(found) if found.newest => {
                self.rehome(now, found, home);
                return;
            }
            Some(_) | None => {}
        }
        self.forget_idle(now);
        if self.count >= self.max && self.oldest != NIL {
            self.remove(self.oldest);
        }
        let (used_ms, settled) = (millis(now), self.growth);
        let fresh = Slot { key: key.0, before: None, home, used_ms, newer: NIL, older: NIL, settled };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot as usize) {
                    *place = fresh;
                }
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).unwrap_or(NIL);
                self.slots.push(fresh);
                slot
            }
        };
        self.count += 1;
        *self.homes.entry(home).or_default() += 1;
        self.link_newest(slot);
        self.insert_index(key.0, slot * 2);
    }

    /// The conversation goes on under `key` at the same home: a later turn. A fork of an earlier turn becomes a
    /// conversation of its own.
    pub fn advance(&mut self, now: Instant, found: Found, key: ConversationKey) {
        if !found.newest {
            self.touch(now, found.slot);
            self.open(now, key, found.home);
            return;
        }
        self.touch(now, found.slot);
        let Some(slot) = self.slots.get_mut(found.slot as usize) else { return };
        if slot.key == key.0 {
            return;
        }
        let (last, dropped) = (slot.key, slot.before);
        slot.key = key.0;
        slot.before = std::num::NonZeroU64::new(last);
        let kept = slot.before.is_some();
        self.remove_index(last, found.slot * 2);
        if let Some(dropped) = dropped {
            self.remove_index(dropped.get(), found.slot * 2 + 1);
        }
        if kept {
            self.insert_index(last, found.slot * 2 + 1);
        }
        self.insert_index(key.0, found.slot * 2);
    }

    /// The conversation has a new home (R5).
    pub fn rehome(&mut self, now: Instant, found: Found, home: ReplicaId) -> Found {
        self.touch(now, found.slot);
        if let Some(slot) = self.slots.get_mut(found.slot as usize) {
            slot.settled = self.growth;
            let old = std::mem::replace(&mut slot.home, home);
            self.leave(old);
            *self.homes.entry(home).or_default() += 1;
        }
        Found { home, ..found }
    }

    /// The conversation under `key`, however long ago it was used.
    fn known(&self, key: ConversationKey) -> Option<Found> {
        let entry = *self.index.find(self.keyed.place(key.0), |entry| self.key_of(*entry) == Some(key.0))?;
        let Slot { home, settled, .. } = *self.slots.get((entry / 2) as usize)?;
        let (newest, older) = (entry.is_multiple_of(2), settled < self.growth);
        Some(Found { slot: entry / 2, home, newest, idle: Duration::ZERO, settled, older })
    }

    fn was_idle(&self, now: Instant, found: Found) -> bool {
        self.slots.get(found.slot as usize).is_none_or(|slot| self.is_idle(now, slot))
    }

    fn is_idle(&self, now: Instant, slot: &Slot) -> bool {
        u128::from(millis(now).wrapping_sub(slot.used_ms)) > self.idle.as_millis()
    }

    /// Forgets up to two conversations that were idle for too long: enough to keep pace with those that open.
    fn forget_idle(&mut self, now: Instant) {
        for _ in 0..2 {
            match self.slots.get(self.oldest as usize) {
                Some(slot) if self.is_idle(now, slot) => self.remove(self.oldest),
                _ => break,
            }
        }
    }

    fn leave(&mut self, home: ReplicaId) {
        if let Some(count) = self.homes.get_mut(&home) {
            *count -= 1;
            if *count == 0 {
                self.homes.remove(&home);
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        let Some(&gone) = self.slots.get(slot as usize) else { return };
        self.remove_index(gone.key, slot * 2);
        if let Some(before) = gone.before {
            self.remove_index(before.get(), slot * 2 + 1);
        }
        self.unlink(slot);
        self.leave(gone.home);
        self.free.push(slot);
        self.count -= 1;
    }

    fn key_of(&self, entry: u32) -> Option<u64> {
        let slot = self.slots.get((entry / 2) as usize)?;
        if entry.is_multiple_of(2) { Some(slot.key) } else { slot.before.map(std::num::NonZeroU64::get) }
    }

    /// A key that another conversation holds moves to this one.
    fn insert_index(&mut self, key: u64, entry: u32) {
        let Self { index, slots, keyed, .. } = self;
        let key_of = |entry: &u32| {
            let slot = slots.get((*entry / 2) as usize);
            match slot {
                Some(slot) if entry.is_multiple_of(2) => slot.key,
                Some(slot) => slot.before.map_or(0, std::num::NonZeroU64::get),
                None => 0,
            }
        };
        let place = keyed.place(key);
        if let Some(held) = index.find_mut(place, |held| key_of(held) == key) {
            *held = entry;
        } else {
            index.insert_unique(place, entry, |entry| keyed.place(key_of(entry)));
        }
    }

    fn remove_index(&mut self, key: u64, entry: u32) {
        if let Ok(held) = self.index.find_entry(self.keyed.place(key), |held| *held == entry) {
            held.remove();
        }
    }

    fn touch(&mut self, now: Instant, slot: u32) {
        if let Some(touched) = self.slots.get_mut(slot as usize) {
            touched.used_ms = millis(now);
        }
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(&Slot { newer, older, .. }) = self.slots.get(slot as usize) else { return };
        match self.slots.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = self.newest;
        if let Some(linked) = self.slots.get_mut(slot as usize) {
            linked.newer = NIL;
            linked.older = older;
        }
        match self.slots.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}

/// Truncated on purpose: only differences count.
#[expect(clippy::cast_possible_truncation, reason = "only differences modulo 2^32 ms are used")]
fn millis(now: Instant) -> u32 {
    (now.as_micros() / 1000) as u32
}

#[cfg(test)]
mod tests;
