//! Queues inside the engines, slow first tokens, failing starts, replicas that are taken out, and what comes first.

use tidegate_scaler_core::budget::Room;
use tidegate_shared::replica::Hold;
use tidegate_shared::request::Route;

use super::*;
use crate::pool::{Cause, Fault, Trust, Unfit};

#[test]
fn e2_b3_who_waits_inside_full_engines_is_told_while_it_is_confirmed_and_at_max() {
    let mut case = Case::new(1, 9, 2, ScaleReason::Confirming { seen: 1, of: 2 }).by_tokens(1);
    let inside = |case: &mut Case| {
        case.view.newest.iter_mut().for_each(|newest| newest.engine_queue = 5);
    };
    inside(&mut case);
    let told = case.finding(Line::NoNewReplica).text;
    let needs = "5 wait inside the engines and nothing is free there, which needs 2 replicas";
    assert!(told.starts_with(needs), "{told}");
    let mut full = Case::new(1, 9, 2, ScaleReason::AtMax).by_tokens(1);
    inside(&mut full);
    full.sizing.max = 1;
    full.says(
        Line::AtMax,
        Standing::Now,
        &format!("max is 1 and 1 is there, while {needs}; nobody waits here"),
    );
}

#[test]
fn e2_b5_a_fleet_that_stays_for_its_places_tells_who_would_wait() {
    let places = Case::new(2, 12, 1, ScaleReason::WouldQueue { waiting: 4 }).by_tokens(1);
    places.says(
        Line::WontDrop,
        Standing::Normal,
        "the replicas' memory is 1 % full, which needs 1 replica, and 2 are there: without one, 4 requests would wait inside the engines, as far as they have shown how many they run at a time",
    );
}

#[test]
fn a1_traffic_that_has_drifted_is_told_with_what_to_do() {
    let mut case = Case::new(1, 0, 0, ScaleReason::AtMin);
    assert!(case.answer().findings.iter().all(|finding| finding.line != Line::Drifted));
    case.drift = Some("answers have 60 tokens lately, and 200 when the target of 12 was tuned".to_owned());
    let found = case.finding(Line::Drifted);
    assert_eq!((found.standing, Some(&found.text)), (Standing::Now, case.drift.as_ref()));
    assert_eq!(
        found.advice.as_deref(),
        Some("`tidegate tune chat` measures again, with requests as they are now")
    );
}

#[test]
fn e2_slow_first_tokens_tell_how_many_left_which_homes_and_what_it_cost() {
    let mut case = Case::new(2, 9, 2, ScaleReason::Steady);
    let (line, home) = (Line::SlowFirstToken, |id| Some(ReplicaId(id)));
    case.says(line, Standing::No, "no request was sent in the last 5 m");
    case.recent.count(Route::Home, home(1));
    case.says(line, Standing::No, "the 1 request of the last 5 m was served where it belongs");
    case.recent.count(Route::Rehomed, home(1));
    case.says(
        line,
        Standing::No,
        "none of the 2 requests of the last 5 m was served away from home, and 1 conversation moved to a new home",
    );
    case.known[0].over = true;
    case.seen.replicas[0].conversations = 7;
    assert_eq!(case.finding(line).standing, Standing::Ahead);
    for from in [1, 2, 1] {
        case.recent.count(Route::Detour, home(from));
    }
    case.says(
        line,
        Standing::Now,
        "3 of 5 requests in the last 5 m were served away from home (2 off chat-1 and 1 off chat-2), and 1 conversation moved to a new home; what that costs is not measured yet: no stream among them has ended; chat-1 is over its load limit now",
    );
    case.recent.time(Route::Detour, SECOND * 2);
    case.recent.time(Route::Detour, SECOND);
    case.recent.time(Route::Home, SECOND / 4);
    let told = case.finding(line).text;
    assert!(told.contains("; their first token took 1.5 s on average, at home 250 ms; "), "{told}");
}

