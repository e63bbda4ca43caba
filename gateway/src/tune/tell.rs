//! Why the target is what it is, why there is none, and why measuring has ended, in a sentence each. Decides nothing.

use std::collections::BTreeMap;

use tidegate_scaler_core::tune::search::{Because, Found, Goals, Limit, NEAR};
use tidegate_scaler_core::tune::{Measured, Point, percentile};
use tidegate_shared::replica::Phase;
use tidegate_shared::span::{ahead, brief};
use tidegate_shared::time::Duration;

use crate::pool::Needed;

/// Why the target is what it is.
pub(super) fn because(found: &Found, curve: &BTreeMap<u32, Point>, goals: &Goals) -> String {
    let seen = |at: u32| curve.get(&at).map(|point| &point.all);
    let nothing = Measured::default();
    let target = seen(found.target).unwrap_or(&nothing);
    let share = |of: u32| seen(of).map_or(100, |best| target.rate() * 100 / best.rate().max(1));
    let part = |best: u32| match best == found.target {
        true => format!("{} at a time bring {}", found.target, rate(target)),
        false => format!(
            "{} at a time bring {}, {} % of the most that was seen, at {best}",
            found.target,
            rate(target),
            share(best)
        ),
    };
    let text = match found.because {
        Because::Knee { best } if let (true, Some((low, high))) = (found.settled, found.range) => {
            format!("{}; somewhere from {low} to {high} throughput stops growing", part(best))
        }
        Because::Knee { best } if found.settled && best != found.target && share(best) < u64::from(NEAR) => {
            format!("{}, which noise explains, and more bring no more", part(best))
        }
        Because::Knee { best } if found.settled => format!("{}, and more bring no more", part(best)),
        Because::Knee { best } if best == found.target => format!("{}, the most that was seen", part(best)),
        Because::Knee { best } => part(best),
        Because::Places if seen(found.target).is_none() => {
            format!("the engine runs no more than {} at once", found.target)
        }
        Because::Places => format!("{}; the engine runs no more at once", part(found.target)),
        Because::Bound { most } => {
            format!(
                "{}; {most} is the most that is tried here, and throughput still grew: it is at least that",
                part(most)
            )
        }
        Because::Limit { limit, beyond } => {
            let best = curve.keys().copied().filter(|at| *at < beyond).max().unwrap_or(found.target);
            format!("{}; at {beyond}, {}", part(best), met(limit, seen(beyond), goals))
        }
    };
    match found.range {
        _ if found.settled => text,
        Some((low, high)) => format!(
            "not certain: the replica's speed varies, and {low} to {high} may be the target; the best guess is {}: {text}",
            found.target
        ),
        None => format!(
            "not certain: time was up before the search came to its end; the best guess is {}: {text}",
            found.target
        ),
    }
}

/// What was met at a concurrency that is too much.
fn met(limit: Limit, seen: Option<&Measured>, goals: &Goals) -> String {
    let over = |values: Option<&Vec<Duration>>, goal: Option<Duration>| {
        let value = values.and_then(|values| percentile(values, 95)).unwrap_or_default();
        format!(
            "{} at the 95th percentile, over the goal of {}",
            brief(value),
            brief(goal.unwrap_or_default())
        )
    };
    match limit {
        Limit::Refused if seen.is_some_and(|seen| seen.refused > 0) => {
            "the replica refuses requests".to_owned()
        }
        Limit::Refused => "requests fail".to_owned(),
        Limit::Ttft => format!("the first token takes {}", over(seen.map(|seen| &seen.ttft), goals.ttft)),
        Limit::Tpot => format!("a token takes {}", over(seen.map(|seen| &seen.tpot), goals.tpot)),
    }
}

/// Why there is no target: even one request at a time is too much.
pub(super) fn nothing(limit: Limit, goals: &Goals, trouble: Option<String>) -> String {
    let goal = |what: &str, goal: Option<Duration>| {
        format!(
            "even one request at a time takes longer to {what} than the goal of {} allows",
            brief(goal.unwrap_or_default())
        )
    };
    match limit {
        Limit::Refused => {
            let why = trouble.map(|why| format!(": {why}")).unwrap_or_default();
            format!("even one request at a time is refused, or fails{why}")
        }
        Limit::Ttft => goal("its first token", goals.ttft),
        Limit::Tpot => goal("each further token", goals.tpot),
    }
}

