//! Why the fleet does not shrink: its floor, the time of quiet, and what the others would have to take over (A4, B5, C1).

use tidegate_scaler_core::config::Mode;
use tidegate_scaler_core::rule::token_load::{LOW, SURVIVORS};
use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Phase;
use tidegate_shared::time::Duration;

use super::facts::Facts;
use super::growth::{are, unsized_fleet};
use super::words::{ahead, count, pick, span};
use super::{Finding, Line};
use crate::admin::tune;

/// Won't drop below the replicas there are.
pub(super) fn stays(facts: &Facts<'_>) -> Finding {
    let line = Line::WontDrop;
    let Some(decision) = facts.decision() else { return line.no(unsized_fleet(facts)) };
    let current = facts.current();
    let spare = decision.needed < current && decision.target >= current;
    if let Some(held) = tune::running(facts.name, facts.seen).filter(|_| spare) {
        let text = format!(
            "{}, and {} there: {held}, and it counts beside those that are needed",
            facts.needs(decision),
            are(current)
        );
        return line.normal(text).detail(draining(facts));
    }
    let finding = match &decision.reason {
        _ if current == 0 => line.no("there is none"),
        ScaleReason::AutoscaleOff => line.normal(format!("scaling is switched off, and {}", floor(facts))),
        ScaleReason::AtMin => line.normal(format!("{}: {}", floor(facts), enough(facts, decision))),
        ScaleReason::Cooling { low_for, window, to } => {
            cooling(facts, decision, window.saturating_sub(*low_for), *to)
        }
        ScaleReason::Survivors { percent } => line.normal(format!(
            "{}, and {} there: without one, the others would be {percent} % full, and they must stay under {SURVIVORS} %",
            facts.needs(decision),
            are(current)
        )),
        ScaleReason::WouldQueue { waiting } => line.normal(format!(
            "{}, and {} there: without one, {} would wait inside the engines, as far as they have shown how many they run at a time",
            facts.needs(decision),
            are(current),
            count(u64::from(*waiting), "request")
        )),
        ScaleReason::QueuedBefore { .. } | ScaleReason::FewPlaces { .. } => {
            line.normal(format!("{decision}; {} there", are(current)))
        }
        ScaleReason::NoData => line.now("the engines do not tell what they hold, so none is let go"),
        // What keeps those that are needed is not the silence.
        ScaleReason::ProviderError if decision.needed.max(facts.sizing.floor()) < current => {
            line.now("the provider does not answer, so the fleet is held as it is")
        }
        _ if decision.target < current => {
            let fewer = current - decision.target;
            line.no(format!("{fewer} {} let go now", pick(fewer, "is", "are")))
        }
        _ if current <= facts.sizing.floor() => line.no(format!("{}, and {} there", floor(facts), are(current))),
        _ if decision.needed < current => steady(facts, decision),
        _ => line.no(format!("{}, and {} there or on the way: none is to spare", facts.needs(decision), are(current))),
    };
    finding.detail(draining(facts)).detail(parked(facts))
}

/// `min is 2`, or what else is the floor.
fn floor(facts: &Facts<'_>) -> String {
    let (min, floor) = (facts.sizing.min, facts.sizing.floor());
    match facts.sizing.mode {
        Mode::Active if min < floor => format!("mode is active, which keeps {floor}"),
        _ if floor < min => format!("max is {floor}, below a min of {min}"),
        _ => format!("min is {floor}"),
    }
}

/// How few would do.
fn enough(facts: &Facts<'_>, decision: &ScaleDecision) -> String {
    if decision.load.is_none() && decision.demand > 0 {
        return facts.needs(decision);
    }
    match (decision.load, decision.needed) {
        (Some(load), needed) if needed > 0 => {
            format!("the replicas' memory is {load} % full, which {} would do for", count(needed, "replica"))
        }
        _ => "nothing is in progress, so fewer would do".to_owned(),
    }
}

