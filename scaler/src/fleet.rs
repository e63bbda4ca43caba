//! What the control loop needs of whoever serves the requests. The gateway implements it over its pools; a test
//! implements it over nothing.

use futures_util::future::BoxFuture;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Capacity, Starts};

/// One deployment as its requests see it. Phases live here: the gateway probes replicas and knows when one is
/// Ready or Failed; the control loop announces what it ordered, drained and stopped.
pub trait Fleet: Send + Sync {
    /// The demand and every replica that is not gone, as of now. A replica in phase Failed is stopped at the next
    /// evaluation, with whatever runs there: one that still delivers bytes must not be called Failed.
    fn observe(&self) -> Observation;

    /// Resolves when an evaluation should not wait for the next tick: a request waits and nothing is ready (Q3),
    /// a replica became ready or failed, or a draining replica became idle. A press while nobody waits for it is
    /// kept for the next call.
    fn pressed(&self) -> BoxFuture<'_, ()>;

    /// What keeps a replica from being ready, for people; `None` where nothing is known.
    fn trouble(&self, _id: ReplicaId) -> Option<String> {
        None
    }

    /// When the next start can be ordered. Told before the failure that it comes of, and at the end of each evaluation,
    /// once what was ordered, woken or taken back is announced.
    fn hold_starts(&self, _starts: Starts) {}

    /// Asks the engine of replica `id` to sleep, over its own API; ends when it does (C6). Dropped, it waits no more.
    fn sleep(&self, _id: ReplicaId) -> BoxFuture<'_, Result<(), NoSleep>> {
        Box::pin(std::future::ready(Err(NoSleep::Unknown)))
    }

    /// Asks the engine of replica `id` to wake up, over its own API; ends when it says that it does. The error is for
    /// people.
    fn wake(&self, _id: ReplicaId) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Err("its engine cannot be woken".to_owned())))
    }

    /// Tells the gateway what happened to a replica.
    fn announce(&self, id: ReplicaId, change: Change);
}

/// Why an engine does not sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSleep {
    /// It knows nothing of that.
    Unknown,
    /// It should, and does not; why, for people.
    Failed(String),
}

/// What can happen to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was ordered: phase Provisioning.
    Ordered {
        /// Its size.
        capacity: Capacity,
    },
    /// Its engine has an address that is proven to be its own: phase Starting; the gateway begins to probe it.
    /// Also announced for an adopted replica.
    Up {
        /// Base URL of the engine, without a trailing slash: `http://127.0.0.1:4711`.
        url: String,
        /// Its size.
        capacity: Capacity,
    },
    /// No new request goes there (C5).
    Drain,
    /// Load came back; it takes requests again (C5).
    Undrain,
    /// It is put to sleep, or was found to be: it is asked for nothing until it is woken (C6).
    Parked,
    /// It is being woken: phase Waking (C6).
    Waking,
    /// It is awake: the gateway probes it again.
    Woken,
    /// Its start failed. It is forgotten. Waiters are refused where starts keep failing; `why` is for the operator and
    /// stays in the status of the control loop.
    StartFailed {
        /// What the engine said, for people.
        why: String,
    },
    /// It is stopped, or it died. It is forgotten; its conversations are rehomed (R5).
    Gone {
        /// Why, for people.
        why: String,
    },
}
