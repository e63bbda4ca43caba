//! What survives a restart: sizes that were set or tuned while the gateway ran, replicas that were taken out, what was
//! spent, top-ups and past decisions, in one SQLite file of the state directory. One thread writes it; whoever has
//! something to keep leaves it there and goes on. Decides nothing about any of it.

mod batch;
mod epoch;
mod mirror;
mod place;
mod rows;
mod schema;
mod table;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Money;
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::oneshot;

pub use batch::Waiting;
pub use epoch::{Epoch, Stamp};
pub use schema::StoreError;
pub use table::MOST_DECISIONS;
use table::Table;
use writer::{Ask, Desk};

/// The file in the state directory. It begins with a dot, as no folder of a deployment does.
pub const FILE: &str = ".tidegate.db";

/// What an earlier run left.
#[derive(Clone, Debug)]
pub struct Kept {
    /// When this run began.
    pub epoch: Epoch,
    /// What was spent by each deployment that there ever was.
    pub accounts: Vec<KeptAccount>,
    /// Settings of the API.
    pub settings: Vec<KeptSetting>,
    /// What was found by tuning.
    pub tuned: Vec<KeptTuned>,
    /// Replicas that an operator took out.
    pub drained: Vec<KeptDrain>,
    /// All that was ever added to the credit beside the configured one.
    pub added: Money,
    /// The last decisions of each deployment that there is, newest first, with their ages at the start of this run.
    pub past: BTreeMap<DeploymentName, Vec<Past>>,
}

/// What one deployment had spent, and when that was so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAccount {
    /// Whose; empty for those that are gone for long, all together.
    pub name: DeploymentName,
    /// What.
    pub spent: Spent,
    /// When.
    pub at: Stamp,
}

/// One setting of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSetting {
    /// Of which deployment.
    pub deployment: DeploymentName,
    /// Its key, as in the configuration.
    pub key: String,
    /// Its value, as JSON.
    pub value: String,
    /// When it was set.
    pub at: Stamp,
}

/// What tuning found for one deployment (A1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Requests for each replica to aim at, at least 1.
    pub target: u32,
    /// The model that was measured, by the name that its engine knows; for another one this counts for nothing.
    pub model: String,
    /// The kind of replica that was measured, for people.
    pub kind: String,
    /// What was measured, as JSON.
    pub curve: String,
}

/// What tuning found, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTuned {
    /// For which deployment.
    pub deployment: DeploymentName,
    /// What.
    pub tuned: Tuned,
    /// When.
    pub at: Stamp,
}

/// A replica that an operator took out (C5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDrain {
    /// Of which deployment.
    pub deployment: DeploymentName,
    /// Which one.
    pub replica: ReplicaId,
    /// Its URL, where the configuration gives that; else empty, since the id alone says which one it is.
    pub url: String,
    /// When.
    pub at: Stamp,
}

/// A decision of this run or of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// How long ago it was made.
    pub age: Duration,
    /// What was decided; its moment is on the clock of its own run.
    pub decision: ScaleDecision,
}

/// How the store does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreView {
    /// The file.
    pub path: PathBuf,
    /// Why the last write failed; `None` once one has succeeded again.
    pub trouble: Option<String>,
    /// What waits to be written.
    pub waiting: Waiting,
    /// Decisions that were dropped because too many waited.
    pub dropped: u64,
    /// Rows that cannot be read and are left out, each with its table, its key and why; not more than 32.
    pub unreadable: Vec<String>,
}

/// A handle on the one store of a gateway; cheap to clone. All moments that it is given are by the clock that goes on while
/// the machine sleeps ([`crate::house::House::lasting`]).
#[derive(Clone, Debug)]
pub struct Store {
    desk: Arc<Desk>,
}