#[test]
fn e2_failing_starts_tell_the_pause_and_the_last_words() {
    let reason = ScaleReason::BackingOff { failures: 3, retry_in: SECOND * 9 };
    let mut case = Case::new(0, 1, 1, reason);
    case.view.last_failure = Some(
        "chat-3 did not start: the engine ended (exit code 3); its last lines:\nloading\n\nno such file"
            .to_owned(),
    );
    let found = case.finding(Line::StartsFail);
    assert_eq!(
        found.text,
        "3 starts in a row have failed, or ended soon after, the next is tried in 9 s; chat-3 did not start: the engine ended (exit code 3)"
    );
    assert_eq!(found.details, ["loading", "no such file"]);
    let again = |case: &Case| case.finding(Line::StartsFail).advice.unwrap();
    case.decide(|decision| decision.target = 1);
    assert!(again(&case).ends_with("it is tried again by itself, after pauses of up to 5 m"));
    case.decide(|decision| (decision.reason, decision.needed, decision.target) = (ScaleReason::Steady, 0, 0));
    assert!(again(&case).ends_with("nothing more is wanted now, so nothing is tried again before it is"));
    case.decide(|decision| decision.target = 1);
    case.view.last_failure = None;
    case.decide(|decision| decision.reason = ScaleReason::BackingOff { failures: 1, retry_in: SECOND });
    case.says(Line::StartsFail, Standing::Now, "1 start has failed, the next is tried in 1 s");
}

#[test]
fn e2_c2_a_replica_that_its_provider_will_not_start_is_told_with_why_and_what_to_do() {
    let mut case = Case::new(0, 9, 1, ScaleReason::ProviderHolds { count: 1 });
    case.add(Phase::Provisioning, 60);
    let ordered = "what is wanted is ordered; that the provider does not start it is told beside";
    case.says(Line::Blocked, Standing::No, ordered);
    let why = "Slurm does not start its job: BadConstraints";
    case.view.pending.insert(ReplicaId(1), why.to_owned());
    case.view.held.insert(ReplicaId(1), "correct what the deployment asks for".to_owned());
    let text = format!("chat-1 is held, and waiting does not help: {why}");
    case.says(Line::StartsFail, Standing::Now, &text);
    let advice = case.finding(Line::StartsFail).advice.unwrap();
    assert_eq!(
        advice,
        "correct what the deployment asks for; it is given up, and ordered anew, once its start limit is over"
    );
    assert_eq!(case.answer().findings[0].line, Line::StartsFail);
    let fewer = case.finding(Line::FewerAdded).advice.unwrap();
    assert!(fewer.starts_with("mend what keeps it from serving"), "{fewer}");
    case.view.held.clear();
    case.view.in_line.insert(ReplicaId(1));
    let fewer = case.finding(Line::FewerAdded).advice.unwrap();
    assert_eq!(fewer, "wait for room at the provider");
    assert!(case.answer().findings.iter().all(|found| found.line != Line::StartsFail));
}

#[test]
fn e2_a_failed_stop_is_told_as_such_and_as_no_failed_start() {
    let mut case = Case::new(1, 0, 0, ScaleReason::Steady);
    let told = [
        (7, "chat-7 could not be stopped: stop: exit status: 1; it said:\nno such host"),
        (8, "chat-8 could not"),
    ];
    case.view.clinging = told.map(|(id, what)| (ReplicaId(id), what.to_owned())).into();
    let found = case.finding(Line::StopsFail);
    assert_eq!(found.text, "chat-7 could not be stopped: stop: exit status: 1; it said: no such host");
    assert_eq!(found.details, ["chat-8 could not"]);
    let again =
        "each is tried again 5 s after the last try, and costs until it is gone: look at the provider";
    assert_eq!(found.advice.as_deref(), Some(again));
    assert!(case.answer().findings.iter().all(|found| found.line != Line::StartsFail));
}

#[test]
fn e2_c_028_replicas_that_cannot_serve_tell_since_when_and_what_to_do() {
    let mut case = Case::new(1, 9, 1, ScaleReason::OnTheirWay { count: 1 });
    case.seen.replicas[0].phase = Phase::Starting;
    case.known[0].unfit = Some((Unfit::OtherModel, now() - SECOND * 8));
    case.known[0].trouble = Some("/v1/models lists `llama`, and not `chat`".to_owned());
    let found = case.finding(Line::ReplicasOut);
    assert_eq!(
        found.details,
        ["chat-1: has served another model for 8.0 s: /v1/models lists `llama`, and not `chat`"]
    );
    assert!(found.advice.is_some_and(|advice| advice.contains("`model`")));
    let fewer = case.finding(Line::FewerAdded).advice;
    assert!(fewer.is_some_and(|advice| advice.starts_with("mend what keeps it from serving")));
    case.known[0].unfit = Some((Unfit::Unreachable, now() - SECOND * 90));
    let found = case.finding(Line::ReplicasOut);
    assert!(found.details[0].starts_with("chat-1: unreachable for 1 m 30 s: "), "{:?}", found.details);
    assert!(found.advice.is_some_and(|advice| advice.starts_with("start an engine at the URL")));
}

