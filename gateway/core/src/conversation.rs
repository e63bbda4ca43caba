//! Which replica is the home of which conversation (R1, R2, R7): a bounded table with least-recent-use eviction.
//!
//! Knows nothing of loads or phases: whether a home is still good is for `dispatch` to say. A conversation is found
//! under its newest key and the two before, so that an answer that is made anew and a question that is written anew find
//! it; it costs 48 bytes, an eighth of that to grow, and at most 3 × 12 bytes of index. How often the fleet grew is
//! counted here, since a conversation remembers during which growth it got its home.
//!
//! A key is a conversation's own until others come to it: another one opens under it, or it is taken up again more often
//! than one client does. Then it is shared, which is to say a beginning, and tells nobody's home any more (R6).

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use hashbrown::HashTable;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::keyed::Keyed;
use tidegate_shared::request::ConversationKey;
use tidegate_shared::time::{Duration, Instant};

const NIL: u32 = u32::MAX;
/// Keys of one conversation.
const KEYS: u8 = 3;
/// How often one client makes an answer anew or goes on from an earlier turn another way; beyond that, a key is shared.
const REUSES: u8 = 3;
/// The mark of a key that is shared.
const SHARED: u8 = REUSES + 1;

/// A conversation in the table.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    /// The keys of the turns before, the last one first.
    before: [Option<NonZeroU64>; KEYS as usize - 1],
    home: ReplicaId,
    /// Whole milliseconds since the origin of the clock, modulo nothing: 49 days of idleness are beyond every limit.
    used_ms: u32,
    newer: u32,
    older: u32,
    /// The growth during which it got its home.
    settled: u32,
    /// How often each of its keys was taken up again, as far as [`SHARED`].
    reused: [u8; KEYS as usize],
}

impl Slot {
    /// Its newest key at 0, those before behind it.
    fn key_at(&self, at: u32) -> Option<u64> {
        match at {
            0 => Some(self.key),
            at => self.before.get(at as usize - 1).copied().flatten().map(NonZeroU64::get),
        }
    }
}

/// Where a conversation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    slot: u32,
    /// Its home; where the key is shared, the home of one of those who share it.
    pub home: ReplicaId,
    /// What it was found under.
    pub key: ConversationKey,
    /// Under which of its keys: the newest is 0; from an earlier one, the request forks off.
    at: u8,
    shared: bool,
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
        self.at == 0 && self.older
    }

    /// Whether others came to this key too, so that it does not say who this is.
    pub fn is_shared(&self) -> bool {
        self.shared
    }
}

