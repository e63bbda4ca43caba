//! What else an operator should see first: a silent provider, starts that fail, replicas that take nothing, scaling that is
//! switched off or blind (C1, C2, C4, R5).

use tidegate_scaler::control::{ControlView, STOP_RETRY};
use tidegate_shared::decision::ScaleReason;
use tidegate_shared::id::{DeploymentName, replica_name};
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::{Duration, Instant};

use super::facts::Facts;
use super::growth::are;
use super::words::{ahead, count, list, pick, span};
use super::{Finding, Line, Standing, shrink, startless};
use crate::admin::status::EjectedStatus;
use crate::admin::tune;
use crate::pool::Unfit;

/// Last lines of an engine that are told.
const LAST_LINES: usize = 8;
/// What is to be done where engines list another model.
const OTHER_MODEL: &str = "start the engine under the name that the deployment expects, or set `model` in the deployment to \
                           a name that it lists";
/// What is to be done where nothing listens at the URL of a fixed replica.
const DEAD: &str = "start an engine at the URL that does not answer, or mend the URL";
/// How long a replica that was lost is news.
const LOST_TOLD: Duration = Duration::from_secs(10 * 60);
/// Replicas that are told of.
const TOLD: usize = 8;

/// The provider does not answer.
pub(super) fn provider(facts: &Facts<'_>) -> Option<Finding> {
    let Some(error) = facts.view.provider_error.as_ref() else {
        let text = unanswered("the provider", facts.view, facts.seen.at)?;
        let found = Line::ProviderDown.now(text).asked("The provider has not answered yet");
        return Some(found.advise("wait for it, or look at the provider"));
    };
    let held = if facts.view.listed.is_none() {
        "; what it runs is not known yet: it has not answered since the gateway started".to_owned()
    } else if facts.sized {
        format!("; the fleet is held at {}", count(facts.current(), "replica"))
    } else {
        String::new()
    };
    let again = match facts.view.asked_again.map(|at| at.since(facts.seen.at)) {
        Some(next) if next > Duration::ZERO => format!("it is asked again in {}", ahead(next)),
        _ => "it is being asked now".to_owned(),
    };
    let advice = format!("look at the provider; {again}");
    let (told, details) = quoted(error);
    Some(Line::ProviderDown.now(format!("{told}{held}")).detail(details).advise(advice))
}

/// That `who` was asked and has not answered since the gateway started, which is no error yet.
pub(in crate::admin) fn unanswered(who: &str, view: &ControlView, now: Instant) -> Option<String> {
    let age = span(view.unanswered(now)?);
    Some(format!(
        "{who} has not answered yet since the gateway started, {age} ago; what it runs is not known yet"
    ))
}

/// Replicas could not be stopped.
pub(super) fn stops(facts: &Facts<'_>) -> Option<Finding> {
    let all: Vec<&str> = facts.view.clinging.values().map(String::as_str).collect();
    let (first, others) = all.split_first()?;
    let others = others.iter().map(|what| first_line(what));
    let (told, said) = quoted(first);
    let details = said.into_iter().chain(others.take(TOLD));
    let again = ahead(STOP_RETRY);
    let advice = format!(
        "each is tried again {again} after the last try, and costs until it is gone: look at the provider"
    );
    Some(Line::StopsFail.now(told).detail(details).advise(advice))
}

/// Replicas do not start.
pub(super) fn starts(facts: &Facts<'_>) -> Option<Finding> {
    let decided = facts.decision()?;
    let pause = match facts.block(|block| matches!(block, ScaleReason::BackingOff { .. })) {
        Some(ScaleReason::BackingOff { failures, retry_in }) => {
            let since = facts.seen.at.since(decided.at);
            Some((*failures, retry_in.saturating_sub(since)))
        }
        _ => None,
    };
    let last = facts.view.last_failure.as_deref();
    let (held, mend) = held(facts.name, facts.view).unzip();
    if pause.is_none() && last.is_none() && held.is_none() {
        return None;
    }
    let pause = pause.map(|(failures, retry_in)| {
        let starts = pick(failures, "start has failed", "starts in a row have failed, or ended soon after");
        format!("{failures} {starts}, the next is tried in {}", ahead(retry_in))
    });
    let fails = pause.is_some() || last.is_some();
    let parts: Vec<String> = held.into_iter().chain(pause).chain(last.map(first_line)).collect();
    let details = last.map(rest).unwrap_or_default();
    let read = if details.is_empty() { "" } else { "read the engine's last lines; " };
    let again = if decided.target > facts.phase(Phase::Ready) {
        "it is tried again by itself, after pauses of up to 5 m"
    } else {
        "nothing more is wanted now, so nothing is tried again before it is"
    };
    let again = fails.then(|| format!("{read}{again}"));
    let mended = facts.view.mend.clone().filter(|_| mend.is_none());
    let advice: Vec<String> = mend.into_iter().chain(mended).chain(again).collect();
    let advice = advice.join("; also, ");
    Some(Line::StartsFail.now(parts.join("; ")).detail(details).advise(advice))
}

