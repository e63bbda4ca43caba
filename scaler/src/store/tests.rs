//! The store over real files: what survives, what is bounded, what is refused, and a disk that does not take it.

use std::fs;

use rusqlite::Connection;
use tidegate_shared::decision::{Rule, ScaleReason};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::{Capacity, Phase, ReplicaFacts};

use super::*;
use crate::control::Spending;
use crate::house::{Credit, House};
use tidegate_scaler_core::budget::{Bounds, Moment};

mod lost;
mod money;
mod orphans;
mod slept;
mod unreadable;

const SECOND: Duration = Duration::from_secs(1);

fn at(second: u32) -> Instant {
    Instant::ZERO + SECOND * second
}

fn chat() -> DeploymentName {
    DeploymentName::new("chat")
}

fn names() -> BTreeSet<DeploymentName> {
    BTreeSet::from([chat()])
}

/// A run that began `seconds` after the machine was booted.
fn epoch(seconds: u64) -> Epoch {
    let time = Duration::from_secs(seconds);
    Epoch { boot: "one".to_owned(), monotonic: time, wall: Duration::from_secs(1_700_000_000) + time }
}

fn open(dir: &Path, seconds: u64) -> (Store, Kept) {
    Store::open(&dir.join(FILE), epoch(seconds), &names()).unwrap()
}

fn decision(at: Instant, target: u32) -> ScaleDecision {
    ScaleDecision {
        at,
        rule: Rule::TokenLoad,
        load: Some(80),
        engine_queue: 0,
        waiters: 0,
        demand: 9,
        queued: 1,
        promised: 3,
        oldest_wait: SECOND,
        current: 3,
        needed: 4,
        target,
        woken: 0,
        wanted: None,
        reason: ScaleReason::PriceCap { cap: Price(1), cheapest: Price(2) },
        also: Vec::new(),
    }
}

fn replica(id: u32) -> ReplicaFacts {
    let bare = ReplicaFacts::new(ReplicaId(id), Phase::Ready, at(0), Capacity::ONE);
    ReplicaFacts { price: Price(3_600_000), ..bare }
}

fn credit(left: i128) -> Bounds {
    Bounds { replicas: None, credit: Some(Money(left)) }
}

#[tokio::test]
async fn e1_decisions_and_settings_survive_and_are_told_with_their_age() {
    let dir = tempfile::tempdir().unwrap();
    let (store, kept) = open(dir.path(), 100);
    assert_eq!((kept.settings.len(), kept.accounts.len(), kept.added), (0, 0, Money(0)));
    for second in 1..=3 {
        store.decided(&chat(), decision(at(second), second));
    }
    store.set(&chat(), "min", Some("2".to_owned()), at(4));
    store.set(&chat(), "max", Some("8".to_owned()), at(4));
    store.flush().await.unwrap();
    store.set(&chat(), "max", None, at(5));
    store.close().await;
    assert!(store.flush().await.is_err(), "it has ended");

    let (store, kept) = open(dir.path(), 200);
    let set = Stamp { epoch: epoch(100), at: at(4) };
    let min = KeptSetting { deployment: chat(), key: "min".to_owned(), value: "2".to_owned(), at: set };
    assert_eq!(kept.settings, [min]);
    store.decided(&chat(), decision(at(1), 4));
    let past = store.decisions(&chat(), 3, at(10)).await.unwrap();
    let told: Vec<_> = past.iter().map(|past| (past.decision.target, past.age.as_secs())).collect();
    assert_eq!(told, [(4, 9), (3, 107), (2, 108)], "newest first, over both runs");
    assert_eq!(past[1].decision, decision(at(3), 3), "nothing of it is lost");
    assert_eq!(store.decisions(&DeploymentName::new("other"), 9, at(1)).await.unwrap(), []);
}