#[test]
fn e2_what_matters_most_comes_first_and_nothing_to_do_is_said() {
    let mut case = Case::new(2, 109, 9, ScaleReason::AtMax).queue(12, SECOND * 3);
    case.sizing.max = 2;
    case.view.provider_error = Some("the docker daemon does not answer".to_owned());
    let why = Cause { fault: Fault::Silent, faults: 5, of: 5 };
    case.known[1].trust = Trust::Out { until: now() + SECOND * 5, why };
    let lines: Vec<Line> = case.answer().findings.iter().map(|finding| finding.line).collect();
    assert_eq!(lines[..3], [Line::ProviderDown, Line::ReplicasOut, Line::AtMax]);
    case.says(Line::ReplicasOut, Standing::Now, "1 of 2 replicas is not well: chat-2");
    assert!(
        case.finding(Line::ReplicasOut).details[0]
            .starts_with("chat-2: it gets no request for 5 s, because ")
    );

    let calm = Case::new(1, 3, 1, ScaleReason::Steady).answer();
    assert_eq!((calm.findings[0].line, calm.findings.len()), (Line::NothingToDo, 8), "and the seven");
    assert_eq!(calm.findings[0].text, "3 in progress need 1 replica, and 1 is there");
    assert_eq!(calm.now, "1 replica ready, 1 to 4 allowed; 3 in flight, 0 queued");
    let zero = Case::new(0, 0, 0, ScaleReason::Steady).answer();
    assert_eq!(
        zero.findings[0].text,
        "nothing is in progress and nothing runs; the next request starts a replica"
    );
}

#[test]
fn e2_a4_a_fleet_that_cools_or_stays_at_min_is_told_as_nothing_that_is_the_matter() {
    let cooling = ScaleReason::Cooling { low_for: SECOND, window: SECOND * 30, to: 0 };
    let mut idle = Case::new(1, 0, 0, cooling.clone());
    idle.sizing.min = 0;
    for (case, text) in [
        (Case::new(1, 0, 0, ScaleReason::AtMin), "min is 1: nothing is in progress, so fewer would do"),
        (idle, "it stops in 29 s if nobody asks"),
        (Case::new(3, 0, 0, cooling), "all 3 stop in 29 s if nobody asks"),
    ] {
        case.says(Line::WontDrop, Standing::Normal, text);
        let answer = case.answer();
        let now = answer.findings.iter().filter(|finding| finding.standing == Standing::Now);
        assert_eq!(now.map(|finding| finding.line).collect::<Vec<_>>(), [Line::NothingToDo], "{answer:?}");
    }
}

#[test]
fn e2_a1_a_replica_that_is_measured_is_told_and_that_none_is_let_go_meanwhile() {
    let reason = ScaleReason::Cooling { low_for: SECOND * 30, window: SECOND * 30, to: 1 };
    let mut case = Case::new(2, 1, 1, reason);
    case.seen.replicas[1].hold = Some(Hold::Aside);
    let answer = case.answer();
    let of = |line| answer.findings.iter().find(|finding| finding.line == line).expect("a finding").clone();
    let measured = "chat-2 is set aside while `tidegate tune` measures it";
    let tuning = of(Line::Tuning);
    assert_eq!((tuning.standing, &*tuning.text), (Standing::Now, measured));
    let stays = of(Line::WontDrop);
    assert_eq!(stays.standing, Standing::Normal);
    let expected = format!(
        "1 in progress needs 1 replica, and 2 are there: {measured}, and it counts beside those that are needed"
    );
    assert_eq!(stays.text, expected);
}

