//! The guards: a place on a replica, and a place in the line.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tidegate_gateway_core::dispatch::{Fault, Lease, Rejection, Sign, Spent, TicketId};
use tidegate_shared::decision::Refusal;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::{Route, Tokens};
use tidegate_shared::time::Duration;
use tokio::sync::oneshot;

use super::{Pool, State};
use crate::endpoint::Endpoint;

/// A place on a replica, given back when dropped.
#[derive(Debug)]
pub struct Held {
    pool: Arc<Pool>,
    lease: Option<Lease>,
    endpoint: Arc<Endpoint>,
    route: Route,
}

impl Held {
    /// Called under the lock. A replica that the dispatcher gives a lease for has an address, since it became ready at
    /// one; should it ever not, the lease is ended and the request refused rather than lost.
    pub(super) fn new(pool: &Arc<Pool>, state: &mut State, lease: Lease) -> Result<Self, Rejection> {
        let Some(endpoint) = state.endpoints.get(&lease.replica).cloned() else {
            state.dispatcher.end(pool.clock.now(), lease, &Spent::default());
            return Err(Rejection { reason: Refusal::NoReplica, retry_after: Duration::from_secs(1) });
        };
        let route = lease.route;
        Ok(Self { pool: Arc::clone(pool), lease: Some(lease), endpoint, route })
    }

    /// Where to send the request.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Which replica that is.
    pub fn replica(&self) -> ReplicaId {
        self.endpoint.id()
    }

    /// Tokens reserved for the answer.
    pub fn reserved(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.reserved.0)
    }

    /// The answer turns out longer than was reserved for it (R8).
    pub fn grow(&mut self, more: u64) {
        if let Some(lease) = &mut self.lease {
            self.pool.locked(|state, now| state.dispatcher.grow(now, lease, Tokens(more)));
        }
    }

    /// How the exchange goes, as far as it tells of the replica's health; what is noted last counts, when it ends.
    pub fn note(&mut self, sign: Sign) {
        if let Some(lease) = &mut self.lease {
            lease.sign = sign;
        }
    }

    /// The replica fails the request: that is noted, counted once, and shown in status until it serves well.
    pub fn blame(&mut self, fault: Fault, what: &str) {
        self.endpoint.note_trouble(what);
        if let Some(lease) = self.lease.as_mut().filter(|lease| !matches!(lease.sign, Sign::Fault(_))) {
            lease.sign = Sign::Fault(fault);
            self.endpoint.count_error();
        }
    }

    /// Whether the replica failed the request.
    pub fn is_blamed(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| matches!(lease.sign, Sign::Fault(_)))
    }

    /// Whether it is by this request that the replica shows whether it can be trusted again.
    pub fn is_on_trial(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::is_on_trial)
    }

    /// The replica answers well, and where that was in doubt, it is trusted again at once.
    pub fn proves(&mut self) {
        if let Some(lease) = &mut self.lease {
            self.pool.locked(|state, now| state.dispatcher.proved(now, lease));
        }
    }

    /// The request ended, and its replica said what it took: the place is free, and the deployment learns.
    pub fn end(mut self, spent: &Spent) {
        self.give_back(spent);
    }

    /// The attempt came to nothing and another is to follow: the place is free, what was noted counts, and the next
    /// attempt is not in its own way. Where it was is still known.
    pub fn release(&mut self) {
        self.give_back(&Spent::default());
    }

    fn give_back(&mut self, spent: &Spent) {
        if let Some(lease) = self.lease.take() {
            self.pool.locked(|state, now| state.dispatcher.end(now, lease, spent));
        }
    }

    /// How the request came there.
    pub fn route(&self) -> Route {
        self.route
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(&Spent::default());
    }
}

/// A place in the line, left when dropped. Resolves to a place on a replica or a refusal.
#[derive(Debug)]
pub struct Waiting {
    pool: Arc<Pool>,
    ticket: Option<TicketId>,
    verdict: oneshot::Receiver<Result<Held, Rejection>>,
}

impl Waiting {
    pub(super) fn new(
        pool: &Arc<Pool>,
        ticket: TicketId,
        verdict: oneshot::Receiver<Result<Held, Rejection>>,
    ) -> Self {
        Self { pool: Arc::clone(pool), ticket: Some(ticket), verdict }
    }
}

impl Future for Waiting {
    type Output = Result<Held, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let verdict = ready!(Pin::new(&mut self.verdict).poll(cx));
        self.ticket = None;
        // The sender goes only when its verdict is sent, or with the whole pool.
        let gone = Rejection { reason: Refusal::NoReplica, retry_after: Duration::from_secs(1) };
        Poll::Ready(verdict.unwrap_or(Err(gone)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.pool.locked(|state, now| {
                state.dispatcher.abandon(now, ticket);
                state.waiters.remove(&ticket)
            });
        }
    }
}
