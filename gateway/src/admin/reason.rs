//! Why a request would go where it would go, in one sentence (E3). Puts the figures of a decision into words; decides
//! nothing.

use tidegate_shared::decision::Refusal;
use tidegate_shared::explained::{Candidate, ChosenBy, RouteDecision, RouteVerdict, Standing};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Phase;
use tidegate_shared::request::Route;
use tidegate_shared::span::brief;

/// The sentence, without a full stop. `name` gives a replica its public name.
pub(super) fn of(decision: &RouteDecision, name: impl Fn(ReplicaId) -> String) -> String {
    match decision.verdict {
        RouteVerdict::Forward { replica, route, chosen_by } => {
            forward(decision, route, chosen_by, &name(replica), &name)
        }
        RouteVerdict::Wait { before, .. } => {
            let state = if decision.candidates.iter().any(is_open) {
                "no replica has room"
            } else {
                "no replica is ready"
            };
            match before {
                0 => format!("{state}; nobody stands before it"),
                1 => format!("{state}; 1 request stands before it"),
                _ => format!("{state}; {before} requests stand before it"),
            }
        }
        RouteVerdict::Refuse { reason, .. } => refused(reason).to_owned(),
    }
}

fn forward(
    decision: &RouteDecision,
    route: Route,
    chosen_by: ChosenBy,
    replica: &str,
    name: &dyn Fn(ReplicaId) -> String,
) -> String {
    let policy = match decision.policy {
        "least-load" => format!("{replica} is the least loaded"),
        policy => format!("{replica} is the pick of the policy `{policy}`"),
    };
    let home = decision.known.map(|known| known.home);
    let at_home = decision.candidates.iter().find(|candidate| Some(candidate.id) == home);
    let told = home.map_or_else(String::new, name);
    match route {
        Route::Home if decision.detour.is_none() => "the conversation is at home there".to_owned(),
        Route::Home => stays(decision, home),
        Route::Detour => match at_home.and_then(against) {
            Some(why) => format!("its home {told} is {why}{}; {policy}", price(decision, at_home)),
            None => format!("its home {told} cannot take it; {policy}"),
        },
        Route::Rehomed if chosen_by == ChosenBy::Growth => {
            format!(
                "{replica} is new and short of conversations, and little is lost by moving there from {told}"
            )
        }
        Route::Rehomed => match at_home.and_then(against) {
            Some(why) => format!("its home {told} is {why}, so it gets another; {policy}"),
            None => format!("its home {told} is gone, so it gets another; {policy}"),
        },
        Route::Placed if chosen_by == ChosenBy::Prefix => {
            format!(
                "a new conversation; {replica} holds the beginning of its prompt, and the balance allows it"
            )
        }
        Route::Placed => format!("a new conversation; {policy}"),
        Route::Any => format!("it belongs to no conversation; {policy}"),
    }
}

/// Why it stays at a home that is over its limit.
fn stays(decision: &RouteDecision, home: Option<ReplicaId>) -> String {
    let elsewhere =
        decision.candidates.iter().any(|other| other.standing == Standing::Free && Some(other.id) != home);
    let price = decision.detour.and_then(|price| price.prefill.zip(price.wait));
    match price {
        Some((prefill, wait)) if elsewhere => format!(
            "its home is over its load limit, but is under it again in {}, and prefilling elsewhere takes {}",
            brief(wait),
            brief(prefill)
        ),
        _ => "its home is over its load limit, and no other replica is under its own".to_owned(),
    }
}

/// What the detour costs, as far as that is known; nothing where there is no place at home to wait for it at.
fn price(decision: &RouteDecision, home: Option<&Candidate>) -> String {
    let full = home.is_none_or(|home| home.standing == Standing::Full);
    let Some(price) = decision.detour.filter(|_| !full) else { return String::new() };
    match (price.prefill, price.wait) {
        (Some(prefill), Some(wait)) => format!(
            " (prefilling elsewhere takes {}, home is under its limit in {})",
            brief(prefill),
            brief(wait)
        ),
        _ => " (what a detour costs is not measured yet)".to_owned(),
    }
}

