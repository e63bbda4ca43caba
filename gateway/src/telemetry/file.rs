//! The file of a log, which other programs may move away or remove: then it is made anew (E4).
//!
//! Decides whether the path still names the open file. Never renames, cuts or removes one.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Device and number of the open file.
    id: (u64, u64),
    /// It could not be made anew, and that was told.
    stale: bool,
}

impl LogFile {
    /// Opens the file at `path` for writing at its end; makes it if it is not there.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let id = id(&file.metadata()?);
        Ok(Self { path: path.to_owned(), file, id, stale: false })
    }

    /// Opens the file that the path names, where that is another one or none; whether it did. Where that cannot be done,
    /// the old file takes what comes.
    pub(super) fn follow(&mut self) -> bool {
        if std::fs::metadata(&self.path).is_ok_and(|now| id(&now) == self.id) {
            self.stale = false;
            return false;
        }
        match Self::open(&self.path) {
            Ok(new) => {
                *self = new;
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.stale, true) {
                    let path = self.path.display();
                    tracing::warn!("the access log was moved away, and {path} cannot be made: {error}");
                }
                false
            }
        }
    }

    /// Writes what it can.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4_a_file_that_was_moved_or_removed_is_made_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("access.log");
        let mut log = LogFile::open(&path).expect("it is made");
        let mut line = |text: &[u8]| {
            let followed = log.follow();
            assert_eq!(log.write(text).expect("written"), text.len());
            followed
        };
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
        assert!(!line(b"1\n") && !line(b"2\n"));
        std::fs::rename(&path, dir.path().join("moved")).expect("moved");
        assert!(line(b"3\n") && !line(b"4\n"));
        assert_eq!((read("moved"), read("access.log")), ("1\n2\n".to_owned(), "3\n4\n".to_owned()));
        std::fs::remove_file(&path).expect("removed");
        assert!(line(b"5\n"));
        assert_eq!(read("access.log"), "5\n");
        // Cut to nothing, as by a copy that takes it all, it is still the same.
        File::create(&path).expect("cut");
        assert!(!line(b"6\n"));
        assert_eq!(read("access.log"), "6\n");
        // Its folder is gone: the old file is better than none.
        drop(dir);
        assert!(!line(b"7\n"));
    }
}
