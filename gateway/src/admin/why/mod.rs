//! The shape of the answer to `GET /deployments/{name}/why` (E2), shared by the gateway that gives it and by `tidegate why`
//! that shows it; and which findings there are, in which order.
//!
//! Each finding is one line of the table that operators go through when a fleet does not do what they expect. Only puts
//! into words what the planner, the dispatcher and the ledger have decided and counted: it decides nothing. It is here
//! and in no core, since it needs the facts of both. Fields may be added; readers ignore those that they do not know.

mod blocked;
mod detours;
mod facts;
mod gather;
mod growth;
mod shrink;
mod startless;
mod trouble;
mod words;

use serde::{Deserialize, Serialize};
use tidegate_shared::replica::Phase;

use facts::Facts;
pub(super) use gather::{asked_about, why};
pub(super) use startless::{Startless, is_bare, refuses, shut, startless};
pub(super) use trouble::{held, is_whole, lost, made_good, unanswered};
use words::{count, dot_list, span};

/// Why a deployment is as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyAnswer {
    /// Its name.
    pub deployment: String,
    /// How it is, in one sentence.
    pub now: String,
    /// Every question, what holds now first; never empty.
    pub findings: Vec<Finding>,
}

/// What there is to say to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which question.
    pub line: Line,
    /// The same as a person asks it.
    pub question: String,
    /// Whether it is so.
    pub standing: Standing,
    /// The answer: one sentence with its numbers.
    pub text: String,
    /// More about it, a line each: offers, replicas, last words of an engine.
    pub details: Vec<String>,
    /// What to do, where there is something to do.
    pub advice: Option<String>,
}

/// Whether a finding is so. In order of how much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It explains what is seen now.
    Now,
    /// It holds nothing back yet, and will as soon as more is needed.
    Ahead,
    /// It is so, as it should be: nothing is the matter.
    Normal,
    /// It is not so.
    No,
}

/// The questions, in the order in which they matter where several are so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The provider does not answer (C2).
    ProviderDown,
    /// Replicas do not start, or die soon (C1).
    StartsFail,
    /// A replica could not be stopped.
    StopsFail,
    /// A replica that was ready has ended by itself (C1).
    Lost,
    /// Replicas that fail, are taken out, or failed a request just now (R5).
    ReplicasOut,
    /// Replicas that an operator took out (C5).
    Drained,
    /// Growth is stopped while the credit is used up (M3).
    NoCredit,
    /// Growth is blocked by the price cap, by a lack of room, or by the gateway's cap (C2).
    Blocked,
    /// The ceiling is reached while requests queue (A6).
    AtMax,
    /// Scaling is switched off and more is needed (C1).
    AutoscaleOff,
    /// The load has grown and no replica was added yet (B3).
    NoNewReplica,
    /// Fewer replicas were added than the load asks for (B4).
    FewerAdded,
    /// Engines do not tell what the rule goes by (C4).
    NoData,
    /// The fleet does not shrink (A4, B5, C1).
    WontDrop,
    /// Clients are shown a certificate that has expired, soon will, or should be another one (H6).
    Certificate,
    /// First tokens are slow now and then (R4).
    SlowFirstToken,
    /// A replica is measured just now (A1).
    Tuning,
    /// The target was tuned on other requests than those that come (A1).
    Drifted,
    /// Nothing runs, and nothing can be started.
    NothingStarts,
    /// Nothing is the matter.
    NothingToDo,
}

