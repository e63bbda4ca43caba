//! What blocks growth: offers, caps, the credit; one of them, and several at a time.

use super::*;
use crate::pool::{Cause, Fault, Trust};

#[test]
fn e2_blocked_growth_tells_which_offer_at_what_price_and_which_cap() {
    let (cap, cheapest) = (Price(DOLLAR), Price(1_350_000));
    let mut case = Case::new(2, 97, 4, ScaleReason::PriceCap { cap, cheapest });
    case.decide(|decision| decision.target = 4);
    case.sizing.price_cap = Some(cap);
    let wanted = "2 more replicas are wanted beside the 2 there (97 in progress need 4 replicas), but ";
    let (line, so) = (Line::Blocked, Standing::Now);
    case.says(
        line,
        so,
        &format!("{wanted}the one offer that fits costs $1.35/h (l40s), and the price cap is $1.00/h"),
    );
    let outlook = case.view.outlook.as_mut().unwrap();
    outlook.offers.push(Offer { free: Some(3), memory: Some(80 << 30), ..offer("h100", 2 * DOLLAR) });
    let found = case.finding(line);
    assert!(found.text.contains("the cheapest of 2 offers that fit costs $1.35/h (l40s)"), "{}", found.text);
    assert_eq!(found.details, ["l40s at $1.35/h", "h100 at $2.00/h, 80 GiB, 3 free"]);
    assert!(found.advice.unwrap().starts_with("raise price_cap to $1.35/h or more; "));

    case.decide(|decision| decision.reason = ScaleReason::NoCapacity);
    case.sizing.price_cap = Some(Price(1_500_000));
    case.view.outlook.as_mut().unwrap().offers[0].free = Some(0);
    case.says(
        line,
        so,
        &format!("{wanted}the one offer that fits within the price cap of $1.50/h has no room left; the next with room is h100 at $2.00/h, 80 GiB, 3 free"),
    );
    case.view.no_room = Some("none of 4 is free\nask ops".to_owned());
    assert!(case.finding(line).text.contains("has no room left (none of 4 is free); the next"), "as it says");
    case.decide(|decision| decision.reason = ScaleReason::NoFit);
    case.sizing.memory = Some(141 << 30);
    case.says(line, so, &format!("{wanted}the model needs 141 GiB and the largest offer has 80 GiB"));
    case.decide(|decision| decision.reason = ScaleReason::GatewayCap { cap: 2 });
    case.says(
        line,
        so,
        &format!("{wanted}the gateway may have 2 replicas over all deployments, and has them"),
    );
    case.view.outlook.as_mut().unwrap().offers.clear();
    case.decide(|decision| decision.reason = ScaleReason::NoCapacity);
    case.says(line, so, &format!("{wanted}the provider offers nothing"));
}

#[test]
fn e2_what_is_wanted_beyond_what_the_load_needs_is_told_with_what_asks_for_it() {
    let dear = ScaleReason::PriceCap { cap: Price(DOLLAR), cheapest: Price(1_350_000) };
    let mut case = Case::new(1, 9, 1, ScaleReason::AtMax).by_tokens(1).queue(3, SECOND * 2);
    (case.sizing.max, case.sizing.price_cap) = (1, Some(Price(DOLLAR)));
    case.decide(|decision| {
        (decision.wanted, decision.also) = (Some(Box::new(ScaleReason::QueueWait)), vec![dear.clone()]);
    });
    let but = "but the one offer that fits costs $1.35/h (l40s), and the price cap is $1.00/h";
    let more = "1 more replica is wanted beside the 1 there";
    let waited = "a request has waited 2.0 s, 3 queued";
    case.says(Line::Blocked, Standing::Now, &format!("{more} ({waited}), {but}"));
    let full = "max is 1 and 1 is there, and it is full; 3 requests wait, the oldest for 2.0 s";
    case.says(Line::AtMax, Standing::Now, full);
    // By the concurrency rule what who waits asks for is in what is needed.
    case.decide(|decision| (decision.rule, decision.load, decision.needed) = (Rule::Concurrency, None, 2));
    case.says(Line::Blocked, Standing::Now, &format!("{more} ({waited}), {but}"));
    case.says(Line::AtMax, Standing::Now, full);
    // Who waited is gone, and the load needs no more than is there.
    case = Case::new(1, 9, 1, dear).by_tokens(1);
    case.sizing.price_cap = Some(Price(DOLLAR));
    case.decide(|decision| {
        (decision.wanted, decision.target) = (Some(Box::new(ScaleReason::QueueWait)), 2);
    });
    case.says(Line::Blocked, Standing::Now, &format!("{more} (a request waited too long), {but}"));
    // What max allows is less than what is needed.
    case = Case::new(2, 200, 7, ScaleReason::AtMax);
    (case.sizing.max, case.sizing.price_cap) = (2, Some(Price(DOLLAR)));
    let dear = ScaleReason::PriceCap { cap: Price(DOLLAR), cheapest: Price(1_350_000) };
    case.decide(|decision| decision.also = vec![dear]);
    let more = "5 more replicas are wanted beside the 2 there (200 in progress need 7 replicas)";
    case.says(Line::Blocked, Standing::Now, &format!("{more}, {but}"));
}

