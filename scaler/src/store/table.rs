//! What is written into the database and read out of it. One batch is one transaction: all of it is there afterwards,
//! or nothing. Decides what of the past is dropped, and what follows if the file is lost while it is open.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use serde::Serialize;
use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::time::{Duration, Instant};

use super::batch::Batch;
use super::epoch::Epoch;
use super::mirror::{self, Mirror};
use super::place::{self, Lost, Place};
use super::rows::{self, Unreadable};
use super::{Kept, Past, Tuned, schema};

/// Decisions kept of one deployment. A fleet under varying load makes a few hundred in a day, and each takes about 300
/// bytes: some weeks, and under 2 MB.
pub const MOST_DECISIONS: u32 = 5000;
/// Older decisions are dropped,
const OLDEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// but for the last ones of each deployment that there is: a fleet that seldom changes has a past too.
const LAST_STAY: u32 = 100;
/// Accounts of deployments that are gone, settings of them and what was tuned, that are kept apart. Older accounts are added up in one.
const GONE: u32 = 256;

/// What becomes of a file that is gone, and of one of which not all can be read any more.
const ANEW: &str = "it is made anew with all that was in it";
const FROM_MEMORY: &str = "it is made anew from memory, with all that was in it but for decisions before the last 256 of each deployment";
/// Decisions of each deployment that are given at the start.
const LAST: u32 = 32;

/// The open database of one run.
#[derive(Debug)]
pub(super) struct Table {
    /// None only between two tries to open a file that was made anew.
    db: Option<Connection>,
    /// The same in memory; none before all is read.
    mirror: Option<Mirror>,
    /// Changes by which of the writes of other programs it was told last.
    version: i64,
    place: Place,
    epoch: Epoch,
    run: i64,
    unreadable: Vec<Unreadable>,
}

impl Table {
    /// Enters this run.
    pub(super) fn begin(path: &Path, db: Connection, epoch: Epoch) -> rusqlite::Result<Self> {
        let whole = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        db.execute(
            "INSERT INTO run (boot, monotonic, wall) VALUES (?, ?, ?)",
            params![epoch.boot, whole(epoch.monotonic), whole(epoch.wall)],
        )?;
        let run = db.last_insert_rowid();
        let place = Place::of(path).map_err(|error| lost(&error))?;
        let version = version(&db)?;
        Ok(Self { db: Some(db), mirror: None, version, place, epoch, run, unreadable: Vec::new() })
    }

    /// Drops what is too old, and gives what is kept. `names` are the deployments that there are.
    pub(super) fn restore(&mut self, names: &BTreeSet<DeploymentName>) -> rusqlite::Result<Kept> {
        self.forget(names)?;
        self.mirror = Some(Mirror::of(self.place.path())?);
        self.place.mark();
        let (accounts, added) = (rows::accounts(self.db()?)?, rows::added(self.db()?)?);
        let settings = rows::settings(self.db()?);
        let settings = self.sifted(settings)?;
        let tuned = rows::tuned(self.db()?);
        let tuned = self.sifted(tuned)?;
        let drained = rows::drained(self.db()?);
        let drained = self.sifted(drained)?;
        let mut past = BTreeMap::new();
        for name in names {
            past.insert(name.clone(), self.decisions(name.as_str(), LAST, Instant::ZERO)?);
        }
        Ok(Kept { epoch: self.epoch.clone(), accounts, settings, tuned, drained, added, past })
    }

    /// The good rows; the others are told.
    fn sifted<T>(&mut self, read: rusqlite::Result<(Vec<T>, Vec<Unreadable>)>) -> rusqlite::Result<Vec<T>> {
        let (good, bad) = read?;
        self.unreadable.extend(bad);
        Ok(good)
    }

    /// Rows that were met since the last call and cannot be read.
    pub(super) fn unreadable(&mut self) -> Vec<Unreadable> {
        std::mem::take(&mut self.unreadable)
    }

