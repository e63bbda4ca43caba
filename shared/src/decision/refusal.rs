//! Why the gateway did not serve a request: the closed list.

use std::fmt;

use serde::{Deserialize, Serialize};

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