/// The replicas that their provider has taken and will not start as they are, each with why, and what to do; `None` where
/// there are none.
pub(in crate::admin) fn held(name: &DeploymentName, view: &ControlView) -> Option<(String, String)> {
    let (first, mend) = view.held.iter().next()?;
    let names: Vec<String> = view.held.keys().map(|id| replica_name(name, *id)).collect();
    let why = view.pending.get(first).map_or("its provider holds it", String::as_str);
    let (is, given) = (pick(names.len() as u64, "is", "are"), pick(names.len() as u64, "it is", "each is"));
    // What each waits for may differ, and is told as if of one alone.
    let whose = if names.len() > 1 { format!("; {}", replica_name(name, *first)) } else { String::new() };
    let text = format!("{} {is} held, and waiting does not help{whose}: {why}", list(&names));
    Some((text, format!("{mend}; {given} given up, and ordered anew, once its start limit is over")))
}

/// The replica that was lost last, while that is news: how it ended and, a line each, what its engine last printed.
pub(in crate::admin) fn lost(view: &ControlView, now: Instant) -> Option<String> {
    let (at, what) = view.lost.as_ref()?;
    (now.since(*at) < LOST_TOLD).then(|| what.clone())
}

/// Whether what was lost is replaced, or not needed: one has become ready since, or as many are ready as are wanted.
pub(in crate::admin) fn is_whole(view: &ControlView, replicas: &[ReplicaFacts]) -> bool {
    let ready = || replicas.iter().filter(|replica| replica.is_ready());
    let replaced = view.lost.as_ref().is_some_and(|(at, _)| ready().any(|replica| replica.since > *at));
    replaced || view.newest.as_ref().is_some_and(|decision| ready().count() >= decision.target as usize)
}

/// That a replica was lost, once that is made good.
pub(in crate::admin) fn made_good(view: &ControlView, now: Instant) -> Option<String> {
    let (at, _) = view.lost.as_ref()?;
    let what = lost(view, now)?;
    let so = match view.newest.as_ref().map_or(0, |decision| decision.target) {
        0 => "a replica was lost, and none is needed now",
        _ => "a replica was lost and replaced",
    };
    Some(format!("{so}, {} ago: {}", span(now.since(*at)), first_line(&what)))
}

/// A replica that had been ready has ended by itself.
pub(super) fn lost_one(facts: &Facts<'_>) -> Option<Finding> {
    let what = lost(facts.view, facts.seen.at)?;
    let ago = facts.view.lost.as_ref().map(|(at, _)| span(facts.seen.at.since(*at)));
    let text = format!("{}, {} ago", first_line(&what), ago.unwrap_or_default());
    let found = match is_whole(facts.view, &facts.seen.replicas) {
        true => Line::Lost.normal(text).asked("A replica was lost, and that is made good"),
        false => Line::Lost.now(text),
    };
    let found = found.detail(rest(&what));
    Some(if found.details.is_empty() { found } else { found.advise("read the engine's last lines") })
}

/// Replicas that fail, take no request, or have failed some just now.
pub(super) fn replicas(facts: &Facts<'_>) -> Option<Finding> {
    let told = facts.each().filter_map(|(replica, known)| {
        let name = facts.replica(replica.id);
        let trouble = || known.trouble.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let why = match (replica.phase, EjectedStatus::new(known.trust, facts.seen.at)) {
            _ if let Some((unfit, since)) = known.unfit => {
                let what = match unfit {
                    Unfit::OtherModel => "has served another model for",
                    Unfit::Unreachable => "unreachable for",
                };
                format!("{what} {}{}", span(facts.seen.at.since(since)), trouble())
            }
            (Phase::Ready, Some(ejected)) => ejected.sentence(),
            (Phase::Ready, None) => format!("it is ready, but {}", known.trouble.as_ref()?),
            (Phase::Failed, _) => {
                let since = span(facts.seen.at.since(replica.since));
                format!("failed for {since}{}", trouble())
            }
            _ => return None,
        };
        Some((name, why))
    });
    let mut told: Vec<(String, String)> = told.collect();
    if told.is_empty() {
        return None;
    }
    let (names, all): (Vec<&str>, _) =
        (told.iter().map(|(name, _)| name.as_str()).collect(), facts.seen.replicas.len());
    let are = pick(told.len() as u64, "is", "are");
    let text = format!("{} of {} {are} not well: {}", told.len(), count(all as u64, "replica"), list(&names));
    told.truncate(TOLD);
    let found =
        Line::ReplicasOut.now(text).detail(told.into_iter().map(|(name, why)| format!("{name}: {why}")));
    let is = |unfit| facts.each().any(|(_, known)| known.unfit.is_some_and(|(why, _)| why == unfit));
    let mut advice = Vec::new();
    if is(Unfit::OtherModel) {
        advice.push(OTHER_MODEL);
    }
    if is(Unfit::Unreachable) {
        advice.push(DEAD);
    }
    Some(if advice.is_empty() { found } else { found.advise(advice.join("; also, ")) })
}

