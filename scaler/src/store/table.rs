//! What is written into the database and read out of it. One batch is one transaction: all of it is there afterwards,
//! or nothing. Decides only what of the past is dropped.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::offer::Money;
use tidegate_shared::time::{Duration, Instant};

use super::batch::Batch;
use super::epoch::{Epoch, Stamp};
use super::{Kept, KeptAccount, KeptSetting, Past};

/// Decisions kept of one deployment. A fleet under varying load makes a few hundred in a day, and each takes about 300
/// bytes: some weeks, and under 2 MB.
pub const MOST_DECISIONS: u32 = 5000;
/// Older decisions are dropped,
const OLDEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// but for the last ones of each deployment that there is: a fleet that seldom changes has a past too.
const LAST_STAY: u32 = 100;
/// Accounts of deployments that are gone, and settings of them, that are kept apart. Older accounts are added up in one.
const GONE: u32 = 256;

/// The open database of one run.
#[derive(Debug)]
pub(super) struct Table {
    db: Connection,
    epoch: Epoch,
    run: i64,
}

impl Table {
    /// Enters this run.
    pub(super) fn begin(db: Connection, epoch: Epoch) -> rusqlite::Result<Self> {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        db.execute(
            "INSERT INTO run (boot, monotonic, wall) VALUES (?, ?, ?)",
            params![epoch.boot, micros(epoch.monotonic), micros(epoch.wall)],
        )?;
        let run = db.last_insert_rowid();
        Ok(Self { db, epoch, run })
    }

    /// Drops what is too old, and gives what is kept. `names` are the deployments that there are.
    pub(super) fn restore(&mut self, names: &BTreeSet<DeploymentName>) -> rusqlite::Result<Kept> {
        self.forget(names)?;
        let accounts = self.accounts()?;
        let settings = self.settings()?;
        let added: Option<String> =
            self.db.query_row("SELECT added FROM credit", [], |row| row.get(0)).optional()?;
        let added = match added {
            Some(text) => Money(text.parse().map_err(|_| damaged("credit", &text))?),
            None => Money::default(),
        };
        Ok(Kept { epoch: self.epoch.clone(), accounts, settings, added })
    }

    fn accounts(&self) -> rusqlite::Result<Vec<KeptAccount>> {
        let mut query = self.db.prepare(
            "SELECT deployment, spent, boot, monotonic, wall, at FROM account JOIN run ON run = run.id \
             ORDER BY deployment <> '', run, at, deployment",
        )?;
        let rows = query.query_map([], |row| {
            let (name, spent): (String, String) = (row.get(0)?, row.get(1)?);
            Ok((name, spent, stamp(row, 2)?))
        })?;
        rows.map(|row| {
            let (name, spent, at) = row?;
            let spent: Spent = serde_json::from_str(&spent).map_err(|_| damaged("account", &name))?;
            Ok(KeptAccount { name: DeploymentName::new(&name), spent, at })
        })
        .collect()
    }

    fn settings(&self) -> rusqlite::Result<Vec<KeptSetting>> {
        let mut query = self.db.prepare(
            "SELECT deployment, key, value, boot, monotonic, wall, at FROM setting JOIN run ON run = run.id \
             ORDER BY deployment, key",
        )?;
        let rows = query.query_map([], |row| {
            let (name, key, value): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(KeptSetting { deployment: DeploymentName::new(&name), key, value, at: stamp(row, 3)? })
        })?;
        rows.collect()
    }