/// What becomes of the fleet once it was quiet for long enough, which it is after `rest` more; `to` are left then.
fn cooling(facts: &Facts<'_>, decision: &ScaleDecision, rest: Duration, to: u32) -> Finding {
    let (current, rest) = (facts.current(), ahead(rest));
    if decision.demand == 0 && to == 0 {
        let stops = match (current, facts.sizing.parked >= current) {
            (1, true) => "it is parked".to_owned(),
            (_, true) => format!("all {current} are parked"),
            (1, false) => "it stops".to_owned(),
            (_, false) => format!("all {current} stop"),
        };
        return Line::WontDrop.normal(format!("{stops} in {rest} if nobody asks")).asked("Idle");
    }
    let text = format!(
        "{}, and {} there: it shrinks to {to} in {rest} if it stays so",
        facts.needs(decision),
        are(current)
    );
    Line::WontDrop.normal(text).asked("Fewer replicas would do")
}

/// Fewer are needed to be comfortable, and yet nothing cools.
fn steady(facts: &Facts<'_>, decision: &ScaleDecision) -> Finding {
    let inside = facts.seen.replicas.iter().filter_map(|replica| replica.waiting);
    let waiting = inside.fold(facts.seen.queued, u32::saturating_add);
    let needs = facts.needs(decision);
    let why = match decision.rule {
        Rule::Jobs => "jobs: one is let go only after a time without any job".to_owned(),
        _ if waiting > 0 => {
            format!(
                "{} here or inside the engines, and one is let go only while nothing waits",
                are_waiting(waiting)
            )
        }
        _ => format!(
            "one is let go only while the memory is under {LOW} % full and the others would stay under {SURVIVORS} %"
        ),
    };
    Line::WontDrop.normal(format!("{needs}, and {} there: {why}", are(facts.current())))
}

fn are_waiting(waiting: u32) -> String {
    format!("{} {}", count(waiting, "request"), pick(waiting, "waits", "wait"))
}

/// Those that are on their way out and still work.
pub(super) fn draining(facts: &Facts<'_>) -> Vec<String> {
    let draining = facts.those(|replica| replica.phase == Phase::Draining);
    let told = draining.map(|replica| {
        format!(
            "{} drains since {}: {} to finish, at most {}",
            facts.replica(replica.id),
            span(facts.seen.at.since(replica.since)),
            count(replica.in_flight, "request"),
            span(facts.sizing.drain_limit)
        )
    });
    told.collect()
}

/// What becomes of a fleet of which nothing but sleepers is left; `None` where there are none.
pub(super) fn kept(facts: &Facts<'_>) -> Option<String> {
    let parked = facts.phase(Phase::Parked);
    let cost = facts.those(|replica| replica.phase == Phase::Parked).map(|replica| replica.price.0);
    let costs = match Price(cost.fold(0, u64::saturating_add)) {
        Price::FREE => String::new(),
        cost => format!(" and {} {cost}", pick(parked, "costs", "cost")),
    };
    let wakes = match facts.sizing.autoscale && facts.sizing.ceiling() > 0 {
        true => pick(parked, ", and the next request wakes it", ", and the next request wakes one"),
        false => "",
    };
    (parked > 0).then(|| {
        format!(
            "nothing is in progress; {} {} parked{costs}{wakes}",
            count(parked, "replica"),
            pick(parked, "is", "are")
        )
    })
}

/// Those that sleep, and what they are kept for.
fn parked(facts: &Facts<'_>) -> Vec<String> {
    let parked = facts.those(|replica| replica.phase == Phase::Parked);
    let told = parked.map(|replica| {
        format!(
            "{} is parked since {}: it is woken before another is started{}",
            facts.replica(replica.id),
            span(facts.seen.at.since(replica.since)),
            if replica.price.0 > 0 {
                format!(", and costs {} meanwhile", replica.price)
            } else {
                String::new()
            }
        )
    });
    told.collect()
}
