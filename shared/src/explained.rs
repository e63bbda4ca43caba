//! Where a request would go and why (E3): the record that the dispatcher fills and the admin side tells.
//!
//! Only the record. Whoever fills it runs the code that decides; nothing here decides again.

use serde::{Deserialize, Serialize};

use crate::decision::Refusal;
use crate::id::ReplicaId;
use crate::replica::{Capacity, Phase};
use crate::request::{Route, Tokens};
use crate::time::{Duration, Instant};

/// Where one request would go, were it to come at this moment, and what speaks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteDecision {
    /// The moment.
    pub at: Instant,
    /// Tokens of its prompt, estimated (R8).
    pub prompt: Tokens,
    /// Tokens that its answers will likely take.
    pub output: Tokens,
    /// The conversation that it continues; `None` for one that is new, forgotten, or none.
    pub known: Option<Known>,
    /// The replicas that hold a beginning of its prompt, those of the longest one first (R6).
    pub holders: Vec<ReplicaId>,
    /// What a detour costs and saves; `None` where no detour is weighed (R4).
    pub detour: Option<DetourPrice>,
    /// It was told to come back and keeps the time: it stands where it first stood (Q2).
    pub promised: bool,
    /// The policy that picks where nothing else does, by its name.
    pub policy: &'static str,
    /// Every replica that is not gone, in order of id.
    pub candidates: Vec<Candidate>,
    /// What becomes of it.
    pub verdict: RouteVerdict,
}

/// A conversation that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its home.
    pub home: ReplicaId,
    /// The boundary of the prompt that it is known by, counted from 1; `None` where it has a name (R1).
    pub boundary: Option<u32>,
}

/// The price of a detour (R4). `None` is not measured yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetourPrice {
    /// Prefilling the whole prompt elsewhere.
    pub prefill: Option<Duration>,
    /// Until home is under its limit in requests.
    pub wait: Option<Duration>,
}

/// One replica as the request finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which one.
    pub id: ReplicaId,
    /// Its phase.
    pub phase: Phase,
    /// What speaks for or against it.
    pub standing: Standing,
    /// Its place in the order of those with a free place: 1 is the least loaded, and of equals the one whose turn it
    /// is. `None` for one that is not in it.
    pub order: Option<u32>,
    /// Requests that it works on.
    pub in_flight: u32,
    /// Requests that it works on at most (Q1).
    pub limit: u32,
    /// Tokens in progress there (R8).
    pub load: Tokens,
    /// Tokens that its engine can hold, where it told.
    pub holds: Option<Tokens>,
    /// Its declared size.
    pub capacity: Capacity,
    /// Its part of the size of all open replicas, in percent, rounded down; 0 for one that is not open.
    pub share_percent: u32,
    /// Its load by size, in percent of that of all open replicas together; `None` while nothing is in progress.
    pub fullness_percent: Option<u32>,
}

/// Whether a replica can take the request, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is under its load limit.
    Free,
    /// It is over its load limit: taken where nobody is under it, or by those at home there (R4).
    OverLimit,
    /// It has just joined the others and has had twice its share: taken where nobody else is under the limit (C-040).
    WarmingUp,
    /// Its engine said a moment ago that it is full: taken where nobody else has room (C-032).
    Busy,
    /// The request's tokens would take it over its load limit (Q1).
    NoRoom,
    /// Somebody who stands before it in the line waits for room there (Q1).
    Claimed,
    /// It works on as many requests as it may (Q1).
    Full,
    /// It was taken out, and one request shows whether it can be trusted again (R5).
    OnTrial,
    /// It is taken out for a while because of how it answered (R5).
    Ejected,
    /// A request could not connect to it; it takes none until its probe has looked.
    Suspect,
    /// Nothing listens there.
    Refused,
    /// An operator has set it aside, to measure it (A1).
    Aside,
    /// An operator has it take only the requests of conversations that are at home there (C-129).
    OwnOnly,
    /// Its engine lists other models than the deployment's (C-028).
    OtherModel,
    /// Its probe cannot connect to it.
    Unreachable,
    /// Its phase is not ready.
    NotReady,
}

impl Standing {
    /// The word of the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::OverLimit => "over_limit",
            Self::WarmingUp => "warming_up",
            Self::Busy => "busy",
            Self::NoRoom => "no_room",
            Self::Claimed => "claimed",
            Self::Full => "full",
            Self::OnTrial => "on_trial",
            Self::Ejected => "ejected",
            Self::Suspect => "suspect",
            Self::Refused => "refused",
            Self::Aside => "aside",
            Self::OwnOnly => "own_only",
            Self::OtherModel => "other_model",
            Self::Unreachable => "unreachable",
            Self::NotReady => "not_ready",
        }
    }
}

/// What would become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteVerdict {
    /// It is sent at once.
    Forward {
        /// Where to.
        replica: ReplicaId,
        /// How it comes there.
        route: Route,
        /// Who says so.
        chosen_by: ChosenBy,
    },
    /// It waits in the line.
    Wait {
        /// How many stand before it.
        before: u32,
        /// How long it will likely wait; `None` while too little was measured.
        expected: Option<Duration>,
        /// How long it may wait at most, as things are.
        at_most: Duration,
        /// Why it is refused then.
        then: Refusal,
    },
    /// It is answered 503.
    Refuse {
        /// Which limit is crossed.
        reason: Refusal,
        /// What `Retry-After` says (Q2).
        retry_after: Duration,
    },
}

/// What picked a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// The conversation is at home there (R2).
    Home,
    /// It holds the beginning of the prompt (R6).
    Prefix,
    /// The policy (R3).
    Policy,
    /// It has come and is short of homes, and little is lost by moving there (R2).
    Growth,
}
