//! A file that goes while it is open, or is emptied: nothing is told as saved that the next start would not find.

use std::process::Command;

use super::*;

/// What the next start finds: the value of `min`, and how many decisions.
async fn after(dir: &Path) -> (Option<String>, usize) {
    let (store, kept) = open(dir, 99);
    let past = store.decisions(&chat(), 99, at(99)).await.unwrap();
    store.close().await;
    (kept.settings.first().map(|setting| setting.value.clone()), past.len())
}

/// What a `kill -9` would leave.
pub(super) fn killed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_str().unwrap().ends_with("-shm") {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    copy
}

async fn set(store: &Store, min: u32) -> Result<(), String> {
    store.set(&chat(), "min", Some(min.to_string()), at(min));
    store.decided(&chat(), decision(at(min), min));
    store.flush().await
}

#[tokio::test]
async fn a_file_that_is_deleted_while_it_is_open_is_made_anew_with_all_that_was_in_it() {
    let whole: &[&str] = &["", "-wal", "-shm"];
    for endings in [&[""][..], &["-wal"], &["", "-wal"], whole] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path(), 0);
        for round in 1..=3 {
            set(&store, round).await.unwrap();
            for ending in endings {
                let _ = fs::remove_file(dir.path().join(format!("{FILE}{ending}")));
            }
            // Even if nothing is left to be written.
            store.flush().await.unwrap();
            let found = after(killed(dir.path()).path()).await;
            assert_eq!(found, (Some(round.to_string()), round as usize), "without {endings:?}");
        }
        set(&store, 4).await.unwrap();
        assert_eq!(after(killed(dir.path()).path()).await, (Some("4".to_owned()), 4));
        assert_eq!((store.view().trouble, store.view().waiting), (None, Waiting::default()));
        store.close().await;
        assert_eq!(after(dir.path()).await, (Some("4".to_owned()), 4));
        assert!(!dir.path().join(format!("{FILE}-new")).exists());
    }
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_left_alone_and_so_is_another_in_its_place() {
    let (dir, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join(FILE);
    let (store, _) = open(dir.path(), 0);
    set(&store, 1).await.unwrap();
    fs::rename(&path, away.path().join(FILE)).unwrap();
    fs::write(&path, "another file").unwrap();
    let why = set(&store, 2).await.unwrap_err();
    assert!(why.starts_with("another file lies there since"), "{why}");
    let view = store.view();
    assert_eq!((view.trouble, view.waiting.to_string()), (Some(why), "1 setting and 1 decision".to_owned()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "another file");

    fs::remove_file(&path).unwrap();
    store.flush().await.unwrap();
    assert_eq!(store.view().trouble, None);
    store.close().await;
    assert_eq!(after(dir.path()).await, (Some("2".to_owned()), 2));
}

/// Writes into the file that is there, as `cp` does.
fn overwrite(path: &Path, with: &[u8]) {
    fs::write(path, with).unwrap();
}

/// A database of Tidegate's of another gateway, as one file.
async fn of_another() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 7);
    set(&store, 77).await.unwrap();
    store.close().await;
    fs::read(dir.path().join(FILE)).unwrap()
}

#[tokio::test]
async fn a_file_that_is_overwritten_in_place_while_it_is_open_is_made_anew_and_the_other_is_kept() {
    let foreign = of_another().await;
    let garbage: Vec<u8> = (0..foreign.len() * 4).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for with in [&foreign[..], &garbage, b"", b"short"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (store, _) = open(dir.path(), 0);
        for round in 1..=3 {
            set(&store, round).await.unwrap();
            overwrite(&path, with);
            set(&store, round * 10).await.unwrap();
            assert_eq!((store.view().trouble, store.view().waiting), (None, Waiting::default()));
            let found = after(killed(dir.path()).path()).await;
            assert_eq!(found, (Some((round * 10).to_string()), round as usize * 2), "{} bytes", with.len());
        }
        // Where the log makes good all that the other file says, nothing was lost.
        let other = fs::read(dir.path().join(format!("{FILE}-other")));
        assert!(with.len() <= foreign.len() || other.is_ok_and(|other| other == with));
        store.close().await;
        assert_eq!(after(dir.path()).await, (Some("30".to_owned()), 6));
    }
}

#[tokio::test]
async fn an_earlier_copy_of_its_own_that_is_put_over_the_open_file_is_noticed_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let (store, _) = open(dir.path(), 0);
    set(&store, 1).await.unwrap();
    checkpoint(&path);
    let copy = fs::read(&path).unwrap();
    set(&store, 2).await.unwrap();
    checkpoint(&path);
    store.flush().await.unwrap();
    overwrite(&path, &copy);
    store.flush().await.unwrap();
    assert_eq!(after(killed(dir.path()).path()).await, (Some("2".to_owned()), 2));
    // Deleted before anybody has looked.
    overwrite(&path, &of_another().await);
    fs::remove_file(&path).unwrap();
    set(&store, 3).await.unwrap();
    assert_eq!(after(killed(dir.path()).path()).await, (Some("3".to_owned()), 3));
    store.close().await;
}