/// Conversation → home.
#[derive(Debug)]
pub struct Conversations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// `slot × 4`, plus which of its keys.
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
            max: max.clamp(1, NIL / 4),
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

    /// A new conversation `key` with its home; the table stays within its bound by forgetting the least recently used.
    /// Where the key is known with another home, it is shared from now on, and what is given is the home that was known.
    /// But a home among `gone` failed this very request before and is replaced.
    pub fn open(
        &mut self,
        now: Instant,
        key: ConversationKey,
        home: ReplicaId,
        gone: &[ReplicaId],
    ) -> Option<ReplicaId> {
        let mut shares = None;
        match self.known(key) {
            Some(found) if self.was_idle(now, found) => self.remove(found.slot),
            Some(found) if found.at == 0 && !found.shared && gone.contains(&found.home) => {
                self.rehome(now, found, home);
                return None;
            }
            Some(found) if !found.shared && found.home == home => {
                self.touch(now, found.slot);
                return None;
            }
            Some(found) if found.at == 0 => {
                self.touch(now, found.slot);
                self.reuse(found, SHARED);
                return Some(found.home);
            }
            Some(found) => shares = Some(found.home),
            None => {}
        }
        self.insert(now, key, home, if shares.is_some() { SHARED } else { 0 });
        shares
    }

    /// A conversation that is not known, its key taken up so often.
    fn insert(&mut self, now: Instant, key: ConversationKey, home: ReplicaId, reused: u8) {
        self.forget_idle(now);
        if self.count >= self.max && self.oldest != NIL {
            self.remove(self.oldest);
        }
        let (used_ms, settled, reused) = (millis(now), self.growth, [reused, 0, 0]);
        let fresh =
            Slot { key: key.0, before: [None; 2], home, used_ms, newer: NIL, older: NIL, settled, reused };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot as usize) {
                    *place = fresh;
                }
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).unwrap_or(NIL);
                if self.slots.len() == self.slots.capacity() {
                    // Twice as many would be 48 bytes more for each at worst.
                    self.slots.reserve_exact(self.slots.len() / 8 + 64);
                }
                self.slots.push(fresh);
                slot
            }
        };
        self.count += 1;
        *self.homes.entry(home).or_default() += 1;
        self.link_newest(slot);
        self.insert_index(key.0, slot * 4);
    }

    /// The conversation goes on under `key` at the same home: a later turn. A fork of an earlier turn becomes a
    /// conversation of its own, and the turn that it was found under, itself, is only another answer to it. Gives whether
    /// the key it was found under is shared from now on: it was taken up too often.
    pub fn advance(&mut self, now: Instant, found: Found, key: ConversationKey) -> bool {
        self.touch(now, found.slot);
        if found.key == key {
            return self.reuse(found, 1);
        }
        if found.at != 0 {
            let shared = self.reuse(found, 1);
            self.open(now, key, found.home, &[]);
            return shared;
        }
        let Some(slot) = self.slots.get_mut(found.slot as usize) else { return false };
        let old = [NonZeroU64::new(slot.key), slot.before[0], slot.before[1]];
        (slot.key, slot.before) = (key.0, [old[0], old[1]]);
        slot.reused = [0, slot.reused[0], slot.reused[1]];
        // The last one first: two keys may never be held as the same.
        for (at, old) in (0..u32::from(KEYS)).zip(old).rev() {
            let (from, last) = (found.slot * 4 + at, at + 1 == u32::from(KEYS));
            if let Some(old) = old {
                self.move_index(old.get(), from, (!last).then_some(from + 1));
            }
        }
        self.insert_index(key.0, found.slot * 4);
        false
    }

    /// Something was heard of a conversation that changes nothing.
    pub fn heard(&mut self, now: Instant, found: Found) {
        self.touch(now, found.slot);
    }

    /// A key was taken up again, `times` times. Gives whether that makes it a shared one.
    fn reuse(&mut self, found: Found, times: u8) -> bool {
        let slot = self.slots.get_mut(found.slot as usize);
        let Some(reused) = slot.and_then(|slot| slot.reused.get_mut(usize::from(found.at))) else {
            return false;
        };
        let before = *reused;
        *reused = before.saturating_add(times).min(SHARED);
        before < SHARED && *reused == SHARED
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
        let (slot, at) = (entry / 4, (entry % 4) as u8);
        let Slot { home, settled, reused, .. } = *self.slots.get(slot as usize)?;
        let shared = reused.get(usize::from(at)).is_some_and(|reused| *reused == SHARED);
        let older = settled < self.growth;
        Some(Found { slot, home, key, at, shared, idle: Duration::ZERO, settled, older })
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
        self.move_index(gone.key, slot * 4, None);
        for (before, at) in gone.before.into_iter().zip(1..) {
            before.into_iter().for_each(|before| self.move_index(before.get(), slot * 4 + at, None));
        }
        self.unlink(slot);
        self.leave(gone.home);
        self.free.push(slot);
        self.count -= 1;
    }

    fn key_of(&self, entry: u32) -> Option<u64> {
        self.slots.get((entry / 4) as usize)?.key_at(entry % 4)
    }

    /// A key that another conversation holds moves to this one.
    fn insert_index(&mut self, key: u64, entry: u32) {
        let Self { index, slots, keyed, .. } = self;
        let key_of = |entry: &u32| {
            slots.get((*entry / 4) as usize).and_then(|slot| slot.key_at(*entry % 4)).unwrap_or(0)
        };
        let place = keyed.place(key);
        if let Some(held) = index.find_mut(place, |held| key_of(held) == key) {
            *held = entry;
        } else {
            index.insert_unique(place, entry, |entry| keyed.place(key_of(entry)));
        }
    }

    /// Whoever held a key as `from` holds it as `to` now, or no more; not where another conversation took it over.
    fn move_index(&mut self, key: u64, from: u32, to: Option<u32>) {
        if let Ok(mut held) = self.index.find_entry(self.keyed.place(key), |held| *held == from) {
            match to {
                Some(to) => *held.get_mut() = to,
                None => {
                    held.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
mod used;

use used::millis;
