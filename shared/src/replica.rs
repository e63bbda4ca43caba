//! What a replica is and in which phase.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::id::ReplicaId;
use crate::time::Instant;

/// How large a replica is beside its siblings, in units of its offer (a GPU with twice the memory counts twice).
/// Only ratios matter: 4/4/8 spreads new conversations 1:1:2 (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capacity(pub NonZeroU32);

impl Capacity {
    /// One unit, the default of every replica.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// `units`, or one unit where `units` is 0.
    pub fn new(units: u32) -> Self {
        Self(NonZeroU32::new(units).unwrap_or(NonZeroU32::MIN))
    }

    /// The number of units, at least 1.
    pub fn units(self) -> u32 {
        self.0.get()
    }
}

/// The phase of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Ordered; no machine, process or address yet.
    Provisioning,
    /// The engine's process is up; the model is loading. Never gets a request.
    Starting,
    /// The engine says that the model is loaded; takes requests.
    Ready,
    /// Takes no new request; finishes the running ones (C5).
    Draining,
    /// Was ready, and does not answer now or has died. Takes no request.
    Failed,
    /// Stopped for good.
    Gone,
}

impl Phase {
    /// The word used in `/status`, in logs and as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a planner may know about one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaFacts {
    /// Which one.
    pub id: ReplicaId,
    /// Its phase at the time of the observation.
    pub phase: Phase,
    /// Since when it is in that phase.
    pub since: Instant,
    /// Its size.
    pub capacity: Capacity,
    /// Requests that it works on now.
    pub in_flight: u32,
    /// Conversations that have their home there.
    pub conversations: u32,
}
