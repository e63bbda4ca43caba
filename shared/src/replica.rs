//! What a replica is and in which phase.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::id::ReplicaId;
use crate::offer::Price;
use crate::request::Tokens;
use crate::time::Instant;

/// When the next replica can be ordered, whoever waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Not before this moment, one of the past where nothing keeps it: starts that fail are spaced (C1).
    From(Instant),
    /// None now, which may pass by itself any moment: the provider is silent, or no offer has room (C2).
    Stalled,
    /// None before somebody changes that: credit, price cap, the gateway's cap, or what is offered (C2).
    Blocked,
}

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
    /// It was parked and is being woken. Never gets a request.
    Waking,
    /// The engine says that the model is loaded; takes requests.
    Ready,
    /// Takes no new request; finishes the running ones (C5).
    Draining,
    /// Drained and kept asleep instead of stopped (C6). Takes no request; woken before a new one is started.
    Parked,
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
            Self::Waking => "waking",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Parked => "parked",
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

/// What an operator keeps a replica for: it is measured (A1), and must not be stopped meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// It takes requests all the same: it is the only one.
    Serving,
    /// It takes none.
    Aside,
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
    /// What it costs.
    pub price: Price,
    /// Tokens that requests in progress hold in its memory, as its engine last said and as corrected since (R8);
    /// `None` where it has not said lately: unknown, never zero (G2).
    pub load: Option<Tokens>,
    /// Tokens that its memory can hold; `None` where its engine never said.
    pub memory: Option<Tokens>,
    /// Requests that its engine has accepted and not begun; `None` where it has not said lately.
    pub waiting: Option<u32>,
    /// Whether it is held; what its engine does then is no demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Whether an operator has it take only the requests of conversations that are at home there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_only: bool,
    /// Whether it takes no request of its own, or one at a time, though it may be ready: it did not answer well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out: bool,
    /// Whether its provider has no machine for it yet, so that it costs nothing (M2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_line: bool,
}

impl ReplicaFacts {
    /// A replica of which nothing else is known: no request, no conversation, no price, no figure of its engine.
    pub const fn new(id: ReplicaId, phase: Phase, since: Instant, capacity: Capacity) -> Self {
        let (in_flight, conversations, price) = (0, 0, Price::FREE);
        let (load, memory, waiting, hold) = (None, None, None, None);
        let (own_only, out, in_line) = (false, false, false);
        Self {
            id,
            phase,
            since,
            capacity,
            in_flight,
            conversations,
            price,
            load,
            memory,
            waiting,
            hold,
            own_only,
            out,
            in_line,
        }
    }

    /// Whether requests may be in progress there or begin at any moment.
    pub const fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether it was ordered, or is being woken, and is not ready yet.
    pub const fn is_on_its_way(&self) -> bool {
        matches!(self.phase, Phase::Provisioning | Phase::Starting | Phase::Waking)
    }
}

/// What an engine last said of itself (G2). `None` is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// When it was asked: what was sent after is not in the figures.
    pub asked: Instant,
    /// Requests that it works on.
    pub running: Option<u32>,
    /// Requests that it has accepted and not begun.
    pub waiting: Option<u32>,
    /// Tokens in its KV cache that running requests hold.
    pub kv_used: Option<Tokens>,
    /// Tokens that its KV cache can hold.
    pub kv_capacity: Option<Tokens>,
    /// Requests that it can run at a time.
    pub slots: Option<u32>,
    /// Prompt tokens found in the prefix cache since it started.
    pub prefix_hits: Option<u64>,
    /// Prompt tokens looked up there since it started.
    pub prefix_queries: Option<u64>,
}
