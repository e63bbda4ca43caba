//! What every policy must hold, whatever its taste.

use proptest::prelude::*;

use super::*;

fn ranks(loads: &[u64]) -> Order {
    let ids = (1..).map(ReplicaId);
    let rank = |(id, load): (ReplicaId, &u64)| Rank::of(Tokens(*load), 1, Turn::default(), id);
    ids.zip(loads).map(rank).collect()
}

/// The fleet that has these ranks, and replicas without a free place between them.
#[derive(Debug)]
struct Fleet(Vec<Rank>);

impl Fleet {
    fn of(ranked: &Order) -> Self {
        let mut fleet: Vec<_> = ranked.iter().copied().collect();
        fleet.sort_by_key(|rank| rank.id);
        Self(fleet)
    }

    fn members(&self) -> Option<Members<'_>> {
        Some(Members { count: self.0.len(), at: self, version: 1 })
    }
}

impl Member for Fleet {
    fn id(&self, at: usize) -> Option<ReplicaId> {
        self.0.get(at).map(|rank| rank.id)
    }

    fn rank(&self, at: usize) -> Option<Rank> {
        self.0.get(at).copied().filter(|rank| !rank.id.0.is_multiple_of(4))
    }

    fn size(&self, at: usize) -> u64 {
        self.0.get(at).map_or(1, |rank| rank.size.0)
    }
}

/// Without those that the fleet says have no free place.
fn with_place(ranked: Order) -> Order {
    ranked.iter().filter(|rank| !rank.id.0.is_multiple_of(4)).copied().collect()
}

