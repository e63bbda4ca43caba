//! A replica that is held while it is measured (A1), let go when the guard is dropped.

use std::sync::Arc;

use tidegate_gateway_core::dispatch::{Change, NoHold};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Hold, Phase};
use tidegate_shared::request::Tokens;

use super::Pool;
use crate::endpoint::Endpoint;

/// See the module.
#[derive(Debug)]
pub struct Holding {
    pool: Arc<Pool>,
    id: ReplicaId,
    hold: Hold,
    endpoint: Arc<Endpoint>,
}

/// Why measuring must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Requests wait in line, so many.
    Waiting(u32),
    /// Requests came to the only replica.
    Asked,
    /// The replica is in this phase now, or gone.
    Leaves(Phase),
}

impl Pool {
    /// Holds the replica `wanted`, or else the one that is missed least.
    ///
    /// # Errors
    /// See [`NoHold`].
    pub fn hold(self: &Arc<Self>, wanted: Option<ReplicaId>) -> Result<Holding, NoHold> {
        self.locked(|state, now| {
            let (id, hold) = state.dispatcher.hold(now, wanted)?;
            let pool = Arc::clone(self);
            match state.endpoints.get(&id).cloned() {
                Some(endpoint) => Ok(Holding { pool, id, hold, endpoint }),
                None => {
                    state.dispatcher.change(now, id, Change::Release);
                    Err(NoHold::NotReady)
                }
            }
        })
    }

    /// Tokens of the usual prompt and of the usual answer, and of how many requests engines told them (A1).
    pub fn usual(&self) -> Option<(Tokens, Tokens, u64)> {
        self.state.lock().dispatcher.usual()
    }
}

impl Holding {
    /// Where it is.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether it serves nobody meanwhile.
    pub fn is_aside(&self) -> bool {
        self.hold == Hold::Aside
    }

    /// Requests of users that it still works on.
    pub fn in_flight(&self) -> u32 {
        self.pool.in_flight(self.id)
    }

    /// Why it may not be measured any longer, where that is so.
    pub fn needed(&self) -> Option<Needed> {
        let state = self.pool.state.lock();
        let same = state.has(&self.endpoint);
        if same && state.dispatcher.may_measure(self.id) {
            return None;
        }
        let seen = state.dispatcher.observe(self.pool.clock.now());
        let phase = seen.replicas.iter().find(|replica| same && replica.id == self.id);
        Some(match phase.map_or(Phase::Gone, |replica| replica.phase) {
            Phase::Ready if seen.queued > 0 => Needed::Waiting(seen.queued),
            Phase::Ready => Needed::Asked,
            other => Needed::Leaves(other),
        })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.pool.change(self.id, Change::Release);
    }
}

#[cfg(test)]
impl Holding {
    /// The only replica of a deployment, at `url`, and the pool that has it.
    pub(crate) fn of_one(url: &str, clock: crate::clock::Clock) -> (Arc<Pool>, Self) {
        let name = tidegate_shared::id::DeploymentName::new("chat");
        let limit = tidegate_shared::time::Duration::from_secs(5);
        let dialer = crate::upstream::dial::Dialer { clock, limit, tls: None, http2: false };
        let pool = Pool::new(name.clone(), super::Limits::default(), true, clock);
        let endpoint = Arc::new(Endpoint::new(&name, ReplicaId(1), url, &dialer).expect("an endpoint"));
        pool.state.lock().endpoints.insert(endpoint.id(), endpoint);
        pool.change(ReplicaId(1), Change::Starting(tidegate_shared::replica::Capacity::new(1)));
        pool.change(ReplicaId(1), Change::Ready);
        let holding = pool.hold(None).expect("it is held");
        (pool, holding)
    }
}
