//! The file on the disk: whether what lies at its path is still what was opened, and how a new one comes to lie there. A
//! new one is made whole beside its path and renamed then, so an empty or short file at the path is always damage, and
//! never a start that was cut off. Knows nothing of what is in it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What SQLite keeps beside the file: its log, the index of that, and the log of the time before write-ahead logging.
const LOG: &str = "-wal";
const OF_SQLITE: [&str; 3] = [LOG, "-shm", "-journal"];
/// Where a new file is made.
const NEW: &str = "-new";
/// Where the last thing is kept that somebody wrote over the file.
const OTHER: &str = "-other";
/// What is written to find out why nothing can be, in bytes: more than the database asks for at once.
const TRIAL: usize = 256 << 10;

/// The file of an open database and its log, as they were when it was opened.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
    log: Option<(u64, u64)>,
    /// It never gets shorter.
    length: u64,
    /// When it was last changed, by whom does not matter as long as it is this process.
    changed: Changed,
}

/// The times of a file's last change: of its content, and of anything.
type Changed = (i64, i64, i64, i64);

/// What happened to an open file behind the back of the database, which would go on writing into what nobody finds again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It was deleted or moved away.
    Gone,
    /// Its log was.
    LogGone,
    /// It was cut off.
    Cut(u64),
    /// Another file lies at its path.
    Replaced,
    /// It was changed, and not by this process: whether anything is lost by it is to be read.
    Touched,
}

impl Place {
    /// Of the database that was just opened at `path` and has been written to.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let log = fs::metadata(beside(path, LOG)).ok().as_ref().map(identity);
        let (file, changed) = (identity(&found), changed(&found));
        Ok(Self { path: path.to_owned(), file, log, length: found.len(), changed })
    }

    /// Whether all is where it was. A path that cannot be looked at is for the write to tell.
    pub(super) fn look(&mut self) -> Result<(), Lost> {
        let found = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Lost::Gone),
            Err(_) => return Ok(()),
        };
        if identity(&found) != self.file {
            return Err(Lost::Replaced);
        }
        if found.len() < self.length {
            return Err(Lost::Cut(found.len()));
        }
        let log = fs::metadata(beside(&self.path, LOG)).ok().as_ref().map(identity);
        if log != self.log {
            return Err(Lost::LogGone);
        }
        if changed(&found) != self.changed {
            return Err(Lost::Touched);
        }
        self.length = found.len();
        Ok(())
    }

    /// This process has just written to it, or has read that what it wrote is there.
    pub(super) fn mark(&mut self) {
        if let Ok(found) = fs::metadata(&self.path)
            && identity(&found) == self.file
        {
            (self.length, self.changed) = (self.length.max(found.len()), changed(&found));
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn changed(found: &Metadata) -> Changed {
    (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
}

/// Keeps what somebody wrote over the file at `path`, beside it; gives where.
pub(super) fn keep_other(path: &Path) -> io::Result<PathBuf> {
    let kept = beside(path, OTHER);
    fs::rename(path, &kept)?;
    Ok(kept)
}

/// The path of what lies beside `path` under that ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(ending);
    PathBuf::from(name)
}

/// Whether a log lies beside `path` that makes good what a write left half done.
pub(super) fn has_log(path: &Path, length: u64, least: u64) -> bool {
    length >= least && [LOG, "-journal"].iter().any(|ending| beside(path, ending).exists())
}

/// Where a new file for `path` is made; what an earlier try left there is gone.
pub(super) fn begin(path: &Path) -> io::Result<PathBuf> {
    let new = beside(path, NEW);
    for ending in OF_SQLITE {
        remove(&beside(&new, ending))?;
    }
    remove(&new)?;
    Ok(new)
}

/// Puts the file that was made for `path` there, for good, and drops logs that belong to none or to an earlier one.
pub(super) fn finish(path: &Path) -> io::Result<()> {
    let new = beside(path, NEW);
    File::open(&new)?.sync_all()?;
    for ending in OF_SQLITE {
        remove(&beside(path, ending))?;
    }
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Why nothing can be written beside `path`, as the system says it; `None` if something can.
pub(super) fn refusal(path: &Path) -> Option<String> {
    let trial = beside(path, "-trial");
    let written = File::create(&trial).and_then(|mut file| {
        io::Write::write_all(&mut file, &vec![0; TRIAL])?;
        file.sync_all()
    });
    let _ = remove(&trial);
    written.err().map(|error| match error.kind() {
        io::ErrorKind::StorageFull => "no space is left on the disk".to_owned(),
        io::ErrorKind::QuotaExceeded => "the quota of the disk is used up".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => error.to_string(),
    })
}
