//! Seals: a small file beside each finished part that tells, without reading it, whether the part is whole and the
//! one wanted. A seal holds while the files it names keep their size and time of change. Never decides what to do
//! about a broken one.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// How a seal is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The part is as it was when sealed.
    Whole,
    /// It was sealed for this pin, but a file has changed since. It may still be good: look closer.
    Changed,
    /// Never finished, or another version.
    Absent,
}

/// What is in a seal.
#[derive(Debug, Serialize, Deserialize)]
struct Seal {
    /// Which version and hashes.
    pin: String,
    /// The files whose change breaks the seal.
    files: Vec<Sealed>,
}

/// One file as it was when sealed; links are followed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sealed {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970.
    changed: u64,
}

impl Sealed {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = path.metadata()?;
        let age = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { path: path.to_owned(), bytes: meta.len(), changed })
    }
}

/// Looks at the seal at `at` for `pin`.
pub(super) fn look(at: &Path, pin: &str) -> State {
    let seal = fs::read(at).ok().and_then(|bytes| serde_json::from_slice::<Seal>(&bytes).ok());
    match seal {
        Some(seal) if seal.pin == pin => {
            let kept = |file: &Sealed| Sealed::of(&file.path).is_ok_and(|now| now == *file);
            if seal.files.iter().all(kept) { State::Whole } else { State::Changed }
        }
        _ => State::Absent,
    }
}

/// Seals `files` for `pin`.
///
/// # Errors
/// Whatever the file system says; then no seal is there, or the earlier one.
pub(super) fn seal(at: &Path, pin: &str, files: &[&Path]) -> io::Result<()> {
    let files = files.iter().map(|path| Sealed::of(path)).collect::<io::Result<_>>()?;
    let seal = serde_json::to_vec_pretty(&Seal { pin: pin.to_owned(), files })?;
    put(at, &seal)
}

/// Writes a file so that it is there whole or not at all. The caller holds the lock of the folder.
///
/// # Errors
/// Whatever the file system says.
pub(super) fn put(at: &Path, content: &[u8]) -> io::Result<()> {
    let draft = at.with_extension("draft");
    let mut file = fs::File::create(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, at)
}
