//! A machine that is suspended: what runs is paid for, and what is kept grows older.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::house::Asleep;

#[tokio::test]
async fn m2_what_runs_is_paid_for_while_the_machine_sleeps() {
    let (dir, slept) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(0)));
    let (store, kept) = open(dir.path(), 100);
    let told = Arc::clone(&slept);
    let asleep = Asleep::new(move || Duration::from_secs(told.load(Ordering::Relaxed)));
    let house = House::kept(credit(100_000_000), store.clone(), kept, &[chat()]).that_sleeps(asleep);
    house.open(&chat(), Price::FREE, 0, at(0));
    let see = |second| {
        house.with_budget(at(second), |budget, paid| {
            budget.see(&chat(), &[replica(1)], false, Moment { now: at(second), paid })
        });
        house.keep(&chat(), at(second));
        house.credit(at(second)).unwrap().left
    };
    assert_eq!((see(0), see(10)), (Money(100_000_000), Money(100_000_000 - 10_000)));
    slept.store(3600, Ordering::Relaxed);
    assert_eq!(see(11), Money(100_000_000 - 3_611_000), "an hour of sleep, and 11 s awake");
    slept.store(3599, Ordering::Relaxed);
    assert_eq!(see(11), Money(100_000_000 - 3_611_000), "no time goes back");
    store.close().await;

    // The next run of the same boot began 20 s later, by a clock that goes on in sleep.
    let (store, kept) = open(dir.path(), 100 + 3611 + 20);
    let house = House::kept(credit(100_000_000), store.clone(), kept, &[chat()]);
    house.open(&chat(), Price::FREE, 0, at(0));
    house.resume(&chat(), &[ReplicaId(1)], at(0));
    assert_eq!(house.credit(at(0)).unwrap().left, Money(100_000_000 - 3_631_000), "nothing twice");
    store.close().await;
}

#[tokio::test]
async fn c_153_ages_of_what_is_kept_count_the_time_that_was_slept() {
    let (dir, slept) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(0)));
    let (store, kept) = open(dir.path(), 100);
    let told = Arc::clone(&slept);
    let asleep = Asleep::new(move || Duration::from_secs(told.load(Ordering::Relaxed)));
    let house = House::kept(credit(1), store.clone(), kept, &[chat()]).that_sleeps(asleep);
    store.set(&chat(), "min", Some("1".to_owned()), house.lasting(at(10)));
    house.decided(&chat(), &decision(at(10), 1));
    slept.store(3600, Ordering::Relaxed);
    store.set(&chat(), "max", Some("2".to_owned()), house.lasting(at(20)));
    house.decided(&chat(), &decision(at(20), 2));
    store.flush().await.unwrap();
    let ages = |past: &[Past]| past.iter().map(|past| past.age.as_secs()).collect::<Vec<_>>();
    let past = store.decisions(&chat(), 9, house.lasting(at(30))).await.unwrap();
    assert_eq!(ages(&past), [10, 3620], "in the same run");
    store.close().await;

    // The next run of the same boot begins 40 s after the first one did, and the hour that was slept.
    let (store, kept) = open(dir.path(), 100 + 3600 + 40);
    let of = |key: &str| kept.settings.iter().find(|kept| kept.key == key).unwrap().at.clone();
    let since = |key: &str| kept.epoch.since(&of(key), at(0)).as_secs();
    assert_eq!((since("min"), since("max")), (3630, 20));
    assert_eq!(ages(&kept.past[&chat()]), [20, 3630]);
    store.close().await;
}
