//! What is read out of the database. A row that makes no sense is left out and told, and costs no other row; money is the
//! exception, since to leave a sum out would be to spend it twice.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::IgnoredAny;
use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Money;
use tidegate_shared::time::{Duration, Instant};

use super::epoch::{Epoch, Stamp};
use super::{KeptAccount, KeptDrain, KeptSetting, KeptTuned, Past, Tuned};

/// Longest part of a name or a value that is repeated to people, in characters.
const SHOWN: usize = 60;

/// A row that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// Its table and key, as [`name`] puts them.
    pub(super) row: String,
    /// What is wrong with it, for people.
    pub(super) why: String,
}

/// How the row of `deployment` and `key` in `table` is called.
pub(super) fn name(table: &str, deployment: &str, key: &str) -> String {
    let [deployment, key] = [deployment, key].map(shown);
    let space = if key.is_empty() { "" } else { " " };
    format!("{table} {deployment}{space}{key}")
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

/// Good rows, and beside them those that are not.
type Sifted<T> = rusqlite::Result<(Vec<T>, Vec<Unreadable>)>;

/// Reads all rows of `query`, a row of which is known by the columns `deployment` and `key` of `table`.
fn sift<T>(
    db: &Connection,
    query: &str,
    (table, deployment, key): (&str, usize, Option<usize>),
    read: impl Fn(&Row<'_>) -> Result<T, String>,
) -> Sifted<T> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut query = db.prepare(query)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(found) => good.push(found),
            Err(why) => {
                let key = key.map(|column| lossy(row, column)).unwrap_or_default();
                bad.push(Unreadable { row: name(table, &lossy(row, deployment), &key), why });
            }
        }
    }
    Ok((good, bad))
}