#[tokio::test]
async fn history_and_what_is_left_of_the_gone_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    for round in 0..3 {
        for one in 0..2000 {
            store.decided(&chat(), decision(at(1), round * 2000 + one));
        }
        store.flush().await.unwrap();
    }
    let spent: Spent = serde_json::from_str(r#"{"exact":3600000000,"running":[],"warm":0}"#).unwrap();
    for gone in 0..400 {
        let name = DeploymentName::new(&format!("gone-{gone}"));
        store.account(&name, spent.clone(), at(2));
        store.set(&name, "min", Some("1".to_owned()), at(2));
        store.decided(&name, decision(at(2), 1));
    }
    let past = store.decisions(&chat(), u32::MAX, at(2)).await.unwrap();
    assert_eq!((past.len(), past[0].decision.target), (MOST_DECISIONS as usize, 5999));
    store.close().await;

    for month in 1..3 {
        let (store, kept) = open(dir.path(), month * 31 * 24 * 3600);
        let total: i128 = kept.accounts.iter().map(|account| account.spent.total().0).sum();
        assert_eq!((kept.accounts.len(), total), (256, 400), "no cent is forgotten");
        assert_eq!(kept.settings.len(), 256);
        assert_eq!(store.decisions(&chat(), u32::MAX, at(2)).await.unwrap().len(), 100, "the last ones stay");
        assert_eq!(store.decisions(&DeploymentName::new("gone-1"), 9, at(2)).await.unwrap(), []);
        store.close().await;
    }
}

#[tokio::test]
async fn a_disk_that_takes_nothing_costs_nothing_once_it_does_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    let other = Connection::open(dir.path().join(FILE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.set(&chat(), "min", Some("2".to_owned()), at(1));
    store.decided(&chat(), decision(at(1), 7));
    let why = store.flush().await.unwrap_err();
    assert_eq!(why, "database is locked (another program works with the file)");
    let view = store.view();
    assert_eq!(
        (view.trouble, view.waiting.to_string(), view.dropped),
        (Some(why), "1 setting and 1 decision".to_owned(), 0)
    );
    store.set(&chat(), "min", Some("3".to_owned()), at(2));
    let past = store.decisions(&chat(), 9, at(3)).await.unwrap();
    assert_eq!((past.len(), past[0].age), (1, SECOND * 2), "what waits is told too");
    (0..4096).for_each(|target| store.decided(&chat(), decision(at(3), target)));
    assert_eq!(store.view().dropped, 1, "memory is bounded");

    other.execute_batch("ROLLBACK").unwrap();
    store.flush().await.unwrap();
    let view = store.view();
    assert_eq!((view.trouble, view.waiting), (None, Waiting::default()));
    store.close().await;
    let (_, kept) = open(dir.path(), 9);
    assert_eq!(kept.settings[0].value, "3", "the last word counts");
}

#[test]
fn a_full_disk_is_told_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let db = schema::open(&path).unwrap();
    db.pragma_update(None, "max_page_count", 12).unwrap();
    let mut table = Table::begin(&path, db, epoch(0)).unwrap();
    let mut batch = batch::Batch::default();
    (0..4000).for_each(|target| batch.decided(chat(), decision(at(1), target)));
    let why = schema::told(&table.write(&batch).unwrap_err());
    assert_eq!(why, "database or disk is full (no space is left, or a quota is used up)");
    assert_eq!(table.decisions("chat", 9, at(1)).unwrap(), [], "all of a batch or nothing");
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let refused = || Store::open(&path, epoch(0), &names()).unwrap_err();
    let name = path.display().to_string();

    fs::write(&path, "x".repeat(10_240)).unwrap();
    let error = refused();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("the records in {name} are damaged: file is not a database\n")),
        "{text}"
    );

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let text = refused().to_string();
    assert!(
        text.starts_with(&format!("cannot use the records in {name}: unable to open database file")),
        "{text}"
    );

    fs::remove_dir(&path).unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE somebody_elses (x)").unwrap();
    assert!(matches!(refused(), StoreError::Foreign { .. }));

    drop(db);
    fs::remove_file(&path).unwrap();
    let db = schema::open(&path).unwrap();
    db.pragma_update(None, "user_version", 7).unwrap();
    let text = refused().to_string();
    assert!(text.ends_with("have schema 7, and this one knows schemas up to 1"), "{text}");
}

