//! The folder of one deployment below the state directory: a small file per replica, its log beside it, and the next
//! free id.
//!
//! Never decides what a record is worth; a file that makes no sense is as good as none.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_shared::id::ReplicaId;

use super::ids::LARGEST;

/// How many logs of replicas that ended by themselves are kept.
pub(super) const FAILED_LOGS: usize = 5;

/// What the records of a deployment tell.
#[derive(Debug)]
pub(super) struct Records<R> {
    /// Those that can be read, in order of id.
    pub(super) good: Vec<(ReplicaId, R)>,
    /// The ids of those that cannot.
    pub(super) torn: Vec<ReplicaId>,
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

    /// A file of the provider's own, beside those of the replicas.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn record(&self, id: ReplicaId) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }

    /// Keeps the record of a replica, in place of its earlier one.
    pub(super) fn save(&self, id: ReplicaId, record: &impl Serialize) -> io::Result<()> {
        write_whole(&self.record(id), &serde_json::to_vec(record)?)
    }

    /// Every record.
    pub(super) fn load<R: DeserializeOwned>(&self) -> io::Result<Records<R>> {
        let mut records = Records { good: Vec::new(), torn: Vec::new() };
        for id in self.ids("json")? {
            match serde_json::from_slice(&fs::read(self.record(id))?) {
                Ok(record) => records.good.push((id, record)),
                Err(_) => records.torn.push(id),
            }
        }
        Ok(records)
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

    /// The lowest id that was never used as far as the files tell. A counter that cannot be read, or that no id can have
    /// come to, is as good as none.
    pub(super) fn next_id(&self) -> io::Result<ReplicaId> {
        let counter = fs::read_to_string(self.counter()).ok().and_then(|text| text.trim().parse().ok());
        let counter = counter.filter(|next| *next <= LARGEST.0).unwrap_or(1);
        let used = self.ids("json")?.into_iter().chain(self.ids("log")?).filter(|id| *id <= LARGEST).max();
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

    #[test]
    fn c005_ids_are_never_reused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        assert_eq!(folder.next_id().unwrap(), ReplicaId(1));
        folder.save_next_id(ReplicaId(7)).unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(7));
        folder.save(ReplicaId(9), &"a record").unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(10));
        folder.forget(ReplicaId(9), false).unwrap();
        fs::write(folder.log(ReplicaId(u32::MAX)), b"").unwrap();
        fs::write(dir.path().join("next"), b"4294967295").unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(1), "garbage");
        fs::write(dir.path().join("next"), b"").unwrap();
        fs::write(folder.log(ReplicaId(12)), b"").unwrap();
        assert_eq!(folder.next_id().unwrap(), ReplicaId(13));
    }

    #[test]
    fn only_the_last_logs_of_failed_replicas_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        for id in 1..=9 {
            folder.save(ReplicaId(id), &"a record").unwrap();
            fs::write(folder.log(ReplicaId(id)), b"boom").unwrap();
        }
        folder.forget(ReplicaId(9), false).unwrap();
        (2..=8).for_each(|id| folder.forget(ReplicaId(id), true).unwrap());
        let left: Vec<u32> = folder.ids("log").unwrap().into_iter().map(|id| id.0).collect();
        assert_eq!(left, [1, 4, 5, 6, 7, 8]);
    }
}
