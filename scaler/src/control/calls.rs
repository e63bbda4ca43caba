//! The control loop's calls of its provider: each in a task of its own, at most one for a replica at a time. Decides
//! neither what is started nor what is stopped.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tidegate_shared::time::Instant;
use tokio::task::JoinError;
use tracing::Instrument;

use super::{Control, STOP_RETRY};
use crate::provider::ProviderError;

/// A provider call that has ended.
pub(super) struct Call {
    id: ReplicaId,
    kind: CallKind,
    result: Result<(), String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Start(Offer),
    Stop,
}

impl Control {
    pub(super) fn call_stops(&mut self, now: Instant) {
        for id in self.book.stops_due(now) {
            self.call(id, CallKind::Stop);
        }
    }

    /// Calls the provider in a task of its own: a slow stop holds up nobody, and a call is never cut off.
    pub(super) fn call(&mut self, id: ReplicaId, kind: CallKind) {
        let provider = Arc::clone(&self.provider);
        let asked = kind.clone();
        let work = async move {
            let done = match asked {
                CallKind::Start(offer) => provider.start(id, offer).await,
                CallKind::Stop => provider.stop(id).await,
            };
            done.map_err(ProviderError::reason)
        };
        let call = async move {
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err("the provider panicked over it".to_owned()));
            Call { id, kind, result }
        };
        self.calls.spawn(call.in_current_span());
    }

    pub(super) fn settle(&mut self, call: Result<Call, JoinError>) {
        // A call catches its own panics and is never aborted, so this only happens when the runtime goes down.
        let Ok(Call { id, kind, result }) = call else { return };
        let news = match kind {
            CallKind::Start(_) => self.book.start_ended(id, result),
            CallKind::Stop => {
                let stopped = result.is_ok();
                if let Err(why) = result {
                    self.log.stop_failed(id, &why, STOP_RETRY);
                    self.status.failed(format!("{} could not be stopped: {why}", self.log.replica(id)));
                }
                self.book.stop_ended(id, stopped, self.now() + STOP_RETRY)
            }
        };
        self.tell_all(news);
    }
}
