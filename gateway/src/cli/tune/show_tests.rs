//! How a whole measuring looks, without a terminal and with one.

use super::*;

fn step(concurrency: u32, tokens: u64) -> Step {
    Step {
        concurrency,
        why: "growing".to_owned(),
        window_s: 2.0,
        tokens,
        tokens_per_s: tokens as f64 / 2.0,
        error_percent: Some(1.4),
        completed: 8,
        failed: 0,
        refused: 0,
        ttft_p50_ms: Some(120.4),
        ttft_p95_ms: Some(1830.0),
        tpot_p50_ms: Some(9.26),
        tpot_p95_ms: Some(26.0),
    }
}

fn events() -> Vec<Event> {
    let begun = Event::Begun {
        deployment: "chat".to_owned(),
        replica: "chat-2".to_owned(),
        aside: true,
        engine: "llamacpp".to_owned(),
        places: Some(4),
        cap: 8,
        prompt_tokens: 512,
        output_tokens: 128,
        learned: false,
        from: [Source::Guess; 2],
    };
    let found = Event::Found {
        target: 4,
        because: "4 at a time bring 180 tokens/s, and more bring no more".to_owned(),
        settled: true,
        range: None,
        prompt_tokens: 509,
        output_tokens: 128,
        stored: true,
        note: None,
    };
    let (why, broken) =
        ("growing".to_owned(), Step { refused: 2, ttft_p50_ms: None, error_percent: None, ..step(8, 0) });
    let trying =
        Event::Trying { concurrency: 1, why, measured_s: 1.2, tokens_per_s: 52.0, left_s: Some(74.2) };
    vec![
        begun,
        trying,
        Event::Measured(step(1, 100)),
        Event::Measured(step(4, 360)),
        Event::Measured(step(4, 360)),
        Event::Measured(broken),
        found,
    ]
}

#[test]
fn a1_without_a_terminal_nothing_moves_and_each_step_has_its_line() {
    let mut screen = Screen::new(Style::PLAIN);
    let text: String = events().iter().map(|event| screen.take(event)).collect();
    let expected = "\
chat  chat-2 (llamacpp, 4 places) is set aside while it is measured
  prompts of 512 tokens and answers of 128 on average, a guess: of too few recent requests engines told what they took, \
so give yours with --prompt-tokens and --output-tokens; up to 8 requests at a time

  AT A TIME  TOKENS/S     ±     TO FIRST TOKEN     PER NEXT TOKEN   DONE
                               MEDIAN      P95    MEDIAN      P95
          1      50.0   1 %    120 ms    1.8 s    9.2 ms    26 ms      8
          4       180   1 %    120 ms    1.8 s    9.2 ms    26 ms      8
          4       180   1 %    120 ms    1.8 s    9.2 ms    26 ms      8
          8       0.0     -                  -    9.2 ms    26 ms      8  2 refused

          1      50.0  █████████████▍
          4       180  ████████████████████████████████████████████████  target
          8       0.0

  target 4  4 at a time bring 180 tokens/s, and more bring no more
  stored, and in force from now on; measured with prompts of 509 tokens and answers of 128
";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn a1_what_is_not_certain_is_called_a_guess() {
    let mut screen = Screen::new(Style::PLAIN);
    let mut events = events();
    if let Some(Event::Found { settled, stored, range, because, .. }) = events.last_mut() {
        (*settled, *stored, *range) = (false, false, Some((1, 4)));
        *because = "not certain: 1 to 4 may be the target".to_owned();
    }
    let text: String = events.iter().map(|event| screen.take(event)).collect();
    assert!(text.contains("█  best guess\n"), "{text}");
    assert!(
        text.contains("\n  best guess 4  not certain: 1 to 4 may be the target\n  not stored; "),
        "{text}"
    );
}

#[test]
fn a1_on_a_terminal_the_step_in_motion_is_written_over() {
    let mut screen = Screen::new(Style { terminal: true, width: 80, ..Style::PLAIN });
    let shown: Vec<String> = events().iter().map(|event| screen.take(event)).collect();
    assert!(
        shown[1].ends_with("\r\x1b[K          1      52.0  measuring, 1 s; at least 1 m 15 s left"),
        "{:?}",
        shown[1]
    );
    assert!(shown[2].starts_with("\r\x1b[K          1      50.0"), "{:?}", shown[2]);
    assert!(!shown[3].contains('\r'), "nothing is in motion");
    let widest = shown.iter().flat_map(|text| text.lines()).map(|line| line.chars().count()).max();
    assert!(widest <= Some(80 + "\r\x1b[K".len()), "{widest:?}");
}

#[test]
fn a1_bars_are_as_long_as_their_share() {
    assert_eq!(bar(1.0, 4), "████");
    assert_eq!(bar(0.5, 4), "██");
    assert_eq!(bar(0.53, 4), "██▏");
    assert_eq!(bar(0.0, 4), "");
    assert_eq!(bar(f64::NAN, 4), "");
}

#[test]
fn a1_each_length_says_where_it_comes_from() {
    let told = |from: [Source; 2]| {
        let mut event = events().remove(0);
        if let Event::Begun { from: told, .. } = &mut event {
            *told = from;
        }
        Screen::new(Style::PLAIN).take(&event)
    };
    assert!(told([Source::Asked; 2]).contains("answers of 128 on average, as asked; up to 8"));
    assert!(told([Source::Traffic; 2]).contains("answers of 128 on average, as in recent traffic; up to 8"));
    let mixed = told([Source::Asked, Source::Guess]);
    assert!(
        mixed
            .contains("prompts of 512 tokens (as asked) and answers of 128 (a guess) on average: of too few"),
        "{mixed}"
    );
}