/// What speaks against a replica, to follow "it is": `None` where nothing does.
pub(super) fn against(candidate: &Candidate) -> Option<&'static str> {
    Some(match candidate.standing {
        Standing::Free => return None,
        Standing::OverLimit => "over its load limit",
        Standing::WarmingUp => "warming up: it joined a busy fleet and has had its part for now",
        Standing::Busy => "busy: it said so a moment ago",
        Standing::NoRoom => "too full for its tokens",
        Standing::Claimed => "waited for: somebody came before who needs the room there",
        Standing::Full => "full",
        Standing::OnTrial => "on trial: one request shows whether it is well",
        Standing::Ejected => "taken out because of how it answered",
        Standing::Suspect => "not reachable just now",
        Standing::Refused => "not listening",
        Standing::Aside => "set aside while `tidegate tune` measures it",
        Standing::OwnOnly => "left to the conversations that are at home there",
        Standing::OtherModel => "serving another model",
        Standing::Unreachable => "unreachable",
        Standing::NotReady => match candidate.phase {
            Phase::Provisioning => "not started yet",
            Phase::Starting => "starting",
            Phase::Waking => "being woken",
            Phase::Parked => "parked",
            Phase::Draining => "draining",
            Phase::Failed => "failed",
            Phase::Ready | Phase::Gone => "not ready",
        },
    })
}

fn is_open(candidate: &Candidate) -> bool {
    !matches!(
        candidate.standing,
        Standing::Ejected
            | Standing::Suspect
            | Standing::Refused
            | Standing::OtherModel
            | Standing::Unreachable
            | Standing::Aside
            | Standing::OwnOnly
            | Standing::NotReady
    )
}

