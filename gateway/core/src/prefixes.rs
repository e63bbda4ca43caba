//! Which replicas hold the beginning of which prompts (R6): system prompts and few-shot examples that many conversations
//! share.
//!
//! So are prompts that many ask as they are, once it is known that they are shared ([`Prefixes::hold_whole`]).
//!
//! Bounded by two generations: what was not used while one filled is forgotten with it. Knows no load; whether a holder
//! is taken is for `dispatch` to say.

use hashbrown::HashMap;
use smallvec::SmallVec;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::keyed::Keyed;
use tidegate_shared::request::ConversationKey;

/// Holders remembered for one beginning; the oldest goes first.
const HOLDERS: usize = 8;

type Holders = SmallVec<[ReplicaId; HOLDERS]>;
type Generation = HashMap<u64, Holders, Keyed>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Prefixes {
    young: Generation,
    old: Generation,
    half: usize,
}

impl Prefixes {
    /// At most `max` beginnings.
    pub fn new(max: u32) -> Self {
        let half = usize::try_from(max / 2).unwrap_or(usize::MAX).max(1);
        Self { young: Generation::default(), old: Generation::default(), half }
    }

    /// The same, still empty, with a secret made from `seed`.
    pub fn keyed(self, seed: u64) -> Self {
        let empty = || Generation::with_hasher(Keyed::new(seed));
        Self { young: empty(), old: empty(), ..self }
    }

    /// The beginnings of a prompt that are remembered and looked up: after 1, 2, 4, 8, … boundaries, so that long
    /// prompts cost little; never the whole prompt, which is the conversation's own.
    fn beginnings(chain: &[ConversationKey]) -> impl DoubleEndedIterator<Item = u64> {
        let last = chain.len().saturating_sub(1);
        let steps: SmallVec<[u64; 16]> = std::iter::successors(Some(1usize), |n| n.checked_mul(2))
            .take_while(|n| *n <= last)
            .filter_map(|n| chain.get(n - 1))
            .map(|key| key.0)
            .collect();
        steps.into_iter()
    }

    /// The replicas that hold the beginnings of the prompt, those of the longest known one first, and of one the latest
    /// first. `shared` is a part of the prompt that others have asked as a whole, where one is known.
    pub fn by_length<'a>(
        &'a self,
        chain: &[ConversationKey],
        shared: Option<ConversationKey>,
    ) -> impl Iterator<Item = &'a [ReplicaId]> {
        let known = |key: u64| self.young.get(&key).or_else(|| self.old.get(&key));
        let shared = shared.map(|key| key.0);
        shared.into_iter().chain(Self::beginnings(chain).rev()).filter_map(known).map(|holders| &**holders)
    }

    /// `replica` is about to hold the prompt.
    pub fn hold(&mut self, chain: &[ConversationKey], replica: ReplicaId) {
        Self::beginnings(chain).for_each(|key| self.hold_one(key, replica));
    }

    /// `replica` holds a whole prompt, `key`, that is shared.
    pub fn hold_whole(&mut self, key: ConversationKey, replica: ReplicaId) {
        self.hold_one(key.0, replica);
    }

    fn hold_one(&mut self, key: u64, replica: ReplicaId) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            let empty = Generation::with_hasher(*self.young.hasher());
            self.old = std::mem::replace(&mut self.young, empty);
        }
        let old = &mut self.old;
        let holders = self.young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or_default());
        holders.retain(|holder| *holder != replica);
        holders.truncate(HOLDERS - 1);
        holders.insert(0, replica);
    }

    /// `replica` holds nothing any more. Goes through all that is remembered, and so is for what is rare.
    pub fn forget(&mut self, replica: ReplicaId) {
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|_, holders| {
                holders.retain(|holder| *holder != replica);
                !holders.is_empty()
            });
        }
    }

    /// Beginnings remembered.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(keys: &[u64]) -> Vec<ConversationKey> {
        keys.iter().map(|key| ConversationKey(*key)).collect()
    }

    fn longest<'a>(prefixes: &'a Prefixes, keys: &[u64]) -> Option<&'a [ReplicaId]> {
        prefixes.by_length(&chain(keys), None).next()
    }

    #[test]
    fn r6_the_longest_known_beginning_counts_and_the_whole_prompt_does_not() {
        let mut prefixes = Prefixes::new(100);
        prefixes.hold(&chain(&[1, 2, 3]), ReplicaId(1));
        prefixes.hold(&chain(&[1, 9]), ReplicaId(2));
        assert_eq!(longest(&prefixes, &[1, 2, 4]), Some(&[ReplicaId(1)][..]), "after two messages");
        assert_eq!(longest(&prefixes, &[1, 5]), Some(&[ReplicaId(2), ReplicaId(1)][..]));
        assert_eq!(longest(&prefixes, &[1]), None, "a whole prompt is a conversation, not a beginning");
        assert_eq!(longest(&prefixes, &[7, 8]), None);
    }

    #[test]
    fn r6_a_whole_prompt_counts_once_it_is_shared_and_shorter_beginnings_after_it() {
        let mut prefixes = Prefixes::new(100);
        prefixes.hold(&chain(&[1, 2]), ReplicaId(1));
        prefixes.hold_whole(ConversationKey(2), ReplicaId(2));
        let known: Vec<&[ReplicaId]> =
            prefixes.by_length(&chain(&[1, 2, 3]), Some(ConversationKey(2))).collect();
        assert_eq!(known.first(), Some(&&[ReplicaId(2)][..]));
        assert_eq!(known.last(), Some(&&[ReplicaId(1)][..]));
    }

    #[test]
    fn c6_r6_who_has_lost_its_cache_holds_nothing_and_others_hold_on() {
        let mut prefixes = Prefixes::new(4);
        for key in 1..=4 {
            prefixes.hold(&chain(&[key, 0]), ReplicaId(1));
        }
        prefixes.hold(&chain(&[4, 9]), ReplicaId(2));
        assert_eq!(prefixes.len(), 4, "over both generations");
        prefixes.forget(ReplicaId(1));
        assert_eq!((longest(&prefixes, &[4, 0]), prefixes.len()), (Some(&[ReplicaId(2)][..]), 1));
        prefixes.hold(&chain(&[1, 0]), ReplicaId(1));
        assert_eq!(longest(&prefixes, &[1, 7]), Some(&[ReplicaId(1)][..]), "what it holds anew");
    }

    #[test]
    fn r7_beginnings_are_bounded_and_those_in_use_stay() {
        let mut prefixes = Prefixes::new(64);
        for key in 10..10_000 {
            prefixes.hold(&chain(&[key, 0]), ReplicaId(1));
            prefixes.hold(&chain(&[1, key]), ReplicaId(2));
            assert!(prefixes.len() <= 64);
        }
        assert_eq!(longest(&prefixes, &[1, 0]), Some(&[ReplicaId(2)][..]));
        assert_eq!(longest(&prefixes, &[11, 0]), None);
    }
}
