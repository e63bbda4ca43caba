//! Where a key lies in a table.
//!
//! Keys are hashes without a secret, because gateways side by side must make the same ones (C-148); so a client can
//! find texts whose keys are whichever it wants. A table that took such keys as they are could be filled in such a way
//! that each look goes past all others, under the lock that every request takes. So each table mixes a key with a
//! number that no client knows. Decides nothing else: no decision depends on where a key lies.

use std::hash::{BuildHasher, Hasher};

use crate::rng::Rng;

/// The secret of a table. Without one it is for tests and replays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed(u64);

impl Keyed {
    /// With a secret made from `seed`, which the driver draws.
    pub fn new(seed: u64) -> Self {
        // Not the seed itself: what a policy draws from it shows in where requests go.
        Self(Rng::new(seed ^ 0x7461_626c_6573_2121).draw())
    }

    /// Where `key` lies: as good as drawn for who does not know the secret.
    pub fn place(self, key: u64) -> u64 {
        Rng::new(key ^ self.0).draw()
    }
}

impl BuildHasher for Keyed {
    type Hasher = Placing;

    fn build_hasher(&self) -> Placing {
        Placing { keyed: *self, at: 0 }
    }
}

/// See [`Keyed`]: the hasher of one key.
#[derive(Clone, Copy, Debug)]
pub struct Placing {
    keyed: Keyed,
    at: u64,
}

impl Hasher for Placing {
    fn finish(&self) -> u64 {
        self.at
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        self.at = self.keyed.place(self.at ^ key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Keys that a table without a secret would put into one place: all alike in their first and in their last bits.
    fn crafted() -> impl Iterator<Item = u64> {
        (0..4096u64).map(|n| n << 32)
    }

    #[test]
    fn h6_crafted_keys_do_not_gather_in_a_table() {
        let keyed = Keyed::new(7);
        for mask in [0xfff, 0xfff << 52] {
            let places: BTreeSet<u64> = crafted().map(|key| keyed.place(key) & mask).collect();
            // As many as drawn ones would fill: 1 - 1/e of all.
            assert!((2400..2800).contains(&places.len()), "{}", places.len());
        }
        assert!(crafted().all(|key| keyed.hash_one(key) == keyed.place(key)));
    }

    #[test]
    fn h6_no_two_tables_put_a_key_into_the_same_place() {
        let places: BTreeSet<u64> = (0..100).map(|seed| Keyed::new(seed).place(1)).collect();
        assert_eq!(places.len(), 100);
    }
}
