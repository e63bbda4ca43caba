//! Placement by a hash of the beginning of the prompt: several gateways that know nothing of each other send what
//! shares a prefix to the same replica (C-148), as long as that keeps the balance (C-095).
//!
//! Weighted rendezvous hashing: each replica gets a score for the key, by its size, and the highest wins: a replica gets
//! keys by its size (C-129), and one that comes, goes or grows moves only its own share of them.
//!
//! The winner of all scores can only be found by making all of them, so the first ones are remembered for each key: a
//! beginning that is known costs a look at one or two replicas, however many there are, a new one a score for each and
//! no more. Which replicas are passed over changes with each request and is not remembered.

use std::collections::{BTreeMap, BinaryHeap};

use smallvec::SmallVec;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::rng::Rng;

use super::{Field, Members, Policy, PolicyName, Rank};

/// A replica that is fuller than this percentage of the mean, by more than a few requests, is passed over.
const BALANCE: u32 = 125;
/// How many that is. With little to do the mean is next to nothing, and whoever works at all is over it: without the
/// allowance a sixth of all turns went to another replica on one gateway than on the next.
const FEW: u32 = 4;
/// Replicas remembered for a key. Where all of them are passed over, the scores are made again.
const FIRST: usize = 8;
/// Keys remembered: at most twice as many, and those in use stay.
const KEYS: usize = 1024;

/// Places in the list of replicas, the highest score first.
type Best = SmallVec<[u32; FIRST]>;

/// See the module. A request without a key goes to the least loaded.
#[derive(Clone, Debug, Default)]
pub struct Prefix {
    young: BTreeMap<u64, Best>,
    old: BTreeMap<u64, Best>,
    /// Of the list that the places are of.
    version: u64,
}

impl Policy for Prefix {
    fn name(&self) -> PolicyName {
        PolicyName::Prefix
    }

    /// What is remembered changes no pick.
    fn twin(&self) -> Box<dyn Policy> {
        Box::new(Self::default())
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        let best = match (field.key, field.members) {
            // The emptiest is passed over like all others.
            _ if !field.emptiest().is_some_and(|rank| is_balanced(field, &rank)) => None,
            (Some(key), Some(members)) => self.best(key.0, field, members),
            (Some(key), None) => highest(key.0, field, field.iter()),
            (None, _) => None,
        };
        best.or_else(|| field.first()).map(|rank| rank.id)
    }
}

impl Prefix {
    /// Of those that may be taken and keep the balance, the one with the highest score.
    fn best(&mut self, key: u64, field: &Field<'_>, members: Members<'_>) -> Option<Rank> {
        let good = |rank: &Rank| is_balanced(field, rank) && field.allows(rank);
        let known = self.known(key, members);
        let rank = |at: &u32| usize::try_from(*at).ok().and_then(|at| members.at.rank(at));
        if let Some(rank) = known.iter().filter_map(rank).find(good) {
            return Some(rank);
        }
        if members.count <= known.len() {
            return None;
        }
        highest(key, field, (0..members.count).filter_map(|at| members.at.rank(at)))
    }

    /// The first by score of all replicas, whether they may be taken now or not.
    fn known(&mut self, key: u64, members: Members<'_>) -> &Best {
        if self.version != members.version {
            *self = Self { version: members.version, ..Self::default() };
        }
        if self.young.len() >= KEYS && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let Self { young, old, .. } = self;
        young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or_else(|| first(key, members)))
    }
}

fn first(key: u64, members: Members<'_>) -> Best {
    let places = (0..members.count).filter_map(|at| {
        let id = members.at.id(at)?;
        Some((score(key, id, members.at.size(at)), id, u32::try_from(at).ok()?))
    });
    let mut heap: BinaryHeap<_> = places.collect();
    std::iter::from_fn(|| heap.pop()).take(FIRST).map(|(_, _, at)| at).collect()
}