#[test]
fn e2_c2_where_nothing_can_be_started_no_request_is_said_to_start_a_replica() {
    let told = |change: fn(&mut Case)| {
        let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
        case.sizing.min = 0;
        change(&mut case);
        let first = case.answer().findings.remove(0);
        (first.line, first.text, first.advice)
    };
    let says = |because: &str| {
        format!("nothing runs, and no request starts a replica, because {because}: requests get 503")
    };
    let no_advice = |because: &str| (Line::NothingStarts, says(because), None);
    assert_eq!(told(|_| ()).0, Line::NothingToDo);
    assert_eq!(
        told(|case| case.sizing.max = 0),
        (Line::NothingStarts, says("max is 0"), Some("`tidegate scale chat --max 1`, or more".to_owned()))
    );
    let advice = Some("`tidegate scale chat --autoscale on`, or raise min".to_owned());
    assert_eq!(
        told(|case| case.sizing.autoscale = false),
        (Line::NothingStarts, says("scaling is switched off and min is 0"), advice)
    );
    assert_eq!(
        told(|case| case.sizing.price_cap = Some(Price(DOLLAR))),
        no_advice("the price cap is $1.00/h and the cheapest offer costs $1.35/h")
    );
    assert_eq!(told(|case| case.credit(0)), no_advice("the credit is used up"));
    assert_eq!(
        told(|case| case.view.outlook = Some(Outlook::default())),
        no_advice("the provider offers nothing")
    );
    let silent = told(|case| {
        case.view.outlook = None;
        case.view.provider_error = Some("the docker daemon does not answer".to_owned());
    });
    assert_eq!(silent.0, Line::ProviderDown);
    let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
    for (said, text, details) in [
        ("oops", "list: exit status: 3; it said: oops", &[][..]),
        ("one\ntwo", "list: exit status: 3; it said", &["one", "two"]),
    ] {
        case.view.provider_error = Some(format!("list: exit status: 3; it said:\n{said}"));
        let found = case.finding(Line::ProviderDown);
        assert_eq!(found.text, format!("{text}; the fleet is held at 0 replicas"));
        assert_eq!(found.details, details);
    }
    (case.view.listed, case.view.outlook) = (None, None);
    let unknown = "what it runs is not known yet: it has not answered since the gateway started";
    assert!(case.finding(Line::ProviderDown).text.ends_with(unknown));
    let bare = "the provider has not answered since the gateway started, and what it runs is not known yet";
    let told = startless(&case.sizing, &case.view, case.spending.credit).expect("why");
    assert_eq!(told.why, bare);
    // Where something runs, or is a moment away, requests are served.
    for phase in [Phase::Ready, Phase::Starting, Phase::Parked, Phase::Waking] {
        let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
        case.sizing.max = 0;
        case.add(phase, 3);
        assert!(case.answer().findings.iter().all(|found| found.line != Line::NothingStarts), "{phase:?}");
    }
}

#[test]
fn e2_c2_a6_what_the_gateways_cap_keeps_from_starting_is_not_said_to_start() {
    let first = |left, comes| {
        let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
        case.sizing.min = 0;
        case.view.outlook.as_mut().unwrap().room = Some(Room { cap: 2, left, tried: 0, comes });
        case.answer().findings.remove(0)
    };
    let full = "the gateway has its 2 replicas of `budget.replicas`";
    let found = first(0, false);
    let because = format!("{full}, and no other deployment has one to spare");
    let text = format!("nothing runs, and no request starts a replica, because {because}: requests get 503");
    assert_eq!((found.line, found.text), (Line::NothingStarts, text));
    let advice = "raise budget.replicas, or lower min or max of another deployment";
    assert_eq!(found.advice.as_deref(), Some(advice));
    let waits = format!(
        "nothing is in progress and nothing runs; {full}, and the next request waits until one of them is gone"
    );
    assert_eq!(first(0, true).text, waits);
    let starts = "nothing is in progress and nothing runs; the next request starts a replica";
    assert_eq!(first(1, true).text, starts);
}

#[test]
fn e2_c1_a_replica_that_was_lost_is_told_with_its_end_and_last_lines_and_as_no_failed_start() {
    let mut case = Case::new(0, 1, 1, ScaleReason::OnTheirWay { count: 1 });
    case.decide(|decision| decision.target = 1);
    let ended = "chat-1 is lost: the engine ended (signal: 9 (SIGKILL))";
    case.view.lost = Some((now() - SECOND * 4, format!("{ended}; its last lines:\nlistening\nkilled")));
    let found = case.finding(Line::Lost);
    assert_eq!((found.standing, found.text), (Standing::Now, format!("{ended}, 4.0 s ago")));
    assert_eq!(found.details, ["listening", "killed"]);
    assert!(case.answer().findings.iter().all(|found| found.line != Line::StartsFail));
    assert!(!is_whole(&case.view, &case.seen.replicas));
    case.add(Phase::Ready, 1);
    let found = case.finding(Line::Lost);
    assert_eq!((found.standing, found.text), (Standing::Normal, format!("{ended}, 4.0 s ago")), "made good");
    assert!(is_whole(&case.view, &case.seen.replicas));
    let news = format!("a replica was lost and replaced, 4.0 s ago: {ended}");
    assert_eq!(made_good(&case.view, now()), Some(news));
    case.view.lost = Some((now() - SECOND * 600, ended.to_owned()));
    assert!(case.answer().findings.iter().all(|found| found.line != Line::Lost), "no news any more");
}

