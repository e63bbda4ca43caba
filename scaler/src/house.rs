//! What all control loops of one gateway share: the budget, under one lock that is held for one evaluation and never
//! across a wait, so that what one loop orders, the next one knows (A6, M3, C-108); and the store in which accounts,
//! top-ups and decisions survive a restart. It decides nothing, and never waits for the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tidegate_scaler_core::budget::ledger::Spent;
use tidegate_scaler_core::budget::{Bounds, Budget, Moment};
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::time::{Duration, Instant};

use crate::store::{Epoch, Kept, KeptAccount, Stamp, Store};

/// How often an account is kept while nothing but time changes it. After a crash, what still runs is paid for to the
/// second all the same; only what died with the gateway costs so much too little.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// A handle on what is shared; cheap to clone. The default remembers nothing and bounds nothing.
///
/// Providers ask for money while the machine sleeps, and the clock that everybody else goes by stands still then. So all moments
/// in here, and in what is kept, are later by the time that was slept since the start ([`House::lasting`]).
#[derive(Clone, Debug, Default)]
pub struct House {
    shared: Arc<Mutex<Shared>>,
    records: Option<Records>,
    asleep: Asleep,
}

/// Tells how long the machine has been suspended since the start; never less than before.
#[derive(Clone)]
pub struct Asleep {
    how_long: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The most that was told, in microseconds.
    most: Arc<AtomicU64>,
}

impl Asleep {
    /// Asks `how_long` each time, which may be off by a moment.
    pub fn new(how_long: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { how_long: Arc::new(how_long), most: Arc::default() }
    }

    fn told(&self) -> Duration {
        let now = u64::try_from((self.how_long)().as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.most.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

impl Default for Asleep {
    fn default() -> Self {
        Self::new(|| Duration::ZERO)
    }
}

impl std::fmt::Debug for Asleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Asleep").field(&self.told()).finish()
    }
}

#[derive(Debug, Default)]
struct Shared {
    budget: Budget,
    /// All that was ever added to the configured credit.
    added: Money,
    /// What was kept last of each account, and when.
    noted: BTreeMap<DeploymentName, (Spent, Instant)>,
}

/// Where things are kept, and what an earlier run left.
#[derive(Clone, Debug)]
struct Records {
    store: Store,
    epoch: Epoch,
    accounts: Arc<BTreeMap<DeploymentName, (Spent, Stamp)>>,
}

/// The credit over all deployments (M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Credit {
    /// What the configuration gives.
    pub configured: Money,
    /// All that was ever added to it.
    pub added: Money,
    /// What is left of both; below zero once what runs has outrun it.
    pub left: Money,
}

