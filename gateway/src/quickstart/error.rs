//! Why quickstart could not get a real engine: one cause, one sentence or two, and always the way on without one.
//! Nothing is decided here except the words.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Said after every cause.
const OFFER: &str = "Or try `tidegate quickstart --stand-in`: a stand-in engine that is built in, is no model, and needs nothing.";

/// A failed quickstart, for people: the cause, then the offer of the built-in engine.
#[derive(Debug, Error)]
#[error("{cause}\n{}", OFFER)]
pub struct QuickstartError {
    /// What stood in the way.
    pub cause: Cause,
}

/// What can stand in the way of a real engine.
#[derive(Debug, Error)]
pub enum Cause {
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set to an absolute path.
    #[error("no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path; set one of them")]
    NoCache,
    /// There is no Python at all.
    #[error(
        "python3 is not on PATH; fetching the engine takes Python 3.10 or later \
         (on Debian: apt install python3 python3-venv)"
    )]
    NoPython,
    /// The Python found cannot even say its version.
    #[error("{} does not run: {words}", .python.display())]
    BrokenPython {
        /// The interpreter.
        python: PathBuf,
        /// Its own last words.
        words: String,
    },
    /// The Python found is too old for the engine.
    #[error("{} is Python {found}; the engine needs Python 3.10 or later", .python.display())]
    OldPython {
        /// The interpreter.
        python: PathBuf,
        /// Its version.
        found: String,
    },
    /// Debian's Python without its venv package, or the like.
    #[error(
        "{} (Python {version}) lacks the module {module}, so it cannot make a virtual environment; \
         on Debian: apt install python{version}-venv", .python.display()
    )]
    NoVenv {
        /// The interpreter.
        python: PathBuf,
        /// Its version, `3.11`.
        version: String,
        /// The module that is missing.
        module: String,
    },
    /// A step of Python's own failed.
    #[error("{doing} failed: {words}")]
    Step {
        /// What was under way.
        doing: String,
        /// Python's or pip's own last words.
        words: String,
    },
    /// The package index cannot be reached.
    #[error("{what} failed: no way to the package index; pip says: {words}")]
    Network {
        /// What was under way: `Fetching xllamacpp 1`.
        what: String,
        /// Pip's own last words about the connection.
        words: String,
    },
    /// Something arrived that is not what was ordered. It is thrown away.
    #[error("{what}: not what it should be: expected {expected}, got {got}; it was thrown away")]
    Mismatch {
        /// The package or file.
        what: String,
        /// Its hash or size as pinned.
        expected: String,
        /// Its hash or size as found.
        got: String,
    },
    /// The disk is full.
    #[error("{what}: no space left in {}; about {} MB are needed while fetching", .dir.display(), .bytes / 1_000_000)]
    Full {
        /// What was being written.
        what: String,
        /// The cache folder.
        dir: PathBuf,
        /// Room needed in all, in bytes.
        bytes: u64,
    },
    /// The file system refuses.
    #[error("cannot {doing} {}: {why}", .path.display())]
    Io {
        /// A verb: `create`, `read`, …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
}

impl Cause {
    /// For `map_err`: `doing` is a verb.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |why| Self::Io { doing, path, why }
    }
}

impl From<Cause> for QuickstartError {
    fn from(cause: Cause) -> Self {
        Self { cause }
    }
}