#[test]
fn e2_what_would_block_growth_is_told_before_it_does() {
    let mut case = Case::new(1, 1, 1, ScaleReason::Steady);
    case.says(Line::Blocked, Standing::No, "one more would be started on l40s at $1.35/h");
    case.sizing.price_cap = Some(Price(DOLLAR));
    let dear = "nothing more is wanted now, but the one offer that fits costs $1.35/h (l40s), and the price cap is $1.00/h";
    case.says(Line::Blocked, Standing::Ahead, dear);
    case.sizing.max = 1;
    case.says(Line::Blocked, Standing::No, "nothing more may be started, so no offer is looked for");
    case.sizing.price_cap = None;
    case.says(Line::Blocked, Standing::No, "nothing more may be started, so no offer is looked for");
}

#[test]
fn e2_an_empty_credit_tells_the_balance_and_what_was_spent() {
    let mut case = Case::new(1, 40, 2, ScaleReason::NoCredit);
    case.decide(|decision| decision.target = 2);
    let (line, spent) = (Line::NoCredit, Money(60_004_999));
    case.spending = Spending { spent, rate: Price(1_350_000), credit: None };
    case.credit(-20_000);
    case.says(
        line,
        Standing::Now,
        "the credit is used up (balance -$0.02, $60.00 spent here): nothing new is started, and what runs is kept at $1.35/h; 1 more replica is wanted beside the 1 there (40 in progress need 2 replicas)",
    );
    case.decide(|decision| (decision.reason, decision.target) = (ScaleReason::Steady, 1));
    assert_eq!(case.finding(line).standing, Standing::Ahead);
    case.view.outlook.as_mut().unwrap().paid = false;
    let free = "the credit is used up (balance -$0.02, $60.00 spent here), but what is started here is free";
    case.says(line, Standing::No, free);
    // It runs out soon, and growth goes on here.
    case.credit(1_350_000);
    case.burn = Price(2_700_000);
    assert_eq!(case.finding(line).standing, Standing::No);
    case.view.outlook.as_mut().unwrap().paid = true;
    case.says(
        line,
        Standing::Ahead,
        "$1.35 of credit is left, $60.00 spent here; it lasts 30 m at $2.70/h for all deployments",
    );
    case.spending.credit = Some(Money(1_350_000_000));
    assert_eq!(case.finding(line).standing, Standing::No);
    case.burn = Price::FREE;
    case.says(
        line,
        Standing::No,
        "$1350.00 of credit is left, $60.00 spent here; nothing costs anything now",
    );
    case.spending.credit = None;
    case.says(line, Standing::No, "no credit is counted");
}

#[test]
fn m3_e2_a_credit_that_ran_out_after_the_provider_fell_silent_is_told_as_what_blocks() {
    let mut case = Case::new(1, 2, 2, ScaleReason::ProviderError);
    case.decide(|decision| decision.also = vec![ScaleReason::NoCredit]);
    case.view.provider_error = Some("it does not answer".to_owned());
    case.credit(-1);
    // As the last evaluation that could act left it, when there was credit.
    case.view.outlook.as_mut().unwrap().broke = false;
    assert_eq!(case.finding(Line::NoCredit).standing, Standing::Now);
    case.view.outlook.as_mut().unwrap().paid = false;
    assert_eq!(case.finding(Line::NoCredit).standing, Standing::Now, "who decides knows");
}

