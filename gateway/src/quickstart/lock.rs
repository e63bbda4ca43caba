//! One quickstart at a time works in a cache folder; the others wait and say so. The lock belongs to an open file,
//! and every child that changes the folder gets that file as its standard input: if the gateway is killed, the lock
//! lives on until the last such child is gone, so nobody works beside an orphan.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::error::Cause;
use super::progress::Progress;

/// How often a waiting quickstart looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Holds the folder until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Waits for the lock at `path`; its folder must be there. Cancelled by dropping the future.
    pub(super) async fn take(path: &Path, progress: &Progress) -> Result<Self, Cause> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(Cause::io("open", path))?;
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(why)) => return Err(Cause::io("lock", path)(why)),
            }
            if !said {
                progress.say("Another quickstart is fetching into the same folder; waiting for it …");
                said = true;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// A standard input that shares the lock: an empty file to read from.
    pub(super) fn as_stdin(&self) -> std::io::Result<Stdio> {
        Ok(self.file.try_clone()?.into())
    }
}
