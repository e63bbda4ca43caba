//! What the model of an engine promises, by example and by property.

use proptest::prelude::*;
use tidegate_shared::time::{Duration, Instant};

use super::*;

fn settings() -> Settings {
    Settings {
        slots: 4,
        kv_tokens: 16 * 64,
        max_length: 1_000,
        load_time: Duration::ZERO,
        ..Settings::default()
    }
}

fn request(id: Id, prompt_tokens: u32, answer_tokens: u32) -> Request {
    let blocks = u64::from(prompt_tokens + answer_tokens) / u64::from(BLOCK_TOKENS);
    let chain = (0..blocks).map(|block| id << 32 | block).collect();
    Request { id, prompt_tokens, chain, answer_tokens, max_tokens: u32::MAX }
}

fn drain(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while engine.next_event() != Instant::NEVER {
        events.extend(engine.advance(engine.next_event()));
    }
    events
}

fn first_token(events: &[Event], id: Id) -> Instant {
    events.iter().find(|e| matches!(e, Event::Token { n: 1, .. }) && e.id() == id).unwrap().at()
}

fn ended(events: &[Event], id: Id) -> Event {
    *events.iter().find(|e| matches!(e, Event::Finished { .. }) && e.id() == id).unwrap()
}

#[test]
fn a_request_alone_takes_exactly_the_time_of_its_steps() {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    engine.arrive(Instant::ZERO, request(1, 80, 3)).unwrap();
    let events = drain(&mut engine);
    let at = |micros| Instant::from_micros(micros);
    // 20 ms + 100 µs for the sequence, 80 tokens at 8,000/s, then 80 and 81 tokens of context at 150 ns each.
    let (first, second, third) = (at(30_100), at(30_100 + 20_112), at(30_100 + 20_112 + 20_113));
    let reason = Finish::Stop;
    assert_eq!(
        events,
        [
            Event::Started { id: 1, at: Instant::ZERO, cached_tokens: 0 },
            Event::Token { id: 1, at: first, n: 1 },
            Event::Token { id: 1, at: second, n: 2 },
            Event::Token { id: 1, at: third, n: 3 },
            Event::Finished { id: 1, at: third, reason, cached_tokens: 0 },
        ]
    );
    assert_eq!(engine.totals(), Totals { prompt: 80, cached: 0, output: 3 });
    assert_eq!(engine.kv_held(), 0);
}

#[test]
fn nothing_starts_before_the_model_is_loaded() {
    let load_time = Duration::from_secs(3);
    let mut engine = Engine::new(Settings { load_time, ..settings() }, Instant::ZERO);
    engine.arrive(Instant::from_micros(5), request(1, 1, 1)).unwrap();
    assert_eq!(engine.next_event(), Instant::ZERO + load_time);
    assert_eq!(drain(&mut engine)[0].at(), Instant::ZERO + load_time);
}

#[test]
fn a_larger_batch_makes_a_slower_step() {
    let time = |sequences: u64| {
        let mut engine = Engine::new(settings(), Instant::ZERO);
        for id in 0..sequences {
            engine.arrive(Instant::ZERO, request(id, 16, 20)).unwrap();
        }
        ended(&drain(&mut engine), 0).at()
    };
    assert!(time(1) < time(2) && time(2) < time(4));
}

#[test]
fn the_second_turn_finds_prompt_and_answer_of_the_first_in_the_cache() {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    engine.arrive(Instant::ZERO, request(1, 300, 40)).unwrap();
    let before = first_token(&drain(&mut engine), 1).since(Instant::ZERO);
    let now = Instant::from_micros(10_000_000);
    let second = Request { id: 2, prompt_tokens: 360, ..request(1, 300, 200) };
    engine.arrive(now, second).unwrap();
    let events = drain(&mut engine);
    // 300 + 40 tokens, of which the last was never fed in: 21 whole blocks.
    assert!(matches!(ended(&events, 2), Event::Finished { cached_tokens: 336, .. }));
    assert!(first_token(&events, 2).since(now) < before);
}

