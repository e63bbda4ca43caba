//! Why something was done, or not done (E1): the closed lists of reasons that logs, metrics, the admin API and
//! golden tests share.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::offer::Price;
use crate::time::{Duration, Instant};

/// Why the gateway did not serve a request now (Q1, Q2). Each names a limit that was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The queue holds as many requests as it may.
    QueueFull,
    /// The queue holds as many bytes as it may.
    QueueBytes,
    /// The measured drain rate says that it would not start within the headroom.
    WouldWaitTooLong,
    /// It waited as long as the headroom allows.
    WaitedTooLong,
    /// The queue is full, and a request of higher priority took its place.
    PushedOut,
    /// The measured drain rate says that it would not start before its client's deadline.
    WouldMissDeadline,
    /// It did not start before its client's deadline.
    MissedDeadline,
    /// No replica became ready within the cold-start limit.
    ColdStartTooLong,
    /// The last start of a replica failed, and no other is on its way.
    StartFailed,
    /// The engines of all replicas that are there list other models than the deployment's.
    OtherModel,
    /// No replica of a static fleet can be connected to.
    Unreachable,
    /// No replica is ready, of those that may be (a static fleet that is down).
    NoReplica,
    /// There is no replica, and none can be started (`max = 0`, scaling switched off, no offer, no credit, a silent
    /// provider): when that changes is not known here.
    CannotStart,
    /// Every replica that is there is being drained, and none can be started: when that changes is not known here.
    Drained,
    /// The gateway's machine has no descriptor or no port left for a connection to a replica.
    NoSocket,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 15] = [
        Self::QueueFull,
        Self::QueueBytes,
        Self::WouldWaitTooLong,
        Self::WaitedTooLong,
        Self::PushedOut,
        Self::WouldMissDeadline,
        Self::MissedDeadline,
        Self::ColdStartTooLong,
        Self::StartFailed,
        Self::OtherModel,
        Self::Unreachable,
        Self::NoReplica,
        Self::CannotStart,
        Self::Drained,
        Self::NoSocket,
    ];

    /// The `code` of the error object, the log word and the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueBytes => "queue_bytes",
            Self::WouldWaitTooLong => "would_wait_too_long",
            Self::WaitedTooLong => "waited_too_long",
            Self::PushedOut => "pushed_out",
            Self::WouldMissDeadline => "would_miss_deadline",
            Self::MissedDeadline => "missed_deadline",
            Self::ColdStartTooLong => "cold_start_too_long",
            Self::StartFailed => "start_failed",
            Self::OtherModel => "other_model",
            Self::Unreachable => "unreachable",
            Self::NoReplica => "no_replica",
            Self::CannotStart => "cannot_start",
            Self::Drained => "drained",
            Self::NoSocket => "no_socket",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the need of a deployment is worked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Requests in flight per replica (A1–A6).
    #[default]
    Concurrency,
    /// Share of the replicas' memory that requests hold, in tokens (B1–B5).
    TokenLoad,
    /// Jobs in flight or queued per replica: images and videos.
    Jobs,
}

impl Rule {
    /// The word of the configuration and of the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::TokenLoad => "token-load",
            Self::Jobs => "jobs",
        }
    }
}