impl Line {
    /// As a person asks it.
    const fn question(self) -> &'static str {
        match self {
            Self::ProviderDown => "The provider does not answer",
            Self::StartsFail => "Replicas do not start",
            Self::StopsFail => "Replicas do not stop",
            Self::Lost => "A replica was lost",
            Self::ReplicasOut => "Replicas that fail",
            Self::Drained => "Replicas that an operator drained",
            Self::NoCredit => "Scale-up stopped while credit is empty",
            Self::Blocked => "Scale-up blocked (price cap or capacity)",
            Self::AtMax => "Stuck at max while queues grow",
            Self::AutoscaleOff => "Scaling is switched off",
            Self::NoNewReplica => "Load spiked but no new replica yet",
            Self::FewerAdded => "Fewer replicas added than expected",
            Self::NoData => "Engines do not tell what they hold",
            Self::WontDrop => "Won't drop below the replicas there are",
            Self::Certificate => "The certificate that clients are shown",
            Self::SlowFirstToken => "Occasional slow first token",
            Self::Tuning => "A replica is being measured",
            Self::Drifted => "Traffic is another one than was tuned",
            Self::NothingStarts => "No replica can be started",
            Self::NothingToDo => "Nothing to do",
        }
    }

    fn so(self, standing: Standing, text: impl Into<String>) -> Finding {
        let question = self.question().to_owned();
        Finding { line: self, question, standing, text: text.into(), details: Vec::new(), advice: None }
    }

    fn now(self, text: impl Into<String>) -> Finding {
        self.so(Standing::Now, text)
    }

    fn ahead(self, text: impl Into<String>) -> Finding {
        self.so(Standing::Ahead, text)
    }

    fn normal(self, text: impl Into<String>) -> Finding {
        self.so(Standing::Normal, text)
    }

    fn no(self, text: impl Into<String>) -> Finding {
        self.so(Standing::No, text)
    }
}

impl Finding {
    /// The same to the question as it stands now.
    fn asked(self, question: &str) -> Self {
        Self { question: question.to_owned(), ..self }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    fn detail(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

/// The answer from `facts`.
fn answer(facts: &Facts<'_>) -> WhyAnswer {
    let seven = [
        blocked::credit(facts),
        blocked::supply(facts),
        growth::at_max(facts),
        growth::not_yet(facts),
        growth::fewer(facts),
        shrink::stays(facts),
        detours::slow(facts),
    ];
    let more = [
        trouble::provider(facts),
        trouble::starts(facts),
        trouble::stops(facts),
        trouble::lost_one(facts),
        trouble::replicas(facts),
        trouble::drained(facts),
        trouble::certificate(facts),
        trouble::tuning(facts),
        trouble::drifted(facts),
        trouble::switched_off(facts),
        trouble::no_data(facts),
    ];
    let mut findings: Vec<Finding> = seven.into_iter().chain(more.into_iter().flatten()).collect();
    findings.sort_by_key(|finding| (finding.standing, finding.line));
    if findings.iter().all(|finding| finding.standing != Standing::Now) {
        let stuck = startless::finding(facts);
        findings.insert(0, stuck.unwrap_or_else(|| Line::NothingToDo.now(trouble::well(facts))));
    }
    WhyAnswer { deployment: facts.name.to_string(), now: now(facts), findings }
}

/// The fleet and its requests, in one sentence.
fn now(facts: &Facts<'_>) -> String {
    let ready = facts.phase(Phase::Ready);
    let others = [
        (facts.on_the_way().saturating_sub(facts.unfit(Phase::Starting)), "on the way"),
        (facts.unfit(Phase::Starting), "there that cannot serve"),
        (facts.phase(Phase::Draining).saturating_sub(facts.drained()), "draining"),
        (facts.drained(), "drained"),
        (facts.phase(Phase::Parked), "parked"),
        (facts.phase(Phase::Failed), "failed"),
    ];
    let others = others.iter().filter(|(some, _)| *some > 0).map(|(some, what)| format!("{some} {what}"));
    let mut parts = vec![format!("{} ready", count(ready, "replica"))];
    parts.extend(others);
    parts.push(match (facts.sized, facts.sizing.floor(), facts.sizing.ceiling()) {
        (false, ..) => "a fixed fleet".to_owned(),
        (true, min, max) if min == max => format!("fixed at {min}"),
        (true, min, max) => format!("{min} to {max} allowed"),
    });
    let seen = facts.seen;
    let waits = match seen.queued {
        0 => "0 queued".to_owned(),
        queued => format!("{queued} queued, the oldest for {}", span(seen.oldest_wait)),
    };
    let told = match seen.promised {
        0 => String::new(),
        told => format!(", {told} told to come back"),
    };
    format!("{}; {} in flight, {waits}{told}", dot_list(&parts), seen.in_flight)
}

#[cfg(test)]
mod tests;
