//! Who waits in the line of a provider, and what else could take him: each cause with its own way out.

use super::*;

/// One ready, one that waits for room on a full offer that costs `price`, beside one for $3.00 that has room.
fn in_line(price: u64, also: Vec<ScaleReason>) -> Case {
    let mut case = Case::new(1, 64, 2, ScaleReason::NoCapacity);
    case.add(Phase::Provisioning, 60);
    let why = "no capacity: Slurm says Resources".to_owned();
    (case.view.pending, case.view.in_line) = ([(ReplicaId(2), why)].into(), [ReplicaId(2)].into());
    case.decide(|decision| {
        (decision.current, decision.target, decision.also) = (2, 2, also);
        decision.wanted = Some(Box::new(ScaleReason::OnTheirWay { count: 1 }));
    });
    let offers = vec![Offer { free: Some(0), ..offer("a", price) }, offer("b", 3 * DOLLAR)];
    case.view.outlook.as_mut().unwrap().offers = offers;
    case
}

const WAITS: &str = "1 replica is ordered and waits for room in the provider's line";

#[test]
fn e2_m1_who_waits_on_a_full_offer_is_told_what_the_cap_keeps_him_from_and_how_to_get_it() {
    let cap = Price(2 * DOLLAR);
    let over = ScaleReason::RoomOverCap { cap, cheapest: Price(3 * DOLLAR) };
    let mut case = in_line(DOLLAR, vec![over]);
    case.sizing.price_cap = Some(cap);
    let text = format!("{WAITS}; b at $3.00/h has room, but the price cap is $2.00/h");
    case.says(Line::Blocked, Standing::Now, &text);
    let found = case.finding(Line::Blocked);
    let advice = "wait for room, or raise price_cap to $3.00/h or more; growth goes on by itself then";
    assert_eq!(found.advice.as_deref(), Some(advice));
    assert_eq!(found.details, ["chat-2: no capacity: Slurm says Resources"]);
    // Where the dearer one would not do either, it is none of it.
    case.decide(|decision| decision.also.clear());
    case.says(Line::Blocked, Standing::Now, WAITS);
    let advice = "wait for room at the provider; growth goes on by itself then";
    assert_eq!(case.finding(Line::Blocked).advice.as_deref(), Some(advice));
}

#[test]
fn e2_m3_who_waits_on_a_full_offer_that_is_free_is_told_that_what_has_room_costs() {
    let mut case = in_line(0, vec![ScaleReason::NoCredit]);
    case.credit(-20_000);
    case.says(Line::Blocked, Standing::Now, WAITS);
    let text = format!(
        "the credit is used up (balance -$0.02, $0.00 spent here): nothing is started; {WAITS}, and what has room costs"
    );
    case.says(Line::NoCredit, Standing::Now, &text);
    let advice = case.finding(Line::NoCredit).advice;
    assert_eq!(advice.as_deref(), Some("raise the credit; growth goes on by itself then"));
    // Nothing more is wanted, and nothing is missing but room.
    let not_yet = case.finding(Line::NoNewReplica);
    assert_eq!(not_yet.text, "64 in progress need 2 replicas, and 2 are there or on the way");
}

#[test]
fn e2_m1_what_may_be_waited_for_and_what_the_cap_would_have_to_be_are_told_where_nothing_can_wait() {
    let mut case = Case::new(1, 64, 2, ScaleReason::NoCapacity);
    let cap = Price(2 * DOLLAR);
    let over = ScaleReason::RoomOverCap { cap, cheapest: Price(3 * DOLLAR) };
    case.decide(|decision| (decision.target, decision.also) = (2, vec![over]));
    case.sizing.price_cap = Some(cap);
    let full = |name, price| Offer { free: Some(0), ..offer(name, price) };
    case.view.outlook.as_mut().unwrap().offers = vec![full("a", DOLLAR), offer("b", 3 * DOLLAR)];
    let advice = |case: &Case| case.finding(Line::Blocked).advice.unwrap();
    let raise = "wait for room, or raise price_cap to $3.00/h or more; growth goes on by itself then";
    assert_eq!(advice(&case), raise);
    assert!(
        case.finding(Line::Blocked).text.ends_with("has no room left; the next with room is b at $3.00/h")
    );
    // A higher cap finds no room either.
    case.view.outlook.as_mut().unwrap().offers[1].free = Some(0);
    case.decide(|decision| decision.also.clear());
    assert_eq!(advice(&case), "wait for room at the provider; growth goes on by itself then");
}

#[test]
fn e2_m1_a_fleet_of_none_that_the_cap_keeps_from_room_is_told_so() {
    let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
    (case.sizing.min, case.sizing.price_cap) = (0, Some(Price(2 * DOLLAR)));
    let why = |case: &Case| startless(&case.sizing, &case.view, None).unwrap().why;
    let offers = vec![Offer { free: Some(0), ..offer("a", DOLLAR) }, offer("b", 3 * DOLLAR)];
    case.view.outlook.as_mut().unwrap().offers = offers;
    let cap = "no offer within the price cap of $2.00/h has room, and the next that has costs $3.00/h";
    assert_eq!(why(&case), cap);
    case.view.outlook.as_mut().unwrap().offers.pop();
    assert_eq!(why(&case), "no offer has room");
}

#[test]
fn e2_m3_who_was_lost_is_wanted_again_whatever_the_credit_and_both_findings_say_so() {
    let mut case = Case::new(1, 1, 1, ScaleReason::NoCapacity).by_tokens(1);
    case.decide(|decision| {
        (decision.target, decision.wanted) = (2, Some(Box::new(ScaleReason::Replacing)));
    });
    case.view.outlook.as_mut().unwrap().offers[0].free = Some(0);
    case.credit(-20_000);
    let wanted = "1 more replica is wanted beside the 1 there (a replica was lost), but the one offer that fits has no room left";
    case.says(Line::Blocked, Standing::Now, wanted);
    let spent = "the credit is used up (balance -$0.02, $0.00 spent here): nothing is started";
    case.says(Line::NoCredit, Standing::Ahead, &format!("{spent}; 1 that was lost is replaced all the same"));
    case.decide(|decision| decision.target = 3);
    let again = "2 that were lost are replaced all the same";
    case.says(Line::NoCredit, Standing::Ahead, &format!("{spent}; {again}"));
    // Also where `min` is told as what asks for it, and in the evaluation that orders it.
    case.decide(|decision| decision.wanted = Some(Box::new(ScaleReason::BelowMin)));
    case.says(Line::NoCredit, Standing::Ahead, &format!("{spent}; {again}"));
    case.decide(|decision| (decision.wanted, decision.reason) = (None, ScaleReason::Replacing));
    case.says(Line::NoCredit, Standing::Ahead, &format!("{spent}; {again}"));
    case.decide(|decision| (decision.target, decision.reason) = (1, ScaleReason::Steady));
    case.says(Line::NoCredit, Standing::Ahead, &format!("{spent}; nothing more is wanted now"));
}