/// Why the fleet has the size that it has (E1). [`ScaleReason::as_str`] is its word, the `Display` of a
/// [`ScaleDecision`] its sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum ScaleReason {
    /// The size is right.
    Steady,
    /// More replicas are needed than there are.
    Demand,
    /// A request has waited longer than the queue threshold (A3).
    QueueWait,
    /// A request waits and nothing is ready (Q3).
    FromZero,
    /// The engines' own queues grew sharply within one check (B3).
    Burst {
        /// By how many requests.
        grew: u32,
    },
    /// More are needed, but not for long enough yet (B3).
    Confirming {
        /// Checks in a row that found it so.
        seen: u32,
        /// How many it takes.
        of: u32,
    },
    /// More are needed than may be added in one step (B4).
    Step {
        /// How many may be.
        most: u32,
    },
    /// `min` asks for more than there are (C1).
    BelowMin,
    /// More are needed, but `max` forbids it (C2).
    AtMax,
    /// Fewer would do, but `min` forbids it (C1).
    AtMin,
    /// Enough are already being started.
    OnTheirWay {
        /// How many.
        count: u32,
    },
    /// Fewer are needed, but demand has not been low for the whole window yet (A4, B5).
    Cooling {
        /// How long demand has been low.
        low_for: Duration,
        /// How long it must be.
        window: Duration,
        /// Replicas that are left then, if demand stays as it is.
        #[serde(default)]
        to: u32,
    },
    /// Load is low, but one fewer would be too few: the others would be at so much of their memory (B5).
    Survivors {
        /// In percent, rounded down.
        percent: u32,
    },
    /// Load is low, but with one fewer so many requests would wait inside the engines, which have been seen full (B5).
    WouldQueue {
        /// Requests, rounded up.
        waiting: u32,
    },
    /// Fewer would do by the target, but requests queued before so many were in flight (A4, B5).
    QueuedBefore {
        /// On so many replicas.
        replicas: u32,
        /// With so many in flight there.
        in_flight: u32,
        /// So long ago.
        ago: Duration,
        /// The most in flight that one fewer may be left with.
        most: u32,
    },
    /// Load is low, but one fewer would be too few for the requests in flight (B5).
    FewPlaces {
        /// The most in flight that one fewer may be left with.
        most: u32,
    },
    /// Demand was low for the whole window (A4, B5).
    LowDemand,
    /// Nothing was in progress for the whole window (A5).
    Idle,
    /// `autoscale = false`: the fleet is held at `min` (C1).
    AutoscaleOff,
    /// A replica keeps failing to start or to live; the next try waits (C1).
    BackingOff {
        /// Failures in a row.
        failures: u32,
        /// How long until the next try.
        retry_in: Duration,
    },
    /// A replica died and is replaced (C1).
    Replacing,
    /// More are wanted, but every offer that would do costs more than the price cap (C2, M1).
    PriceCap {
        /// The cap.
        cap: Price,
        /// The cheapest of them.
        cheapest: Price,
    },
    /// More are wanted, but no offer that would do has room (C2, M1).
    NoCapacity,
    /// More are wanted, but no offer is known to have the memory that the model needs (C2, M1).
    NoFit,
    /// More are wanted, but the credit is used up (C2, M3).
    NoCredit,
    /// More are wanted, but the gateway may have no more replicas over all deployments (A6, C2).
    GatewayCap {
        /// How many it may have.
        cap: u32,
    },
    /// One fewer, so that another deployment, which waits, has room for one under the gateway's cap (C-108).
    MadeRoom,
    /// What the engines hold is not known well enough to decide by; the fleet is held as it is (C4).
    NoData,
    /// The provider does not answer; the fleet is held as it is (C2, C4).
    ProviderError,
}

impl ScaleReason {
    /// The metric label and the `reason` of the admin API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Demand => "demand",
            Self::QueueWait => "queue_wait",
            Self::FromZero => "from_zero",
            Self::Burst { .. } => "burst",
            Self::Confirming { .. } => "confirming",
            Self::Step { .. } => "step",
            Self::BelowMin => "below_min",
            Self::AtMax => "at_max",
            Self::AtMin => "at_min",
            Self::OnTheirWay { .. } => "on_their_way",
            Self::Cooling { .. } => "cooling",
            Self::Survivors { .. } => "survivors",
            Self::WouldQueue { .. } => "would_queue",
            Self::QueuedBefore { .. } => "queued_before",
            Self::FewPlaces { .. } => "few_places",
            Self::LowDemand => "low_demand",
            Self::Idle => "idle",
            Self::AutoscaleOff => "autoscale_off",
            Self::BackingOff { .. } => "backing_off",
            Self::Replacing => "replacing",
            Self::PriceCap { .. } => "price_cap",
            Self::NoCapacity => "no_capacity",
            Self::NoFit => "no_fit",
            Self::NoCredit => "no_credit",
            Self::GatewayCap { .. } => "gateway_cap",
            Self::MadeRoom => "made_room",
            Self::NoData => "no_data",
            Self::ProviderError => "provider_error",
        }
    }
}

/// One scaling evaluation (E1): what was seen, what was needed, what was decided and why not otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleDecision {
    /// When.
    pub at: Instant,
    /// How the need was worked out.
    pub rule: Rule,
    /// Requests in flight, including the queue, and those that were told to come back.
    pub demand: u32,
    /// Requests in the queue.
    pub queued: u32,
    /// Clients that were refused and told when to come back, as far as they can be expected to (Q2).
    #[serde(default)]
    pub promised: u32,
    /// Age of the oldest of them.
    pub oldest_wait: Duration,
    /// Share of the ready replicas' memory that requests held, in percent, rounded down; `None` where it is not known
    /// or not what the rule goes by.
    pub load: Option<u32>,
    /// Requests that wait inside the engines while nothing is free there, where it is they who need one more (B3).
    #[serde(default)]
    pub engine_queue: u32,
    /// Replicas that count: ready ones and those on their way.
    pub current: u32,
    /// Replicas that the rule asks for, before any guard.
    pub needed: u32,
    /// Replicas that there should be; growth that cannot be had now stays wanted.
    pub target: u32,
    /// Parked replicas that are woken for it (C6).
    #[serde(default)]
    pub woken: u32,
    /// Why.
    pub reason: ScaleReason,
}

mod words;

#[cfg(test)]
mod tests;