fn refused(reason: Refusal) -> &'static str {
    match reason {
        Refusal::QueueFull => "no replica has room, and as many requests wait as may",
        Refusal::QueueBytes => "no replica has room, and as many bytes wait as may",
        Refusal::WouldWaitTooLong => {
            "no replica has room, and by the pace of late it would not start within the headroom"
        }
        Refusal::PushedOut => "as many requests wait as may, and a more urgent one came",
        Refusal::WouldMissDeadline => {
            "no replica has room, and by the pace of late it would not start before its deadline"
        }
        Refusal::MissedDeadline => "its deadline would have passed",
        Refusal::WaitedTooLong => "it would have waited as long as the headroom allows",
        Refusal::ColdStartTooLong => "no replica would be ready within the cold-start limit",
        Refusal::StartFailed => "replicas keep failing to start",
        Refusal::OtherModel => "the engines of all replicas list other models",
        Refusal::Unreachable => "no replica can be connected to",
        Refusal::NoReplica => "no replica is ready",
        Refusal::CannotStart => "there is no replica, and none can be started",
        Refusal::Drained => "every replica is being drained, and none can be started",
        Refusal::NoSocket => "the gateway has as many connections as it may have",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::explained::{DetourPrice, Known};
    use tidegate_shared::replica::Capacity;
    use tidegate_shared::request::Tokens;
    use tidegate_shared::time::{Duration, Instant};

    use super::*;

    fn candidate(id: u32, standing: Standing) -> Candidate {
        Candidate {
            id: ReplicaId(id),
            phase: if standing == Standing::NotReady { Phase::Draining } else { Phase::Ready },
            standing,
            order: None,
            in_flight: 0,
            limit: 4,
            load: Tokens(0),
            holds: None,
            capacity: Capacity::ONE,
            share_percent: 50,
            fullness_percent: None,
        }
    }

    fn decision(verdict: RouteVerdict, home: Option<Standing>) -> RouteDecision {
        let candidates = home.map(|standing| candidate(1, standing)).into_iter();
        RouteDecision {
            at: Instant::ZERO,
            prompt: Tokens(100),
            output: Tokens(200),
            known: Some(Known { home: ReplicaId(1), boundary: None }),
            holders: Vec::new(),
            detour: None,
            promised: false,
            policy: "least-load",
            candidates: candidates.chain([candidate(2, Standing::Free)]).collect(),
            verdict,
        }
    }

    fn said(decision: &RouteDecision) -> String {
        of(decision, |id| format!("chat-{}", id.0))
    }

    #[test]
    fn e3_each_route_has_its_reason() {
        let to = |route, chosen_by| RouteVerdict::Forward { replica: ReplicaId(2), route, chosen_by };
        let policy = |route| to(route, ChosenBy::Policy);
        for (verdict, home, expected) in [
            (to(Route::Home, ChosenBy::Home), Some(Standing::Free), "the conversation is at home there"),
            (policy(Route::Placed), None, "a new conversation; chat-2 is the least loaded"),
            (
                to(Route::Placed, ChosenBy::Prefix),
                None,
                "a new conversation; chat-2 holds the beginning of its prompt, and the balance allows it",
            ),
            (policy(Route::Any), None, "it belongs to no conversation; chat-2 is the least loaded"),
            (
                policy(Route::Rehomed),
                None,
                "its home chat-1 is gone, so it gets another; chat-2 is the least loaded",
            ),
            (
                policy(Route::Rehomed),
                Some(Standing::NotReady),
                "its home chat-1 is draining, so it gets another; chat-2 is the least loaded",
            ),
            (
                to(Route::Rehomed, ChosenBy::Growth),
                Some(Standing::Free),
                "chat-2 is new and short of conversations, and little is lost by moving there from chat-1",
            ),
            (
                policy(Route::Detour),
                Some(Standing::Suspect),
                "its home chat-1 is not reachable just now; chat-2 is the least loaded",
            ),
        ] {
            assert_eq!(said(&decision(verdict, home)), expected);
        }
        let mut other = decision(policy(Route::Any), None);
        other.policy = "random";
        assert_eq!(said(&other), "it belongs to no conversation; chat-2 is the pick of the policy `random`");
    }

    #[test]
    fn e3_r4_a_home_over_its_limit_is_told_with_the_price() {
        let detour = RouteVerdict::Forward {
            replica: ReplicaId(2),
            route: Route::Detour,
            chosen_by: ChosenBy::Policy,
        };
        let mut told = decision(detour, Some(Standing::OverLimit));
        told.detour = Some(DetourPrice { prefill: None, wait: Some(Duration::from_millis(20)) });
        assert_eq!(
            said(&told),
            "its home chat-1 is over its load limit (what a detour costs is not measured yet); \
             chat-2 is the least loaded"
        );
        let (prefill, wait) = (Some(Duration::from_millis(1240)), Some(Duration::from_micros(2300)));
        told.detour = Some(DetourPrice { prefill, wait });
        assert!(
            said(&told).contains("(prefilling elsewhere takes 1.2 s, home is under its limit in 2.3 ms)")
        );
        let full = RouteDecision { candidates: vec![candidate(1, Standing::Full)], ..told.clone() };
        assert_eq!(said(&full), "its home chat-1 is full; chat-2 is the least loaded");
        let home =
            RouteVerdict::Forward { replica: ReplicaId(1), route: Route::Home, chosen_by: ChosenBy::Home };
        let stays = RouteDecision { verdict: home, ..told };
        assert_eq!(
            said(&stays),
            "its home is over its load limit, but is under it again in 2.3 ms, and prefilling elsewhere takes 1.2 s"
        );
        let full = vec![candidate(1, Standing::OverLimit), candidate(2, Standing::Full)];
        let alone = RouteDecision { candidates: full, ..stays };
        assert_eq!(said(&alone), "its home is over its load limit, and no other replica is under its own");
    }

    #[test]
    fn e3_waiting_and_refusals_are_told() {
        let wait = |before| RouteVerdict::Wait {
            before,
            expected: None,
            at_most: Duration::from_secs(2),
            then: Refusal::WaitedTooLong,
        };
        let mut told = decision(wait(1), Some(Standing::Full));
        assert_eq!(said(&told), "no replica has room; 1 request stands before it");
        told =
            RouteDecision { candidates: vec![candidate(1, Standing::NotReady)], ..decision(wait(0), None) };
        assert_eq!(said(&told), "no replica is ready; nobody stands before it");
        let retry_after = Duration::from_secs(3);
        told.verdict = RouteVerdict::Refuse { reason: Refusal::QueueFull, retry_after };
        assert_eq!(said(&told), "no replica has room, and as many requests wait as may");
        told.verdict = RouteVerdict::Refuse { reason: Refusal::WouldMissDeadline, retry_after };
        let expected = "no replica has room, and by the pace of late it would not start before its deadline";
        assert_eq!(said(&told), expected);
    }
}
