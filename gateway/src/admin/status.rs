//! The shape of `/status` (E1), shared by the gateway that serves it and by `tidegate status` that shows it.
//!
//! Only the shape: it reads no clock and gathers nothing. All times are ages: seconds before the answer was made, so
//! that no clock needs to be compared. Fields may be added; readers ignore those that they do not know.

mod money;

pub use money::{MoneyStatus, Worst};

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tidegate_scaler::orphans::Orphans;
use tidegate_scaler::store::StoreView;
use tidegate_scaler_core::config::Mode;
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::Phase;
use tidegate_shared::span::ahead;
use tidegate_shared::time::{Duration, Instant};

use super::dollars;
use super::drain::DrainState;
use super::manage::SizingValue;
use super::stopping::StoppingStatus;
use super::why::Line;
use crate::endpoint::Engine;
use crate::pool::{Trust, Unfit};
use crate::server::certificate::Shown;
pub use decision::DecisionStatus;

mod decision;

/// Most decisions that a deployment tells.
pub const MOST_DECISIONS: usize = 32;

/// The answer of `/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the gateway.
    pub version: String,
    /// Seconds since the gateway started.
    pub uptime_s: f64,
    /// That it is stopping, and what still runs; absent while it serves.
    pub stopping: Option<StoppingStatus>,
    /// What survives a restart; absent where nothing does, since every fleet is static.
    pub records: Option<RecordsStatus>,
    /// What clients are shown; absent where they speak in the clear.
    pub tls: Option<TlsStatus>,
    /// Every deployment, in the order of the configuration.
    pub deployments: Vec<DeploymentStatus>,
}

/// The certificate that clients are shown (H6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TlsStatus {
    /// Its file.
    pub cert: String,
    /// Seconds until it, or what stands between it and its issuer, expires; below 0 since it has; absent where that
    /// cannot be read.
    pub expires_in_s: Option<f64>,
    /// What an operator should look at, for people: that it expires soon, or why a newer one is not shown.
    pub trouble: Option<String>,
}

impl TlsStatus {
    /// What is shown at `now`.
    pub fn new(shown: &Shown, now: SystemTime) -> Self {
        let expires_in_s = shown.until().map(|until| match until.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(over) => -over.duration().as_secs_f64(),
        });
        Self { cert: shown.cert().display().to_string(), expires_in_s, trouble: shown.trouble() }
    }
}

/// How it goes with what must survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsStatus {
    /// The file.
    pub file: String,
    /// Why the last write failed, while that is so: what waits is in memory only, and is tried again.
    pub trouble: Option<String>,
    /// Records that wait to be written.
    pub waiting: usize,
    /// Decisions that were dropped because too many waited.
    pub dropped: u64,
    /// Rows that cannot be read and are left out, each with its table, its key and why.
    pub unreadable: Vec<String>,
    /// What deployments left running that are in the configuration no more.
    pub orphans: Vec<OrphansStatus>,
    /// What is wrong, as a sentence; absent while all is well.
    pub problem: Option<String>,
}

impl RecordsStatus {
    /// What the store says.
    pub fn new(view: StoreView, orphans: &[Orphans]) -> Self {
        let problem = problem(&view).into_iter().chain(orphans.iter().map(Orphans::sentence));
        let problem = problem.reduce(|all, more| format!("{all}. Also, {more}"));
        let orphans = orphans.iter().map(OrphansStatus::new).collect();
        let StoreView { path, trouble, waiting, dropped, unreadable } = view;
        let (file, waiting) = (path.display().to_string(), waiting.records());
        Self { file, trouble, waiting, dropped, unreadable, orphans, problem }
    }
}

/// Replicas that one deployment left running, and that the gateway cannot stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphansStatus {
    /// Its name; it is in the configuration no more.
    pub deployment: String,
    /// The kind of its provider.
    pub provider: String,
    /// The URL of the cluster where their jobs are; absent where they are none.
    pub cluster: Option<String>,
    /// The names of the replicas, billed or pending.
    pub replicas: Vec<String>,
    /// What they are billed at each hour, in dollars.
    #[serde(with = "dollars")]
    pub rate: Price,
    /// What the deployment has cost in all, they included.
    #[serde(with = "dollars")]
    pub spent: Money,
}