#[test]
fn q2_e2_who_has_no_place_is_told_as_what_more_is_wanted_for() {
    let (cap, cheapest) = (Price(DOLLAR), Price(1_350_000));
    let mut case = Case::new(0, 3, 1, ScaleReason::PriceCap { cap, cheapest }).by_tokens(0);
    case.sizing.price_cap = Some(cap);
    case.seen.promised = 3;
    case.decide(|decision| {
        (decision.target, decision.waiters, decision.promised) = (1, 3, 3);
        decision.wanted = Some(Box::new(ScaleReason::FromZero));
    });
    let needs = "3 wait for a place (3 told to come back), which needs 1 replica";
    let but = "the one offer that fits costs $1.35/h (l40s), and the price cap is $1.00/h";
    case.says(Line::Blocked, Standing::Now, &format!("1 more replica is wanted ({needs}), but {but}"));
    // The one that is ordered counts towards it, though who asked for it has gone.
    case.decide(|decision| (decision.needed, decision.waiters) = (0, 0));
    case.decide(|decision| decision.reason = ScaleReason::OnTheirWay { count: 1 });
    case.add(Phase::Provisioning, 5);
    let text = case.finding(Line::FewerAdded).text;
    assert!(text.ends_with("counts towards the 1 that is wanted"), "{text}");
}

#[test]
fn a3_e2_at_max_who_waits_for_less_than_the_threshold_is_kept_by_nothing_yet() {
    let mut case = Case::new(1, 2, 1, ScaleReason::Steady).by_tokens(1).queue(1, SECOND * 29);
    (case.sizing.max, case.sizing.queue_threshold) = (1, SECOND * 200);
    let text = "max is 1 and 1 is there; 1 request waits, for 29 s so far: one that waits 3 m 20 s asks for one more, which \
                max forbids";
    case.says(Line::AtMax, Standing::Ahead, text);
    // What waits for a check is kept by nothing yet either, and will be.
    case = Case::new(1, 2, 2, ScaleReason::Confirming { seen: 0, of: 1 });
    case.sizing.price_cap = Some(Price(DOLLAR));
    let found = case.finding(Line::Blocked);
    assert_eq!(found.standing, Standing::Ahead);
    assert!(
        found.text.starts_with("nothing more is wanted before the check that confirms it, but"),
        "{found:?}"
    );
    case.sizing.max = 1;
    assert_eq!(case.finding(Line::AtMax).standing, Standing::Ahead);
    case.sizing.max = 2;
    let found = case.finding(Line::NoNewReplica);
    assert!(found.text.ends_with("asks for more if it finds the same"), "{found:?}");
    assert_eq!(
        found.advice.as_deref(),
        Some("wait for the check; what is told beside keeps more from starting then")
    );
}

#[test]
fn a6_e2_max_is_told_with_who_is_kept_waiting_and_what_is_known_to_be_there() {
    let held = ScaleReason::AtMaxWithLeaving { leaving: 1, falling: 0, max: 1 };
    let mut case = Case::new(0, 1, 1, held);
    case.sizing.max = 1;
    case.add(Phase::Draining, 60);
    let asked = |case: &Case| case.finding(Line::AtMax).question;
    assert_eq!(asked(&case), "Stuck at max while more is needed");
    case.seen.promised = 1;
    assert_eq!(asked(&case), "Stuck at max while clients are told to come back");
    case = case.queue(1, SECOND);
    assert_eq!(asked(&case), "Stuck at max while queues grow");
    let mut case = Case::new(0, 5, 3, ScaleReason::ProviderError).queue(5, SECOND);
    case.decide(|decision| decision.also = vec![ScaleReason::AtMax]);
    (case.sizing.max, case.view.listed) = (1, None);
    let text = case.finding(Line::AtMax).text;
    assert!(text.starts_with("max is 1, and what is there is not known yet, while 5 in progress"), "{text}");
}

