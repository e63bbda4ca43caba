//! Placement by a hash of the beginning of the prompt: several gateways that know nothing of each other send what
//! shares a prefix to the same replica (C-148), as long as that keeps the balance (C-095).
//!
//! Rendezvous hashing: each replica gets a score for the key, the highest wins. A replica that comes or goes moves only
//! its own share of keys.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::rng::Rng;

use super::{Field, Policy, PolicyName, Share};

/// A replica that is fuller than this percentage of the mean, by more than a few requests, is passed over.
const BALANCE: u32 = 125;
/// How many that is. With little to do the mean is next to nothing, and whoever works at all is over it: without the
/// allowance a sixth of all turns went to another replica on one gateway than on the next.
const FEW: u32 = 4;

/// See the module. A request without a key goes to the least loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prefix;

impl Policy for Prefix {
    fn name(&self) -> PolicyName {
        PolicyName::Prefix
    }

    fn twin(&self) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        let Some(key) = field.key else { return field.first().map(|rank| rank.id) };
        let balanced = |share: Share| share.beyond(FEW, field.one).within(BALANCE, field.mean);
        let best = field
            .iter()
            .filter(|rank| balanced(rank.share))
            .max_by_key(|rank| (score(key.0, rank.id), rank.id));
        best.or_else(|| field.first()).map(|rank| rank.id)
    }
}

fn score(key: u64, id: ReplicaId) -> u64 {
    Rng::new(key ^ u64::from(id.0).wrapping_mul(0xD6E8_FEB8_6659_FD93)).draw()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use tidegate_shared::request::{ConversationKey, Tokens};

    use super::*;
    use crate::route::{Rank, Turn};

    fn ranked(loads: impl IntoIterator<Item = u64>) -> BTreeSet<Rank> {
        let ids = (1..).map(ReplicaId);
        let rank = |(id, load)| Rank { share: Share::of(Tokens(load), 1), turn: Turn::default(), id };
        ids.zip(loads).map(rank).collect()
    }

    fn place(ranked: &BTreeSet<Rank>, key: u64) -> u32 {
        let mut field = Field::new(ranked, &|_| true);
        field.key = Some(ConversationKey(key));
        field.mean = Share::of(Tokens(100), 1);
        Prefix.choose(&field).unwrap().0
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
            let place = || Prefix.choose(&field).unwrap().0 as usize - 1;
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

    #[test]
    fn c_095_a_loaded_replica_is_passed_over() {
        let ranked = ranked([126, 90, 84]);
        assert!((0..1000).all(|key| place(&ranked, key) != 1));
    }
}