    /// Sees that what is written is found again: a file that was deleted is made anew, with all that was in it, since it
    /// is still open. Gives what had happened to it, if anything.
    ///
    /// # Errors
    /// Why it cannot be written to at present, for people.
    pub(super) fn settle(&mut self) -> Result<Option<String>, String> {
        if self.db.is_none() {
            self.connect().map_err(|error| schema::told(&error))?;
        }
        let found = self.place.look();
        let legible = found != Err(Lost::Touched);
        let lost = match found {
            Ok(()) => return Ok(None),
            Err(Lost::Replaced) => {
                let why = "another file lies there since; it is left as it is, and once it is moved away or deleted, the \
                           records are written there again";
                return Err(why.to_owned());
            }
            Err(Lost::Touched) if self.is_intact()? => return Ok(None),
            Err(Lost::Touched) => "was overwritten".to_owned(),
            Err(Lost::Gone) => "was deleted or moved away".to_owned(),
            Err(Lost::LogGone) => "has lost its log".to_owned(),
            Err(Lost::Cut(length)) => format!("was cut off to {length} bytes"),
        };
        let made = self.make_anew(legible);
        let how =
            made.map_err(|why| format!("it {lost} while it was in use, and cannot be made anew: {why}"))?;
        Ok(Some(format!("{lost} while it was in use; {how}")))
    }

