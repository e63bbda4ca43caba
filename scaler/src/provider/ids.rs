//! Hands out the ids of replicas: each once, whatever crashes in between (C-005).
//!
//! Never starts anything.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_shared::id::ReplicaId;
use tracing::warn;

use super::folder::Folder;

/// The largest id that can be one of ours: with a start a second it takes 34 years to get there. A larger one is garbage,
/// and taken for real it would use up all ids at once.
pub(super) const LARGEST: ReplicaId = ReplicaId(1 << 30);

/// The ids of one deployment.
#[derive(Debug)]
pub(super) struct Ids {
    folder: Folder,
    next: Mutex<ReplicaId>,
}

impl Ids {
    /// The ids of the deployment that has `folder`, of which those from `next` on were never used.
    pub(super) fn new(folder: Folder, next: ReplicaId) -> Self {
        Self { folder, next: Mutex::new(next) }
    }

    fn lock(&self) -> MutexGuard<'_, ReplicaId> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lowest id that was never used.
    pub(super) fn next(&self) -> ReplicaId {
        *self.lock()
    }

    /// An id turned up that was used, whatever the records say; one over [`LARGEST`] was not.
    pub(super) fn saw(&self, id: ReplicaId) {
        if id > LARGEST {
            return;
        }
        let mut lowest = self.lock();
        *lowest = ReplicaId(lowest.0.max(id.0.saturating_add(1)));
    }

    /// Marks `id` as used for ever, on disk before this returns where the disk takes it. A full one keeps nobody from being
    /// started: then the logs of replicas, and what the provider lists, tell the next run which ids were used. The error is
    /// for people.
    pub(super) fn take(&self, id: ReplicaId) -> Result<(), String> {
        let mut lowest = self.lock();
        if id < *lowest {
            return Err(format!("that id was used before; the lowest free one is {lowest}"));
        }
        let next = ReplicaId(id.0.checked_add(1).ok_or("there is no id after it")?);
        if let Err(error) = self.folder.save_next_id(next) {
            warn!("the next id, {next}, is not on disk, and goes on from memory: {error}");
        }
        *lowest = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c005_a_disk_that_takes_nothing_keeps_no_id_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("not there"));
        folder.save_next_id(ReplicaId(2)).unwrap_err();
        let ids = Ids::new(folder, ReplicaId(1));
        assert_eq!(ids.take(ReplicaId(1)), Ok(()));
        assert_eq!(ids.next(), ReplicaId(2), "from memory");
        ids.take(ReplicaId(1)).unwrap_err();
    }

    #[test]
    fn c005_an_id_that_is_garbage_does_not_use_up_all_others() {
        let dir = tempfile::tempdir().unwrap();
        let ids = Ids::new(Folder::new(dir.path().to_owned()), ReplicaId(3));
        for garbage in [u32::MAX, u32::MAX - 1, LARGEST.0 + 1] {
            ids.saw(ReplicaId(garbage));
            assert_eq!(ids.next(), ReplicaId(3), "{garbage}");
        }
        ids.saw(ReplicaId(7));
        assert_eq!(ids.take(ids.next()), Ok(()));
        assert_eq!(ids.next(), ReplicaId(9));
    }
}