/// What `sqlite3` may do to a file that is open elsewhere.
fn checkpoint(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
}

#[tokio::test]
async fn a_file_that_is_touched_or_read_or_written_by_sqlite_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let (store, _) = open(dir.path(), 0);
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let first = inode();
    for round in 1..=3 {
        set(&store, round).await.unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        store.flush().await.unwrap();
        checkpoint(&path);
        store.flush().await.unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute("UPDATE setting SET value = '9'", []).unwrap();
        drop(db);
        checkpoint(&path);
        store.flush().await.unwrap();
        assert_eq!(after(killed(dir.path()).path()).await, (Some("9".to_owned()), round as usize));
    }
    store.close().await;
    assert_eq!(inode(), first, "it was made anew");
}

#[tokio::test]
async fn all_but_the_last_decisions_are_lost_with_a_file_that_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    (1..=400).for_each(|round| store.decided(&chat(), decision(at(round), round)));
    set(&store, 401).await.unwrap();
    overwrite(&dir.path().join(FILE), &[7; 1 << 20]);
    store.flush().await.unwrap();
    store.close().await;
    let (store, _) = open(dir.path(), 99);
    let past = store.decisions(&chat(), 999, at(99)).await.unwrap();
    assert_eq!((past.len(), past[0].decision.target), (256, 401));
}

#[tokio::test]
async fn a_folder_that_is_gone_is_told_and_what_waits_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), 0);
    fs::remove_dir_all(dir.path()).unwrap();
    let why = set(&store, 1).await.unwrap_err();
    assert!(
        why.starts_with("it was deleted or moved away while it was in use, and cannot be made anew"),
        "{why}"
    );
    fs::create_dir(dir.path()).unwrap();
    store.flush().await.unwrap();
    assert_eq!(after(killed(dir.path()).path()).await, (Some("1".to_owned()), 1));
}

#[tokio::test]
async fn a_file_of_no_bytes_is_refused_and_a_first_start_that_was_cut_off_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    fs::write(&path, "").unwrap();
    let text = Store::open(&path, epoch(0), &names()).unwrap_err().to_string();
    let begins = format!("the records in {} are damaged: it is empty", path.display());
    assert!(text.starts_with(&begins) && text.contains("move it away to begin anew"), "{text}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "it is left as it is");

    // Whatever a start leaves that is killed while it makes the file lies beside it.
    fs::remove_file(&path).unwrap();
    for left in ["", "half a file"] {
        for ending in ["-new", "-new-journal", "-wal", "-shm"] {
            fs::write(dir.path().join(format!("{FILE}{ending}")), left).unwrap();
        }
        let (store, _) = open(dir.path(), 0);
        set(&store, 5).await.unwrap();
        store.close().await;
        assert_eq!(after(dir.path()).await, (Some("5".to_owned()), 1));
        fs::remove_file(&path).unwrap();
    }
}

/// A file system of `size`, where this process may mount one.
struct Small(tempfile::TempDir);

impl Small {
    fn of(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", &*size, "tmpfs"]).arg(dir.path()).output();
        done.is_ok_and(|done| done.status.success()).then_some(Self(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[tokio::test]
async fn a_disk_that_is_full_at_the_start_is_named_as_the_cause() {
    let Some(disk) = Small::of("512k") else {
        // Only root may make a small disk.
        return;
    };
    let path = disk.0.path().join(FILE);
    let (store, _) = open(disk.0.path(), 0);
    set(&store, 1).await.unwrap();
    store.close().await;
    let full = disk.0.path().join("full");
    let _ = fs::write(&full, vec![1; 1 << 20]);
    let told = format!("cannot use the records in {}: no space is left on the disk", path.display());
    let text = Store::open(&path, epoch(1), &names()).map(drop).unwrap_err().to_string();
    assert!(text.starts_with(&told), "{text}");

    fs::remove_file(&full).unwrap();
    assert_eq!(after(disk.0.path()).await, (Some("1".to_owned()), 1), "nothing is lost");
    fs::remove_file(&path).unwrap();
    let _ = fs::write(&full, vec![1; 1 << 20]);
    let text = Store::open(&path, epoch(1), &names()).map(drop).unwrap_err().to_string();
    assert!(text.starts_with(&told) && !path.exists(), "{text}");
}
