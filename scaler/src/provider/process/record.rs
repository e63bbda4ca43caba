//! What is kept about each replica so that the next run of the gateway knows it again: a small file per replica, its
//! log beside it, and the next free id.
//!
//! Never decides what a record is worth; a file that makes no sense is as good as none.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Capacity;

use super::table::Identity;

/// How many logs of replicas that ended by themselves are kept.
pub(super) const FAILED_LOGS: usize = 5;

/// One replica on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Which one.
    pub(super) id: ReplicaId,
    /// The process that was started.
    pub(super) leader: Identity,
    /// The processes that it had when its port was proven; helps where they overwrite their environment.
    #[serde(default)]
    pub(super) members: Vec<Identity>,
    /// The boot in which pids and start times mean something.
    pub(super) boot: String,
    /// Its port on 127.0.0.1.
    pub(super) port: u16,
    /// Its size.
    pub(super) capacity: Capacity,
    /// Which command line it runs; see `Recipe`.
    pub(super) recipe: String,
}

impl Record {
    /// Every process on record.
    pub(super) fn known(&self) -> Vec<Identity> {
        self.members.iter().copied().chain([self.leader]).collect()
    }
}

/// The folder of one deployment.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where the output of a replica goes.
    pub(super) fn log(&self, id: ReplicaId) -> PathBuf {
        self.path.join(format!("{id}.log"))
    }

    fn record(&self, id: ReplicaId) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }

    /// Keeps a record, in place of the earlier one of that replica.
    pub(super) fn save(&self, record: &Record) -> io::Result<()> {
        write_whole(&self.record(record.id), &serde_json::to_vec(record)?)
    }

    /// Every record that can be read, in order of id, and the ids of those that cannot.
    pub(super) fn load(&self) -> io::Result<(Vec<Record>, Vec<ReplicaId>)> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for id in self.ids("json")? {
            let text = fs::read(self.record(id))?;
            match serde_json::from_slice::<Record>(&text) {
                Ok(record) if record.id == id => good.push(record),
                _ => bad.push(id),
            }
        }
        Ok((good, bad))
    }

    /// Forgets a replica; its log stays only if `keep_log`, and of such logs only the last few.
    pub(super) fn forget(&self, id: ReplicaId, keep_log: bool) -> io::Result<()> {
        remove(&self.record(id))?;
        if !keep_log {
            return remove(&self.log(id));
        }
        let records = self.ids("json")?;
        let left: Vec<ReplicaId> = self.ids("log")?.into_iter().filter(|id| !records.contains(id)).collect();
        left.iter().rev().skip(FAILED_LOGS).try_for_each(|id| remove(&self.log(*id)))
    }

    /// The lowest id that was never used as far as the files tell. A counter that cannot be read is as good as none.
    pub(super) fn next_id(&self) -> io::Result<ReplicaId> {
        let counter =
            fs::read_to_string(self.counter()).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1);
        let used = self.ids("json")?.into_iter().chain(self.ids("log")?).max();
        Ok(used.map_or(ReplicaId(counter), |used| ReplicaId(counter.max(used.0.saturating_add(1)))))
    }

    /// Keeps the lowest id that was never used.
    pub(super) fn save_next_id(&self, next: ReplicaId) -> io::Result<()> {
        write_whole(&self.counter(), next.to_string().as_bytes())
    }

    fn counter(&self) -> PathBuf {
        self.path.join("next")
    }

    fn ids(&self, extension: &str) -> io::Result<Vec<ReplicaId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let id =
                name.to_str().and_then(|name| name.strip_suffix(extension)?.strip_suffix('.')?.parse().ok());
            ids.extend(id.map(ReplicaId));
        }
        ids.sort_unstable();
        Ok(ids)
    }
}

/// The boot in which the machine runs now.
pub(super) fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// Writes a file so that a reader, or the next run after a crash, finds all of it or what was there before.
/// A power cut may undo it, and then nothing of what it tells is alive either.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    fs::rename(&temporary, path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32) -> Record {
        let leader = Identity { pid: 4711, start: 42 };
        let (boot, recipe) = ("boot".to_owned(), "recipe".to_owned());
        Record {
            id: ReplicaId(id),
            leader,
            members: vec![leader],
            boot,
            port: 9000,
            capacity: Capacity::ONE,
            recipe,
        }
    }

    #[test]
    fn c005_records_come_back_in_order_and_torn_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        for id in [10, 2] {
            folder.save(&record(id)).unwrap();
        }
        fs::write(dir.path().join("3.json"), b"{\"id\":3,").unwrap();
        fs::write(dir.path().join("4.json"), serde_json::to_vec(&record(5)).unwrap()).unwrap();
        assert_eq!(folder.load().unwrap(), (vec![record(2), record(10)], vec![ReplicaId(3), ReplicaId(4)]));
    }

    #[test]
    fn c005_ids_are_never_reused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        assert_eq!(folder.next_id().unwrap(), ReplicaId(1));
        folder.save_next_id(ReplicaId(7)).unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(7));
        folder.save(&record(9)).unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(10));
        folder.forget(ReplicaId(9), false).unwrap();
        fs::write(dir.path().join("next"), b"").unwrap();
        fs::write(folder.log(ReplicaId(12)), b"").unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(13));
    }

    #[test]
    fn only_the_last_logs_of_failed_replicas_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        for id in 1..=9 {
            folder.save(&record(id)).unwrap();
            fs::write(folder.log(ReplicaId(id)), b"boom").unwrap();
        }
        folder.forget(ReplicaId(9), false).unwrap();
        (2..=8).for_each(|id| folder.forget(ReplicaId(id), true).unwrap());
        let left: Vec<u32> = folder.ids("log").unwrap().into_iter().map(|id| id.0).collect();
        assert_eq!(left, [1, 4, 5, 6, 7, 8]);
    }
}
