//! The pool as the scaler sees it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tidegate_scaler::fleet::{self, Fleet, NoSleep};
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{ReplicaId, replica_name};
use tidegate_shared::replica::Starts;

use super::{Change, Pool};
use crate::endpoint::Endpoint;
use crate::probe::{Prober, asleep};
use crate::upstream::dial::Dialer;

/// Announcements become changes of the dispatcher; an engine that has an address is probed until it is gone.
#[derive(Debug)]
pub struct PoolFleet {
    pool: Arc<Pool>,
    prober: Prober,
    dialer: Dialer,
}

impl PoolFleet {
    /// `prober` says how the replicas of this deployment are probed, `dialer` how they are connected to.
    pub fn new(pool: Arc<Pool>, prober: Prober, dialer: Dialer) -> Self {
        Self { pool, prober, dialer }
    }

    fn endpoint(&self, id: ReplicaId) -> Option<Arc<Endpoint>> {
        self.pool.state.lock().endpoints.get(&id).cloned()
    }

    fn up(&self, id: ReplicaId, url: &str) -> Result<(), String> {
        let endpoint = Arc::new(Endpoint::new(self.pool.name(), id, url, &self.dialer)?);
        let replaced = self.pool.state.lock().endpoints.insert(id, Arc::clone(&endpoint));
        if let Some(replaced) = replaced {
            replaced.close();
        }
        tokio::spawn(self.prober.clone().watch(Arc::clone(&self.pool), endpoint));
        Ok(())
    }
}

impl Fleet for PoolFleet {
    fn observe(&self) -> Observation {
        self.pool.observe()
    }

    fn pressed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.pool.pressed.notified())
    }

    fn trouble(&self, id: ReplicaId) -> Option<String> {
        self.pool.trouble(id)
    }

    fn hold_starts(&self, starts: Starts) {
        self.pool.hold_starts(starts);
    }

    fn sleep(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), NoSleep>> {
        Box::pin(async move {
            let endpoint = self.endpoint(id).ok_or(NoSleep::Unknown)?;
            asleep::sleep((&*endpoint).into()).await?;
            // An engine that sleeps has given up its memory; one that is only kept from running has not.
            self.pool.change(id, Change::CacheLost);
            Ok(())
        })
    }

    fn wake(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let endpoint = self.endpoint(id).ok_or("it has no address")?;
            asleep::wake((&*endpoint).into()).await
        })
    }

    fn announce(&self, id: ReplicaId, change: fleet::Change) {
        match (&change, self.endpoint(id)) {
            (fleet::Change::Parked | fleet::Change::Waking, Some(endpoint)) => endpoint.rest(true),
            (fleet::Change::Woken, Some(endpoint)) => endpoint.rest(false),
            _ => {}
        }
        let change = match change {
            fleet::Change::Ordered { capacity } => Change::Ordered(capacity),
            fleet::Change::Up { url, capacity } => {
                self.pool.change(id, Change::Starting(capacity));
                match self.up(id, &url) {
                    Ok(()) => return,
                    Err(why) => {
                        tracing::warn!("{} cannot be used: {why}", replica_name(self.pool.name(), id));
                        Change::StartFailed
                    }
                }
            }
            fleet::Change::Drain => Change::Draining,
            fleet::Change::Undrain => Change::Undrain,
            fleet::Change::Parked => Change::Parked,
            fleet::Change::Waking => Change::Waking,
            fleet::Change::Woken => return,
            fleet::Change::StartFailed { .. } => Change::StartFailed,
            fleet::Change::Gone { .. } => Change::Gone,
        };
        self.pool.change(id, change);
    }
}