    /// Whether a file that somebody has changed still holds all that was written. What another program wrote by way of
    /// the database is its right, as long as it is still this database.
    ///
    /// # Errors
    /// Why it cannot be read at present: nothing is known of it, so it is looked at again before anything is written.
    fn is_intact(&mut self) -> Result<bool, String> {
        let path = self.place.path().to_owned();
        let Some(mirror) = &self.mirror else { return Ok(true) };
        let by_others = self.db().and_then(version).is_ok_and(|now| now != self.version);
        let read = if by_others { mirror.is_ours(&path, self.run) } else { mirror.is_like(&path) };
        let intact = match read {
            Ok(intact) => intact,
            Err(error) => match error.sqlite_error_code() {
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) => false,
                _ => {
                    return Err(format!(
                        "somebody has changed it, and it cannot be read: {}",
                        schema::told(&error)
                    ));
                }
            },
        };
        if intact {
            let other = if by_others { Mirror::of(&path).ok() } else { None };
            self.mirror = other.or(self.mirror.take());
            self.version = self.db().and_then(version).unwrap_or(self.version);
            self.place.mark();
        }
        Ok(intact)
    }

    /// Copies all that is in the open database into a new file at its path, and goes on there; what is in memory only, where
    /// nothing more can be read or it is not `legible`. Tells which, for people.
    fn make_anew(&mut self, legible: bool) -> Result<String, String> {
        let path = self.place.path().to_owned();
        let other = if legible { None } else { Some(place::keep_other(&path)) };
        let other = other.transpose().map_err(|error| error.to_string())?;
        let new = place::begin(&path).map_err(|error| error.to_string())?;
        let into = new.to_str().ok_or("its path is no text")?;
        let db = self.db().map_err(|error| schema::told(&error))?;
        let copied = legible.then(|| db.execute("VACUUM INTO ?", [into]).map(drop));
        // What was written over it before it was deleted is not ours.
        let whole = match &self.mirror {
            Some(mirror) if !matches!(copied, Some(Ok(()))) || !mirror.is_like(&new).unwrap_or(false) => {
                place::begin(&path).map_err(|error| error.to_string())?;
                mirror.write(into).map_err(|error| schema::told(&error))?;
                false
            }
            _ => copied.transpose().map_err(|error| schema::told(&error))?.is_some(),
        };
        // It would write into the old file and delete the log of the new one.
        let kept = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        kept.map_err(|error| schema::told(&error))?;
        place::finish(&path).map_err(|error| error.to_string())?;
        self.db = None;
        self.connect().map_err(|error| schema::told(&error))?;
        let kept = other.map(|other| format!("what was written over it is {} now, and ", other.display()));
        Ok(format!("{}{}", kept.unwrap_or_default(), if whole { ANEW } else { FROM_MEMORY }))
    }

    fn connect(&mut self) -> rusqlite::Result<()> {
        let path = self.place.path().to_owned();
        let db = schema::open_again(&path)?;
        // Only a write makes the log.
        db.execute("UPDATE run SET boot = boot WHERE id = ?", [self.run])?;
        self.place = Place::of(&path).map_err(|error| lost(&error))?;
        self.version = version(&db)?;
        self.db = Some(db);
        Ok(())
    }

    /// The database, while it is open.
    fn db(&self) -> rusqlite::Result<&Connection> {
        self.db.as_ref().ok_or_else(closed)
    }

    fn change(&mut self) -> rusqlite::Result<Transaction<'_>> {
        let db = self.db.as_mut().ok_or_else(closed)?;
        db.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    /// Writes a batch, or nothing of it.
    pub(super) fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let run = self.run;
        put(self.change()?, batch, run, MOST_DECISIONS)?;
        self.place.mark();
        // What is in memory cannot be refused, but by a fault that the next read of the file shows.
        let written = self.mirror.as_mut().map(|mirror| {
            let change = mirror.db().transaction()?;
            put(change, batch, run, mirror::LAST)
        });
        if !matches!(written, Some(Ok(()))) {
            // The batch is on the disk: a copy that cannot be had is tried for again behind the next one.
            self.mirror = Mirror::of(self.place.path()).ok();
        }
        Ok(())
    }

    /// The newest decisions of a deployment that are written, newest first.
    pub(super) fn decisions(&mut self, name: &str, limit: u32, now: Instant) -> rusqlite::Result<Vec<Past>> {
        let read = rows::decisions(self.db()?, name, limit, (&self.epoch, now));
        self.sifted(read)
    }

    /// Drops what nobody will ask for, so that the file does not grow for ever.
    fn forget(&mut self, names: &BTreeSet<DeploymentName>) -> rusqlite::Result<()> {
        let (oldest, own) = (i64::try_from(OLDEST.as_micros()).unwrap_or(i64::MAX), self.run);
        let accounts = rows::accounts(self.db()?)?;
        let gone: Vec<_> = accounts.iter().filter(|account| !names.contains(&account.name)).collect();
        let change = self.change()?;
        let deployments: Vec<String> = change
            .prepare("SELECT DISTINCT deployment FROM decision")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for name in deployments {
            let stay = if names.contains(&DeploymentName::new(&name)) { LAST_STAY } else { 0 };
            change.execute(
                "DELETE FROM decision WHERE deployment = ?1 AND id NOT IN \
                 (SELECT id FROM decision WHERE deployment = ?1 ORDER BY id DESC LIMIT ?2) AND \
                 (SELECT wall + at FROM run WHERE id = run) < (SELECT wall FROM run WHERE id = ?3) - ?4",
                params![name, stay, own, oldest],
            )?;
        }
        // Oldest first, after what is added up already: that has no name, as no deployment does.
        let over = gone.len().saturating_sub(usize::try_from(GONE).unwrap_or(usize::MAX));
        if over > 0 {
            let mut all = Spent::default();
            for account in gone.iter().take(over + 1) {
                all.absorb(&account.spent);
                change.execute("DELETE FROM account WHERE deployment = ?", [account.name.as_str()])?;
            }
            let all = json(&all)?;
            change.execute(
                "REPLACE INTO account (deployment, spent, run, at) VALUES ('', ?, ?, 0)",
                params![all, own],
            )?;
        }
        forget_choices(&change, names)?;
        change.execute(
            "DELETE FROM run WHERE id < ? AND id NOT IN (SELECT run FROM account UNION SELECT run FROM setting \
             UNION SELECT run FROM decision UNION SELECT run FROM tuned UNION SELECT run FROM drained)",
            [own],
        )?;
        change.commit()
    }
}