#[tokio::test]
async fn a_torn_page_is_found_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    (0..2000).for_each(|target| store.decided(&chat(), decision(at(1), target)));
    store.close().await;
    let path = dir.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..half + 8192].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let error = Store::open(&path, epoch(1), &names()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a1_c5_what_was_tuned_and_who_is_out_survive_until_they_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let tuned = |target| Tuned {
        target,
        model: "m".to_owned(),
        kind: "L4".to_owned(),
        curve: r#"[{"concurrency":8}]"#.to_owned(),
    };
    let other = DeploymentName::new("other");
    let (store, _) = open(dir.path(), 0);
    store.tuned(&chat(), Some(tuned(8)), at(1));
    store.tuned(&chat(), Some(tuned(24)), at(2));
    store.tuned(&other, Some(tuned(3)), at(3));
    for id in 1..=3 {
        store.drained(&chat(), ReplicaId(id), Some(String::new()), at(id));
    }
    store.drained(&other, ReplicaId(1), Some("http://a".to_owned()), at(4));
    store.flush().await.unwrap();
    store.drained(&chat(), ReplicaId(2), None, at(5));
    store.close().await;

    let (store, kept) = open(dir.path(), 60);
    let stamp = |second| Stamp { epoch: epoch(0), at: at(second) };
    let of_chat = KeptTuned { deployment: chat(), tuned: tuned(24), at: stamp(2) };
    assert_eq!(kept.tuned[0], of_chat);
    assert_eq!(kept.tuned.len(), 2, "of one that is gone it is kept for a while");
    let out: Vec<_> = kept.drained.iter().map(|kept| (&kept.deployment, kept.replica.0, &kept.at)).collect();
    assert_eq!(out, [(&chat(), 1, &stamp(1)), (&chat(), 3, &stamp(3))], "whose deployment is gone is gone");
    store.tuned(&chat(), None, at(1));
    store.close().await;
    let (_, kept) = open(dir.path(), 90);
    assert!(kept.tuned.iter().all(|kept| kept.deployment == other));
}

#[tokio::test]
async fn a_file_that_is_cut_off_anywhere_is_refused_and_not_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    (0..200).for_each(|target| store.decided(&chat(), decision(at(1), target)));
    store.close().await;
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 99, 100, 511, 4096, 4097, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        for ending in ["-wal", "-shm"] {
            let _ = fs::remove_file(dir.path().join(format!("{FILE}{ending}")));
        }
        let opened = Store::open(&path, epoch(1), &names());
        let error = opened.map(drop).expect_err(&format!("cut off after {length} of {}", whole.len()));
        assert!(matches!(error, StoreError::Damaged { .. }), "{length} of {}: {error}", whole.len());
        assert_eq!(fs::read(&path).unwrap().len(), length, "and it is left as it is");
    }
    fs::write(&path, &whole).unwrap();
    open(dir.path(), 2);
}

#[tokio::test]
async fn killed_with_writes_in_its_log_the_next_start_has_them_all() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = open(dir.path(), 0);
    for round in 0..20_u32 {
        store.set(&chat(), "min", Some(round.to_string()), at(round));
        store.decided(&chat(), decision(at(round), round));
        store.flush().await.unwrap();
        // What `kill -9` leaves: the file and its log as they are now, at no end of anything.
        for ending in ["", "-wal"] {
            let name = format!("{FILE}{ending}");
            fs::copy(dir.path().join(&name), killed.path().join(&name)).unwrap();
        }
        let _ = fs::remove_file(killed.path().join(format!("{FILE}-shm")));
        let (after, kept) = open(killed.path(), 9);
        assert_eq!(kept.settings[0].value, round.to_string());
        let past = after.decisions(&chat(), 99, at(99)).await.unwrap();
        assert_eq!((past.len(), past[0].decision.target), (usize::try_from(round).unwrap() + 1, round));
        after.close().await;
    }
}

#[test]
fn a_thread_that_ends_by_a_panic_leaves_nobody_waiting_and_says_so() {
    let desk = Desk::new(Path::new("x"));
    let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _end = writer::End(&desk);
        panic!("a fault");
    }));
    assert!(end.is_err());
    assert_eq!(desk.view().trouble.as_deref(), Some(ENDED));
    let (reply, _answer) = oneshot::channel();
    assert_eq!(desk.ask(Ask::Flush(reply)), Err(ENDED.to_owned()));
}
