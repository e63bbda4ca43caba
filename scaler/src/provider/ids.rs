//! Hands out the ids of replicas: each once, whatever crashes in between (C-005).
//!
//! Never starts anything.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_shared::id::ReplicaId;

use super::folder::Folder;

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

    /// An id turned up that was used, whatever the records say.
    pub(super) fn saw(&self, id: ReplicaId) {
        let mut lowest = self.lock();
        *lowest = ReplicaId(lowest.0.max(id.0.saturating_add(1)));
    }

    /// Marks `id` as used for ever, on disk before this returns. The error is for people.
    pub(super) fn take(&self, id: ReplicaId) -> Result<(), String> {
        let mut lowest = self.lock();
        if id < *lowest {
            return Err(format!("that id was used before; the lowest free one is {lowest}"));
        }
        let next = ReplicaId(id.0.checked_add(1).ok_or("there is no id after it")?);
        self.folder.save_next_id(next).map_err(|error| format!("cannot keep the next id: {error}"))?;
        *lowest = next;
        Ok(())
    }
}
