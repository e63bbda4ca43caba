//! The search at simulated engines: places, memory that thrashes, limits, noise.

use tidegate_shared::rng::Rng;

use super::*;

/// An engine: tokens a second, by requests at a time.
struct Engine {
    rate: Box<dyn Fn(u32) -> f64>,
    /// Requests that it works on at a time; the rest wait inside.
    places: u32,
    /// From so many on it says 503.
    refuses: u32,
    /// Each step is off by up to so much, in percent.
    noise: u32,
    rng: Rng,
}

impl Engine {
    fn new(places: u32, rate: impl Fn(u32) -> f64 + 'static) -> Self {
        Self { rate: Box::new(rate), places, refuses: u32::MAX, noise: 0, rng: Rng::new(1) }
    }

    /// Each place brings its share.
    fn with_places(places: u32) -> Self {
        Self::new(places, |busy| f64::from(busy) * 50.0)
    }

    /// Batching pays less and less: half of `most` at `half`.
    fn saturating(most: f64, half: f64) -> Self {
        Self::new(u32::MAX, move |busy| most * f64::from(busy) / (f64::from(busy) + half))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers of a test")]
    fn measure(&mut self, concurrency: u32) -> Measured {
        let busy = concurrency.min(self.places);
        let off = self.rng.below(2001) as f64 / 1000.0 - 1.0;
        let rate = (self.rate)(busy) * (1.0 + off * f64::from(self.noise) / 100.0);
        // A request of 100 tokens; who waits inside waits for others to end.
        let each = f64::from(busy) / rate;
        let took = 100.0 * each;
        let ttft = 0.05 + took * f64::from(concurrency.saturating_sub(busy)) / f64::from(busy);
        let refused = concurrency.saturating_sub(self.refuses - 1);
        Measured {
            concurrency,
            window: Duration::from_secs(10),
            tokens: (rate * 10.0) as u64,
            completed: 20,
            failed: 0,
            refused,
            noisy: self.noise > 5,
            error: self.noise * 5,
            ttft: vec![Duration::from_secs_f64(ttft); 20],
            tpot: vec![Duration::from_secs_f64(each); 20],
        }
    }
}

/// The knee of an engine where each of `places` brings as much: 95 % of them.
fn near(places: u32) -> u32 {
    (places * NEAR).div_ceil(100)
}

fn bounds() -> Bounds {
    Bounds { goals: Goals::default(), cap: MOST, places: None, only: None }
}

/// Searches to the end; gives the verdict and all steps.
fn search(engine: &mut Engine, bounds: &Bounds) -> (Next, Vec<Measured>) {
    let mut steps = Vec::new();
    loop {
        match next(&steps, bounds, false) {
            Next::Try(concurrency, _) => steps.push(engine.measure(concurrency)),
            end => return (end, steps),
        }
        let most = bounds.only.as_ref().map_or(MOST_STEPS, Vec::len);
        assert!(steps.len() <= most, "it ends");
    }
}

#[track_caller]
fn found(engine: &mut Engine, bounds: &Bounds) -> (Found, Vec<Measured>) {
    match search(engine, bounds) {
        (Next::Found(found), steps) => (found, steps),
        (other, _) => panic!("{other:?}"),
    }
}

/// The knee of a whole sweep without noise.
fn swept(engine: &mut Engine, upto: u32) -> u32 {
    let noise = std::mem::take(&mut engine.noise);
    let only = Bounds { only: Some((1..=upto).collect()), ..bounds() };
    let (found, _) = found(engine, &only);
    engine.noise = noise;
    found.target
}

mod noise;

#[test]
fn a1_the_places_of_an_engine_that_queues_inside_are_found_exactly() {
    for places in [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 24] {
        let (found, steps) = found(&mut Engine::with_places(places), &bounds());
        assert_eq!((found.target, found.settled), (near(places), true), "{places}");
        assert!(matches!(found.because, Because::Knee { .. }), "{found:?}");
        assert!(
            steps.iter().all(|step| step.concurrency <= places.next_power_of_two() * 4),
            "no endless ramp"
        );
    }
}

/// As llama.cpp's server was seen to do on two cores: what it computes together pays from four on.
#[test]
fn a1_a_doubling_that_brings_nothing_does_not_hide_the_next_one_that_does() {
    for (rates, noise, target) in [
        ([77.0, 75.5, 75.0, 86.5], 0, 4),
        ([77.0, 75.5, 75.0, 86.5], 2, 4),
        ([69.6, 71.1, 71.7, 80.2], 2, 4),
        // Nor is a fall taken for a pause, or a flat curve for one that grows on.
        ([77.0, 60.0, 60.0, 86.5], 0, 1),
        ([77.0, 76.0, 76.0, 76.0], 2, 1),
    ] {
        let rate = move |busy: u32| rates.get(busy as usize - 1).copied().unwrap_or(0.0);
        let mut engine = Engine { noise, ..Engine::new(4, rate) };
        let (found, _) = found(&mut engine, &Bounds { cap: 4, places: Some(4), ..bounds() });
        assert_eq!((found.target, found.settled), (target, true), "{rates:?}: {found:?}");
    }
}

#[test]
fn a1_the_knee_of_a_large_engine_is_found_to_a_sixteenth() {
    for places in [100, 200, 256, 500] {
        let (found, steps) = found(&mut Engine::with_places(places), &bounds());
        let exact = near(places);
        assert!((exact..=exact + exact / 16 + 1).contains(&found.target), "{places}: {found:?}");
        assert!(steps.len() <= 24, "{} steps", steps.len());
    }
}

#[test]
fn a1_a_curve_that_bends_slowly_has_its_knee_where_doubling_stops_paying() {
    for half in [4.0, 12.0, 30.0] {
        let mut engine = Engine::saturating(1000.0, half);
        let (found, steps) = found(&mut engine, &bounds());
        let best = steps.iter().map(Measured::rate).max().expect("steps");
        let mut at = |concurrency| engine.measure(concurrency).rate();
        assert!(at(found.target) * 100 >= best * 94, "{half}: {found:?}");
        assert!(at(found.target - found.target.div_ceil(8)) * 100 < best * 95, "{half}: {found:?}, not more");
    }
}

#[test]
fn a1_the_peak_of_a_curve_that_falls_is_found_between_two_doublings() {
    // It grows up to 11 and thrashes from there on.
    let thrash =
        |busy: u32| 50.0 * f64::from(busy.min(11)) / (1.0 + 0.1 * f64::from(busy.saturating_sub(11)));
    let (found, _) = found(&mut Engine::new(u32::MAX, thrash), &bounds());
    assert!((10..=12).contains(&found.target), "{found:?}");
}

#[test]
fn a1_a_refusal_is_the_end_of_the_ramp() {
    for refuses in [2, 3, 7, 12, 100] {
        let mut engine = Engine::with_places(1000);
        engine.refuses = refuses;
        let (found, steps) = found(&mut engine, &bounds());
        let most = refuses - 1;
        assert!((near(most - most / 16)..=most).contains(&found.target), "{refuses}: {found:?}");
        assert!(matches!(found.because, Because::Limit { limit: Limit::Refused, .. }), "{found:?}");
        let over = steps.iter().filter(|step| step.concurrency >= refuses).count();
        assert!(over <= 6, "{over} steps were refused");
    }
    let mut closed = Engine::with_places(4);
    closed.refuses = 1;
    assert_eq!(search(&mut closed, &bounds()).0, Next::Nothing(Limit::Refused));
}

#[test]
fn a1_a_goal_for_latency_says_how_far_to_go() {
    // Each further request makes a token 1 ms slower.
    let slower = |busy: u32| f64::from(busy) / (0.010 + 0.001 * f64::from(busy));
    let goals = Goals { tpot: Some(Duration::from_micros(30_500)), ttft: None };
    let (tight, _) = found(&mut Engine::new(u32::MAX, slower), &Bounds { goals, ..bounds() });
    assert_eq!(tight.target, 20, "{tight:?}");
    assert_eq!(tight.because, Because::Limit { limit: Limit::Tpot, beyond: 21 });
    let impossible = Goals { tpot: Some(Duration::from_millis(5)), ttft: None };
    let nothing = search(&mut Engine::new(u32::MAX, slower), &Bounds { goals: impossible, ..bounds() }).0;
    assert_eq!(nothing, Next::Nothing(Limit::Tpot));
    // Who waits inside waits for the first token; 6 places, and with 8 at a time that is over 0.7 s.
    for (goal, target) in [(100, 6), (400, 7), (800, 8)] {
        let goals = Goals { ttft: Some(Duration::from_millis(goal)), tpot: None };
        let (found, steps) = found(&mut Engine::with_places(6), &Bounds { goals, ..bounds() });
        assert_eq!((found.target, found.settled), (target, true), "{goal}: {found:?}");
        assert!(matches!(found.because, Because::Limit { limit: Limit::Ttft, .. }), "{found:?}");
        assert!(steps.len() <= 12, "{} steps", steps.len());
    }
    // What falls is no target, however much the goal allows.
    let falls = |busy: u32| 50.0 * f64::from(busy.min(8)) / f64::from(busy.max(8) - 7);
    let goals = Goals { ttft: Some(Duration::from_secs(60)), tpot: None };
    let (found, _) = found(&mut Engine::new(u32::MAX, falls), &Bounds { goals, ..bounds() });
    assert_eq!((found.target, found.because), (8, Because::Knee { best: 8 }));
}

#[test]
fn a1_nothing_beyond_twice_what_an_engine_tells_is_tried() {
    assert_eq!(cap(Some(4), None), 4);
    assert_eq!(cap(Some(256), Some(20)), 40);
    assert_eq!(cap(Some(30), Some(20)), 30);
    assert_eq!(cap(None, None), MOST);
    assert_eq!(cap(Some(0), None), MOST, "that is no figure");
    assert_eq!(cap(Some(u32::MAX), None), MOST);
    let (found, steps) = found(&mut Engine::with_places(1000), &Bounds { cap: 40, ..bounds() });
    assert_eq!((found.target, found.because), (38, Because::Bound { most: 40 }));
    assert!(steps.iter().all(|step| step.concurrency <= 40));
}

#[test]
fn a1_noise_moves_the_target_of_four_places_by_one_at_most() {
    let mut exact = 0;
    for seed in 0..500 {
        let mut engine = Engine::with_places(4);
        (engine.rng, engine.noise) = (Rng::new(seed), 4);
        let (found, steps) = found(&mut engine, &bounds());
        assert!((3..=5).contains(&found.target), "seed {seed}: {found:?} {steps:#?}");
        exact += u32::from(found.target == 4);
    }
    assert!(exact >= 480, "{exact} of 500");
}

#[test]
fn a1_noise_leaves_the_target_of_a_bending_curve_near_the_knee() {
    for seed in 0..300 {
        let mut engine = Engine::saturating(1000.0, 10.0);
        engine.places = 32;
        let swept = swept(&mut engine, 64);
        (engine.rng, engine.noise) = (Rng::new(seed), 3);
        let (found, _) = found(&mut engine, &bounds());
        let loss = (engine.rate)(found.target.min(32)) / (engine.rate)(swept);
        assert!((0.90..1.1).contains(&loss), "seed {seed}: {found:?}, a sweep says {swept}");
    }
}

#[test]
fn a1_time_that_is_up_gives_what_is_known_and_says_so() {
    let mut engine = Engine::with_places(8);
    assert_eq!(next(&[], &bounds(), true), Next::TooLittle);
    let steps = [engine.measure(1), engine.measure(2)];
    let Next::Found(found) = next(&steps, &bounds(), true) else { panic!("something is known") };
    assert_eq!((found.target, found.settled), (2, false));
}

#[test]
fn a1_a_sweep_measures_what_was_asked_and_nothing_else() {
    let only = Bounds { only: Some(vec![1, 4, 8, 4]), ..bounds() };
    let (found, steps) = found(&mut Engine::with_places(4), &only);
    assert_eq!(steps.iter().map(|step| step.concurrency).collect::<Vec<_>>(), [1, 4, 8, 4]);
    assert_eq!((found.target, found.settled), (4, true));
}

#[test]
fn a1_an_engine_that_sends_nothing_has_no_target() {
    let silent = Measured { concurrency: 1, window: Duration::from_secs(30), ..Measured::default() };
    assert_eq!(next(&[silent], &bounds(), false), Next::TooLittle);
}

#[test]
fn a1_no_target_is_over_the_places_that_an_engine_tells_and_none_over_them_is_tried() {
    // Four slots, and a throughput that seems to grow beyond them, as it does on a machine whose speed wanders.
    let odd = || Engine::new(u32::MAX, |busy| 100.0 + f64::from(busy) * 10.0);
    let told = |goals| Bounds { goals, cap: cap(Some(4), None), places: Some(4), only: None };
    let slow = Goals { ttft: Some(Duration::from_secs(60)), tpot: None };
    for goals in [Goals::default(), slow] {
        let (found, steps) = found(&mut odd(), &told(goals));
        assert_eq!((found.target, found.because), (4, Because::Places), "{goals:?}");
        assert!(steps.iter().all(|step| step.concurrency <= 4), "{goals:?}");
    }
    for sweep in [(1..=8).collect(), vec![8, 4, 2], vec![6, 8]] {
        let only = Bounds { only: Some(sweep.clone()), ..told(Goals::default()) };
        let (found, steps) = found(&mut odd(), &only);
        assert_eq!((found.target, steps.len()), (4, sweep.len()), "{sweep:?}");
    }
    let flat = &mut Engine::new(4, |_| 100.0);
    assert_eq!(found(flat, &told(Goals::default())).0.target, 1, "fewer are well still");
}

#[test]
fn a1_the_guess_of_what_is_left_is_near_once_throughput_has_stopped_growing() {
    for places in [1, 4, 13, 24, 500] {
        let (_, steps) = found(&mut Engine::with_places(places), &bounds());
        let guess = |done: usize| left(&steps[..done], &bounds());
        assert_eq!((guess(0), guess(steps.len())), (None, Some(0)), "{places}");
        let grown = (1..steps.len())
            .find(|done| !matches!(next(&steps[..*done], &bounds(), false), Next::Try(_, Why::Growing)));
        for done in grown.expect("it stops growing")..steps.len() {
            let (told, left) = (guess(done).expect("a guess"), steps.len() - done);
            assert!(
                told > 0 && told.abs_diff(left) <= 3,
                "{places}: {told} told and {left} left after {done}"
            );
        }
    }
}

#[test]
fn a1_guessed_steps_carry_few_latencies_however_many_were_measured() {
    let second = Duration::from_secs(1);
    let measured = |concurrency: u32| Measured {
        concurrency,
        window: 100 * second,
        tokens: 1000,
        completed: 2000,
        ttft: vec![second; 2000],
        ..Measured::default()
    };
    let mut steps: Vec<_> = [1, 2, 1, 2].map(measured).to_vec();
    // Each was a copy of all visits of its point before, so that they doubled from step to step, and ate all memory.
    for _ in 0..MOST_STEPS {
        let more = guess(&curve(&steps), 2).expect("a guess");
        assert!(more.ttft.len() <= 40, "{}", more.ttft.len());
        steps.push(more);
    }
}

#[test]
fn a1_the_last_of_a_sweep_is_no_knee_while_throughput_grew_up_to_it() {
    let sweep = |only: &[u32], rate: fn(u32) -> f64| {
        let bounds = Bounds { only: Some(only.to_vec()), ..bounds() };
        let (found, _) = found(&mut Engine::new(u32::MAX, rate), &bounds);
        (found.target, found.because)
    };
    let linear = |busy: u32| 45.0 * f64::from(busy);
    assert_eq!(sweep(&[1, 2, 4], linear), (4, Because::Bound { most: 4 }));
    assert_eq!(sweep(&[2], linear), (2, Because::Bound { most: 2 }));
    let flat = |busy: u32| 45.0 * f64::from(busy.min(4));
    assert_eq!(sweep(&[1, 4, 8, 16], flat), (4, Because::Knee { best: 4 }));
}
