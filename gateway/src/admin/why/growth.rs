//! Why the fleet is not larger, where nothing but its own rules keeps it from that: the ceiling, confirmation, steps and
//! replicas that are on their way (A3, A6, B3, B4).

use tidegate_scaler_core::config::MAX_REPLICAS;
use tidegate_scaler_core::offer::choose;
use tidegate_scaler_core::planner::{CHECK, STEP};
use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason, held_places};
use tidegate_shared::replica::{Phase, ReplicaFacts};

use super::facts::Facts;
use super::shrink::draining;
use super::words::{ahead, count, list, pick, span};
use super::{Finding, Line, Standing};

const STATIC: &str = "the fleet is fixed: nothing is started or stopped here";
const UNSEEN: &str = "the fleet was not evaluated yet";

/// What there is to say where nobody sizes the fleet, or nobody has yet.
pub(super) fn unsized_fleet(facts: &Facts<'_>) -> &'static str {
    if facts.sized { UNSEEN } else { STATIC }
}

/// Stuck at max while queues grow.
pub(super) fn at_max(facts: &Facts<'_>) -> Finding {
    let Some(decision) = facts.decision() else { return fixed_and_full(facts) };
    let (max, current, needed) = (facts.sizing.ceiling(), facts.current(), decision.needed);
    let there = there(facts, max);
    if let Some(ScaleReason::AtMaxWithLeaving { leaving, falling, max }) =
        facts.block(|block| matches!(block, ScaleReason::AtMaxWithLeaving { .. }))
    {
        return held(facts, held_places(*leaving, *falling), *max);
    }
    // The decision may be of a smaller max.
    let fits = needed <= max && current < max;
    let blocks = !fits && facts.block(|block| *block == ScaleReason::AtMax).is_some();
    if current < max && !blocks {
        return Line::AtMax.no(format!("{there}, {} may be added", max - current));
    }
    let queues = facts.seen.queued > 0;
    if needed <= max && !queues && !blocks {
        return Line::AtMax.no(format!("{there}, which is enough: {}", facts.needs(decision)));
    }
    let there = format!("{there}{}", not_ready(facts));
    if needed <= max
        && !blocks
        && let Some(once) = not_full(facts)
    {
        return Line::AtMax.no(format!("{there}, which is enough once {once}: {}", facts.needs(decision)));
    }
    if needed <= max && !blocks && facts.seen.oldest_wait < facts.sizing.queue_threshold {
        let threshold = span(facts.sizing.queue_threshold);
        let text = format!(
            "{there}; {}: one that waits {threshold} asks for one more, which max forbids",
            facts.waits()
        );
        return Line::AtMax.ahead(text).advise(raise_max(facts));
    }
    let needs = if needed > max && decision.waited().is_none() {
        format!("while {}", facts.needs(decision))
    } else {
        pick(current, "and it is full", "and all of them are full").to_owned()
    };
    let text = format!("{there}, {needs}; {}", facts.waits());
    // The last decision may be older than what is seen.
    let promised = facts.seen.promised > 0;
    // Before a check confirms the need, nothing is wanted that max could keep back.
    let confirming = matches!(decision.reason, ScaleReason::Confirming { .. }) && !blocks;
    let kept = queues || promised || facts.seen.in_flight > 0 && !confirming;
    let standing = if kept { Standing::Now } else { Standing::Ahead };
    asked(facts, Line::AtMax.so(standing, text).advise(raise_max(facts)))
}

/// `max is 2 and 1 is there`, as far as that is known.
fn there(facts: &Facts<'_>, max: u32) -> String {
    match facts.view.listed {
        Some(_) => format!("max is {max} and {} there", are(facts.current())),
        None => format!("max is {max}, and what is there is not known yet"),
    }
}

/// The question, by who is kept waiting.
fn asked(facts: &Facts<'_>, found: Finding) -> Finding {
    match (facts.seen.queued > 0, facts.seen.promised > 0) {
        (true, _) => found,
        (false, true) => found.asked("Stuck at max while clients are told to come back"),
        (false, false) => found.asked("Stuck at max while more is needed"),
    }
}

/// What leaves, or takes long to fall asleep, holds the places that `max` allows.
fn held(facts: &Facts<'_>, (holders, until): (String, &str), max: u32) -> Finding {
    let text = format!("{}, and {holders} until {until}; {}", there(facts, max), facts.waits());
    // Only who was taken out by an operator can be taken back.
    let out = facts.each().find(|(_, known)| known.drained.is_some());
    let undo = out.map_or_else(String::new, |(replica, _)| {
        format!(", `tidegate drain {} {} --undo`", facts.name, facts.replica(replica.id))
    });
    let found = Line::AtMax.now(text).detail(draining(facts));
    asked(facts, found.advise(format!("wait until {until}{undo}, or raise max")))
}

/// How many of those that are there cannot serve yet, and why, in brackets; empty where all can.
fn not_ready(facts: &Facts<'_>) -> String {
    let (current, late, in_line) = (facts.current(), facts.on_the_way(), facts.in_line());
    let some = |some: u32| if some == current { "none".to_owned() } else { format!("{some} not") };
    match (late, in_line) {
        (0, _) => String::new(),
        (late, 0) => format!(" ({} ready yet)", some(late)),
        (late, in_line) => {
            let wait = pick(in_line, "waits", "wait");
            format!(" ({} ready yet: {in_line} {wait} for room at the provider)", some(late))
        }
    }
}

/// What has to come before those that are there can be full; `None` where nothing has.
fn not_full(facts: &Facts<'_>) -> Option<String> {
    let out = facts.each().filter(|(replica, known)| replica.is_ready() && known.is_out()).count() as u64;
    match facts.on_the_way() {
        0 if out == 0 => None,
        0 => Some(format!("{out} of them {} requests again", pick(out, "takes", "take"))),
        _ => Some("all of them are ready".to_owned()),
    }
}

fn raise_max(facts: &Facts<'_>) -> String {
    if facts.sizing.ceiling() >= MAX_REPLICAS {
        return format!(
            "{MAX_REPLICAS} is the most that a deployment may have: spread the model over two deployments"
        );
    }
    let cost =
        facts.sizing.price_cap.map(|cap| format!("; each one more may cost up to {cap}")).unwrap_or_default();
    // What would keep one more from starting, or keeps those up to max from it.
    let others = facts.block(|block| *block != ScaleReason::AtMax).is_some();
    let first = if others { "; what is told beside keeps more from starting too" } else { "" };
    format!("raise max{cost}{first}")
}

/// A fleet that nobody sizes, which is full.
fn fixed_and_full(facts: &Facts<'_>) -> Finding {
    if facts.sized || facts.seen.queued == 0 {
        return Line::AtMax.no(unsized_fleet(facts));
    }
    let (all, ready) = (facts.seen.replicas.len(), facts.those(ReplicaFacts::is_ready).count());
    let text = format!(
        "{ready} of {} of a fixed fleet {} ready; {}",
        count(all as u64, "replica"),
        pick(ready as u64, "is", "are"),
        facts.waits()
    );
    Line::AtMax.now(text).advise("add a replica to the configuration, or let Tidegate start replicas")
}

/// Load spiked but no new replica yet.
pub(super) fn not_yet(facts: &Facts<'_>) -> Finding {
    let line = Line::NoNewReplica;
    let Some(decision) = facts.decision() else { return line.no(unsized_fleet(facts)) };
    let (current, needed) = (facts.current(), decision.needed);
    match &decision.reason {
        ScaleReason::Confirming { seen, of } => confirming(facts, decision, *seen, *of),
        _ if is_held(&decision.reason) && !all_ordered(facts, decision) => {
            line.no(format!("{}; what keeps it from growing is told beside", facts.needs(decision)))
        }
        _ if decision.target > current && decision.target > decision.current => {
            let more = decision.target - current;
            line.now(format!(
                "{}: {more} more {} ordered now",
                cause(facts, decision),
                pick(more, "is", "are")
            ))
        }
        _ if waits_shortly(facts) => line.now(waits_for_threshold(facts)),
        _ if needed > current => line.no(facts.needs(decision)),
        _ => line.no(format!("{}, and {} there or on the way", facts.needs(decision), are(current))),
    }
}

/// Why more are wanted.
fn cause(facts: &Facts<'_>, decision: &ScaleDecision) -> String {
    match &decision.reason {
        ScaleReason::Demand | ScaleReason::Steady => facts.needs(decision),
        ScaleReason::Step { most } => {
            format!("{}, and at most {most} are added in a step", facts.needs(decision))
        }
        _ => decision.to_string(),
    }
}

/// Something else than time and steps holds the fleet, and has a finding of its own.
fn is_held(reason: &ScaleReason) -> bool {
    reason.blocks() || matches!(reason, ScaleReason::AutoscaleOff | ScaleReason::NoData)
}

/// As many are ordered as are wanted, and only room is missing for some of them.
fn all_ordered(facts: &Facts<'_>, decision: &ScaleDecision) -> bool {
    let there = facts.current();
    decision.reason == ScaleReason::NoCapacity && decision.target.max(decision.needed) <= there
}

fn confirming(facts: &Facts<'_>, decision: &ScaleDecision, seen: u32, of: u32) -> Finding {
    let next = facts.check_in().unwrap_or(CHECK);
    let left = of.saturating_sub(seen);
    let barred = choose(facts.offers(), facts.sizing, 1).1.is_some();
    let adds = if barred { "asks for more" } else { "adds replicas" };
    let when = match left {
        0 | 1 => format!("the next check, in {}, {adds} if it finds the same", ahead(next)),
        _ => format!("it takes {left} checks, the next in {}, then every {}", ahead(next), ahead(CHECK)),
    };
    let told = match (seen, of) {
        (_, 1) => String::new(),
        (seen, of) => format!("confirmed by {seen} of {of} checks: "),
    };
    let there = are(facts.current());
    let text = format!("{}, and {there} there or on the way; {told}{when}", facts.needs(decision));
    let bars = if barred { "; what is told beside keeps more from starting then" } else { "" };
    let mut advice = format!("wait for the check{bars}");
    if decision.rule == Rule::TokenLoad {
        let threshold = span(facts.sizing.queue_threshold);
        advice.push_str(&format!(
            "; a sharp jump of the engines' queues counts at the next one, a request that waits {threshold} here at once"
        ));
    }
    Line::NoNewReplica.now(text).advise(advice)
}

/// Somebody waits, and not for long enough to be reason to grow (A3).
fn waits_shortly(facts: &Facts<'_>) -> bool {
    let (seen, sizing) = (facts.seen, facts.sizing);
    let idle = facts.on_the_way() == 0 && facts.current() < sizing.ceiling();
    seen.queued > 0 && idle && seen.oldest_wait < sizing.queue_threshold
}

fn waits_for_threshold(facts: &Facts<'_>) -> String {
    format!(
        "{}; one that waits {} asks for one more at once",
        facts.waits(),
        span(facts.sizing.queue_threshold)
    )
}

/// Fewer replicas added than expected.
pub(super) fn fewer(facts: &Facts<'_>) -> Finding {
    let line = Line::FewerAdded;
    let Some(decision) = facts.decision() else { return line.no(unsized_fleet(facts)) };
    let on_the_way = facts.on_the_way();
    let stepped = decision.rule != Rule::Concurrency;
    if on_the_way == 0 {
        let step = if stepped { format!(", and at most {STEP} are added at a check") } else { String::new() };
        return line.no(format!("none is on its way{step}"));
    }
    let coming: Vec<String> = facts
        .those(ReplicaFacts::is_on_its_way)
        .map(|replica| {
            format!("{} since {}", facts.replica(replica.id), span(facts.seen.at.since(replica.since)))
        })
        .collect();
    let (are, count_as) =
        (pick(on_the_way, "is on its way", "are on their way"), pick(on_the_way, "counts", "count"));
    let want = decision.needed.max(decision.target).clamp(facts.sizing.floor(), facts.sizing.ceiling());
    let mut text = format!(
        "{on_the_way} {are} ({}) and {count_as} towards the {want} that {} wanted",
        list(&coming),
        pick(want, "is", "are")
    );
    if stepped && want > facts.current() {
        let next = facts.check_in().map(|next| format!(", the next in {}", ahead(next))).unwrap_or_default();
        text.push_str(&format!("; at most {STEP} are added at a check{next}"));
    }
    let took = facts.start_took.map(|took| format!("; the last start took {}", span(took)));
    let troubles = facts.each().filter(|(replica, _)| replica.is_on_its_way());
    let troubles = troubles.filter_map(|(replica, known)| {
        Some((replica.id, known.trouble.as_ref().or_else(|| facts.view.pending.get(&replica.id))?))
    });
    let troubles: Vec<String> =
        troubles.map(|(id, trouble)| format!("{}: {trouble}", facts.replica(id))).collect();
    let stuck = facts.unfit(Phase::Starting) + facts.held();
    let advice = if stuck == on_the_way {
        "mend what keeps it from serving; it counts until its start limit is over".to_owned()
    } else if stuck + facts.in_line() == on_the_way {
        format!("wait for room at the provider{}", took.unwrap_or_default())
    } else {
        format!("wait until {} ready{}", pick(on_the_way, "it is", "they are"), took.unwrap_or_default())
    };
    let found = line.now(text).advise(advice).detail(troubles);
    // As many as are wanted, or the first: none is missing, they only take their time.
    let starting = want <= facts.current() || facts.phase(Phase::Ready) == 0;
    if starting { found.asked("Replicas are starting") } else { found }
}

/// `1 is`, `2 are`, `none is`.
pub(super) fn are(replicas: u32) -> String {
    match replicas {
        0 => "none is".to_owned(),
        1 => "1 is".to_owned(),
        many => format!("{many} are"),
    }
}
