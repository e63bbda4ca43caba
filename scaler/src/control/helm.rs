//! What an operator tells a control loop while it runs: another size, and which replicas are to go whatever the load is.
//! It lies here until the loop looks, which is at once. Checks nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_scaler_core::config::Sizing;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::Notify;

/// A handle for whoever steers one control loop; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Helm(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    told: Mutex<Told>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Told {
    size: Option<(Sizing, Price)>,
    drained: BTreeMap<ReplicaId, Drained>,
}

/// A replica that an operator took out (C5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// When, in this run.
    pub at: Instant,
    /// How long before the start of this run that was; zero for one of this run.
    pub before: Duration,
    /// Nothing runs there any more and its provider stops it: that cannot be undone.
    pub ends: bool,
}

impl Drained {
    /// How long ago, at `now` of this run.
    pub fn age(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.since(self.at))
    }
}

impl Helm {
    /// The fleet is sized by `sizing` from now on, and each ready replica costs `base_fee` beside its price.
    pub fn resize(&self, sizing: Sizing, base_fee: Price) {
        self.lock().size = Some((sizing, base_fee));
        self.0.changed.notify_one();
    }

    /// Replica `id` gets no new request from now on, `at`, and is stopped once nothing runs there, where somebody can
    /// stop it. The second time, nothing changes.
    pub fn drain(&self, id: ReplicaId, at: Instant) {
        self.drained_before(id, at, Duration::ZERO);
    }

    /// The same of an earlier run, so long `before` this one began at `at`.
    pub fn drained_before(&self, id: ReplicaId, at: Instant, before: Duration) {
        self.lock().drained.entry(id).or_insert(Drained { at, before, ends: false });
        self.0.changed.notify_one();
    }

    /// Replica `id` takes requests again. Tells whether that is so: not of one that is being stopped.
    pub fn undrain(&self, id: ReplicaId) -> bool {
        let mut told = self.lock();
        let ends = told.drained.get(&id).is_some_and(|drained| drained.ends);
        if !ends {
            told.drained.remove(&id);
            self.0.changed.notify_one();
        }
        !ends
    }

    /// Who is taken out, and since when.
    pub fn drained(&self) -> BTreeMap<ReplicaId, Drained> {
        self.lock().drained.clone()
    }

    /// Takes the new size, where there is one.
    pub(super) fn take(&self) -> Option<(Sizing, Price)> {
        self.lock().size.take()
    }

    /// Replica `id` is being stopped, unless it is not taken out any more; tells which.
    pub(super) fn ends(&self, id: ReplicaId) -> bool {
        let mut told = self.lock();
        let found = told.drained.get_mut(&id);
        found.map(|drained| drained.ends = true).is_some()
    }

    /// Replica `id` is gone.
    pub(super) fn forget(&self, id: ReplicaId) {
        self.lock().drained.remove(&id);
    }

    /// Resolves when there is something new.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