impl OrphansStatus {
    fn new(orphans: &Orphans) -> Self {
        let (deployment, provider) = (orphans.deployment.to_string(), orphans.kind.clone());
        let cluster = orphans.jobs.as_ref().map(|jobs| jobs.cluster.clone());
        let (rate, spent) = (orphans.rate, orphans.spent);
        Self { deployment, provider, cluster, replicas: orphans.names(), rate, spent }
    }
}

/// What is wrong with the records, as a sentence.
fn problem(view: &StoreView) -> Option<String> {
    let StoreView { path, trouble, waiting, dropped, unreadable } = view;
    let mut parts = Vec::new();
    if let Some(why) = trouble {
        let lost = if *dropped == 0 { String::new() } else { format!("; {dropped} decisions are lost") };
        parts.push(format!(
            "nothing is saved: {why}; held in memory, and lost if the gateway ends: {waiting}{lost}"
        ));
    }
    if !unreadable.is_empty() {
        let rows = match unreadable.len() {
            1 => "a row cannot be read and is".to_owned(),
            count => format!("{count} rows cannot be read and are"),
        };
        parts.push(format!("{rows} left out: {}", unreadable.join("; ")));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", path.display(), parts.join(". Also, ")))
}

/// One deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeploymentStatus {
    /// Its name.
    pub name: String,
    /// Whether it may go to zero (A5).
    pub mode: Mode,
    /// Where its replicas come from: `process`, `static`.
    pub provider: String,
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas.
    pub max: u32,
    /// Replicas wanted now.
    pub target: u32,
    /// Requests that a replica works on, over all replicas.
    pub in_flight: u32,
    /// Requests in the queue.
    pub queued: u32,
    /// Clients that were refused and told when to come back, as far as they can be expected to (Q2).
    pub promised: u32,
    /// Seconds that the oldest in the queue has waited; 0 when nothing waits.
    pub oldest_wait_s: f64,
    /// Conversations that have a home (R7).
    pub conversations: u32,
    /// Every replica that is not gone, in order of id.
    pub replicas: Vec<ReplicaStatus>,
    /// The last evaluation; absent before the first.
    pub decision: Option<DecisionStatus>,
    /// The evaluations that changed the target or its reason, newest first, at most [`MOST_DECISIONS`].
    pub decisions: Vec<DecisionStatus>,
    /// What it costs (M2); absent for a fleet that somebody else runs.
    pub money: Option<MoneyStatus>,
    /// Its settings that can be changed while it runs, and where each comes from; none for a static fleet.
    pub sizing: BTreeMap<String, SizingValue>,
    /// How traffic differs from what the target in force was tuned on, for people (A1); absent where it does not.
    pub drift: Option<String>,
    /// That a replica is measured just now, for people (A1); absent where none is.
    pub tuning: Option<String>,
    /// What an operator should look at, for people: the last failed start, a provider that does not answer.
    pub trouble: Option<String>,
    /// Which question of `/deployments/{name}/why` tells more of it; absent where none does.
    pub trouble_is: Option<Line>,
    /// What happened lately and is made good, for people: a replica that was lost and replaced (C1).
    pub news: Option<String>,
    /// Why the next request would start no replica, though none runs, for people; absent where one runs or can be started.
    pub startless: Option<String>,
    /// Whether `trouble` says so already.
    pub startless_told: bool,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its public name, as in `x-tidegate-replica` (H5).
    pub id: String,
    /// Its phase.
    pub phase: Phase,
    /// Seconds that it has been in that phase.
    pub age_s: f64,
    /// Requests that it works on.
    pub in_flight: u32,
    /// Requests that it works on at most (Q1).
    pub limit: u32,
    /// Tokens that these requests hold, estimated (R8).
    pub load_tokens: u64,
    /// Its size in units of its offer (R3).
    pub capacity: u32,
    /// Conversations that have their home there.
    pub conversations: u32,
    /// Base URL of its engine; absent while it has none. Shown on the admin port only, never to clients (H5).
    pub url: Option<String>,
    /// Why it is in that phase, for people, where there is something to say.
    pub why: Option<String>,
    /// An operator took it out (C5); `why` says how far that is.
    pub drained: bool,
    /// How far that is; absent where none took it out.
    pub drain: Option<DrainState>,
    /// It takes only the requests of conversations that are at home there, as an operator said.
    pub own_only: bool,
    /// Why it takes no request though it is ready; absent for one that is trusted (R5).
    pub ejected: Option<EjectedStatus>,
    /// That it is there and cannot serve; absent for one that may. `why` says more.
    pub unfit: Option<UnfitStatus>,
    /// What its engine says of itself (G2); absent while it is not ready.
    pub engine: Option<EngineStatus>,
}