/// Clients are shown a certificate that is not good for long, or should be another one.
pub(super) fn certificate(facts: &Facts<'_>) -> Option<Finding> {
    let (what, now) = facts.front.as_ref()?;
    let standing = if *now { Standing::Now } else { Standing::Ahead };
    let advice =
        "put a certificate and its key in place of the files under tls: they are looked at every few seconds";
    Some(Line::Certificate.so(standing, what.as_str()).advise(advice))
}

/// A replica is measured just now.
pub(super) fn tuning(facts: &Facts<'_>) -> Option<Finding> {
    let running = tune::running(facts.name, facts.seen)?;
    Some(Line::Tuning.now(running).advise("let it end, or end `tidegate tune` with Ctrl-C"))
}

/// The target was tuned on other requests than those that come.
pub(super) fn drifted(facts: &Facts<'_>) -> Option<Finding> {
    let drift = facts.drift.as_deref()?;
    let advice = format!("`tidegate tune {}` measures again, with requests as they are now", facts.name);
    Some(Line::Drifted.now(drift).advise(advice))
}

/// Replicas that an operator took out.
pub(super) fn drained(facts: &Facts<'_>) -> Option<Finding> {
    let out = facts
        .each()
        .filter_map(|(replica, known)| Some((facts.replica(replica.id), known.drained.as_deref()?)));
    let out: Vec<(String, &str)> = out.collect();
    let names: Vec<&str> = out.iter().map(|(name, _)| name.as_str()).collect();
    let first = names.first()?;
    let until = if facts.sized { ", until it is stopped" } else { "" };
    let advice = format!("`tidegate drain {} {first} --undo` takes it back{until}", facts.name);
    let shut = startless::shut(facts.sized, &facts.seen.replicas);
    let shut = shut.map(|shut| format!(": {shut}")).unwrap_or_default();
    let are = pick(names.len() as u64, "is taken", "are taken");
    let text = format!("{} {are} out by an operator{shut}", list(&names));
    let details = out.iter().take(TOLD).map(|(name, why)| format!("{name}: {why}"));
    Some(Line::Drained.now(text).detail(details).advise(advice))
}

/// Scaling is switched off, and more is needed.
pub(super) fn switched_off(facts: &Facts<'_>) -> Option<Finding> {
    let decision = facts.decision().filter(|decision| decision.reason == ScaleReason::AutoscaleOff)?;
    (decision.needed > decision.target).then(|| {
        let text =
            format!("{}, but the fleet is held at its floor of {}", facts.needs(decision), decision.target);
        Line::AutoscaleOff.now(text).advise("set autoscale = true, or raise min")
    })
}

/// Engines do not tell what the rule goes by.
pub(super) fn no_data(facts: &Facts<'_>) -> Option<Finding> {
    facts.reason().filter(|reason| **reason == ScaleReason::NoData)?;
    let ready = facts.phase(Phase::Ready);
    let silent = facts
        .those(|replica| replica.is_ready() && (replica.load.is_none() || replica.memory.is_none()))
        .count();
    let text = format!(
        "{silent} of {} do not tell how full their memory is, so the fleet is held as it is",
        count(ready, "ready replica")
    );
    Some(Line::NoData.now(text).advise("let the engines serve /metrics, or set rule = \"concurrency\""))
}

/// What holds where nothing is the matter.
pub(super) fn well(facts: &Facts<'_>) -> String {
    let Some(decision) = facts.decision() else {
        let loading = facts.phase(Phase::Starting).saturating_sub(facts.unfit(Phase::Starting));
        let loads = match loading {
            0 => String::new(),
            some => format!(", {some} {} not ready yet", pick(some, "is", "are")),
        };
        return format!("{} ready{loads}, and {}", are(facts.phase(Phase::Ready)), facts.waits());
    };
    match (facts.current(), decision.demand) {
        (0, 0) if let Some(parked) = shrink::kept(facts) => parked,
        (0, 0) if let Some(room) = facts.room().filter(|room| room.left == 0) => {
            let full = startless::full(room);
            format!(
                "nothing is in progress and nothing runs; {full}, and the next request waits until one of them is gone"
            )
        }
        (0, 0) => "nothing is in progress and nothing runs; the next request starts a replica".to_owned(),
        (current, _) => format!("{}, and {} there", facts.needs(decision), are(current)),
    }
}

/// What a provider said: a sentence, and the lines below it. A command says most things in one line, which belongs to the
/// sentence.
fn quoted(text: &str) -> (String, Vec<String>) {
    let (what, said) = (first_line(text), rest(text));
    match said.as_slice() {
        [only] => (format!("{what}: {only}"), Vec::new()),
        _ => (what, said),
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_suffix("; its last lines:").unwrap_or(line).trim_end_matches([':', ';']).to_owned()
}

/// The last lines but the first.
fn rest(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).map(|line| line.trim_end().to_owned()).collect()
}
