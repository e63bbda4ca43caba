//! What waits to be written. Of what is written over, only the last word is held, and of what is added, a bounded
//! number; so memory is bounded however long the disk is full.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Money;
use tidegate_shared::time::Instant;

use super::{Tuned, rows};

/// Decisions that wait, of all deployments; beyond, the oldest go.
pub(super) const MOST_WAITING: usize = 4096;

/// What is not on the disk yet, and would be lost with the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Deployments of which the sum is that was spent.
    pub accounts: usize,
    /// Settings that were set, unset or tuned.
    pub settings: usize,
    /// Replicas that were taken out or back in.
    pub drains: usize,
    /// Whether the credit was topped up.
    pub credit: bool,
    /// Decisions.
    pub decisions: usize,
}

impl Waiting {
    /// Records, of every kind.
    pub fn records(&self) -> usize {
        let Self { accounts, settings, drains, credit, decisions } = self;
        accounts + settings + drains + usize::from(*credit) + decisions
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.records() == 0
    }

    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            accounts: self.accounts + other.accounts,
            settings: self.settings + other.settings,
            drains: self.drains + other.drains,
            credit: self.credit || other.credit,
            decisions: self.decisions + other.decisions,
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let parts = [
            self.credit.then(|| "a top-up of the credit".to_owned()),
            counted(self.settings, "setting", "settings"),
            counted(self.drains, "drain", "drains"),
            counted(self.accounts, "account of what was spent", "accounts of what was spent"),
            counted(self.decisions, "decision", "decisions"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match parts.split_last() {
            None => f.write_str("nothing"),
            Some((one, [])) => f.write_str(one),
            Some((last, rest)) => write!(f, "{} and {last}", rest.join(", ")),
        }
    }
}

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
        self.waiting().is_empty()
    }

    /// How much waits.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            accounts: self.accounts.len(),
            settings: self.settings.len() + self.tuned.len(),
            drains: self.drained.len(),
            credit: self.added.is_some(),
            decisions: self.decisions.len(),
        }
    }

    /// The rows that it writes over, as they are named to people.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> {
        let settings = self.settings.keys().map(|(of, key)| rows::name("setting", of.as_str(), key));
        let tuned = self.tuned.keys().map(|of| rows::name("tuned", of.as_str(), ""));
        let drained =
            self.drained.keys().map(|(of, id)| rows::name("drained", of.as_str(), &id.0.to_string()));
        settings.chain(tuned).chain(drained)
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
