//! When conversations were used: the list of them by that, and which were idle for too long (R7).
//!
//! Knows neither keys nor homes.

use tidegate_shared::time::Instant;

use super::{Conversations, Found, NIL, Slot};

impl Conversations {
    pub(super) fn was_idle(&self, now: Instant, found: Found) -> bool {
        self.slots.get(found.slot as usize).is_none_or(|slot| self.is_idle(now, slot))
    }

    fn is_idle(&self, now: Instant, slot: &Slot) -> bool {
        u128::from(millis(now).wrapping_sub(slot.used_ms)) > self.idle.as_millis()
    }

    /// Forgets up to two conversations that were idle for too long: enough to keep pace with those that open.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        for _ in 0..2 {
            match self.slots.get(self.oldest as usize) {
                Some(slot) if self.is_idle(now, slot) => self.remove(self.oldest),
                _ => break,
            }
        }
    }

    pub(super) fn touch(&mut self, now: Instant, slot: u32) {
        if let Some(touched) = self.slots.get_mut(slot as usize) {
            touched.used_ms = millis(now);
        }
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    pub(super) fn unlink(&mut self, slot: u32) {
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

    pub(super) fn link_newest(&mut self, slot: u32) {
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
pub(super) fn millis(now: Instant) -> u32 {
    (now.as_micros() / 1000) as u32
}