#[test]
fn c2_each_of_several_that_block_growth_has_its_finding_and_stays_without_the_others() {
    let (cap, cheapest) = (Price(DOLLAR), Price(1_350_000));
    let dear = ScaleReason::PriceCap { cap, cheapest };
    let failed = ScaleReason::BackingOff { failures: 3, retry_in: SECOND * 4 };
    let blocks = [
        (ScaleReason::ProviderError, Line::ProviderDown),
        (failed, Line::StartsFail),
        (ScaleReason::NoCredit, Line::NoCredit),
        (dear, Line::Blocked),
        (ScaleReason::AtMax, Line::AtMax),
    ];
    for set in 1..1u32 << blocks.len() {
        let (there, not): (Vec<_>, Vec<_>) = (0..).zip(&blocks).partition(|(at, _)| set >> at & 1 == 1);
        let mut those: Vec<_> = there.iter().map(|(_, (block, _))| block.clone()).collect();
        let mut case = Case::new(2, 97, 4, those.remove(0));
        case.decide(|decision| decision.also = those);
        case.sizing.max = if set >> 4 & 1 == 1 { 2 } else { 4 };
        case.sizing.price_cap = Some(cap);
        case.credit(i128::from(set >> 2 & 1 == 0));
        case.view.provider_error = (set & 1 == 1).then(|| "it does not answer".to_owned());
        let found = case.answer().findings;
        let now = |line| found.iter().any(|one| one.line == line && one.standing == Standing::Now);
        assert!(there.iter().all(|(_, (_, line))| now(*line)), "{there:?}: {found:?}");
        assert!(not.iter().all(|(_, (_, line))| !now(*line)), "{there:?}: {found:?}");
    }
}

#[test]
fn c2_offers_that_will_not_do_and_the_gateways_cap_are_told_in_one_finding() {
    let mut case = Case::new(2, 97, 4, ScaleReason::GatewayCap { cap: 2 });
    case.decide(|decision| {
        (decision.target, decision.also) = (4, vec![ScaleReason::NoCapacity]);
    });
    case.view.outlook.as_mut().unwrap().offers.clear();
    case.says(
        Line::Blocked,
        Standing::Now,
        "2 more replicas are wanted beside the 2 there (97 in progress need 4 replicas), but the provider offers nothing, and the gateway may have 2 replicas over all deployments, and has them",
    );
    let advice = case.finding(Line::Blocked).advice.unwrap();
    assert!(advice.contains("wait for room") && advice.contains("raise budget.replicas"), "{advice}");
}

#[test]
fn e2_at_max_while_replicas_load_the_load_is_what_holds_and_not_max() {
    let mut case = Case::new(1, 40, 2, ScaleReason::OnTheirWay { count: 1 }).queue(9, SECOND);
    case.add(Phase::Starting, 12);
    case.sizing.max = 2;
    case.says(
        Line::AtMax,
        Standing::No,
        "max is 2 and 2 are there (1 not ready yet), which is enough once all of them are ready: 40 in progress (9 of them queued) need 2 replicas",
    );
    assert_eq!(case.finding(Line::FewerAdded).standing, Standing::Now);
    case.seen.replicas[1].phase = Phase::Ready;
    case.says(
        Line::AtMax,
        Standing::Now,
        "max is 2 and 2 are there, and all of them are full; 9 requests wait, the oldest for 1.0 s",
    );
    let why = Cause { fault: Fault::Silent, faults: 5, of: 5 };
    case.known[1].trust = Trust::Out { until: now() + SECOND * 5, why };
    case.says(
        Line::AtMax,
        Standing::No,
        "max is 2 and 2 are there, which is enough once 1 of them takes requests again: 40 in progress (9 of them queued) need 2 replicas",
    );
}