#[test]
fn e2_a_fixed_replica_that_loads_is_not_told_as_one_that_fails() {
    let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
    case.sized = false;
    (0..2).for_each(|_| case.add(Phase::Starting, 3));
    case.known[1].trouble = Some("its health check answers 503: {\"status\":\"loading\"}".to_owned());
    let answer = case.answer();
    let first = &answer.findings[0];
    assert_eq!(
        (first.line, &*first.text),
        (Line::NothingToDo, "none is ready, 2 are not ready yet, and nobody waits")
    );
    assert!(answer.findings.iter().all(|found| found.line != Line::ReplicasOut));
    case.known[1].unfit = Some((Unfit::Unreachable, now() - SECOND * 2));
    assert_eq!(case.finding(Line::ReplicasOut).text, "1 of 2 replicas is not well: chat-2");
}

#[test]
fn m2_m3_what_costs_while_the_provider_is_silent_is_told_with_its_age_and_no_zero_stands_for_unknown() {
    let mut case = Case::new(2, 40, 2, ScaleReason::ProviderError);
    case.view.provider_error = Some("the docker daemon does not answer".to_owned());
    case.view.listed = Some(now() - SECOND * 40);
    let (spent, rate) = (Money(9_240_000), Price(720 * DOLLAR));
    case.spending = Spending { spent, rate, credit: Some(Money(7_200_000)) };
    case.burn = rate;
    let lasts = "$7.20 of credit is left, $9.24 spent here; it lasts 36 s at $720.00/h for all deployments, as of 40 s ago";
    case.says(Line::NoCredit, Standing::Ahead, lasts);
    case.credit(-240_000);
    let used = "the credit is used up (balance -$0.24, $9.24 spent here): nothing new is started, and what runs is kept at \
                $720.00/h, as of 40 s ago; nothing more is wanted now";
    case.says(Line::NoCredit, Standing::Ahead, used);
    case.view.listed = None;
    let used = "the credit is used up (balance -$0.24, $9.24 spent here): nothing new is started; what runs is not known yet: \
                the provider has not answered; nothing more is wanted now";
    case.says(Line::NoCredit, Standing::Ahead, used);
    case.credit(300_000);
    let left = "$0.30 of credit is left, $9.24 spent here; how long it lasts is not known yet: a provider has not answered \
                since the gateway started, and what it runs costs all the same";
    case.says(Line::NoCredit, Standing::No, left);
}

#[test]
fn a4_e2_what_a_queue_has_shown_keeps_a_fleet_and_is_told() {
    let ago = SECOND * 40;
    Case::new(3, 9, 1, ScaleReason::QueuedBefore { replicas: 1, in_flight: 5, ago, most: 8 }).says(
        Line::WontDrop,
        Standing::Normal,
        "9 in progress need 1, but with 1 replica requests queued at 5 in progress 40 s ago; it shrinks when fewer than 9 are in progress; 3 are there",
    );
}

#[test]
fn e2_who_waited_at_the_last_evaluation_is_told_with_its_age_where_that_is_over() {
    let mut case = Case::new(2, 5, 3, ScaleReason::AtMax).queue(2, SECOND);
    case.sizing.max = 2;
    case.decide(|decision| decision.at = now() - SECOND * 3 / 4);
    let there = "max is 2 and 2 are there, while 5 in progress (2 of them queued";
    let waits = ") need 3 replicas; 2 requests wait, the oldest for 1.0 s";
    case.says(Line::AtMax, Standing::Now, &format!("{there}{waits}"));
    case.seen.queued = 0;
    case.says(Line::AtMax, Standing::Now, &format!("{there}, 0.7 s ago) need 3 replicas; nobody waits"));
}