/// A replica that is taken out because of how it answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EjectedStatus {
    /// What it did, for people.
    pub why: String,
    /// Seconds until a request is tried there; 0 where that is so now.
    pub for_s: f64,
}

impl EjectedStatus {
    /// How `trust` looks at `now`, where it is not whole.
    pub fn new(trust: Trust, now: Instant) -> Option<Self> {
        let (why, until) = match trust {
            Trust::Whole => return None,
            Trust::Out { until, why } => (why, until),
            Trust::Trial { why, .. } => (why, now),
        };
        Some(Self { why: why.to_string(), for_s: until.since(now).as_secs_f64() })
    }

    /// The same as a sentence.
    pub fn sentence(&self) -> String {
        let Self { why, for_s } = self;
        let left = Duration::try_from_secs_f64(*for_s).unwrap_or_default();
        if *for_s > 0.0 {
            format!("it gets no request for {}, because {why}", ahead(left))
        } else {
            format!("one request is tried there, because {why}")
        }
    }
}

/// A replica that is there and cannot serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnfitStatus {
    /// `other_model`: its engine lists other models; `unreachable`: it cannot be connected to.
    pub kind: String,
    /// Seconds that this is known.
    pub for_s: f64,
}

impl UnfitStatus {
    /// How `unfit` looks at `now`.
    pub fn new((why, since): (Unfit, Instant), now: Instant) -> Self {
        let kind = match why {
            Unfit::OtherModel => Self::OTHER_MODEL,
            Unfit::Unreachable => Self::UNREACHABLE,
        };
        Self { kind: kind.to_owned(), for_s: now.since(since).as_secs_f64() }
    }

    /// See [`UnfitStatus::kind`].
    pub const OTHER_MODEL: &str = "other_model";
    /// See [`UnfitStatus::kind`].
    pub const UNREACHABLE: &str = "unreachable";
}

/// What an engine last said of itself. A figure that is absent is unknown, never zero (G2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// How it speaks: `vllm`, `sglang`, `llamacpp`, `tgi`, `trtllm`, `tei`, or `none` if it does not.
    pub dialect: String,
    /// Requests that it works on, from all its clients.
    pub running: Option<u32>,
    /// Requests that wait inside it.
    pub waiting: Option<u32>,
    /// Tokens in its KV cache that running requests hold.
    pub kv_used: Option<u64>,
    /// Tokens that its KV cache can hold.
    pub kv_capacity: Option<u64>,
    /// Seconds since it was asked; absent before the first answer.
    pub age_s: Option<f64>,
}

impl EngineStatus {
    /// `engine` as seen at `now`.
    pub fn new(engine: &Engine, now: Instant) -> Self {
        let report = engine.report.unwrap_or_default();
        Self {
            dialect: engine.dialect.as_str().to_owned(),
            running: report.running,
            waiting: report.waiting,
            kv_used: report.kv_used.map(|tokens| tokens.0),
            kv_capacity: report.kv_capacity.map(|tokens| tokens.0),
            age_s: engine.report.map(|report| now.since(report.asked).as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests;