proptest! {
    #[test]
    fn r3_a_policy_picks_from_the_field_and_repeats_itself(
        loads in prop::collection::vec(0u64..1000, 0..40),
        barred in prop::collection::btree_set(1u32..40, 0..40),
        seed in any::<u64>(),
        members in any::<bool>(),
    ) {
        let fleet = Fleet::of(&ranks(&loads));
        let ranked = with_place(ranks(&loads));
        let may = |id: ReplicaId| !barred.contains(&id.0);
        let mut field = Field::new(&ranked, &may);
        field.members = members.then(|| fleet.members()).flatten();
        for name in PolicyName::ALL {
            let (mut one, mut again) = (policy(name, seed), policy(name, seed));
            prop_assert_eq!(one.name(), name);
            for _ in 0..5 {
                let told = one.twin().choose(&field);
                let pick = one.choose(&field);
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

proptest! {
    /// The next one is the same whether it is found by halving or by looking at each.
    #[test]
    fn r3_round_robin_needs_no_look_at_each(
        count in 0usize..60,
        barred in prop::collection::btree_set(1u32..60, 0..60),
        last in prop::option::of(0u32..70),
    ) {
        let all = ranks(&vec![0; count]);
        let (fleet, ranked) = (Fleet::of(&all), with_place(all));
        let may = |id: ReplicaId| !barred.contains(&id.0);
        let mut field = Field::new(&ranked, &may);
        let looked = field.next_after(last.map(ReplicaId));
        field.members = fleet.members();
        prop_assert_eq!(field.next_after(last.map(ReplicaId)), looked);
    }
}

/// What `prefix` picks, by asking each.
fn by_asking_each(field: &Field<'_>) -> Option<ReplicaId> {
    let score = |rank: &Rank| {
        let key = field.key?.0 ^ u64::from(rank.id.0).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Some((tidegate_shared::rng::Rng::new(key).draw(), rank.id))
    };
    let balanced = |rank: &Rank| rank.share.beyond(4, field.one).within(125, field.mean);
    let best = field.iter().filter(balanced).filter(|_| field.key.is_some()).max_by_key(score);
    best.or_else(|| field.first()).map(|rank| rank.id)
}

proptest! {
    /// What is remembered of a key is what asking each replica tells, whatever their loads and who may be taken, also
    /// after some came and went.
    #[test]
    fn c_148_prefix_needs_no_look_at_each(
        steps in prop::collection::vec(
            (
                prop::collection::vec(0u64..1000, 1..60),
                prop::collection::btree_set(1u32..60, 0..60),
                prop::option::of(0u64..20),
                0u64..1000,
                any::<bool>(),
            ),
            1..40,
        ),
    ) {
        let mut prefix = Prefix::default();
        let mut all = ranks(&[0; 60]);
        for (step, (loads, barred, key, mean, other)) in (0u32..).zip(steps) {
            if other {
                all = ranks(&loads);
            } else {
                let loads: Vec<_> = loads.iter().cycle().take(all.iter().count()).copied().collect();
                all = ranks(&loads);
            }
            let (fleet, ranked) = (Fleet::of(&all), with_place(all.clone()));
            let may = |id: ReplicaId| !barred.contains(&id.0);
            let mut field = Field::new(&ranked, &may);
            field.key = key.map(ConversationKey);
            (field.mean, field.one) = (Share::of(Tokens(mean), 1), Share::of(Tokens(20), 1));
            let asked = by_asking_each(&field);
            prop_assert_eq!(prefix.choose(&field), asked, "without places");
            // The number of replicas stands for their version: theirs are 1 to that.
            field.members = fleet.members().map(|members| Members { version: all.iter().count() as u64, ..members });
            for _ in 0..2 {
                prop_assert_eq!(prefix.choose(&field), asked, "step {}", step);
            }
        }
    }
}

#[test]
fn r3_a_draw_is_even_however_few_may_be_taken() {
    for allowed in [3u32, 40, 300] {
        let all = ranks(&[0; 400]);
        let (fleet, ranked) = (Fleet::of(&all), with_place(all));
        let may = |id: ReplicaId| id.0 <= allowed;
        let mut field = Field::new(&ranked, &may);
        field.members = fleet.members();
        let (mut rng, mut counts) = (tidegate_shared::rng::Rng::new(3), vec![0u32; allowed as usize + 1]);
        let fitting = u32::try_from(field.iter().count()).unwrap();
        for _ in 0..fitting * 1000 {
            let one = field.draw(&mut rng, None).unwrap();
            counts[one.id.0 as usize] += 1;
            assert_ne!(field.draw(&mut rng, Some(one.id)).unwrap().id, one.id);
        }
        let drawn: Vec<_> = counts.into_iter().filter(|count| *count > 0).collect();
        assert_eq!(drawn.len(), field.iter().count());
        assert!(drawn.iter().all(|count| (850..1150).contains(count)), "{allowed}: {drawn:?}");
    }
}

#[test]
fn r3_a_policy_uses_every_replica_of_an_idle_fleet_about_equally() {
    for name in PolicyName::ALL {
        let mut one = policy(name, 7);
        let mut counts = [0u32; 8];
        let mut ranked = ranks(&[0; 8]);
        for _ in 0..8000 {
            let field = Field::new(&ranked, &|_| true);
            let id = one.choose(&field).unwrap();
            counts[id.0 as usize - 1] += 1;
            // The request is placed and ends at once: only its turn moves on.
            let old = *ranked.iter().find(|rank| rank.id == id).unwrap();
            ranked.replace(&old, Rank { turn: old.turn.after(1), ..old });
        }
        assert!(counts.iter().all(|count| (850..=1150).contains(count)), "{name:?}: {counts:?}");
    }
}

#[test]
fn r3_policies_that_look_at_load_avoid_the_loaded() {
    let ranked = ranks(&[900, 0, 900, 0]);
    let field = Field::new(&ranked, &|_| true);
    let mut least = policy(PolicyName::LeastLoad, 1);
    assert_eq!(least.choose(&field), Some(ReplicaId(2)));
    let mut two = policy(PolicyName::TwoChoices, 1);
    let loaded = (0..6000).filter(|_| matches!(two.choose(&field), Some(ReplicaId(1 | 3)))).count();
    assert!((800..1200).contains(&loaded), "only when both draws are loaded, one in six: {loaded}");
}
