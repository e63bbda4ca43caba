//! The store's thread: it takes what was left, writes it in batches, and tries again while the disk does not take it.
//! Nobody waits for it but who asks; what is left here is held in memory until it is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant as Clock;

use tidegate_shared::id::DeploymentName;
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::batch::{Batch, Waiting};
use super::rows::Unreadable;
use super::schema::told;
use super::table::Table;
use super::{ENDED, Past, StoreView};

/// What comes within this time is written together, except accounts: a power cut costs no more than that.
const PACE: Duration = Duration::from_secs(1);
/// The pause after a failed write; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often the file is looked at while there is nothing to write: somebody may have deleted it.
const LOOK: Duration = Duration::from_secs(5);
/// Rows that are told to be unreadable, at most.
const MOST_UNREADABLE: usize = 32;
/// Questions that may wait at one time.
const MOST_ASKS: usize = 64;

/// Something that waits for an answer.
#[derive(Debug)]
pub(super) enum Ask {
    Flush(oneshot::Sender<Result<(), String>>),
    Decisions {
        name: DeploymentName,
        limit: u32,
        now: Instant,
        reply: oneshot::Sender<Result<Vec<Past>, String>>,
    },
}

/// The thread is over, by a panic too.
pub(super) struct End<'a>(pub(super) &'a Desk);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.asks.clear();
        if state.closing.is_empty() {
            state.trouble = Some(ENDED.to_owned());
        }
        for reply in state.closing.drain(..) {
            let _ = reply.send(());
        }
    }
}

/// Where things are left for the thread.
#[derive(Debug)]
pub(super) struct Desk {
    path: PathBuf,
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    /// What is being written just now.
    writing: Waiting,
    /// Rows that cannot be read, and why.
    unreadable: BTreeMap<String, String>,
    /// Something of the batch is not to wait, unless the disk takes nothing.
    urgent: bool,
    asks: Vec<Ask>,
    trouble: Option<String>,
    closing: Vec<oneshot::Sender<()>>,
    ended: bool,
}

