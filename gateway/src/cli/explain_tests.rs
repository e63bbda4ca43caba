//! How an explanation looks.

use super::*;

/// A terminal of 80 columns.
const NARROW: Style = Style { width: 80, ..Style::PLAIN };

const SAMPLE: &str = r#"{"deployment":"chat","model":"gpt-4o","operation":"chat_completions",
 "verdict":{"kind":"forward","replica":"chat-2","route":"detour","chosen_by":"policy"},
 "text":"its home chat-1 is over its load limit (prefilling elsewhere takes 120 ms, home is under its limit in 2.4 s); chat-2 is the least loaded",
 "identity":{"by":"prefix","header":null,"boundaries":5,"follows_up":true,"known_at":3,"home":"chat-1"},
 "prompt_tokens":1204,"output_tokens":256,"holders":["chat-1","chat-2"],
 "detour":{"prefill_s":0.12,"wait_s":2.4},"promised":false,"policy":"least-load","new_field":1,
 "replicas":[
  {"id":"chat-1","phase":"ready","standing":"over_limit","order":2,"in_flight":37,"limit":40,"load_tokens":48211,"kv_capacity":65536,"capacity":1,"share_percent":33,"fullness_percent":150,"why":"over its load limit"},
  {"id":"chat-2","phase":"ready","standing":"free","order":1,"in_flight":12,"limit":80,"load_tokens":9000,"kv_capacity":null,"capacity":2,"share_percent":66,"fullness_percent":20,"why":null},
  {"id":"chat-3","phase":"ready","standing":"refused","order":null,"in_flight":0,"limit":40,"load_tokens":0,"kv_capacity":null,"capacity":1,"share_percent":0,"fullness_percent":0,"why":"not listening: cannot connect:\u001b[2J Connection refused (os error 111)"},
  {"id":"chat-4","phase":"starting","standing":"not_ready","order":null,"in_flight":0,"limit":40,"load_tokens":0,"kv_capacity":null,"capacity":1,"share_percent":0,"fullness_percent":null,"why":"starting"}]}"#;

fn sample() -> RouteAnswer {
    serde_json::from_str(SAMPLE).expect("the documented shape")
}

#[test]
fn e3_an_explanation_reads_well_at_80_columns() {
    let text = table(&sample(), NARROW);
    let expected = "\
chat-2  detour: its home chat-1 is over its load limit (prefilling elsewhere
                takes 120 ms, home is under its limit in 2.4 s); chat-2 is the
                least loaded

  request       chat_completions for gpt-4o, served by chat; about 1204 tokens
                and 256 for the answer
  conversation  known by its prefix, up to boundary 3 of 5; its home is chat-1
  beginning     held by chat-1, chat-2
  detour        prefilling elsewhere: 120 ms; until home is under its limit:
                2.4 s
  policy        least-load

  REPLICA  NEXT  IN FLIGHT  TOKENS    KV  SIZE  SHARE   FULL  STATE
  chat-1      2      37/40   48211  73 %     1   33 %  150 %  home, over its
                                                              load limit
  chat-2      1      12/80    9000     -     2   66 %   20 %  goes here
  chat-3      -       0/40       0     -     1    0 %    0 %  not listening
  chat-4      -       0/40       0     -     1    0 %      -  starting
  chat-3: cannot connect: [2J Connection refused (os error 111)
";
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn e3_without_explanation_it_is_one_line() {
    let text = line(&sample(), Style::PLAIN);
    assert_eq!(text.lines().count(), 1);
    assert!(text.starts_with("chat-2  detour: its home chat-1 is over its load limit ("), "{text}");
}

#[test]
fn e3_waiting_and_refusals_have_their_figures() {
    let mut answer = sample();
    answer.verdict = serde_json::from_str(
        r#"{"kind":"wait","before":3,"expected_s":null,"at_most_s":2.0,"then":"waited_too_long"}"#,
    )
    .expect("a verdict");
    answer.text = "no replica has room; 3 requests stand before it".to_owned();
    assert_eq!(line(&answer, NARROW), "waits: no replica has room; 3 requests stand before it\n");
    assert!(
        table(&answer, NARROW)
            .contains("  wait          not measured yet; at most 2.0 s, then waited_too_long\n")
    );
    answer.verdict =
        serde_json::from_str(r#"{"kind":"refuse","reason":"queue_full","retry_after_s":3.0}"#).expect("one");
    assert!(line(&answer, NARROW).starts_with("503  queue_full, try again in 3.0 s: "));
}

#[test]
fn e3_each_kind_of_conversation_is_told() {
    let told = |by: &str, header: Option<&str>, known_at, home: Option<&str>, follows_up| {
        let mut answer = sample();
        answer.identity.by = by.to_owned();
        answer.identity.header = header.map(str::to_owned);
        answer.identity.home = home.map(str::to_owned);
        (answer.identity.known_at, answer.identity.follows_up) = (known_at, follows_up);
        conversation(&answer)
    };
    let home = Some("chat-1");
    assert_eq!(
        told("header", Some("x-session-id"), None, home, true),
        "named by the header x-session-id; its home is chat-1"
    );
    assert_eq!(told("prompt_cache_key", None, None, None, true), "named by prompt_cache_key; not known yet");
    assert_eq!(
        told("prefix", None, Some(3), home, true),
        "known by its prefix, up to boundary 3 of 5; its home is chat-1"
    );
    assert_eq!(
        told("prefix", None, None, None, true),
        "a later turn, but its prefix is not known at any of 5 boundaries"
    );
    assert_eq!(told("prefix", None, None, None, false), "a first turn opens one");
    assert_eq!(told("none", None, None, None, false), "none");
}

#[test]
fn e3_the_chosen_one_stands_out_and_columns_still_line_up() {
    let text = table(&sample(), Style { terminal: true, colour: true, ..NARROW });
    assert!(text.contains("\x1b[32mgoes here\x1b[0m"), "{text}");
    let mut bare = text;
    for code in ["0", "1", "2", "31", "32", "33", "36"] {
        bare = bare.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(bare, table(&sample(), NARROW));
}