    /// Writes a batch, or nothing of it.
    pub(super) fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let at = |at: Instant| i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
        for (name, (spent, when)) in &batch.accounts {
            let spent = serde_json::to_string(spent).unwrap_or_default();
            change
                .prepare("REPLACE INTO account (deployment, spent, run, at) VALUES (?, ?, ?, ?)")?
                .execute(params![name.as_str(), spent, self.run, at(*when)])?;
        }
        for ((name, key), (value, when)) in &batch.settings {
            match value {
                Some(value) => change.execute(
                    "REPLACE INTO setting (deployment, key, value, run, at) VALUES (?, ?, ?, ?, ?)",
                    params![name.as_str(), key, value, self.run, at(*when)],
                )?,
                None => change.execute(
                    "DELETE FROM setting WHERE deployment = ? AND key = ?",
                    params![name.as_str(), key],
                )?,
            };
        }
        if let Some(added) = batch.added {
            change.execute("REPLACE INTO credit (id, added) VALUES (1, ?)", [added.0.to_string()])?;
        }
        let mut grown = BTreeSet::new();
        for (name, decision) in &batch.decisions {
            let body = serde_json::to_string(decision).unwrap_or_default();
            change
                .prepare("INSERT INTO decision (deployment, body, run, at) VALUES (?, ?, ?, ?)")?
                .execute(params![name.as_str(), body, self.run, at(decision.at)])?;
            grown.insert(name.as_str());
        }
        for name in grown {
            change.execute(KEEP_NEWEST, params![name, MOST_DECISIONS])?;
        }
        change.commit()
    }

    /// The newest decisions of a deployment that are written, newest first.
    pub(super) fn decisions(&self, name: &str, limit: u32, now: Instant) -> rusqlite::Result<Vec<Past>> {
        let mut query = self.db.prepare(
            "SELECT body, boot, monotonic, wall, at FROM decision JOIN run ON run = run.id WHERE deployment = ? \
             ORDER BY decision.id DESC LIMIT ?",
        )?;
        let rows = query.query_map(params![name, limit], |row| {
            let body: String = row.get(0)?;
            Ok((body, stamp(row, 1)?))
        })?;
        let mut found = Vec::new();
        for row in rows {
            let (body, at) = row?;
            // A kind of reason that this version does not know is no cause to show none.
            if let Ok(decision) = serde_json::from_str::<ScaleDecision>(&body) {
                found.push(Past { age: self.epoch.since(&at, now), decision });
            }
        }
        Ok(found)
    }

    /// Drops what nobody will ask for, so that the file does not grow for ever.
    fn forget(&mut self, names: &BTreeSet<DeploymentName>) -> rusqlite::Result<()> {
        let (oldest, own) = (i64::try_from(OLDEST.as_micros()).unwrap_or(i64::MAX), self.run);
        let accounts = self.accounts()?;
        let gone: Vec<_> = accounts.iter().filter(|account| !names.contains(&account.name)).collect();
        let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
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
            let all = serde_json::to_string(&all).unwrap_or_default();
            change.execute(
                "REPLACE INTO account (deployment, spent, run, at) VALUES ('', ?, ?, 0)",
                params![all, own],
            )?;
        }
        let names = serde_json::to_string(names).unwrap_or_default();
        change.execute(
            "DELETE FROM setting WHERE deployment NOT IN (SELECT value FROM json_each(?1)) AND (deployment, key) NOT IN \
             (SELECT deployment, key FROM setting WHERE deployment NOT IN (SELECT value FROM json_each(?1)) \
             ORDER BY run DESC, at DESC LIMIT ?2)",
            params![names, GONE],
        )?;
        change.execute(
            "DELETE FROM run WHERE id < ? AND id NOT IN (SELECT run FROM account UNION SELECT run FROM setting \
             UNION SELECT run FROM decision UNION SELECT run FROM tuned)",
            [own],
        )?;
        change.commit()
    }
}

/// Keeps the newest decisions of a deployment.
const KEEP_NEWEST: &str = "DELETE FROM decision WHERE deployment = ?1 AND id <= \
    (SELECT id FROM decision WHERE deployment = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";

/// The moment in the four columns from `from` on.
fn stamp(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<Stamp> {
    let time = |at: usize| row.get::<_, i64>(at).map(|micros| u64::try_from(micros).unwrap_or(0));
    let epoch = Epoch {
        boot: row.get(from)?,
        monotonic: Duration::from_micros(time(from + 1)?),
        wall: Duration::from_micros(time(from + 2)?),
    };
    Ok(Stamp { epoch, at: Instant::from_micros(time(from + 3)?) })
}

/// A row that cannot have been written here.
fn damaged(table: &str, what: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(format!("table {table} makes no sense at {what:?}")))
}
