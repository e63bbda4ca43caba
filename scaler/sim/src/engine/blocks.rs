//! The KV space: who holds which blocks, and which computed blocks are kept for later prompts.
//!
//! Decides what is evicted (the least recently used idle block, tail of a chain before its head). Never holds
//! more than its capacity, and never evicts a block that a sequence holds.

use std::collections::BTreeMap;

/// What one sequence holds. Give it back with [`Blocks::release`].
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Names of the blocks that others may share, first block first.
    shared: Vec<u64>,
    /// Blocks reserved and not (yet) named.
    private: u32,
    /// Index in the chain of the first block that has not been offered for sharing.
    offered: usize,
}

#[derive(Debug)]
struct Block {
    holders: u32,
    /// Key in `idle` while nobody holds it.
    stamp: u64,
}

/// Accounts for all blocks of one engine.
#[derive(Debug)]
pub(super) struct Blocks {
    capacity: u32,
    /// Computed blocks by name (the running hash of the tokens up to their end).
    named: BTreeMap<u64, Block>,
    /// Named blocks that nobody holds, oldest first.
    idle: BTreeMap<u64, u64>,
    /// Blocks that some sequence holds.
    held: u32,
    stamp: u64,
}

impl Blocks {
    pub(super) const fn new(capacity: u32) -> Self {
        Self { capacity, named: BTreeMap::new(), idle: BTreeMap::new(), held: 0, stamp: 0 }
    }

    /// Blocks that sequences hold or have reserved.
    pub(super) const fn held(&self) -> u32 {
        self.held
    }

    /// Blocks that are kept only in case that a later prompt begins with them.
    pub(super) fn idle(&self) -> u32 {
        u32::try_from(self.idle.len()).unwrap_or(u32::MAX)
    }

    /// Reserves `total` blocks for a sequence whose prompt could reuse the named blocks of `prefix`; returns
    /// the hold and the number of blocks reused. `None`, with nothing changed, when there is no room.
    pub(super) fn reserve(&mut self, prefix: &[u64], total: u32) -> Option<(Hold, u32)> {
        let (mut hits, mut woken) = (0_u32, 0_u32);
        for block in prefix.iter().map_while(|name| self.named.get(name)) {
            hits += 1;
            woken += u32::from(block.holders == 0);
        }
        let private = total.saturating_sub(hits);
        if u64::from(self.held) + u64::from(woken) + u64::from(private) > u64::from(self.capacity) {
            return None;
        }
        let shared: Vec<u64> = prefix.iter().copied().take(hits as usize).collect();
        for name in &shared {
            if let Some(block) = self.named.get_mut(name) {
                if block.holders == 0 {
                    self.idle.remove(&block.stamp);
                }
                block.holders += 1;
            }
        }
        self.held += woken + private;
        self.evict();
        Some((Hold { offered: shared.len(), shared, private }, hits))
    }

    /// The first `computed` blocks of `chain` are computed now: whatever of them is new becomes shareable. A
    /// block that another sequence computed meanwhile stays a private double.
    pub(super) fn offer(&mut self, hold: &mut Hold, chain: &[u64], computed: usize) {
        while hold.offered < computed && hold.private > 0 {
            let Some(&name) = chain.get(hold.offered) else { return };
            hold.offered += 1;
            self.named.entry(name).or_insert_with(|| {
                hold.private -= 1;
                hold.shared.push(name);
                Block { holders: 1, stamp: 0 }
            });
        }
    }

    /// Gives everything back; named blocks that nobody else holds become idle.
    pub(super) fn release(&mut self, hold: Hold) {
        self.held -= hold.private;
        for name in hold.shared.iter().rev() {
            let Some(block) = self.named.get_mut(name) else { continue };
            block.holders -= 1;
            if block.holders == 0 {
                self.stamp += 1;
                block.stamp = self.stamp;
                self.idle.insert(self.stamp, *name);
                self.held -= 1;
            }
        }
    }

    fn evict(&mut self) {
        while self.held + self.idle() > self.capacity {
            let Some((_, name)) = self.idle.pop_first() else { return };
            self.named.remove(&name);
        }
    }
}