/// Why there is no target: nothing was measured.
pub(super) fn too_little(limit: Duration) -> String {
    format!("nothing could be measured within {}; give more with --limit", ahead(limit))
}

/// Why measuring has ended.
pub(super) fn needed(replica: &str, needed: Needed) -> String {
    match needed {
        Needed::Waiting(1) => format!("1 request waits and comes first; {replica} serves again. {CALMER}"),
        Needed::Waiting(count) => {
            format!("{count} requests wait and come first; {replica} serves again. {CALMER}")
        }
        Needed::Asked => {
            format!("requests came to {replica}, the only replica that serves, and come first. {CALMER}")
        }
        Needed::Leaves(Phase::Gone) => format!("{replica} is gone"),
        Needed::Leaves(phase) => format!("{replica} is {phase}"),
    }
}

const CALMER: &str = "Tune when less is asked, or with one replica more";

/// Why it did not begin.
pub(super) fn busy(replica: &str, in_flight: u32) -> String {
    let those = if in_flight == 1 { "1 request".to_owned() } else { format!("{in_flight} requests") };
    format!("{replica} still works on {those} of users, and the time is up")
}

fn rate(seen: &Measured) -> String {
    match seen.rate() {
        // Rounded, as the table beside it is.
        rate @ 0..99_950 => format!("{}.{} tokens/s", (rate + 50) / 1000, (rate + 50) % 1000 / 100),
        rate => format!("{} tokens/s", (rate + 500) / 1000),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_scaler_core::tune::curve;

    use super::*;

    fn steps() -> BTreeMap<u32, Point> {
        let step = |(concurrency, tokens): (u32, u64)| Measured {
            concurrency,
            window: Duration::from_secs(10),
            tokens,
            ttft: vec![Duration::from_millis(1230)],
            ..Measured::default()
        };
        curve(&[(1, 83), (4, 1940), (8, 2000)].map(step))
    }

    fn told(target: u32, because: Because, settled: bool) -> String {
        tell(Found { target, because, settled, range: None })
    }

    fn tell(found: Found) -> String {
        let goals = Goals { ttft: Some(Duration::from_millis(500)), tpot: None };
        super::because(&found, &steps(), &goals)
    }

    #[test]
    fn a1_the_reason_is_one_sentence_with_its_numbers() {
        for (told, expected) in [
            (
                told(4, Because::Knee { best: 8 }, true),
                "4 at a time bring 194 tokens/s, 97 % of the most that was seen, at 8, and more bring no more",
            ),
            (
                told(8, Because::Knee { best: 8 }, false),
                "not certain: time was up before the search came to its end; the best guess is 8: 8 at a time bring 200 tokens/s, the most that was seen",
            ),
            (
                told(1, Because::Bound { most: 1 }, true),
                "1 at a time bring 8.3 tokens/s; 1 is the most that is tried here, and throughput still grew: it is at least that",
            ),
            (
                told(4, Because::Limit { limit: Limit::Ttft, beyond: 8 }, true),
                "4 at a time bring 194 tokens/s; at 8, the first token takes 1.2 s at the 95th percentile, over the goal of 500 ms",
            ),
            (
                told(4, Because::Places, true),
                "4 at a time bring 194 tokens/s; the engine runs no more at once",
            ),
            (
                tell(Found {
                    target: 4,
                    because: Because::Knee { best: 8 },
                    settled: false,
                    range: Some((1, 8)),
                }),
                "not certain: the replica's speed varies, and 1 to 8 may be the target; the best guess is 4: 4 at a time bring 194 tokens/s, 97 % of the most that was seen, at 8",
            ),
            (
                tell(Found {
                    target: 4,
                    because: Because::Knee { best: 8 },
                    settled: true,
                    range: Some((3, 5)),
                }),
                "4 at a time bring 194 tokens/s, 97 % of the most that was seen, at 8; somewhere from 3 to 5 throughput stops growing",
            ),
            (told(6, Because::Places, true), "the engine runs no more than 6 at once"),
        ] {
            assert_eq!(told, expected);
        }
        let none = nothing(Limit::Refused, &Goals::default(), Some("503: full".to_owned()));
        assert_eq!(none, "even one request at a time is refused, or fails: 503: full");
    }
}
