//! Machines whose speed wanders by a fifth from step to step, or falls for a while: the target is within one of the knee, or it is said
//! that it is not certain.

use super::*;

/// Steps that there is time for.
const TIME: usize = 90;

/// What is found in the time that there is; with how many steps it took.
fn within(engine: &mut Engine, most: usize) -> (Found, usize) {
    let mut steps = Vec::new();
    loop {
        match next(&steps, &bounds(), steps.len() >= most) {
            Next::Try(concurrency, _) => steps.push(engine.measure(concurrency)),
            Next::Found(found) => return (found, steps.len()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a1_a_noisy_machine_has_a_target_within_one_of_the_knee_or_none_that_is_certain() {
    for (places, least) in [(1, 180), (2, 170), (3, 160), (4, 150), (6, 120), (8, 120)] {
        let (mut sure, mut wrong) = (0, Vec::new());
        for seed in 0..200 {
            let mut engine = Engine::with_places(places);
            (engine.rng, engine.noise) = (Rng::new(seed), 20);
            let (found, _) = within(&mut engine, TIME);
            sure += u32::from(found.settled);
            assert_eq!(found.settled, found.range.is_none(), "{found:?}");
            if found.settled && found.target.abs_diff(near(places)) > 1 {
                wrong.push((seed, found.target));
            }
        }
        assert!(wrong.len() <= 10, "{places}: of 200 are sure and wrong: {wrong:?}");
        assert!(sure >= least, "{places}: {sure} of 200 are sure");
    }
}

#[test]
fn a1_what_is_not_certain_when_time_is_up_has_a_range_that_holds_the_knee() {
    let (mut open, mut holds) = (0, 0);
    for seed in 0..200 {
        let mut engine = Engine::with_places(4);
        (engine.rng, engine.noise) = (Rng::new(seed), 40);
        let (found, _) = within(&mut engine, 8);
        let Some((low, high)) = found.range else { continue };
        assert!(!found.settled && (low..=high).contains(&found.target), "{found:?}");
        open += 1;
        holds += u32::from((low.saturating_sub(1)..=high + 1).contains(&4));
    }
    assert!(open >= 100, "{open} of 200");
    assert!(holds * 100 >= open * 90, "{holds} of {open}");
}

#[test]
fn a1_a_machine_that_is_slow_for_a_while_is_not_taken_for_one_that_grows_no_more() {
    // The first step is measured before it gets slow, by a factor of three.
    for slow in 1..6 {
        let mut engine = Engine::with_places(4);
        let mut steps: Vec<Measured> = Vec::new();
        let found = loop {
            match next(&steps, &bounds(), steps.len() >= TIME) {
                Next::Try(concurrency, _) => {
                    let mut seen = engine.measure(concurrency);
                    if (1..=slow).contains(&steps.len()) {
                        seen.tokens /= 3;
                        (seen.noisy, seen.error) = (true, 150);
                    }
                    steps.push(seen);
                }
                Next::Found(found) => break found,
                other => panic!("{other:?}"),
            }
        };
        assert!(!found.settled || found.target.abs_diff(4) <= 1, "slow for {slow}: {found:?}");
    }
}
