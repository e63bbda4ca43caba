//! How what is known becomes what is told.

use super::*;
use crate::pool::{Cause, Fault};
use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason};
use tidegate_shared::time::Duration;

#[test]
fn r5_who_is_out_is_told_with_the_reason_and_the_time_that_is_left() {
    let second = Duration::from_secs(1);
    let why = Cause { fault: Fault::Silent, faults: 10, of: 17 };
    let now = Instant::ZERO + second * 60;
    let told = |trust| EjectedStatus::new(trust, now).map(|ejected| ejected.sentence());
    assert_eq!(told(Trust::Whole), None);
    let because = "because 10 of 17 requests failed; the last one got no answer in time";
    let out = Trust::Out { until: now + second * 5 / 2, why };
    assert_eq!(told(out), Some(format!("it gets no request for 3 s, {because}")));
    let trial = Trust::Trial { running: true, why };
    assert_eq!(told(trial), Some(format!("one request is tried there, {because}")));
}

#[test]
fn e1_a_decision_is_told_with_its_age_and_its_reason_in_word_and_text() {
    let second = Duration::from_secs(1);
    let decision = ScaleDecision {
        at: Instant::ZERO + second,
        rule: Rule::Concurrency,
        load: None,
        engine_queue: 0,
        waiters: 0,
        demand: 3,
        queued: 1,
        promised: 0,
        oldest_wait: second / 2,
        current: 2,
        needed: 1,
        target: 2,
        woken: 0,
        wanted: None,
        reason: ScaleReason::Cooling { low_for: second * 12, window: second * 30, to: 1 },
        also: Vec::new(),
    };
    let told = DecisionStatus::new(&decision, Instant::ZERO + second * 5);
    assert_eq!((told.age_s, told.oldest_wait_s), (4.0, 0.5));
    assert_eq!((told.demand, told.queued, told.current, told.needed, told.target), (3, 1, 2, 1, 2));
    assert_eq!(
        (told.reason.as_str(), told.text.as_str()),
        ("cooling", "3 in progress (1 queued) need 1, cooling 12 s of 30 s")
    );
}

#[test]
fn a_figure_that_is_always_told_is_no_zero_where_it_is_not() {
    let decision = serde_json::json!({"age_s": 1, "rule": "jobs", "demand": 3, "queued": 1, "promised": 0,
        "oldest_wait_s": 0, "current": 1, "needed": 1, "target": 1, "reason": "steady", "text": "all is well",
        "quiet": true, "blocked": []});
    let read = |told: &serde_json::Value| DecisionStatus::deserialize(told).is_ok();
    assert!(read(&decision), "what is absent where it is not known is all that may be");
    let keys: Vec<String> = decision.as_object().unwrap().keys().cloned().collect();
    for key in keys {
        let mut less = decision.clone();
        less.as_object_mut().unwrap().remove(&key);
        assert!(!read(&less), "{key}");
    }
}
