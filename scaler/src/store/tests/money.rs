//! What was spent, over restarts and kills: nothing is lost that can be known, and nothing paid twice.

use super::*;

#[tokio::test]
async fn m2_a_restart_pays_for_the_time_between_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, kept) = open(dir.path(), 100);
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[chat()]);
    house.open(&chat(), Price::FREE, 0, at(0));
    let see = |house: &House, second, fleet: &[ReplicaFacts]| {
        house.with_budget(at(second), |budget, paid| {
            budget.see(&chat(), fleet, false, Moment { now: at(second), paid })
        });
        house.keep(&chat(), at(second));
    };
    see(&house, 0, &[replica(1), replica(2)]);
    see(&house, 5, &[replica(1), replica(2)]);
    assert_eq!(house.top_up(Money(500), at(5)).unwrap().left, Money(1_000_500 - 10_000));
    store.close().await;

    for run in [150, 160] {
        let (store, kept) = open(dir.path(), run);
        let house = House::kept(credit(1_000_000), store.clone(), kept, &[chat()]);
        house.open(&chat(), Price::FREE, 0, at(1));
        // Killed before the provider answered: the next run pays all the same.
        store.close().await;
    }
    let (store, kept) = open(dir.path(), 200);
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[chat()]);
    house.open(&chat(), Price::FREE, 0, at(1));
    let (spent, left) = (Money(10_000), Some(Money(990_500)));
    let before = Spending { spent, rate: Price::FREE, credit: left };
    assert_eq!(house.spending(&chat(), at(2)), before, "the account stands until somebody looks");
    for _ in 0..2 {
        house.resume(&chat(), &[ReplicaId(1)], at(3));
    }
    let (spent, left) = (Money(109_000), Some(Money(1_000_500 - 109_000)));
    let since = Spending { spent, rate: Price(3_600_000), credit: left };
    assert_eq!(house.spending(&chat(), at(4)), since, "and goes on with nobody who looks");
    // One ran from second 100 to 203 of the boot, the other is known to have run until the account was kept at 105.
    let told = house.credit(at(3)).unwrap();
    assert_eq!(
        told,
        Credit { configured: Money(1_000_000), added: Money(500), left: Money(1_000_500 - 108_000) }
    );
    house.close(&chat(), &[], at(4));
    store.close().await;

    let (store, kept) = open(dir.path(), 900);
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[]);
    assert_eq!(
        house.credit(at(0)).unwrap().left,
        Money(1_000_500 - 109_000),
        "spent by one that is gone now"
    );
}

#[tokio::test]
async fn m2_what_a_call_of_the_provider_changes_is_on_record_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, kept) = open(dir.path(), 100);
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[chat()]);
    house.open(&chat(), Price::FREE, 0, at(0));
    house.with_budget(at(0), |budget, paid| {
        budget.see(&chat(), &[replica(1)], false, Moment { now: at(0), paid })
    });
    house.begins(&chat(), ReplicaId(2), Price(7_200_000), at(2)).written().await;
    // What is left after a kill at second 10 of the run, of which nobody heard for 40 s.
    let left = |still: &'static [ReplicaId], told: &'static [ReplicaId]| {
        let killed = lost::killed(dir.path());
        async move {
            let (store, kept) = open(killed.path(), 150);
            let house = House::kept(credit(1_000_000), store.clone(), kept, &[chat()]);
            house.open(&chat(), Price::FREE, 0, at(0));
            house.resume(&chat(), still, at(0));
            store.close().await;
            assert_eq!(house.told_to_stop(&chat()), told, "as the earlier run kept it");
            1_000_000 - house.credit(at(0)).unwrap().left.0
        }
    };
    let (one, both) = (&[ReplicaId(1)], &[ReplicaId(1), ReplicaId(2)]);
    assert_eq!(left(both, &[]).await, 2_000 + 48_000 * 3, "both ran on since the order");
    assert_eq!(left(one, &[]).await, 2_000 + 48_000, "it was ordered and never began");
    house.about_to_end(&chat(), ReplicaId(2), at(9)).written().await;
    assert_eq!(left(one, &[ReplicaId(2)]).await, 9_000 + 14_000 + 41_000, "stopped and not seen to be");
    house.ends(&chat(), ReplicaId(2), at(10));
    assert_eq!(
        house.credit(at(11)).unwrap().left.0,
        1_000_000 - 11_000 - 16_000,
        "it costs nothing from then on"
    );
    store.close().await;
    assert_eq!(left(both, &[]).await, 10_000 + 16_000 + 40_000, "and what is gone is not paid for again");
}