/// The good one with the highest score. Whether a replica may be taken costs more than its score, and is asked from the
/// highest on.
fn highest(key: u64, field: &Field<'_>, all: impl Iterator<Item = Rank>) -> Option<Rank> {
    let balanced = all.filter(|rank| is_balanced(field, rank));
    let mut heap: BinaryHeap<_> =
        balanced.map(|rank| (score(key, rank.id, rank.size.0), rank.id, rank)).collect();
    std::iter::from_fn(|| heap.pop()).map(|(_, _, rank)| rank).find(|rank| field.allows(rank))
}

fn is_balanced(field: &Field<'_>, rank: &Rank) -> bool {
    rank.share.beyond(FEW, field.one).within(BALANCE, field.mean)
}

/// By the logarithm, the highest of scores is each replica's as often as its size is of all sizes.
fn score(key: u64, id: ReplicaId, size: u64) -> u64 {
    let drawn = Rng::new(key ^ u64::from(id.0).wrapping_mul(0xD6E8_FEB8_6659_FD93)).draw() >> 32;
    let part = (float(drawn) + 0.5) / float(1 << 32);
    // Of what is positive, the bits are in the order of the numbers.
    (float(size.max(1)) / -part.ln()).to_bits()
}

fn float(number: u64) -> f64 {
    let half = |bits: u64| f64::from(u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default());
    half(number >> 32) * 2f64.powi(32) + half(number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_shared::request::{ConversationKey, Tokens};

    use super::*;
    use crate::route::{Member, Order, Share, Turn};

    fn ranked(loads: impl IntoIterator<Item = u64>) -> Order {
        let ids = (1..).map(ReplicaId);
        let rank = |(id, load)| Rank::of(Tokens(load), 1, Turn::default(), id);
        ids.zip(loads).map(rank).collect()
    }

    fn place(ranked: &Order, key: u64) -> u32 {
        let mut field = Field::new(ranked, &|_| true);
        field.key = Some(ConversationKey(key));
        field.mean = Share::of(Tokens(100), 1);
        Prefix::default().choose(&field).unwrap().0
    }

    #[test]
    fn c_095_keys_of_every_kind_spread_evenly() {
        for count in [2u32, 3, 5, 10, 32] {
            let idle = ranked((0..count).map(|_| 0));
            let mut at = vec![0u32; count as usize];
            (0..20_000u64).for_each(|key| at[place(&idle, key) as usize - 1] += 1);
            let mean = 20_000 / count;
            assert!(at.iter().all(|n| *n * 100 <= mean * 125), "{count}: {at:?}");
        }
    }

    #[test]
    fn c_129_keys_spread_by_size_and_one_that_grows_moves_only_what_it_gains() {
        let of_sizes = |sizes: [u64; 4]| -> Order {
            let ids = (1..).map(ReplicaId);
            ids.zip(sizes).map(|(id, size)| Rank::of(Tokens(0), size, Turn::default(), id)).collect()
        };
        let (before, after) = (of_sizes([1, 3, 6, 2]), of_sizes([4, 3, 6, 2]));
        let (mut at, mut gained) = ([0u32; 4], 0);
        for key in 0..24_000 {
            let (was, is) = (place(&before, key), place(&after, key));
            at[was as usize - 1] += 1;
            gained += u32::from(is != was);
            assert!(is == was || is == 1, "{key} went from {was} to {is}");
        }
        for (at, wanted) in at.iter().zip([2_000, 6_000, 12_000, 4_000]) {
            assert!(at.abs_diff(wanted) * 20 <= wanted, "{at} of {wanted}");
        }
        // From 1 in 12 to 4 in 15.
        assert!(gained.abs_diff(4_400) <= 220, "{gained}");
    }

    #[test]
    fn c_148_every_gateway_places_the_same_and_a_newcomer_moves_only_its_share() {
        let (three, four) = (ranked([0, 0, 0]), ranked([0, 0, 0, 0]));
        let moved = (0..10_000).filter(|key| place(&three, *key) != place(&four, *key));
        let moved: Vec<_> = moved.map(|key| place(&four, key)).collect();
        assert!((2_300..2_700).contains(&moved.len()), "{}", moved.len());
        assert!(moved.iter().all(|id| *id == 4));
    }

    /// What one gateway knows: its requests in progress on each replica, and its homes.
    struct Gateway {
        load: [u64; 4],
        homes: BTreeMap<u64, usize>,
    }

    impl Gateway {
        /// The home of a conversation, which is given one if it has none here.
        fn home(&mut self, key: u64) -> usize {
            let ranked = ranked(self.load.map(|requests| requests * 100));
            let mut field = Field::new(&ranked, &|_| true);
            field.key = Some(ConversationKey(key));
            field.mean = Share::of(Tokens(self.load.iter().sum::<u64>() * 100), 4);
            field.one = Share::of(Tokens(100), 1);
            let place = || Prefix::default().choose(&field).unwrap().0 as usize - 1;
            *self.homes.entry(key).or_insert_with(place)
        }
    }

    #[test]
    fn c_148_two_gateways_send_a_conversation_to_the_same_replica() {
        for at_a_time in [1, 4, 16, 64] {
            let mut rng = Rng::new(at_a_time);
            let mut gateways = [0, 1].map(|_| Gateway { load: [0; 4], homes: BTreeMap::new() });
            let mut running: Vec<(usize, usize)> = Vec::new();
            let mut seen = vec![[0u32; 4]; 1000];
            for turn in 0..5 * 1000 {
                if running.len() as u64 >= at_a_time {
                    let (gateway, replica) = running.swap_remove(rng.below(running.len()));
                    gateways[gateway].load[replica] -= 1;
                }
                let (gateway, conversation) = (rng.below(2), turn % 1000);
                let replica = gateways[gateway].home(Rng::new(conversation as u64).draw());
                gateways[gateway].load[replica] += 1;
                running.push((gateway, replica));
                seen[conversation][replica] += 1;
            }
            let same: u32 = seen.iter().map(|turns| turns.iter().max().unwrap()).sum();
            assert!(same >= 4750, "{same} of 5000 turns, {at_a_time} at a time");
            let at = |replica: usize| seen.iter().map(|turns| turns[replica]).sum::<u32>();
            assert!((0..4).all(|replica| at(replica) * 4 <= 5000 * 125 / 100), "the spread is even");
        }
    }

    /// A fleet of idle replicas with numbers from 1.
    #[derive(Debug)]
    struct Idle;

    impl Member for Idle {
        fn id(&self, at: usize) -> Option<ReplicaId> {
            self.rank(at).map(|rank| rank.id)
        }

        fn rank(&self, at: usize) -> Option<Rank> {
            let id = u32::try_from(at + 1).ok().map(ReplicaId)?;
            Some(Rank::of(Tokens(0), 1, Turn::default(), id))
        }

        fn size(&self, _: usize) -> u64 {
            1
        }
    }

    #[test]
    fn r7_keys_that_are_remembered_are_bounded_and_their_number_changes_no_pick() {
        let idle = ranked((0..12).map(|_| 0));
        let mut field = Field::new(&idle, &|_| true);
        field.members = Some(Members { count: 12, at: &Idle, version: 1 });
        let mut prefix = Prefix::default();
        for key in (0..5_000).flat_map(|key| [key, 7]) {
            field.key = Some(ConversationKey(key));
            assert_eq!(prefix.choose(&field).unwrap().0, place(&idle, key));
            assert!(prefix.young.len() + prefix.old.len() <= 2 * KEYS);
        }
        assert!(prefix.young.contains_key(&7) || prefix.old.contains_key(&7), "it is in use");
    }

    #[test]
    fn c_095_a_loaded_replica_is_passed_over() {
        let ranked = ranked([126, 90, 84]);
        assert!((0..1000).all(|key| place(&ranked, key) != 1));
    }
}