/// Whatever is in that column, as text.
fn lossy(row: &Row<'_>, column: usize) -> String {
    match row.get_ref(column) {
        Ok(rusqlite::types::ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Ok(rusqlite::types::ValueRef::Integer(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn why(error: rusqlite::Error) -> String {
    match error {
        rusqlite::Error::FromSqlConversionFailure(_, _, inner) => inner.to_string(),
        rusqlite::Error::InvalidColumnType(_, column, rusqlite::types::Type::Null) => {
            format!("it belongs to no run ({column} is missing)")
        }
        other => other.to_string(),
    }
}

/// The sum of each account.
pub(super) fn accounts(db: &Connection) -> rusqlite::Result<Vec<KeptAccount>> {
    let mut query = db.prepare(
        "SELECT deployment, spent, boot, monotonic, wall, at FROM account LEFT JOIN run ON run = run.id \
         ORDER BY deployment <> '', run, at, deployment",
    )?;
    let mut rows = query.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let read = || {
            let (name, spent): (String, String) = (row.get(0)?, row.get(1)?);
            Ok::<_, rusqlite::Error>((name, spent, stamp(row, 2)?))
        };
        let of = lossy(row, 0);
        let (name, spent, at) = read().map_err(|error| damaged("account", &of, &why(error)))?;
        let spent: Spent =
            serde_json::from_str(&spent).map_err(|error| damaged("account", &of, &error.to_string()))?;
        found.push(KeptAccount { name: DeploymentName::new(&name), spent, at });
    }
    Ok(found)
}

/// All that was ever added to the credit.
pub(super) fn added(db: &Connection) -> rusqlite::Result<Money> {
    let added = db.query_row("SELECT added FROM credit", [], |row| Ok(lossy(row, 0))).optional()?;
    let Some(text) = added else { return Ok(Money::default()) };
    text.parse().map(Money).map_err(|_| damaged("credit", "", &format!("{:?} is no amount", shown(&text))))
}

/// What was set.
pub(super) fn settings(db: &Connection) -> Sifted<KeptSetting> {
    let query = "SELECT deployment, key, value, boot, monotonic, wall, at FROM setting LEFT JOIN run ON run = run.id \
                 ORDER BY deployment, key";
    sift(db, query, ("setting", 0, Some(1)), |row| {
        let read = || {
            let (name, key, value): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(KeptSetting { deployment: DeploymentName::new(&name), key, value, at: stamp(row, 3)? })
        };
        let found = read().map_err(why)?;
        let is = serde_json::from_str::<IgnoredAny>(&found.value);
        is.map_err(|_| format!("its value {:?} is none", shown(&found.value)))?;
        Ok(found)
    })
}

/// What was tuned.
pub(super) fn tuned(db: &Connection) -> Sifted<KeptTuned> {
    let query = "SELECT deployment, target, model, kind, curve, boot, monotonic, wall, at FROM tuned \
                 LEFT JOIN run ON run = run.id ORDER BY deployment";
    sift(db, query, ("tuned", 0, None), |row| {
        let read = || {
            let name: String = row.get(0)?;
            let (target, model, kind, curve) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
            let tuned = Tuned { target, model, kind, curve };
            Ok(KeptTuned { deployment: DeploymentName::new(&name), tuned, at: stamp(row, 5)? })
        };
        let found: KeptTuned = read().map_err(why)?;
        let is = serde_json::from_str::<IgnoredAny>(&found.tuned.curve);
        is.map_err(|_| format!("its curve {:?} is none", shown(&found.tuned.curve)))?;
        Ok(found)
    })
}

/// Who is taken out.
pub(super) fn drained(db: &Connection) -> Sifted<KeptDrain> {
    let query = "SELECT deployment, replica, url, boot, monotonic, wall, at FROM drained \
                 LEFT JOIN run ON run = run.id ORDER BY deployment, replica";
    sift(db, query, ("drained", 0, Some(1)), |row| {
        let read = || {
            let (name, replica): (String, u32) = (row.get(0)?, row.get(1)?);
            let (deployment, replica) = (DeploymentName::new(&name), ReplicaId(replica));
            Ok(KeptDrain { deployment, replica, url: row.get(2)?, at: stamp(row, 3)? })
        };
        read().map_err(why)
    })
}

/// The newest decisions of a deployment, newest first, at most `limit`, as of `now` of the run of `epoch`.
pub(super) fn decisions(
    db: &Connection,
    of: &str,
    limit: u32,
    (epoch, now): (&Epoch, Instant),
) -> Sifted<Past> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut query = db.prepare(
        "SELECT body, boot, monotonic, wall, at, decision.id FROM decision LEFT JOIN run ON run = run.id \
         WHERE deployment = ? ORDER BY decision.id DESC",
    )?;
    let mut rows = query.query(params![of])?;
    while good.len() < usize::try_from(limit).unwrap_or(usize::MAX) {
        let Some(row) = rows.next()? else { break };
        let read = || Ok((row.get::<_, String>(0)?, stamp(row, 1)?));
        let read = read().map_err(why).and_then(|(body, at)| {
            let decision = serde_json::from_str::<ScaleDecision>(&body).map_err(|error| error.to_string())?;
            Ok(Past { age: epoch.since(&at, now), decision })
        });
        match read {
            Ok(past) => good.push(past),
            Err(why) => bad.push(Unreadable { row: name("decision", of, &lossy(row, 5)), why }),
        }
    }
    Ok((good, bad))
}

/// The moment in the four columns from `from` on.
fn stamp(row: &Row<'_>, from: usize) -> rusqlite::Result<Stamp> {
    let time = |at: usize| row.get::<_, i64>(at).map(|micros| u64::try_from(micros).unwrap_or(0));
    let epoch = Epoch {
        boot: row.get(from)?,
        monotonic: Duration::from_micros(time(from + 1)?),
        wall: Duration::from_micros(time(from + 2)?),
    };
    Ok(Stamp { epoch, at: Instant::from_micros(time(from + 3)?) })
}

/// A row that cannot have been written here.
fn damaged(table: &str, deployment: &str, why: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    let row = name(table, deployment, "");
    rusqlite::Error::SqliteFailure(code, Some(format!("the row {} makes no sense: {why}", row.trim_end())))
}
