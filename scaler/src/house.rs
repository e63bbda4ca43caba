//! What all control loops of one gateway share: the budget, under one lock that is held for one evaluation and never
//! across a wait, so that what one loop orders, the next one knows (A6, M3, C-108); and the store in which accounts,
//! top-ups and decisions survive a restart. It decides nothing, and never waits for the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tidegate_scaler_core::budget::ledger::{Ledger, Spent};
use tidegate_scaler_core::budget::{Bounds, Budget, Moment};
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

use crate::control::Spending;
use crate::store::{Epoch, Kept, KeptAccount, Stamp, Store};

/// How often accounts are kept while nothing but time changes them. After a crash, what still runs is paid for to the
/// second all the same; only what died with the gateway costs so much too little.
pub(crate) const KEEP_EVERY: Duration = Duration::from_secs(1);
/// How long a start or a stop waits for the disk, so that what it is about to change is on record before: a disk that
/// takes nothing must not hold it.
const RECORD_LIMIT: Duration = Duration::from_secs(1);

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
    /// What was kept last of each account.
    noted: BTreeMap<DeploymentName, Spent>,
    /// When all of them were last kept.
    swept: Instant,
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
        let shared = Shared { budget, added, ..Shared::default() };
        let records = Records { store, epoch, accounts: Arc::new(own) };
        Self { shared: Arc::new(Mutex::new(shared)), records: Some(records), asleep: Asleep::default() }
    }

    /// The account of a deployment that is gone goes on as one of its own: of what ran when it was kept, `still` is taken to
    /// run. Its base fee is not known any more, and not paid.
    pub(crate) fn goes_on(
        &self,
        KeptAccount { name, spent, at }: &KeptAccount,
        still: &[ReplicaId],
        now: Instant,
    ) {
        let Some(records) = &self.records else { return };
        let (mut shared, now) = (self.lock(), self.lasting(now));
        shared.budget.open(name.clone(), spent.clone(), Price::FREE, 0, now);
        shared.budget.catch_up(name, records.epoch.since(at, now), still, now);
        shared.leave(records, name, now);
    }

    /// What `name` has cost in all until `now`.
    pub(crate) fn spent(&self, name: &DeploymentName, now: Instant) -> Money {
        let now = self.lasting(now);
        self.lock().budget.ledger(name).map_or(Money::default(), |ledger| ledger.total(now))
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

    /// What `name` has spent and costs, and the credit: nothing where it has no account.
    pub fn spending(&self, name: &DeploymentName, now: Instant) -> Spending {
        self.with_budget(now, |budget, paid| Spending::of(budget, name, paid))
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

    /// Keeps the account of `name` as of `now` at once where what costs there has changed, and all accounts where some time
    /// has passed.
    pub(crate) fn keep(&self, name: &DeploymentName, now: Instant) {
        self.note(name, now);
    }

    /// Keeps accounts as time passes, whatever the loop of `name` waits for; never ends.
    pub(crate) async fn keep_on(self, name: DeploymentName, now: impl Fn() -> Instant) {
        if self.records.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(KEEP_EVERY).await;
            self.keep(&name, now());
        }
    }

    /// Replica `id` of `name` is ordered and costs from `now` on.
    pub(crate) fn begins(
        &self,
        name: &DeploymentName,
        id: ReplicaId,
        price: Price,
        now: Instant,
    ) -> Recorded {
        self.recorded(name, now, |ledger, paid| ledger.begin(id, price, paid))
    }

    /// Replica `id` of `name` is about to be stopped: that, and what it has cost until `now`, is kept before.
    pub(crate) fn about_to_end(&self, name: &DeploymentName, id: ReplicaId, now: Instant) -> Recorded {
        self.recorded(name, now, |ledger, paid| ledger.stops(id, paid))
    }

    /// The replicas of `name` that an earlier run had told to stop, and that may be there still.
    pub(crate) fn told_to_stop(&self, name: &DeploymentName) -> Vec<ReplicaId> {
        let kept = self.records.as_ref().and_then(|records| records.accounts.get(name));
        kept.map(|(spent, _)| spent.stopping().to_vec()).unwrap_or_default()
    }

    /// Replica `id` of `name` is gone and costs nothing from `now` on.
    pub(crate) fn ends(&self, name: &DeploymentName, id: ReplicaId, now: Instant) {
        drop(self.recorded(name, now, |ledger, paid| ledger.end(id, paid)));
    }

    fn recorded(
        &self,
        name: &DeploymentName,
        now: Instant,
        change: impl FnOnce(&mut Ledger, Instant),
    ) -> Recorded {
        self.with_budget(now, |budget, paid| budget.account(name).map(|ledger| change(ledger, paid)));
        let Some(records) = self.records.as_ref() else { return Recorded(None) };
        let (mut shared, paid) = (self.lock(), self.lasting(now));
        Recorded(shared.leave(records, name, paid).then(|| records.store.clone()))
    }

    /// Keeps the account of `name` one last time, with the fleet as of `now`.
    pub(crate) fn close(&self, name: &DeploymentName, replicas: &[ReplicaFacts], now: Instant) {
        // One that still stands as an earlier run left it is for the next run to catch up with.
        let awake = |budget: &Budget| budget.ledger(name).is_some_and(|ledger| ledger.state().is_some());
        self.with_budget(now, |budget, paid| {
            awake(budget).then(|| budget.see(name, replicas, false, Moment { now, paid }))
        });
        drop(self.recorded(name, now, Ledger::pass));
    }

    fn note(&self, name: &DeploymentName, now: Instant) {
        let Some(records) = &self.records else { return };
        let (mut shared, now) = (self.lock(), self.lasting(now));
        // Each of many loops asks each second: half of that, so that none finds the others' turn a moment too young.
        if now.since(shared.swept) >= KEEP_EVERY / 2 {
            shared.swept = now;
            let names: Vec<_> = shared.noted.keys().cloned().collect();
            for name in names {
                shared.leave(records, &name, now);
            }
        }
        let spent = shared.budget.ledger(name).and_then(|ledger| ledger.state());
        let known = shared.noted.get(name);
        if spent.is_some_and(|spent| known.is_none_or(|known| !known.runs_like(spent))) {
            shared.leave(records, name, now);
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

/// What was left to be written before a provider is called.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Recorded(Option<Store>);

impl Recorded {
    /// Waits until it is written, within bounds; what cannot be written now stays in memory, as everything does.
    pub(crate) async fn written(self) {
        if let Some(store) = self.0 {
            let _ = timeout(RECORD_LIMIT, store.flush()).await;
        }
    }
}

impl Shared {
    /// Leaves the account of `name` as of `now` to be written at once, unless it is as it was kept last; whether it did.
    fn leave(&mut self, records: &Records, name: &DeploymentName, now: Instant) -> bool {
        let Some(ledger) = self.budget.account(name) else { return false };
        ledger.pass(now);
        let Some(spent) = ledger.state() else { return false };
        if self.noted.get(name) == Some(spent) {
            return false;
        }
        self.noted.insert(name.clone(), spent.clone());
        records.store.account(name, spent.clone(), now);
        true
    }

    fn credit(&self, now: Instant) -> Option<Credit> {
        let configured = Money(self.budget.bounds().credit?.0.saturating_sub(self.added.0));
        Some(Credit { configured, added: self.added, left: self.budget.credit(now)? })
    }
}
