//! Why something was done, or not done (E1): the closed lists of reasons that logs, metrics, the admin API and
//! golden tests share.

use serde::{Deserialize, Serialize};

use crate::offer::Price;
use crate::time::{Duration, Instant};
pub use refusal::Refusal;

mod refusal;

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
    /// More are wanted, and `max` would allow them, but those that leave hold their places until they are gone, and those
    /// that take long to fall asleep until they can be woken (A6, C2).
    AtMaxWithLeaving {
        /// How many leave.
        leaving: u32,
        /// How many take long to fall asleep.
        #[serde(default)]
        falling: u32,
        /// The most that may exist.
        max: u32,
    },
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
    /// Fewer would do by the target, but requests queued when no more were in progress (A4, B5).
    QueuedBefore {
        /// On so many replicas.
        replicas: u32,
        /// With so many in progress there.
        in_flight: u32,
        /// So long ago.
        ago: Duration,
        /// The most in progress that one fewer may be left with.
        most: u32,
    },
    /// Load is low, but one fewer would be too few for the requests in progress (B5).
    FewPlaces {
        /// The most in progress that one fewer may be left with.
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
    /// No offer that would do within the price cap has room, and one beyond it has (C2, M1).
    RoomOverCap {
        /// The cap.
        cap: Price,
        /// The cheapest of those that have.
        cheapest: Price,
    },
    /// More are wanted, but no offer that would do, and may be taken, has room (C2, M1).
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
    /// Enough are ordered, and the provider does not start some of them before somebody changes something (C2).
    ProviderHolds {
        /// How many.
        count: u32,
    },
}

impl ScaleReason {
    /// What [`ScaleReason::as_str`] says of all that keep a fleet from growing (C2).
    pub const BLOCKING: [&str; 9] = [
        "at_max",
        "price_cap",
        "no_capacity",
        "no_fit",
        "no_credit",
        "gateway_cap",
        "backing_off",
        "provider_error",
        "provider_holds",
    ];

    /// Whether it keeps a fleet from growing that should (C2).
    pub fn blocks(&self) -> bool {
        Self::BLOCKING.contains(&self.as_str())
    }

    /// Whether the fleet keeps its size by itself, as its load comes and goes: several such decisions in a row are no steps.
    pub const fn is_quiet(&self) -> bool {
        matches!(
            self,
            Self::Steady
                | Self::Cooling { .. }
                | Self::QueuedBefore { .. }
                | Self::FewPlaces { .. }
                | Self::WouldQueue { .. }
                | Self::Survivors { .. }
                | Self::AtMin
                | Self::Demand
                | Self::Confirming { .. }
        )
    }

    /// What blocks growth, as a clause of its own; empty for what does not.
    fn block(&self) -> String {
        match self {
            Self::AtMax => "more are needed than max allows".to_owned(),
            Self::AtMaxWithLeaving { leaving, falling, max } => {
                let (holders, until) = held_places(*leaving, *falling);
                format!("max is {max}, and {holders} until {until}")
            }
            Self::BackingOff { failures, retry_in } => {
                let failed = match failures {
                    1 => "1 start has failed".to_owned(),
                    _ => format!("{failures} starts in a row have failed, or ended soon after"),
                };
                format!("{failed}, next try in {}", crate::span::ahead(*retry_in))
            }
            Self::PriceCap { cap, cheapest } => {
                format!("the price cap is {cap} and the cheapest offer is {cheapest}")
            }
            Self::RoomOverCap { cap, cheapest } => {
                format!("the price cap is {cap} and the cheapest offer with room is {cheapest}")
            }
            Self::NoCapacity => "no offer has room".to_owned(),
            Self::NoFit => "no offer has the memory that the model needs".to_owned(),
            Self::NoCredit => "the credit is used up".to_owned(),
            Self::GatewayCap { cap } => {
                let replicas = if *cap == 1 { "replica" } else { "replicas" };
                format!("the gateway may have {cap} {replicas} over all deployments")
            }
            Self::ProviderError => "the provider does not answer".to_owned(),
            Self::ProviderHolds { count } => {
                let are = if *count == 1 { "is" } else { "are" };
                format!("the provider does not start {count} that {are} ordered, and waiting does not help")
            }
            _ => String::new(),
        }
    }

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
            Self::AtMax | Self::AtMaxWithLeaving { .. } => "at_max",
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
            Self::PriceCap { .. } | Self::RoomOverCap { .. } => "price_cap",
            Self::NoCapacity => "no_capacity",
            Self::NoFit => "no_fit",
            Self::NoCredit => "no_credit",
            Self::GatewayCap { .. } => "gateway_cap",
            Self::MadeRoom => "made_room",
            Self::NoData => "no_data",
            Self::ProviderError => "provider_error",
            Self::ProviderHolds { .. } => "provider_holds",
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
    /// Requests that wait here and clients that were told to come back, where it is they who need so many, and the load needs
    /// fewer (Q3, A3).
    #[serde(default)]
    pub waiters: u32,
    /// Replicas that count: ready ones and those on their way.
    pub current: u32,
    /// Replicas that the rule asks for, before any guard.
    pub needed: u32,
    /// Replicas that there should be; growth that cannot be had now stays wanted.
    pub target: u32,
    /// Parked replicas that are woken for it (C6).
    #[serde(default)]
    pub woken: u32,
    /// Why more are wanted than there are, where `reason` is what blocks growth (C2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Box<ScaleReason>>,
    /// Why.
    pub reason: ScaleReason,
    /// What else keeps the fleet from growing now: each goes on doing so once the others are removed (C2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<ScaleReason>,
}

impl ScaleDecision {
    /// Everything that keeps the fleet from growing now (C2); nothing where nothing does. `max` does not keep those from
    /// growing that are brought back to it and are enough.
    pub fn blocks(&self) -> impl Iterator<Item = &ScaleReason> {
        let enough = self.is_too_large();
        let blocks =
            move |reason: &&ScaleReason| reason.blocks() && !(enough && **reason == ScaleReason::AtMax);
        std::iter::once(&self.reason).chain(&self.also).filter(blocks)
    }

    /// More are there than there should be, which are enough.
    fn is_too_large(&self) -> bool {
        self.target < self.current && self.needed <= self.target
    }
}

/// Who holds places under `max`, and what that lasts `until`, of `leaving` and of those that take long to fall asleep:
/// `2 that leave hold their places`, `they are gone`.
pub fn held_places(leaving: u32, falling: u32) -> (String, &'static str) {
    let all = leaving.saturating_add(falling);
    let (do_what, until) = match (all, leaving, falling) {
        (1, 1, _) => ("leaves holds its place", "it is gone"),
        (1, _, _) => ("falls asleep holds its place", "it sleeps"),
        (_, _, 0) => ("leave hold their places", "they are gone"),
        (_, 0, _) => ("fall asleep hold their places", "they sleep"),
        _ => ("leave or fall asleep hold their places", "they have"),
    };
    (format!("{all} that {do_what}"), until)
}

mod words;

#[cfg(test)]
mod tests;
