//! The order of the replicas with a free place: a set of ranks in which one can take another's place at the cost of a few
//! steps, however many there are.
//!
//! Few lie in a list, in which a rank that changes moves past its neighbours; many in a tree.

use std::collections::BTreeSet;

use super::Rank;

/// More than so many lie in a tree, and go back into the list when half as many are left.
const FEW: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// All of them, sorted, unless they are many.
    few: Vec<Rank>,
    /// All of them, if they are many.
    many: BTreeSet<Rank>,
}

impl Order {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// The least.
    pub fn first(&self) -> Option<&Rank> {
        self.few.first().or_else(|| self.many.first())
    }

    /// All of them, the least first.
    pub fn iter(&self) -> impl Iterator<Item = &Rank> {
        self.few.iter().chain(&self.many)
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
    }

    /// Adds one, or does nothing when it is there.
    pub fn insert(&mut self, rank: Rank) {
        if self.many.is_empty() && self.few.len() < FEW {
            if let Err(place) = self.few.binary_search(&rank) {
                self.few.insert(place, rank);
            }
            return;
        }
        self.many.extend(self.few.drain(..));
        self.many.insert(rank);
    }

    /// Drops one; does nothing when it is not there.
    pub fn remove(&mut self, rank: &Rank) {
        if let Ok(place) = self.few.binary_search(rank) {
            self.few.remove(place);
        } else if self.many.remove(rank) && self.many.len() <= FEW / 2 {
            self.few.extend(std::mem::take(&mut self.many));
        }
    }

    /// `new` comes in place of `old`, which is of the same replica and must be there.
    pub fn replace(&mut self, old: &Rank, new: Rank) {
        let list = &mut self.few;
        let Some(mut place) = list.iter().position(|rank| rank.id == old.id) else {
            self.many.remove(old);
            self.many.insert(new);
            return;
        };
        list.iter_mut().skip(place).take(1).for_each(|rank| *rank = new);
        while place > 0 && list.get(place - 1).is_some_and(|before| *before > new) {
            list.swap(place - 1, place);
            place -= 1;
        }
        while list.get(place + 1).is_some_and(|after| *after < new) {
            list.swap(place, place + 1);
            place += 1;
        }
    }
}

impl FromIterator<Rank> for Order {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let mut order = Self::default();
        ranks.into_iter().for_each(|rank| order.insert(rank));
        order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use tidegate_shared::id::ReplicaId;
    use tidegate_shared::request::Tokens;

    use super::*;
    use crate::route::Turn;

    proptest! {
        /// Whatever comes, goes and changes, it holds what a set of the standard library does, in the same order.
        #[test]
        fn r3_it_is_a_sorted_set(
            steps in prop::collection::vec((0u8..3, 1u32..25, 0u64..20), 1..800),
        ) {
            let (mut order, mut set) = (Order::default(), BTreeSet::new());
            let mut known = std::collections::BTreeMap::new();
            for (step, (what, id, load)) in steps.into_iter().enumerate() {
                // It becomes many and few again by turns.
                let shrinks = step / 100 % 2 == 1;
                let rank = Rank::of(Tokens(load), 1, Turn::default(), ReplicaId(id));
                match (known.remove(&id), what) {
                    (Some(old), what) if (what > 0) == shrinks => {
                        order.remove(&old);
                        set.remove(&old);
                    }
                    (Some(old), _) => {
                        order.replace(&old, rank);
                        set.remove(&old);
                        set.insert(rank);
                        known.insert(id, rank);
                    }
                    (None, what) if shrinks && what > 0 => {}
                    (None, _) => {
                        order.insert(rank);
                        set.insert(rank);
                        known.insert(id, rank);
                    }
                }
                prop_assert_eq!(order.first(), set.first());
                prop_assert_eq!(order.is_empty(), set.is_empty());
                prop_assert!(order.few.len() <= FEW && (order.few.is_empty() || order.many.is_empty()));
            }
            prop_assert!(order.iter().eq(set.iter()));
            order.clear();
            prop_assert_eq!(order.first(), None);
        }
    }
}