#[test]
fn the_cache_gives_way_to_running_requests_oldest_first() {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    for (id, at) in [(1, 0), (2, 10), (3, 20)] {
        engine.arrive(Instant::from_micros(at * 1_000_000), request(id, 330, 7)).unwrap();
        drain(&mut engine);
    }
    assert_eq!(engine.kv_cached(), 3 * 21 * BLOCK_TOKENS);
    // 22 blocks are needed and one is free: the oldest chain goes, and only that.
    engine.arrive(Instant::from_micros(30_000_000), request(4, 330, 7)).unwrap();
    drain(&mut engine);
    let again = |engine: &mut Engine, id, seed| {
        engine.arrive(engine.now, Request { id, ..request(seed, 330, 7) }).unwrap();
        let Event::Finished { cached_tokens, .. } = ended(&drain(engine), id) else { unreachable!() };
        cached_tokens
    };
    assert_eq!(again(&mut engine, 5, 3), 320);
    assert_eq!(again(&mut engine, 6, 2), 320);
    assert!(again(&mut engine, 7, 1) <= 16);
}

#[test]
fn concurrent_requests_share_what_one_of_them_has_computed() {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    engine.arrive(Instant::ZERO, request(1, 160, 300)).unwrap();
    engine.advance(Instant::from_micros(1_000_000));
    let held = engine.kv_held();
    engine.arrive(engine.now, Request { id: 2, ..request(1, 161, 10) }).unwrap();
    engine.advance(Instant::from_micros(1_100_000));
    assert_eq!(engine.running(), 2);
    // 171 tokens are 11 blocks, of which 10 are the other's.
    assert_eq!(engine.kv_held(), held + BLOCK_TOKENS);
}

#[test]
fn cancel_frees_everything_at_once() {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    for id in 0..6 {
        engine.arrive(Instant::ZERO, request(id, 100, 50)).unwrap();
    }
    let now = Instant::from_micros(100_000);
    engine.advance(now);
    assert_eq!((engine.running(), engine.waiting()), (4, 2));
    for id in 0..6 {
        assert!(engine.cancel(now, id));
        assert!(!engine.cancel(now, id));
    }
    assert_eq!((engine.running(), engine.waiting(), engine.kv_held()), (0, 0, 0));
    assert_eq!(drain(&mut engine), []);
}

#[test]
fn what_can_never_run_and_what_finds_the_queue_full_is_refused() {
    let mut engine = Engine::new(Settings { slots: 1, queue: Some(1), ..settings() }, Instant::ZERO);
    let refused = engine.arrive(Instant::ZERO, request(1, 900, 101));
    assert_eq!(refused, Err(Refusal::TooLong { tokens: 1_001, allowed: 1_000 }));
    engine.arrive(Instant::ZERO, request(2, 10, 10)).unwrap();
    engine.advance(Instant::ZERO);
    engine.arrive(Instant::ZERO, request(3, 10, 10)).unwrap();
    assert_eq!(engine.arrive(Instant::ZERO, request(4, 10, 10)), Err(Refusal::QueueFull { waiting: 1 }));
}

#[test]
fn max_tokens_cut_the_answer_and_say_so() {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    engine.arrive(Instant::ZERO, Request { max_tokens: 2, ..request(1, 5, 9) }).unwrap();
    engine.arrive(Instant::ZERO, request(2, 40, 0)).unwrap();
    let events = drain(&mut engine);
    assert!(matches!(ended(&events, 1), Event::Finished { reason: Finish::Length, .. }));
    assert!(matches!(ended(&events, 2), Event::Finished { reason: Finish::Stop, .. }));
    assert_eq!(engine.totals().output, 2);
}

