//! What waits to be written. Of what is written over, only the last word is held, and of what is added, a bounded
//! number; so memory is bounded however long the disk is full.

use std::collections::{BTreeMap, VecDeque};

use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Money;
use tidegate_shared::time::Instant;

use super::Tuned;

/// Decisions that wait, of all deployments; beyond, the oldest go.
pub(super) const MOST_WAITING: usize = 4096;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) accounts: BTreeMap<DeploymentName, (Spent, Instant)>,
    /// A setting that is none any more is unset.
    pub(super) settings: BTreeMap<(DeploymentName, &'static str), (Option<String>, Instant)>,
    /// What is forgotten is none.
    pub(super) tuned: BTreeMap<DeploymentName, (Option<Tuned>, Instant)>,
    /// The URL of who is out; who is not out any more has none.
    pub(super) drained: BTreeMap<(DeploymentName, ReplicaId), (Option<String>, Instant)>,
    /// All that was ever added to the credit.
    pub(super) added: Option<Money>,
    pub(super) decisions: VecDeque<(DeploymentName, ScaleDecision)>,
    /// Decisions that were dropped because too many waited.
    pub(super) dropped: u64,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that wait.
    pub(super) fn len(&self) -> usize {
        let written_over = self.accounts.len() + self.settings.len() + self.tuned.len() + self.drained.len();
        written_over + usize::from(self.added.is_some()) + self.decisions.len()
    }

    pub(super) fn decided(&mut self, name: DeploymentName, decision: ScaleDecision) {
        self.decisions.push_back((name, decision));
        self.trim();
    }

    /// Takes back what could not be written; what came since is newer.
    pub(super) fn take_back(&mut self, failed: Self) {
        let newer = std::mem::replace(self, failed);
        self.accounts.extend(newer.accounts);
        self.settings.extend(newer.settings);
        self.tuned.extend(newer.tuned);
        self.drained.extend(newer.drained);
        self.added = newer.added.or(self.added);
        self.decisions.extend(newer.decisions);
        self.dropped = self.dropped.saturating_add(newer.dropped);
        self.trim();
    }

    fn trim(&mut self) {
        let over = self.decisions.len().saturating_sub(MOST_WAITING);
        self.decisions.drain(..over);
        self.dropped = self.dropped.saturating_add(u64::try_from(over).unwrap_or(u64::MAX));
    }
}
