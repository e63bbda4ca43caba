//! The database file: how it is opened, checked and brought to the present schema. Everything that can be wrong with it
//! is found here, before anything is served.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use thiserror::Error;
use tidegate_shared::time::Duration;

use super::place;

/// Marks the file as Tidegate's ("tide"), so that a database of something else is not taken for damaged or empty.
const APPLICATION: i32 = 0x7469_6465;
/// How long another program that looks into the file may hold up a write.
const BUSY: Duration = Duration::from_secs(1);
/// What remains of the log of writes after a checkpoint, at most, in bytes.
const LOG_SIZE: i64 = 4 << 20;

/// The smallest page of any SQLite file, in bytes.
const LEAST_PAGE: u64 = 512;

/// The schema of this version.
const SCHEMA: u32 = 1;

/// One step of the schema each; never changed once it was released.
const STEPS: [&str; SCHEMA as usize] = ["
    CREATE TABLE run (
        id INTEGER PRIMARY KEY, boot TEXT NOT NULL, monotonic INTEGER NOT NULL, wall INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE setting (
        deployment TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        run INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (deployment, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE account (
        deployment TEXT PRIMARY KEY, spent TEXT NOT NULL, run INTEGER NOT NULL, at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE credit (id INTEGER PRIMARY KEY CHECK (id = 1), added TEXT NOT NULL) STRICT;
    CREATE TABLE decision (
        id INTEGER PRIMARY KEY, deployment TEXT NOT NULL, body TEXT NOT NULL,
        run INTEGER NOT NULL, at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX decision_of ON decision (deployment, id);
    CREATE TABLE tuned (
        deployment TEXT PRIMARY KEY, target INTEGER NOT NULL CHECK (target > 0),
        model TEXT NOT NULL, kind TEXT NOT NULL, curve TEXT NOT NULL,
        run INTEGER NOT NULL, at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE drained (
        deployment TEXT NOT NULL, replica INTEGER NOT NULL, url TEXT NOT NULL,
        run INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (deployment, replica)
    ) STRICT, WITHOUT ROWID;
"];

/// Why the database cannot be used. Nothing is served then: without it, money would be spent twice and sizes forgotten.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It cannot be opened, read or written.
    #[error("cannot use the records in {}: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the database or the system said.
        why: String,
    },
    /// Its content makes no sense.
    #[error(
        "the records in {} are damaged: {why}\nPut back a copy of the file, or move it away to begin anew: what was \
         spent, and what was set while the gateway ran, is then forgotten.",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// It belongs to another program.
    #[error("{} is the database of another program; give another state_dir", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of Tidegate wrote it.
    #[error(
        "the records in {} are from a newer version of Tidegate: they have schema {found}, and this one knows schemas \
         up to {known}",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema that it has.
        found: u32,
        /// The newest schema that is understood.
        known: u32,
    },
}

impl StoreError {
    /// What `error`, met while the file at `path` was opened, comes to.
    pub(super) fn of(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, why) = (path.to_owned(), told(error));
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, why },
            // The database tells no more than that the disk did not do it.
            Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull | ErrorCode::CannotOpen) => {
                let why =
                    place::refusal(&path).map_or_else(|| why.clone(), |cause| format!("{cause} ({why})"));
                Self::Unusable { path, why }
            }
            _ => Self::Unusable { path, why },
        }
    }

    /// What `error` of the system, met there, comes to.
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        let why = place::refusal(path).unwrap_or_else(|| error.to_string());
        Self::Unusable { path: path.to_owned(), why }
    }
}

/// An error for people, without the name of the enum that it comes from.
pub(super) fn told(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, Some(text)) => match code.code {
            ErrorCode::DiskFull => format!("{text} (no space is left, or a quota is used up)"),
            ErrorCode::DatabaseBusy => format!("{text} (another program works with the file)"),
            _ => text.clone(),
        },
        other => other.to_string(),
    }
}

/// Opens the file at `path`, which is made if none is there, and proves that it is whole and can be written.
///
/// Write-ahead logging keeps every commit whole through `kill -9`. `synchronous = FULL` keeps it through a power cut too,
/// since an answer of the API says that something is saved; a commit is made about once a second at most, so the wait
/// for the disk is of no matter.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::of(path, &error);
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        make(path)?;
    }
    whole(path)?;
    let mut db = connect(path).map_err(failed)?;
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    let found: u32 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    if application != APPLICATION {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    if found > SCHEMA {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: SCHEMA });
    }
    check(&db).map_err(|why| StoreError::Damaged { path: path.to_owned(), why })?;
    prepare(&db).map_err(failed)?;
    migrate(&mut db, found).map_err(failed)?;
    Ok(db)
}

/// Whether all of it can be read; if not, why.
pub(super) fn check(db: &Connection) -> Result<(), String> {
    let verdict = db.pragma_query_value(None, "quick_check", |row| row.get::<_, String>(0));
    match verdict.map_err(|error| told(&error))?.as_str() {
        "ok" => Ok(()),
        damage => Err(damage.to_owned()),
    }
}

/// Opens the file at `path` again, which was made or proven whole by this process.
pub(super) fn open_again(path: &Path) -> rusqlite::Result<Connection> {
    let db = connect(path)?;
    prepare(&db)?;
    Ok(db)
}

/// The file at `path`, which must be there.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    Ok(db)
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "journal_size_limit", LOG_SIZE)
}

/// Makes a new file at `path`, with nothing in it but the schema.
fn make(path: &Path) -> Result<(), StoreError> {
    let new = place::begin(path).map_err(|error| StoreError::io(path, &error))?;
    let made = Connection::open(&new).and_then(|mut db| {
        migrate(&mut db, 0)?;
        db.close().map_err(|(_, error)| error)
    });
    made.map_err(|error| StoreError::of(path, &error))?;
    place::finish(path).map_err(|error| StoreError::io(path, &error))
}

/// A file ends with a page, unless a write was cut that its log makes good. SQLite itself takes what is missing for zeros,
/// and what is shorter than any page for an empty file, which it would begin anew.
fn whole(path: &Path) -> Result<(), StoreError> {
    let Some(length) = fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| found.len())
    else {
        return Ok(());
    };
    let why = match length {
        0 => "it is empty, which no file of Tidegate's ever is: somebody has emptied it, or the disk has"
            .to_owned(),
        length if length.is_multiple_of(LEAST_PAGE) || place::has_log(path, length, LEAST_PAGE) => {
            return Ok(());
        }
        length => format!("it is cut off after {length} bytes"),
    };
    Err(StoreError::Damaged { path: path.to_owned(), why })
}

/// Brings the schema from step `found` to the last, all or nothing.
pub(super) fn migrate(db: &mut Connection, found: u32) -> rusqlite::Result<()> {
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in STEPS.iter().skip(done) {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "application_id", APPLICATION)?;
    change.pragma_update(None, "user_version", SCHEMA)?;
    change.commit()
}