/// One input: who, how long, when it arrives, and after how long it is cancelled.
type Input = (u32, u32, u64, Option<u64>);

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let one = (1..700_u32, 0..60_u32, 0..400_000_u64, proptest::option::weighted(0.3, 0..900_000_u64));
    proptest::collection::vec(one, 1..40)
}

/// What to do at a moment: take the request in, or forget it.
fn script(inputs: &[Input]) -> Vec<(u64, bool, Id)> {
    let mut script = Vec::new();
    for (id, (_, _, at, cancel)) in (0..).zip(inputs) {
        script.push((*at, true, id));
        script.extend(cancel.map(|after| (at + after, false, id)));
    }
    script.sort_by_key(|&(at, arrives, id)| (at, !arrives, id));
    script
}

/// Plays a script; between inputs the engine is looked at every `look` microseconds, or only when it asks.
fn play(inputs: &[Input], look: Option<u64>) -> (Vec<Event>, Engine) {
    let mut engine = Engine::new(settings(), Instant::ZERO);
    let mut events = Vec::new();
    let mut now = 0;
    for (at, arrives, id) in script(inputs) {
        while let Some(next) = look.map(|look| now + look).filter(|next| *next < at) {
            now = next;
            events.extend(engine.advance(Instant::from_micros(now)));
        }
        let moment = Instant::from_micros(at);
        let (prompt, answer, ..) = inputs[usize::try_from(id).unwrap()];
        if arrives {
            // Four conversations, so that prefixes are shared and evicted.
            engine.arrive(moment, Request { id, ..request(id % 4, prompt, answer) }).unwrap();
        } else {
            engine.cancel(moment, id);
        }
        assert!(engine.running() <= 4);
        assert!(engine.kv_held() + engine.kv_cached() <= 16 * 64);
    }
    while engine.next_event() != Instant::NEVER {
        events.extend(engine.advance(engine.next_event()));
        assert!(engine.running() <= 4);
        assert!(engine.kv_held() + engine.kv_cached() <= 16 * 64);
    }
    (events, engine)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bounds_hold_tokens_are_conserved_and_the_end_is_empty(inputs in inputs()) {
        let (events, engine) = play(&inputs, Some(7_000));
        prop_assert_eq!((engine.running(), engine.waiting(), engine.kv_held()), (0, 0, 0));
        let mut output = 0;
        for (id, (_, answer, _, cancel)) in (0..).zip(&inputs) {
            let mine: Vec<_> = events.iter().filter(|e| e.id() == id).collect();
            let tokens: Vec<_> =
                mine.iter().filter_map(|e| if let Event::Token { n, .. } = e { Some(*n) } else { None }).collect();
            output += tokens.len();
            // Numbered without a gap, and all of them unless the client left.
            prop_assert_eq!(&tokens, &(1..=u32::try_from(tokens.len()).unwrap()).collect::<Vec<_>>());
            let finished = mine.iter().any(|e| matches!(e, Event::Finished { .. }));
            prop_assert!(finished || cancel.is_some());
            if finished {
                prop_assert_eq!(tokens.len(), *answer as usize);
            }
        }
        prop_assert!(output as u64 <= engine.totals().output);
        prop_assert!(events.is_sorted_by_key(|e| e.at()));
    }

    #[test]
    fn first_come_first_started(inputs in inputs()) {
        let (events, _) = play(&inputs, None);
        let arrival = |id: Id| inputs[usize::try_from(id).unwrap()].2;
        let started: Vec<_> =
            events.iter().filter(|e| matches!(e, Event::Started { .. })).map(|e| (arrival(e.id()), e.id())).collect();
        prop_assert!(started.is_sorted());
    }

    #[test]
    fn how_often_one_looks_changes_nothing(inputs in inputs()) {
        let quiet: Vec<Input> = inputs.into_iter().map(|(p, a, at, _)| (p, a, at, None)).collect();
        prop_assert_eq!(play(&quiet, None).0, play(&quiet, Some(1_700)).0);
    }
}
