//! What every policy must hold, whatever its taste.

use proptest::prelude::*;

use super::*;

fn ranks(loads: &[u64]) -> BTreeSet<Rank> {
    let ids = (1..).map(ReplicaId);
    let rank = |(id, load): (ReplicaId, &u64)| Rank {
        share: Share::of(Tokens(*load), 1),
        turn: Turn::default(),
        id,
    };
    ids.zip(loads).map(rank).collect()
}

proptest! {
    #[test]
    fn r3_a_policy_picks_from_the_field_and_repeats_itself(
        loads in prop::collection::vec(0u64..1000, 0..40),
        barred in prop::collection::btree_set(1u32..40, 0..40),
        seed in any::<u64>(),
    ) {
        let ranked = ranks(&loads);
        let may = |id: ReplicaId| !barred.contains(&id.0);
        let field = Field::new(&ranked, &may);
        for name in PolicyName::ALL {
            let mut policy = name.policy(seed);
            prop_assert_eq!(policy.name(), name);
            let mut again = name.policy(seed);
            for _ in 0..5 {
                let told = policy.twin().choose(&field);
                let pick = policy.choose(&field);
                prop_assert_eq!(told, pick, "E3: {:?}", name);
                prop_assert_eq!(pick, again.choose(&field), "{:?}", name);
                match pick {
                    Some(id) => prop_assert!(field.iter().any(|rank| rank.id == id), "{:?}", name),
                    None => prop_assert!(field.first().is_none(), "{:?}", name),
                }
            }
        }
    }
}

#[test]
fn r3_a_policy_uses_every_replica_of_an_idle_fleet_about_equally() {
    for name in PolicyName::ALL {
        let mut policy = name.policy(7);
        let mut counts = [0u32; 8];
        let mut ranked = ranks(&[0; 8]);
        for _ in 0..8000 {
            let field = Field::new(&ranked, &|_| true);
            let id = policy.choose(&field).unwrap();
            counts[id.0 as usize - 1] += 1;
            // The request is placed and ends at once: only its turn moves on.
            let old = *ranked.iter().find(|rank| rank.id == id).unwrap();
            ranked.remove(&old);
            ranked.insert(Rank { turn: old.turn.after(1), ..old });
        }
        assert!(counts.iter().all(|count| (850..=1150).contains(count)), "{name:?}: {counts:?}");
    }
}

#[test]
fn r3_policies_that_look_at_load_avoid_the_loaded() {
    let ranked = ranks(&[900, 0, 900, 0]);
    let field = Field::new(&ranked, &|_| true);
    let mut least = PolicyName::LeastLoad.policy(1);
    assert_eq!(least.choose(&field), Some(ReplicaId(2)));
    let mut two = PolicyName::TwoChoices.policy(1);
    let loaded = (0..6000).filter(|_| matches!(two.choose(&field), Some(ReplicaId(1 | 3)))).count();
    assert!((800..1200).contains(&loaded), "only when both draws are loaded, one in six: {loaded}");
}
