//! The shape of the answer to `POST /route` (E3), shared by the gateway that gives it and by `tidegate route` that shows
//! it; and how it is made of what the dispatcher tells.
//!
//! Only puts into words: it decides nothing and knows no request's text. Fields may be added; readers ignore those that
//! they do not know. Times are in seconds.

use serde::{Deserialize, Serialize};
use tidegate_shared::decision::Refusal;
use tidegate_shared::explained::{Candidate, ChosenBy, RouteDecision, RouteVerdict, Standing};
use tidegate_shared::id::{ReplicaId, replica_name};
use tidegate_shared::replica::Phase;
use tidegate_shared::request::{Identity, Route};

use super::reason;
use crate::layer::identify::{Identified, NamedBy};

/// Where a request would go, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteAnswer {
    /// The deployment that serves its model.
    pub deployment: String,
    /// The model's name as the request has it.
    pub model: String,
    /// What it asks for, by the word that metrics use too.
    pub operation: String,
    /// What would become of it.
    pub verdict: VerdictTold,
    /// Why, in a sentence.
    pub text: String,
    /// How its conversation is known (R1).
    pub identity: IdentityTold,
    /// Tokens of its prompt, estimated (R8).
    pub prompt_tokens: u64,
    /// Tokens that its answers will likely take.
    pub output_tokens: u64,
    /// The replicas that hold a beginning of its prompt, those of the longest one first (R6).
    pub holders: Vec<String>,
    /// What a detour costs and saves; absent where none is weighed (R4).
    pub detour: Option<DetourTold>,
    /// Whether it was told to come back, and comes when told (Q2).
    pub promised: bool,
    /// The policy that picks where nothing else does.
    pub policy: String,
    /// Every replica that is not gone, in order of id.
    pub replicas: Vec<CandidateTold>,
}

/// What would become of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum VerdictTold {
    /// It is sent at once.
    Forward {
        /// Where to, by its public name (H5).
        replica: String,
        /// How it comes there, as in `x-tidegate-route`.
        route: Route,
        /// What picks the replica.
        chosen_by: ChosenBy,
    },
    /// It waits in the line.
    Wait {
        /// How many stand before it.
        before: u32,
        /// How long it will likely wait; absent while too little was measured.
        expected_s: Option<f64>,
        /// How long it may wait, as things are.
        at_most_s: f64,
        /// Why it is refused after that.
        then: Refusal,
    },
    /// It is answered 503.
    Refuse {
        /// Which limit is crossed.
        reason: Refusal,
        /// What `Retry-After` says.
        retry_after_s: f64,
    },
}

/// How a conversation is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdentityTold {
    /// `header`, `prompt_cache_key`, `metadata.conversation_id`, `prefix`, or `none`.
    pub by: String,
    /// The header, where it is one.
    pub header: Option<String>,
    /// Boundaries of the prompt: after each message or block. 0 where it has a name.
    pub boundaries: u32,
    /// Whether it can be a later turn; one without an answer of a model in it opens a conversation.
    pub follows_up: bool,
    /// The boundary that it is known by, counted from 1; absent where none is known.
    pub known_at: Option<u32>,
    /// Its home; absent for a conversation that is not known.
    pub home: Option<String>,
}

/// The price of a detour. Absent is not measured yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetourTold {
    /// Prefilling the prompt elsewhere.
    pub prefill_s: Option<f64>,
    /// Until home is under its limit.
    pub wait_s: Option<f64>,
}

/// One replica as the request finds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateTold {
    /// Its public name.
    pub id: String,
    /// Its phase.
    pub phase: Phase,
    /// Whether it can take the request, and if not, why.
    pub standing: Standing,
    /// Its place in the order of those with a free place, 1 is next; absent for one that is not in it.
    pub order: Option<u32>,
    /// Requests that it works on.
    pub in_flight: u32,
    /// Requests that it works on at most (Q1).
    pub limit: u32,
    /// Tokens in progress there (R8).
    pub load_tokens: u64,
    /// Tokens that its engine can hold, where it told.
    pub kv_capacity: Option<u64>,
    /// Its size in units of its offer (R3).
    pub capacity: u32,
    /// Its part of the size of all open replicas, in percent.
    pub share_percent: u32,
    /// Its load by size, in percent of that of all open replicas together; absent while nothing is in progress.
    pub fullness_percent: Option<u32>,
    /// What speaks against it, for people; absent where nothing does.
    pub why: Option<String>,
}

