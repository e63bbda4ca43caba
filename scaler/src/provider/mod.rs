//! What starts and stops replicas. One contract for every provider: no orphan, no duplicate, nothing foreign
//! touched; identity survives a restart of the gateway.

pub mod docker;
pub mod exec;
pub mod fixed;
pub mod process;
pub mod rest;
pub mod slurm;
pub mod state;

mod fingerprint;
mod folder;
mod ids;
mod news;
mod no_start;
mod output;
mod undo;

#[cfg(any(test, feature = "contract"))]
pub mod contract;

pub(crate) use no_start::NoStart;

use futures_util::future::BoxFuture;
use thiserror::Error;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::{Offer, Price};
use tidegate_shared::replica::Capacity;
use tidegate_shared::time::Duration;

/// A source of replicas for one deployment.
pub trait Provider: Send + Sync {
    /// The word used in configuration and status: `static`, `process`, …
    fn kind(&self) -> &'static str;

    /// Every replica that this provider runs for the deployment, in order of id: those it started, and those that an
    /// earlier run of the gateway started and that still live (adopted). One that has exited is listed until
    /// [`Provider::stop`] is called for it.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>>;

    /// What a replica could be started on now (M1), from memory: it never waits. Names are unique. A fixed fleet has none.
    fn offers(&self) -> Vec<Offer>;

    /// Starts replica `id`, an id never used before, on `offer`, one of [`Provider::offers`]. Ends as soon as the start
    /// is under way; [`Provider::list`] tells how it goes on. An `Err` leaves nothing behind.
    /// After [`ProviderError::NoRoom`] the control loop takes the offer for full, and asks again; a provider remembers nothing
    /// of it.
    fn start(&self, id: ReplicaId, offer: Offer) -> BoxFuture<'_, Result<(), ProviderError>>;

    /// Stops replica `id` and everything that it started: first politely, then by force. Ends when nothing of it is
    /// left. An unknown id is fine.
    fn stop(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>>;

    /// Keeps replica `id` as it is, so that it takes no time of any processor, until it is let go on or stopped (C6). Ends
    /// when that is so; from then on it is listed as [`InstanceState::Parked`], also by a later run of the gateway. After
    /// an error it may be either.
    fn park(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        let kind = self.kind();
        Box::pin(std::future::ready(Err(ProviderError::NoParking { id, kind })))
    }

    /// Lets a parked replica go on. One that is not parked is fine.
    fn unpark(&self, id: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        let kind = self.kind();
        Box::pin(std::future::ready(Err(ProviderError::NoParking { id, kind })))
    }

    /// In how long it looks again by itself, where [`Provider::list`] only tells what came of its last look; zero while it
    /// looks. `None` where each list is a look.
    fn looks_in(&self) -> Option<Duration> {
        None
    }

    /// Resolves when [`Provider::list`] may answer differently: an engine listens, an engine has exited.
    fn changed(&self) -> BoxFuture<'_, ()>;

    /// The last lines that a replica printed, oldest first; none where that is not known. It may read a small file.
    fn output(&self, _id: ReplicaId) -> Vec<String> {
        Vec::new()
    }

    /// The lowest id that was never used, also counting ids of earlier runs.
    fn next_id(&self) -> ReplicaId;
}

/// One replica as its provider sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Which one.
    pub id: ReplicaId,
    /// Its size.
    pub capacity: Capacity,
    /// What it costs.
    pub price: Price,
    /// How it is.
    pub state: InstanceState,
    /// Whether it has a machine and costs; one that waits for a machine, or for somebody who gives it one, does not (M2).
    pub costs: bool,
}

/// How a replica is, as far as its provider can tell. Whether the model is loaded is for the gateway's probe to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// No machine, process or address yet; `why` says what it waits for.
    Pending {
        /// For people.
        why: String,
    },
    /// It is taken, but there is no room for it yet; `why` says what is lacking.
    Queued {
        /// For people.
        why: String,
    },
    /// It is taken, and is not started before somebody changes something, whatever becomes free.
    Held {
        /// What keeps it, for people.
        why: String,
        /// What to do about it, for people.
        advice: String,
    },
    /// It listens at `url`, and that address is proven to be its own.
    Up {
        /// Base URL without a trailing slash.
        url: String,
    },
    /// It is parked (C6), and listens at `url` once it is let go on.
    Parked {
        /// Base URL without a trailing slash.
        url: String,
    },
    /// Its provider, or somebody beside the gateway, is ending it: it gets no new request, what runs there may finish, and
    /// it is not asked to stop (C-058). It does not come back.
    Ending {
        /// For people.
        why: String,
    },
    /// It has ended by itself.
    Exited {
        /// Exit code or signal, for people.
        how: String,
        /// The last lines that it printed, oldest first.
        output: Vec<String>,
    },
}

impl InstanceState {
    /// What keeps it, where it is held.
    pub(crate) fn held(&self) -> Option<&str> {
        match self {
            Self::Held { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// Why a provider could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProviderError {
    /// The replica could not be started at all.
    #[error("cannot start replica {id}: {why}")]
    Start {
        /// Which one.
        id: ReplicaId,
        /// What was tried and what came of it.
        why: String,
    },
    /// There is no room for the replica now, which is no fault of its: nothing was started, and there may be some later.
    #[error("no room for replica {id}: {why}")]
    NoRoom {
        /// Which one.
        id: ReplicaId,
        /// What the provider says of it.
        why: String,
    },
    /// The replica could not be stopped.
    #[error("cannot stop replica {id}: {why}")]
    Stop {
        /// Which one.
        id: ReplicaId,
        /// What was tried and what came of it.
        why: String,
    },
    /// The replica could not be parked, or does not go on.
    #[error("cannot park replica {id}, or let it go on: {why}")]
    Park {
        /// Which one.
        id: ReplicaId,
        /// What was tried and what came of it.
        why: String,
    },
    /// This provider cannot keep a replica without running it.
    #[error("provider {kind} cannot park replica {id}")]
    NoParking {
        /// Which one.
        id: ReplicaId,
        /// The provider's kind.
        kind: &'static str,
    },
    /// The provider itself does not answer or its records cannot be read. The fleet is held as it is.
    #[error("provider {kind} does not answer: {why}")]
    Unavailable {
        /// Its kind.
        kind: &'static str,
        /// What was tried and what came of it.
        why: String,
    },
    /// This provider never starts or stops anything.
    #[error("provider {kind} has a fixed fleet")]
    Fixed {
        /// Its kind.
        kind: &'static str,
    },
}

impl ProviderError {
    /// What came of it, to be told beside the name of the replica.
    pub fn reason(self) -> String {
        match self {
            Self::Start { why, .. }
            | Self::NoRoom { why, .. }
            | Self::Stop { why, .. }
            | Self::Park { why, .. } => why,
            Self::NoParking { .. } | Self::Unavailable { .. } | Self::Fixed { .. } => self.to_string(),
        }
    }
}