/// Writes a batch, of which so many decisions of each deployment are kept, or nothing of it.
fn put(change: Transaction<'_>, batch: &Batch, run: i64, keep: u32) -> rusqlite::Result<()> {
    for (name, (spent, when)) in &batch.accounts {
        change.execute(
            "REPLACE INTO account (deployment, spent, run, at) VALUES (?, ?, ?, ?)",
            params![name.as_str(), json(spent)?, run, micros(*when)],
        )?;
    }
    if let Some(added) = batch.added {
        change.execute("REPLACE INTO credit (id, added) VALUES (1, ?)", [added.0.to_string()])?;
    }
    write_choices(&change, batch, run)?;
    let mut grown = BTreeSet::new();
    for (name, decision) in &batch.decisions {
        change.execute(
            "INSERT INTO decision (deployment, body, run, at) VALUES (?, ?, ?, ?)",
            params![name.as_str(), json(decision)?, run, micros(decision.at)],
        )?;
        grown.insert(name.as_str());
    }
    for name in grown {
        change.execute(KEEP_NEWEST, params![name, keep])?;
    }
    change.commit()
}

/// Writes what operators have chosen.
fn write_choices(change: &Connection, batch: &Batch, run: i64) -> rusqlite::Result<()> {
    for ((name, key), (value, when)) in &batch.settings {
        match value {
            Some(value) => change.execute(
                "REPLACE INTO setting (deployment, key, value, run, at) VALUES (?, ?, ?, ?, ?)",
                params![name.as_str(), key, value, run, micros(*when)],
            )?,
            None => change.execute(
                "DELETE FROM setting WHERE deployment = ? AND key = ?",
                params![name.as_str(), key],
            )?,
        };
    }
    for (name, (tuned, when)) in &batch.tuned {
        match tuned {
            Some(Tuned { target, model, kind, curve }) => change.execute(
                "REPLACE INTO tuned (deployment, target, model, kind, curve, run, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
                params![name.as_str(), target, model, kind, curve, run, micros(*when)],
            )?,
            None => change.execute("DELETE FROM tuned WHERE deployment = ?", [name.as_str()])?,
        };
    }
    for ((name, id), (url, when)) in &batch.drained {
        match url {
            Some(url) => change.execute(
                "REPLACE INTO drained (deployment, replica, url, run, at) VALUES (?, ?, ?, ?, ?)",
                params![name.as_str(), id.0, url, run, micros(*when)],
            )?,
            None => change.execute(
                "DELETE FROM drained WHERE deployment = ? AND replica = ?",
                params![name.as_str(), id.0],
            )?,
        };
    }
    Ok(())
}

/// Drops what was chosen for deployments that are gone, but for the last of it.
fn forget_choices(change: &Connection, names: &BTreeSet<DeploymentName>) -> rusqlite::Result<()> {
    let names = json(names)?;
    change.execute(
        "DELETE FROM setting WHERE deployment NOT IN (SELECT value FROM json_each(?1)) AND (deployment, key) NOT IN \
         (SELECT deployment, key FROM setting WHERE deployment NOT IN (SELECT value FROM json_each(?1)) \
         ORDER BY run DESC, at DESC LIMIT ?2)",
        params![names, GONE],
    )?;
    change.execute(
        "DELETE FROM tuned WHERE deployment NOT IN (SELECT value FROM json_each(?1)) AND deployment NOT IN \
         (SELECT deployment FROM tuned WHERE deployment NOT IN (SELECT value FROM json_each(?1)) \
         ORDER BY run DESC, at DESC LIMIT ?2)",
        params![names, GONE],
    )?;
    change
        .execute("DELETE FROM drained WHERE deployment NOT IN (SELECT value FROM json_each(?1))", [&names])?;
    Ok(())
}

/// As it is written; what cannot be is not written at all, rather than as nothing.
fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_micros()).unwrap_or(i64::MAX)
}

/// Keeps the newest decisions of a deployment.
const KEEP_NEWEST: &str = "DELETE FROM decision WHERE deployment = ?1 AND id <= \
    (SELECT id FROM decision WHERE deployment = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";

/// Another number after each write of another program.
fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "data_version", |row| row.get(0))
}

/// The file is not there any more.
fn lost(error: &std::io::Error) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}

fn closed() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some("the file is not open".to_owned()))
}
