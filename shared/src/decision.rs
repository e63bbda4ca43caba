//! Why something was done, or not done (E1): the closed lists of reasons that logs, metrics, the admin API and
//! golden tests share.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// No replica became ready within the cold-start limit.
    ColdStartTooLong,
    /// The last start of a replica failed, and no other is on its way.
    StartFailed,
    /// There is no replica and none can be started (`max = 0`, or a static fleet that is down).
    NoReplica,
}

impl Refusal {
    /// The `code` of the error object, the log word and the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueBytes => "queue_bytes",
            Self::WouldWaitTooLong => "would_wait_too_long",
            Self::WaitedTooLong => "waited_too_long",
            Self::ColdStartTooLong => "cold_start_too_long",
            Self::StartFailed => "start_failed",
            Self::NoReplica => "no_replica",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why the fleet has the size that it has (E1). `Display` is the short form of `/status`; [`ScaleReason::as_str`]
/// is the metric label.
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
    /// Fewer are needed, but demand has not been low for the whole window yet (A4).
    Cooling {
        /// How long demand has been low.
        low_for: Duration,
        /// How long it must be.
        window: Duration,
    },
    /// Demand was low for the whole window (A4).
    LowDemand,
    /// Nothing was in flight for the whole window (A5).
    Idle,
    /// `autoscale = false`: the fleet is held at `min` (C1).
    AutoscaleOff,
    /// A replica keeps failing to start; the next try waits (C1).
    BackingOff {
        /// Failed starts in a row.
        failures: u32,
        /// How long until the next try.
        retry_in: Duration,
    },
    /// A replica died and is replaced (C1).
    Replacing,
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
            Self::BelowMin => "below_min",
            Self::AtMax => "at_max",
            Self::AtMin => "at_min",
            Self::OnTheirWay { .. } => "on_their_way",
            Self::Cooling { .. } => "cooling",
            Self::LowDemand => "low_demand",
            Self::Idle => "idle",
            Self::AutoscaleOff => "autoscale_off",
            Self::BackingOff { .. } => "backing_off",
            Self::Replacing => "replacing",
            Self::ProviderError => "provider_error",
        }
    }
}

impl fmt::Display for ScaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnTheirWay { count } => write!(f, "{count} on their way"),
            Self::Cooling { low_for, window } => {
                write!(f, "cooling {} s of {} s", low_for.as_secs(), window.as_secs())
            }
            Self::BackingOff { failures, retry_in } => {
                write!(f, "backing off after {failures} failed starts, next try in {} s", retry_in.as_secs())
            }
            other => f.write_str(other.as_str()),
        }
    }
}

/// One scaling evaluation (E1): what was seen, what was needed, what was decided and why not otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleDecision {
    /// When.
    pub at: Instant,
    /// Requests in flight, including the queue.
    pub demand: u32,
    /// Requests in the queue.
    pub queued: u32,
    /// Age of the oldest of them.
    pub oldest_wait: Duration,
    /// Replicas that count: ready ones and those on their way.
    pub current: u32,
    /// Replicas that the rule asks for, before any guard.
    pub needed: u32,
    /// Replicas that the guards allow: what is done.
    pub target: u32,
    /// Why.
    pub reason: ScaleReason,
}
