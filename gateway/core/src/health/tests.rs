//! When a replica is taken out, for how long, and how it comes back.

use proptest::prelude::*;

use super::*;

const BAD: Sign = Sign::Fault(Fault::Status);

fn s(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

/// Notes these signs at `now`; gives the first reason to take it out.
fn note(health: &mut Health, now: Instant, signs: &[Sign]) -> Option<Cause> {
    signs.iter().filter_map(|sign| health.note(now, *sign)).next()
}

/// Takes it out, waits for the pause, and lets the request on trial end with `sign`. Gives the pause and the moment.
fn round(health: &mut Health, now: Instant, sign: Sign) -> (Duration, Instant) {
    let pause = health.eject(now, Cause { fault: Fault::Status, faults: 5, of: 5 });
    let back = now + pause;
    assert!(!health.wake(back - Duration::from_micros(1)) && !health.admits());
    assert!(health.wake(back) && health.send());
    health.tried(back, sign);
    (pause, back)
}

#[test]
fn r5_five_faults_in_a_row_take_a_replica_out_and_one_good_answer_begins_the_count_anew() {
    let mut health = Health::default();
    assert_eq!(note(&mut health, s(1), &[BAD, BAD, BAD, BAD, Sign::Well, BAD, BAD, BAD, BAD]), None);
    let why = note(&mut health, s(1), &[BAD]).expect("the fifth");
    assert_eq!(why, Cause { fault: Fault::Status, faults: 5, of: 5 });
    let told = "5 requests in a row failed; the last one was answered with a 5xx status";
    assert_eq!(why.to_string(), told);
}

#[test]
fn r5_half_of_many_takes_it_out_within_the_while_only() {
    let mut health = Health::default();
    for n in 0..9 {
        assert_eq!(note(&mut health, s(n), &[Sign::Well, BAD]), None, "{n}");
    }
    let why = note(&mut health, s(9), &[Sign::Well, BAD]);
    assert_eq!(why, Some(Cause { fault: Fault::Status, faults: 10, of: 20 }));
    let mut slow = Health::default();
    for n in 0..200 {
        assert_eq!(note(&mut slow, s(n * 3), &[Sign::Well, BAD]), None, "ten in half a minute are few");
    }
    let mut mostly_well = Health::default();
    for n in 0..1000 {
        assert_eq!(note(&mut mostly_well, s(n / 100), &[Sign::Well, BAD, Sign::Well]), None);
    }
}

#[test]
fn c_036_what_clients_do_wrong_says_nothing_and_busy_is_load() {
    let mut health = Health::default();
    for n in 0..1000 {
        assert_eq!(note(&mut health, s(n), &[Sign::Neutral, Sign::Busy(None)]), None);
    }
    assert_eq!(note(&mut health, s(2000), &[BAD, Sign::Neutral, BAD, Sign::Busy(None), BAD, BAD]), None);
    assert!(note(&mut health, s(2000), &[BAD]).is_some(), "nor does it excuse what was before");
}

#[test]
fn c_032_busy_looks_full_for_as_long_as_it_says_within_bounds_or_until_it_has_room() {
    let mut health = Health::default();
    for (said, full) in [(None, 1), (Some(4), 4), (Some(3600), 10), (Some(0), 0)] {
        health.note(s(10), Sign::Busy(said.map(Duration::from_secs)));
        assert_eq!((0..20).filter(|n| health.is_full(s(10 + n))).count(), full, "{said:?}");
    }
    health.note(s(40), Sign::Busy(None));
    health.note(s(40), Sign::Well);
    assert!(!health.is_full(s(40)), "a place is free");
}

#[test]
fn r5_pauses_double_to_five_minutes_and_shrink_while_it_serves_well() {
    let mut health = Health::default();
    let mut now = s(0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let (pause, back) = round(&mut health, now, Sign::Well);
        pauses.push(pause.as_secs());
        now = back;
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    // It is forgiven one by one, each after it has served as long as it would have been out.
    let mut forgiven = Vec::new();
    let begin = now;
    while health.pause() > Duration::ZERO {
        let before = health.pause();
        now = now + Duration::from_secs(1);
        health.note(now, Sign::Well);
        if health.pause() < before {
            forgiven.push(now.since(begin).as_secs());
        }
    }
    assert_eq!(forgiven.last(), Some(&(3 * 300 + 160 + 80 + 40 + 20 + 10 + 5)));
}

#[test]
fn c_036_on_trial_it_gets_one_request_at_a_time_and_a_clients_mistake_proves_nothing() {
    let mut health = Health::default();
    health.eject(s(0), Cause { fault: Fault::Silent, faults: 5, of: 5 });
    assert_eq!((health.until(), health.admits(), health.send()), (Some(s(5)), false, false));
    assert!(health.wake(s(5)) && health.admits());
    for sign in [Sign::Neutral, Sign::Busy(None)] {
        assert!(health.send(), "the one on trial");
        assert!(!health.admits() && !health.send(), "and no other");
        assert_eq!(health.note(s(6), Sign::Well), None, "what was begun before does not count");
        assert!(!health.admits());
        assert_eq!(health.tried(s(6), sign), None);
        assert!(health.is_on_trial() && health.admits());
    }
    assert!(health.send());
    let again = health.tried(s(6), Sign::Fault(Fault::Midway)).expect("out again");
    assert_eq!(again.1, Duration::from_secs(10));
    assert_eq!(again.0.to_string(), "the request on trial failed in the middle of the answer");
    assert!(health.wake(s(16)) && health.send());
    assert_eq!(health.tried(s(17), Sign::Well), None);
    assert_eq!(health.trust(), Trust::Whole);
}

proptest! {
    /// Whatever is noted and however time steps: pauses stay within their bounds, one request at most is on trial, and
    /// a replica that is out takes none.
    #[test]
    fn r5_pauses_are_bounded_and_trials_are_single(steps in prop::collection::vec((0u8..6, 0u64..400), 1..300)) {
        let (mut health, mut now, mut on_trial) = (Health::default(), s(0), false);
        for (op, passed) in steps {
            now = now + Duration::from_secs(passed / 4);
            match op {
                0..=2 => {
                    let sign = [Sign::Well, BAD, Sign::Fault(Fault::Broken)][usize::from(op)];
                    if let Some(why) = health.note(now, sign) {
                        prop_assert!(!health.is_out() && why.faults * 2 >= why.of);
                        let pause = health.eject(now, why);
                        prop_assert!(pause >= PAUSE.0 && pause <= PAUSE.1);
                    }
                }
                3 => {
                    health.wake(now);
                }
                4 => {
                    let admitted = health.admits();
                    let trial = health.send();
                    prop_assert!(!trial || (admitted && !on_trial));
                    on_trial |= trial;
                }
                _ if on_trial => {
                    on_trial = false;
                    health.tried(now, if passed % 2 == 0 { BAD } else { Sign::Well });
                }
                _ => {}
            }
            prop_assert_eq!(matches!(health.trust(), Trust::Trial { running: true, .. }), on_trial);
            prop_assert!(health.pause() <= PAUSE.1);
            prop_assert!(health.until().is_none() || !health.admits());
        }
    }
}