impl RouteAnswer {
    /// What `decision` means for `request`. `trouble`: what is known to be wrong with a replica.
    pub fn new(
        request: &Identified,
        decision: &RouteDecision,
        trouble: impl Fn(ReplicaId) -> Option<String>,
    ) -> Self {
        let name = |id| replica_name(&request.deployment.name, id);
        let detour = decision.detour.map(|price| DetourTold {
            prefill_s: price.prefill.map(|time| time.as_secs_f64()),
            wait_s: price.wait.map(|time| time.as_secs_f64()),
        });
        Self {
            deployment: request.deployment.name.to_string(),
            model: request.model.clone(),
            operation: request.operation.to_string(),
            verdict: VerdictTold::new(decision.verdict, name),
            text: reason::of(decision, name),
            identity: IdentityTold::new(request, decision),
            prompt_tokens: decision.prompt.0,
            output_tokens: decision.output.0,
            holders: decision.holders.iter().copied().map(name).collect(),
            detour,
            promised: decision.promised,
            policy: decision.policy.to_owned(),
            replicas: decision
                .candidates
                .iter()
                .map(|candidate| CandidateTold::new(candidate, name(candidate.id), trouble(candidate.id)))
                .collect(),
        }
    }
}

impl VerdictTold {
    fn new(verdict: RouteVerdict, name: impl Fn(ReplicaId) -> String) -> Self {
        match verdict {
            RouteVerdict::Forward { replica, route, chosen_by } => {
                Self::Forward { replica: name(replica), route, chosen_by }
            }
            RouteVerdict::Wait { before, expected, at_most, then } => Self::Wait {
                before,
                expected_s: expected.map(|time| time.as_secs_f64()),
                at_most_s: at_most.as_secs_f64(),
                then,
            },
            RouteVerdict::Refuse { reason, retry_after } => {
                Self::Refuse { reason, retry_after_s: retry_after.as_secs_f64() }
            }
        }
    }
}

impl IdentityTold {
    fn new(request: &Identified, decision: &RouteDecision) -> Self {
        let (boundaries, follows_up) = match &request.facts.identity {
            Identity::Prefix { chain, follows_up } => {
                (u32::try_from(chain.len()).unwrap_or(u32::MAX), *follows_up)
            }
            Identity::Named(_) => (0, true),
            Identity::None => (0, false),
        };
        let deployment = &request.deployment;
        let (by, header) = match (request.named_by, boundaries) {
            (Some(NamedBy::Header(at)), _) => {
                ("header", deployment.conversation_headers.get(at).map(ToString::to_string))
            }
            (Some(NamedBy::Body(field)), _) => (field.as_str(), None),
            (None, 0) => ("none", None),
            (None, _) => ("prefix", None),
        };
        Self {
            by: by.to_owned(),
            header,
            boundaries,
            follows_up,
            known_at: decision.known.and_then(|known| known.boundary),
            home: decision.known.map(|known| replica_name(&deployment.name, known.home)),
        }
    }
}

impl CandidateTold {
    fn new(candidate: &Candidate, id: String, trouble: Option<String>) -> Self {
        let against = reason::against(candidate).map(|against| match (candidate.standing, trouble) {
            (
                Standing::Suspect
                | Standing::Refused
                | Standing::OtherModel
                | Standing::Unreachable
                | Standing::NotReady,
                Some(trouble),
            ) => format!("{against}: {trouble}"),
            _ => against.to_owned(),
        });
        Self {
            id,
            phase: candidate.phase,
            standing: candidate.standing,
            order: candidate.order,
            in_flight: candidate.in_flight,
            limit: candidate.limit,
            load_tokens: candidate.load.0,
            kv_capacity: candidate.holds.map(|tokens| tokens.0),
            capacity: candidate.capacity.units(),
            share_percent: candidate.share_percent,
            fullness_percent: candidate.fullness_percent,
            why: against,
        }
    }
}
