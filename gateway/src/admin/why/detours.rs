//! Why first tokens are slow now and then: requests that were served away from the cache of their conversation (R4).

use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::request::Route;
use tidegate_shared::time::Duration;

use super::facts::{Facts, Known};
use super::words::{count, latency, list, pick, span};
use super::{Finding, Line};
use crate::pool::{RECENTLY, Trust};

/// Occasional slow first token.
pub(super) fn slow(facts: &Facts<'_>) -> Finding {
    let (line, recent) = (Line::SlowFirstToken, facts.recent);
    let (detours, rehomed, all) = (recent.way(Route::Detour), recent.way(Route::Rehomed), recent.sent());
    let period = span(RECENTLY);
    let now = homes(facts);
    if detours.sent == 0 {
        let text = match all {
            0 => format!("no request was sent in the last {period}"),
            1 => format!("the 1 request of the last {period} was served where it belongs"),
            _ => format!("none of the {all} requests of the last {period} was served away from home"),
        };
        return match now {
            Some(now) => line.ahead(format!("{text}, but {now}")),
            None => line.no(format!("{text}{}", moved(rehomed.sent))),
        };
    }
    let left: Vec<String> =
        recent.left.iter().map(|(home, count)| format!("{count} off {}", facts.replica(*home))).collect();
    let mut text = format!(
        "{} of {} in the last {period} {} served away from home ({}){}",
        detours.sent,
        count(all, "request"),
        pick(detours.sent, "was", "were"),
        list(&left),
        moved(rehomed.sent)
    );
    text.push_str(&format!("; {}", price(detours.mean(), recent.way(Route::Home).mean())));
    text.extend(now.map(|now| format!("; {now}")));
    line.now(text).advise("nothing: it beats waiting at a full home; more replicas make it rarer")
}

fn moved(conversations: u64) -> String {
    match conversations {
        0 => String::new(),
        some => format!(", and {} moved to a new home", count(some, "conversation")),
    }
}

/// What a detour costs, as far as streams have shown it.
fn price(away: Option<Duration>, home: Option<Duration>) -> String {
    match (away, home) {
        (Some(away), Some(home)) => {
            format!("their first token took {} on average, at home {}", latency(away), latency(home))
        }
        (Some(away), None) => {
            format!("their first token took {} on average, at home none was timed", latency(away))
        }
        (None, _) => "what that costs is not measured yet: no stream among them has ended".to_owned(),
    }
}

/// The homes that shed now, and why.
fn homes(facts: &Facts<'_>) -> Option<String> {
    let names = |which: fn(&ReplicaFacts, &Known) -> bool| -> Vec<String> {
        let those = facts.each().filter(|(replica, known)| which(replica, known));
        those.map(|(replica, _)| facts.replica(replica.id)).collect()
    };
    let over = names(|replica, known| replica.is_ready() && replica.conversations > 0 && known.over);
    let out = names(|replica, known| {
        replica.is_ready() && replica.conversations > 0 && !matches!(known.trust, Trust::Whole)
    });
    let told = |names: &[String], one: &str, many: &str| {
        (!names.is_empty()).then(|| format!("{} {}", list(names), pick(names.len() as u64, one, many)))
    };
    let over = told(&over, "is over its load limit now", "are over their load limits now");
    let out = told(&out, "is taken out now", "are taken out now");
    match (over, out) {
        (Some(over), Some(out)) => Some(format!("{over}, and {out}")),
        (over, out) => over.or(out),
    }
}