#[test]
fn e2_c2_at_max_while_replicas_wait_for_room_the_line_is_told_and_not_max_alone() {
    let mut case = Case::new(1, 109, 4, ScaleReason::NoCapacity).queue(12, SECOND);
    case.add(Phase::Provisioning, 60);
    case.sizing.max = 2;
    (case.view.pending, case.view.in_line) =
        ([(ReplicaId(2), "no capacity: Slurm says Resources".to_owned())].into(), [ReplicaId(2)].into());
    case.decide(|decision| {
        (decision.current, decision.target, decision.also) = (2, 2, vec![ScaleReason::AtMax]);
    });
    case.says(
        Line::AtMax,
        Standing::Now,
        "max is 2 and 2 are there (1 not ready yet: 1 waits for room at the provider), while 109 in progress (12 of them queued) need 4 replicas; 12 requests wait, the oldest for 1.0 s",
    );
    let advice = case.finding(Line::AtMax).advice;
    assert_eq!(advice.as_deref(), Some("raise max; what is told beside keeps more from starting too"));
    case.says(Line::Blocked, Standing::Now, "1 replica is ordered and waits for room in the provider's line");
    assert_eq!(case.finding(Line::Blocked).details, ["chat-2: no capacity: Slurm says Resources"]);
}

#[test]
fn e2_a6_a_fleet_that_is_brought_back_to_a_lower_max_and_is_enough_is_not_stuck() {
    let mut case = Case::new(4, 40, 2, ScaleReason::AtMax);
    case.sizing.max = 2;
    case.decide(|decision| (decision.current, decision.target) = (4, 2));
    assert_eq!(case.finding(Line::AtMax).standing, Standing::No);
}

#[test]
fn e2_a6_what_leaves_and_holds_the_places_under_max_is_told_with_what_to_do() {
    let held = ScaleReason::AtMaxWithLeaving { leaving: 2, falling: 0, max: 2 };
    let mut case = Case::new(0, 1, 1, held).queue(1, SECOND);
    case.sizing.max = 2;
    (0..2).for_each(|_| case.add(Phase::Draining, 5));
    let text = "max is 2 and none is there, and 2 that leave hold their places until they are gone; 1 request waits, for 1.0 s so far";
    case.says(Line::AtMax, Standing::Now, text);
    let found = case.finding(Line::AtMax);
    assert_eq!(found.details.len(), 2, "{found:?}");
    assert_eq!(found.advice.as_deref(), Some("wait until they are gone, or raise max"));
    case.known[1].drained = Some("an operator drained it".to_owned());
    let advice = case.finding(Line::AtMax).advice.unwrap();
    assert_eq!(advice, "wait until they are gone, `tidegate drain chat chat-2 --undo`, or raise max");
    assert_eq!(case.finding(Line::NoNewReplica).standing, Standing::No, "none is ordered");
}

#[test]
fn e2_c2_what_never_ran_by_its_start_limit_is_told_with_what_to_do_and_not_to_read_output() {
    let mut case = Case::new(0, 1, 1, ScaleReason::BackingOff { failures: 1, retry_in: SECOND });
    case.decide(|decision| decision.target = 1);
    let why = "chat-1 did not start: it never ran within the start limit of 6s: Slurm says so";
    (case.view.last_failure, case.view.mend) = (Some(why.to_owned()), Some("correct `qos`".to_owned()));
    let text = format!("1 start has failed, the next is tried in 1 s; {why}");
    case.says(Line::StartsFail, Standing::Now, &text);
    let advice = "correct `qos`; also, it is tried again by itself, after pauses of up to 5 m";
    assert_eq!(case.finding(Line::StartsFail).advice.as_deref(), Some(advice));
}

#[test]
fn e2_c2_a_provider_that_has_not_answered_yet_is_told_before_it_counts_as_silent() {
    let mut case = Case::new(0, 1, 1, ScaleReason::Steady);
    (case.view.newest, case.view.listed, case.view.provider_error) = (None, None, None);
    case.view.asked = Some(case.seen.at);
    let told = |case: &Case| case.answer().findings.iter().any(|found| found.line == Line::ProviderDown);
    assert!(!told(&case), "asked just now");
    case.seen.at = case.seen.at + SECOND * 3;
    let text = "the provider has not answered yet since the gateway started, 3.0 s ago; what it runs is not known yet";
    case.says(Line::ProviderDown, Standing::Now, text);
}