impl House {
    /// A budget within `bounds`, for as long as the process lives.
    pub fn new(bounds: Bounds) -> Self {
        let shared = Shared { budget: Budget::new(bounds), ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)), ..Self::default() }
    }

    /// The same, and what runs is paid for while the machine is suspended too.
    pub fn that_sleeps(self, asleep: Asleep) -> Self {
        Self { asleep, ..self }
    }

    /// `now` by the clock that goes on while the machine sleeps: that of money, and of all that is kept, since only by
    /// it a later run knows how long ago something was.
    pub fn lasting(&self, now: Instant) -> Instant {
        now + self.asleep.told()
    }

    /// A budget within `bounds` that goes on from what was `kept`, and keeps on in `store`. What deployments have spent
    /// that are gone now was spent all the same; `names` are those that there are.
    pub fn kept(bounds: Bounds, store: Store, kept: Kept, names: &[DeploymentName]) -> Self {
        let Kept { epoch, accounts, added, .. } = kept;
        let mut budget = Budget::new(bounds);
        budget.top_up(added);
        let mut own = BTreeMap::new();
        for KeptAccount { name, spent, at } in accounts {
            if names.contains(&name) {
                own.insert(name, (spent, at));
            } else {
                budget.open(name.clone(), spent, Price::FREE, 0, Instant::ZERO);
                budget.catch_up(&name, Duration::ZERO, &[], Instant::ZERO);
            }
        }
        let shared = Shared { budget, added, noted: BTreeMap::new() };
        let records = Records { store, epoch, accounts: Arc::new(own) };
        Self { shared: Arc::new(Mutex::new(shared)), records: Some(records), asleep: Asleep::default() }
    }

    /// More credit, or less; `None` where no credit is counted. It is kept in the store, which may take a moment.
    pub fn top_up(&self, amount: Money, now: Instant) -> Option<Credit> {
        let (mut shared, now) = (self.lock(), self.lasting(now));
        shared.budget.credit(now)?;
        shared.budget.top_up(amount);
        shared.added.0 = shared.added.0.saturating_add(amount.0);
        if let Some(records) = &self.records {
            records.store.added(shared.added);
        }
        shared.credit(now)
    }

    /// The credit; `None` where it is not counted.
    pub fn credit(&self, now: Instant) -> Option<Credit> {
        self.lock().credit(self.lasting(now))
    }

    /// Opens the account of `name` with what it had spent before.
    pub(crate) fn open(&self, name: &DeploymentName, base_fee: Price, floor: u32, now: Instant) {
        let kept = self.records.as_ref().and_then(|records| records.accounts.get(name));
        let spent = kept.map(|(spent, _)| spent.clone()).unwrap_or_default();
        self.lock().budget.open(name.clone(), spent, base_fee, floor, self.lasting(now));
    }

    /// The account of `name` goes on: `still` are the replicas that an earlier run left and that run on. Only the first
    /// call does anything.
    pub(crate) fn resume(&self, name: &DeploymentName, still: &[ReplicaId], now: Instant) {
        let Some(records) = &self.records else { return };
        let Some((_, at)) = records.accounts.get(name) else { return };
        let now = self.lasting(now);
        self.lock().budget.catch_up(name, records.epoch.since(at, now), still, now);
    }

    /// Lets `work` look at the budget and change it; it is given `now` by the clock of money.
    pub(crate) fn with_budget<R>(&self, now: Instant, work: impl FnOnce(&mut Budget, Instant) -> R) -> R {
        let now = self.lasting(now);
        work(&mut self.lock().budget, now)
    }

    /// Keeps the account of `name` as of `now`, where that is due: its fleet has changed, or some time has passed.
    pub(crate) fn keep(&self, name: &DeploymentName, now: Instant) {
        self.note(name, now, false);
    }

    /// Keeps the account of `name` one last time, with the fleet as of `now`.
    pub(crate) fn close(&self, name: &DeploymentName, replicas: &[ReplicaFacts], now: Instant) {
        // One that still stands as an earlier run left it is for the next run to catch up with.
        let awake = |budget: &Budget| budget.ledger(name).is_some_and(|ledger| ledger.state().is_some());
        self.with_budget(now, |budget, paid| {
            awake(budget).then(|| budget.see(name, replicas, false, Moment { now, paid }))
        });
        self.note(name, now, true);
    }

    fn note(&self, name: &DeploymentName, now: Instant, must: bool) {
        let Some(records) = &self.records else { return };
        let (mut shared, now) = (self.lock(), self.lasting(now));
        let Some(spent) = shared.budget.ledger(name).and_then(|ledger| ledger.state()).cloned() else {
            return;
        };
        let due = shared.noted.get(name).is_none_or(|(noted, at)| {
            !noted.runs_like(&spent) || (*noted != spent && (must || now.since(*at) >= KEEP_EVERY))
        });
        if due {
            shared.noted.insert(name.clone(), (spent.clone(), now));
            records.store.account(name, spent, now);
        }
    }

    /// Keeps that replica `id` of `name` is taken out no more, since it is gone.
    pub(crate) fn undrained(&self, name: &DeploymentName, id: ReplicaId, now: Instant) {
        if let Some(records) = &self.records {
            records.store.drained(name, id, None, self.lasting(now));
        }
    }

    /// Keeps a decision of `name`.
    pub(crate) fn decided(&self, name: &DeploymentName, decision: &ScaleDecision) {
        if let Some(records) = &self.records {
            let at = self.lasting(decision.at);
            records.store.decided(name, ScaleDecision { at, ..decision.clone() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn credit(&self, now: Instant) -> Option<Credit> {
        let configured = Money(self.budget.bounds().credit?.0.saturating_sub(self.added.0));
        Some(Credit { configured, added: self.added, left: self.budget.credit(now)? })
    }
}