impl Store {
    /// Opens the file at `path`, which only this process may use, and starts its thread. `names` are the deployments
    /// that there are; of others, less is kept.
    ///
    /// # Errors
    /// See [`StoreError`]: the file is proven to be whole and writable.
    pub fn open(
        path: &Path,
        epoch: Epoch,
        names: &BTreeSet<DeploymentName>,
    ) -> Result<(Self, Kept), StoreError> {
        let failed = |error: rusqlite::Error| StoreError::of(path, &error);
        let db = schema::open(path)?;
        let mut table = Table::begin(path, db, epoch).map_err(failed)?;
        let kept = table.restore(names).map_err(failed)?;
        let desk = Arc::new(Desk::new(path));
        desk.note(&mut table);
        let thread = std::thread::Builder::new().name("store".to_owned());
        let (own, at) = (Arc::clone(&desk), path.to_owned());
        let started: std::io::Result<JoinHandle<()>> = thread.spawn(move || own.work(table));
        started.map_err(|error| StoreError::Unusable { path: at, why: error.to_string() })?;
        Ok((Self { desk }, kept))
    }

    /// What `name` had spent at `at`; written at once.
    pub fn account(&self, name: &DeploymentName, spent: Spent, at: Instant) {
        self.desk.leave_urgent(|batch| drop(batch.accounts.insert(name.clone(), (spent, at))));
    }

    /// A decision of `name`.
    pub fn decided(&self, name: &DeploymentName, decision: ScaleDecision) {
        self.desk.leave(|batch| batch.decided(name.clone(), decision));
    }

    /// A setting of `name`, as JSON; `None` unsets it.
    pub fn set(&self, name: &DeploymentName, key: &'static str, value: Option<String>, at: Instant) {
        self.desk.leave(|batch| drop(batch.settings.insert((name.clone(), key), (value, at))));
    }

    /// What tuning found for `name`; `None` forgets it.
    pub fn tuned(&self, name: &DeploymentName, tuned: Option<Tuned>, at: Instant) {
        self.desk.leave(|batch| drop(batch.tuned.insert(name.clone(), (tuned, at))));
    }

    /// Replica `id` of `name` is taken out, with its URL (see [`KeptDrain`]); `None`: it is not, or is gone.
    pub fn drained(&self, name: &DeploymentName, id: ReplicaId, url: Option<String>, at: Instant) {
        self.desk.leave(|batch| drop(batch.drained.insert((name.clone(), id), (url, at))));
    }

    /// All that was ever added to the credit.
    pub fn added(&self, added: Money) {
        self.desk.leave(|batch| batch.added = Some(added));
    }

    /// Everything that was left here before this call is written now.
    ///
    /// # Errors
    /// Why it is not, for people; it stays in memory and is tried again.
    pub async fn flush(&self) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        self.desk.ask(Ask::Flush(reply))?;
        answer.await.unwrap_or_else(|_| Err(ENDED.to_owned()))
    }

    /// The last decisions of `name`, newest first, at most `limit`.
    ///
    /// # Errors
    /// Why they cannot be read, for people.
    pub async fn decisions(
        &self,
        name: &DeploymentName,
        limit: u32,
        now: Instant,
    ) -> Result<Vec<Past>, String> {
        let (reply, answer) = oneshot::channel();
        self.desk.ask(Ask::Decisions { name: name.clone(), limit, now, reply })?;
        answer.await.unwrap_or_else(|_| Err(ENDED.to_owned()))
    }

    /// The row of `name` and `key` in `table` says what nobody understands; it is told until it is written anew.
    pub fn unreadable(&self, table: &str, name: &DeploymentName, key: &str, why: String) {
        self.desk.unreadable(rows::name(table, name.as_str(), key), why);
    }

    /// How it does.
    pub fn view(&self) -> StoreView {
        self.desk.view()
    }

    /// Writes what is left and ends the thread; resolves when it has ended.
    pub async fn close(&self) {
        let (reply, ended) = oneshot::channel();
        self.desk.close(reply);
        let _ = ended.await;
    }
}

const ENDED: &str = "the store has ended";

#[cfg(test)]
mod tests;