impl Desk {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), state: Mutex::default(), left: Condvar::new() }
    }

    /// Leaves something to be written.
    pub(super) fn leave(&self, put: impl FnOnce(&mut Batch)) {
        let mut state = self.lock();
        let idle = state.batch.is_empty();
        put(&mut state.batch);
        drop(state);
        if idle {
            self.left.notify_one();
        }
    }

    /// Leaves something that is written without a wait for more, with all that was left before.
    pub(super) fn leave_urgent(&self, put: impl FnOnce(&mut Batch)) {
        let mut state = self.lock();
        put(&mut state.batch);
        state.urgent = true;
        drop(state);
        self.left.notify_one();
    }

    /// Asks; the error is for people.
    pub(super) fn ask(&self, ask: Ask) -> Result<(), String> {
        let mut state = self.lock();
        if state.ended {
            return Err(ENDED.to_owned());
        }
        if state.asks.len() >= MOST_ASKS {
            return Err("too many ask at one time".to_owned());
        }
        state.asks.push(ask);
        drop(state);
        self.left.notify_one();
        Ok(())
    }

    /// Ends the thread.
    pub(super) fn close(&self, reply: oneshot::Sender<()>) {
        let mut state = self.lock();
        if !state.ended {
            state.closing.push(reply);
            drop(state);
            self.left.notify_one();
        }
    }

    pub(super) fn view(&self) -> StoreView {
        let state = self.lock();
        StoreView {
            path: self.path.clone(),
            trouble: state.trouble.clone(),
            waiting: state.batch.waiting().and(state.writing),
            dropped: state.batch.dropped,
            unreadable: state.unreadable.iter().map(|(row, why)| format!("{row}: {why}")).collect(),
        }
    }

    /// The thread. However it ends, nobody waits for it afterwards, and the status says so.
    pub(super) fn work(&self, table: Table) {
        let end = End(self);
        self.write_until_closed(table);
        drop(end);
    }

    fn write_until_closed(&self, mut table: Table) {
        let mut failed = None;
        let mut retry = RETRY_MIN;
        loop {
            let (batch, asks, closing) = self.next(failed);
            let written = self.write(&mut table, batch);
            (failed, retry) = match written {
                Ok(()) => (None, RETRY_MIN),
                Err(_) => (Some(retry), (retry * 2).min(RETRY_MAX)),
            };
            for ask in asks {
                self.answer(&mut table, ask, &written);
            }
            if closing {
                break;
            }
        }
    }

    /// Waits until something is to be done, and for more unless that is urgent or somebody asks; takes it. After a write
    /// that `failed`, it waits for so long. From time to time there is nothing, and the file is looked at all the same.
    fn next(&self, failed: Option<Duration>) -> (Batch, Vec<Ask>, bool) {
        let mut state = self.lock();
        let (began, mut since) = (Clock::now(), None);
        loop {
            let urgent = !state.asks.is_empty() || !state.closing.is_empty();
            let pause = failed.unwrap_or(if state.urgent { Duration::ZERO } else { PACE });
            let waited = since.map_or(Duration::ZERO, |since: Clock| since.elapsed());
            if urgent || (!state.batch.is_empty() && waited >= pause) {
                break;
            }
            state = if state.batch.is_empty() {
                let rest = LOOK.saturating_sub(began.elapsed());
                if rest.is_zero() {
                    break;
                }
                self.left.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
            } else {
                since.get_or_insert_with(Clock::now);
                let rest = pause.saturating_sub(waited);
                self.left.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
            };
        }
        let batch = Batch { dropped: state.batch.dropped, ..Batch::default() };
        let batch = std::mem::replace(&mut state.batch, batch);
        (state.writing, state.urgent) = (batch.waiting(), false);
        (batch, std::mem::take(&mut state.asks), !state.closing.is_empty())
    }

    /// Writes a batch, or takes it back and says why.
    fn write(&self, table: &mut Table, batch: Batch) -> Result<(), String> {
        let settled = table.settle().map(|lost| {
            if let Some(lost) = lost {
                warn!("{} {lost}", self.path.display());
            }
        });
        let result = settled.and_then(|()| match batch.is_empty() {
            true => Ok(()),
            false => table.write(&batch).map_err(|error| told(&error)),
        });
        let mut state = self.lock();
        state.writing = Waiting::default();
        match &result {
            Ok(()) => {
                batch.keys().for_each(|key| drop(state.unreadable.remove(&key)));
                if state.trouble.take().is_some() {
                    info!("records are written to {} again", self.path.display());
                }
            }
            Err(why) => {
                if state.trouble.as_ref() != Some(why) {
                    warn!("records are held in memory, {} cannot be written: {why}", self.path.display());
                }
                state.trouble = Some(why.clone());
                // It has been counted by the batch that is there.
                state.batch.take_back(Batch { dropped: 0, ..batch });
            }
        }
        result
    }

    /// Rows that the table met and could not read are told from now on.
    pub(super) fn note(&self, table: &mut Table) {
        for Unreadable { row, why } in table.unreadable() {
            self.unreadable(row, why);
        }
    }

    /// The row of that table and key cannot be read.
    pub(super) fn unreadable(&self, row: String, why: String) {
        let mut state = self.lock();
        if state.unreadable.len() < MOST_UNREADABLE && !state.unreadable.contains_key(&row) {
            warn!("a row of {} cannot be read and is left out: {row}: {why}", self.path.display());
            state.unreadable.insert(row, why);
        }
    }

    fn answer(&self, table: &mut Table, ask: Ask, written: &Result<(), String>) {
        match ask {
            Ask::Flush(reply) => drop(reply.send(written.clone())),
            Ask::Decisions { name, limit, now, reply } => {
                let mut found = self.waiting(&name, limit, now);
                let rest = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                let read = table.decisions(name.as_str(), rest, now).map_err(|error| told(&error));
                self.note(table);
                drop(reply.send(read.map(|written| {
                    found.extend(written);
                    found
                })));
            }
        }
    }

    /// The decisions of `name` that could not be written yet, newest first.
    fn waiting(&self, name: &DeploymentName, limit: u32, now: Instant) -> Vec<Past> {
        let state = self.lock();
        let those = state.batch.decisions.iter().rev().filter(|(of, _)| of == name);
        let past = |(_, decision): &(_, tidegate_shared::decision::ScaleDecision)| Past {
            age: now.since(decision.at),
            decision: decision.clone(),
        };
        those.map(past).take(usize::try_from(limit).unwrap_or(usize::MAX)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
