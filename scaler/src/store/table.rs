//! What is written into the database and read out of it. One batch is one transaction: all of it is there afterwards,
//! or nothing. Decides only what of the past is dropped.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use serde::Serialize;
use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Money;
use tidegate_shared::time::{Duration, Instant};

use super::batch::Batch;
use super::epoch::{Epoch, Stamp};
use super::{Kept, KeptAccount, KeptDrain, KeptSetting, KeptTuned, Past, Tuned};

/// Decisions kept of one deployment. A fleet under varying load makes a few hundred in a day, and each takes about 300
/// bytes: some weeks, and under 2 MB.
pub const MOST_DECISIONS: u32 = 5000;
/// Older decisions are dropped,
const OLDEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// but for the last ones of each deployment that there is: a fleet that seldom changes has a past too.
const LAST_STAY: u32 = 100;
/// Accounts of deployments that are gone, settings of them and what was tuned, that are kept apart. Older accounts are added up in one.
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
        let whole = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        db.execute(
            "INSERT INTO run (boot, monotonic, wall) VALUES (?, ?, ?)",
            params![epoch.boot, whole(epoch.monotonic), whole(epoch.wall)],
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
        let (tuned, drained) = (self.tuned()?, self.drained()?);
        Ok(Kept { epoch: self.epoch.clone(), accounts, settings, tuned, drained, added })
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

    fn tuned(&self) -> rusqlite::Result<Vec<KeptTuned>> {
        let mut query = self.db.prepare(
            "SELECT deployment, target, model, kind, curve, boot, monotonic, wall, at FROM tuned \
             JOIN run ON run = run.id ORDER BY deployment",
        )?;
        let rows = query.query_map([], |row| {
            let name: String = row.get(0)?;
            let tuned =
                Tuned { target: row.get(1)?, model: row.get(2)?, kind: row.get(3)?, curve: row.get(4)? };
            Ok(KeptTuned { deployment: DeploymentName::new(&name), tuned, at: stamp(row, 5)? })
        })?;
        rows.collect()
    }

    fn drained(&self) -> rusqlite::Result<Vec<KeptDrain>> {
        let mut query = self.db.prepare(
            "SELECT deployment, replica, url, boot, monotonic, wall, at FROM drained JOIN run ON run = run.id \
             ORDER BY deployment, replica",
        )?;
        let rows = query.query_map([], |row| {
            let (name, replica): (String, u32) = (row.get(0)?, row.get(1)?);
            let (deployment, replica) = (DeploymentName::new(&name), ReplicaId(replica));
            Ok(KeptDrain { deployment, replica, url: row.get(2)?, at: stamp(row, 3)? })
        })?;
        rows.collect()
    }

    /// Writes a batch, or nothing of it.
    pub(super) fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let run = self.run;
        let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
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
