//! Rows that make no sense: they are told and left out, and cost no other row; money is not left out.

use super::*;

/// A file with three settings, decisions, drains and something tuned, after `garble` was done to it.
async fn garbled(garble: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    for (at_second, key) in ["min", "max", "mode"].into_iter().enumerate() {
        let second = u32::try_from(at_second).unwrap() + 1;
        store.set(&chat(), key, Some(second.to_string()), at(second));
        store.decided(&chat(), decision(at(second), second));
        store.drained(&chat(), ReplicaId(second), Some(String::new()), at(second));
    }
    let tuned = Tuned { target: 8, model: "m".to_owned(), kind: "L4".to_owned(), curve: "[]".to_owned() };
    store.tuned(&chat(), Some(tuned), at(1));
    store.account(&chat(), Spent::default(), at(1));
    store.added(Money(7));
    store.close().await;
    Connection::open(dir.path().join(FILE)).unwrap().execute_batch(garble).unwrap();
    dir
}

#[tokio::test]
async fn e1_a_bad_row_is_told_with_table_and_key_and_the_others_are_there() {
    let dir = garbled(
        "UPDATE setting SET value = '{x' WHERE key = 'max';
         UPDATE setting SET run = 77 WHERE key = 'mode';
         UPDATE decision SET body = CAST(x'7b22ff22' AS TEXT) WHERE id = 2;
         UPDATE decision SET body = '{}' WHERE id = 1;
         UPDATE drained SET replica = -4 WHERE replica = 2;
         UPDATE tuned SET curve = 'none';",
    )
    .await;
    let (store, kept) = open(dir.path(), 60);
    let past = store.decisions(&chat(), 3, at(1)).await.unwrap();
    assert_eq!(past.iter().map(|past| past.decision.target).collect::<Vec<_>>(), [3]);
    assert_eq!(kept.settings.iter().map(|kept| &*kept.key).collect::<Vec<_>>(), ["min"]);
    assert_eq!(kept.drained.iter().map(|kept| kept.replica.0).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((kept.tuned.len(), kept.added), (0, Money(7)));
    store.unreadable("setting", &chat(), "mox", "there is no such setting".to_owned());
    let told = store.view().unreadable;
    for begin in [
        "decision chat 1: missing field",
        "decision chat 2: invalid utf-8",
        "drained chat -4: ",
        "setting chat max: its value \"{x\" is none",
        "setting chat mode: it belongs to no run (boot is missing)",
        "setting chat mox: there is no such setting",
        "tuned chat: its curve \"none\" is none",
    ] {
        assert!(told.iter().any(|told| told.starts_with(begin)), "{begin} in {told:?}");
    }
    assert_eq!(told.len(), 7);

    store.set(&chat(), "max", Some("9".to_owned()), at(2));
    store.set(&chat(), "mode", None, at(2));
    store.tuned(&chat(), None, at(2));
    store.flush().await.unwrap();
    let told = store.view().unreadable;
    assert_eq!(told.len(), 4, "what was written over is well again: {told:?}");
    store.close().await;
}

#[tokio::test]
async fn m2_a_sum_that_cannot_be_read_ends_the_start_and_names_its_row() {
    for (garble, part) in [
        ("UPDATE account SET spent = '{'", "the row account chat makes no sense: "),
        ("UPDATE account SET run = 77", "the row account chat makes no sense: it belongs to no run"),
        ("UPDATE credit SET added = '1x'", "the row credit makes no sense: \"1x\" is no amount"),
    ] {
        let dir = garbled(garble).await;
        let error = Store::open(&dir.path().join(FILE), epoch(9), &names()).map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains(part), "{error}");
    }
}
