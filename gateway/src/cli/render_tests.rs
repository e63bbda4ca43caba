//! How the status of a gateway looks.

use super::*;

/// A terminal of 80 columns.
const NARROW: Style = Style { width: 80, ..Style::PLAIN };

const SAMPLE: &str = r#"{"version":"0.1.0","uptime_s":372.3,"deployments":[
 {"name":"chat","mode":"flex","provider":"process","min":0,"max":4,"target":2,"in_flight":35,"queued":2,"promised":0,
  "oldest_wait_s":0.42,"conversations":1312,"sizing":{},"startless_told":false,"trouble":"replica chat-3 did not start: exit code 1: error while loading the model:\ntensor 'output.weight' not found in the file, it may be cut off",
  "replicas":[
   {"id":"chat-1","phase":"ready","age_s":204.2,"in_flight":32,"limit":40,"load_tokens":48211,"capacity":1,"conversations":1301,"drained":false,"own_only":false,"url":"http://127.0.0.1:40711","why":null,"engine":{"dialect":"vllm","running":32,"waiting":0,"kv_used":48000,"kv_capacity":65536,"age_s":0.4}},
   {"id":"chat-2","phase":"draining","age_s":4.25,"in_flight":3,"limit":40,"load_tokens":900,"capacity":1,"conversations":11,"drained":false,"own_only":false,"url":"http://127.0.0.1:40712","why":null,"engine":{"dialect":"none","running":null,"waiting":null,"kv_used":null,"kv_capacity":null,"age_s":null}},
   {"id":"chat-4","phase":"starting","age_s":1.04,"in_flight":0,"limit":40,"load_tokens":0,"capacity":1,"conversations":0,"drained":false,"own_only":false,"url":null,"why":"loading the model\u001b[2J"}],
  "decision":{"age_s":0.4,"rule":"concurrency","demand":37,"queued":2,"promised":0,"oldest_wait_s":0.4,"current":2,"needed":2,"target":2,"reason":"on_their_way","text":"1 is on its way","quiet":false,"blocked":[]},
  "decisions":[
   {"age_s":1.4,"rule":"concurrency","demand":34,"queued":0,"promised":0,"oldest_wait_s":0,"current":1,"needed":2,"target":2,"reason":"at_max","text":"a request has waited 1234.5 s, 1000 queued; 120 in progress need 5, but max is 4","quiet":false,"blocked":[]},
   {"age_s":64.0,"rule":"concurrency","demand":1,"queued":1,"promised":0,"oldest_wait_s":0,"current":0,"needed":1,"target":1,"reason":"from_zero","text":"a request waits and no replica is ready","quiet":false,"blocked":[]}],
  "new_field":1},
 {"name":"embed","mode":"active","provider":"static","min":2,"max":2,"target":2,"in_flight":0,"queued":0,"promised":0,"oldest_wait_s":0,"conversations":0,"sizing":{},"startless_told":false,
  "replicas":[
   {"id":"embed-1","phase":"ready","age_s":372.0,"in_flight":0,"limit":40,"load_tokens":0,"capacity":4,"conversations":0,"drained":false,"own_only":false,"url":"http://127.0.0.1:9101","why":"it answers 500 Internal Server Error","ejected":{"why":"5 requests in a row failed; the last one was answered with a 5xx status","for_s":3.2}},
   {"id":"embed-2","phase":"failed","age_s":100000.0,"in_flight":0,"limit":40,"load_tokens":0,"capacity":8,"conversations":0,"drained":false,"own_only":false,"url":"http://127.0.0.1:9102","why":"connection refused"},
   {"id":"embed-3","phase":"starting","age_s":400.0,"in_flight":0,"limit":40,"load_tokens":0,"capacity":4,"conversations":0,"drained":false,"own_only":false,"url":"http://127.0.0.1:9103","why":"cannot connect: Connection refused (os error 111)","unfit":{"kind":"unreachable","for_s":199.4}},
   {"id":"embed-4","phase":"starting","age_s":400.0,"in_flight":0,"limit":40,"load_tokens":0,"capacity":4,"conversations":0,"drained":false,"own_only":false,"url":"http://127.0.0.1:9104","why":"/v1/models lists `llama`, and not `embed`","unfit":{"kind":"other_model","for_s":8.0}}],
  "decision":null,"decisions":[],"trouble":null},
 {"name":"idle","mode":"flex","provider":"process","min":0,"max":1,"target":0,"in_flight":0,"queued":0,"promised":0,"oldest_wait_s":0,"conversations":1,"sizing":{},"startless_told":false,
  "replicas":[],"decision":null,"decisions":[],"trouble":null}]}"#;

#[test]
fn the_status_reads_well_at_80_columns() {
    let status: Status = serde_json::from_str(SAMPLE).expect("the documented shape");
    let text = render(&status, NARROW);
    let expected = "\
tidegate 0.1.0, up 6 m 12 s

chat  process, flex, 0 to 4 replicas; 1 ready
  35 in flight, 2 queued (oldest 0.4 s), 1312 conversations
  wants 2 replicas: 1 is on its way
  trouble: replica chat-3 did not start: exit code 1: error while loading the
           model:
           tensor 'output.weight' not found in the file, it may be cut off

  REPLICA  PHASE          FOR  IN FLIGHT  TOKENS  HOMES    KV  URL
  chat-1   ready     3 m 24 s         32   48211   1301  73 %  127.0.0.1:40711
  chat-2   draining     4.2 s          3     900     11     -  127.0.0.1:40712
  chat-4   starting     1.0 s          0       0      0     -  -
  chat-4: loading the model [2J

      DECIDED  REPLICAS  WHY
    1.4 s ago    1 -> 2  a request has waited 1234.5 s, 1000 queued; 120 in
                         progress need 5, but max is 4
  1 m 4 s ago    0 -> 1  a request waits and no replica is ready

embed  static, fixed at 2 replicas; 1 ready, 1 of them ejected
  0 in flight, 0 queued, 0 conversations

  REPLICA  PHASE             FOR  IN FLIGHT  TOKENS  HOMES  SIZE  URL
  embed-1  ejected      6 m 12 s          0       0      0     4  127.0.0.1:9101
  embed-2  failed        1 d 3 h          0       0      0     8  127.0.0.1:9102
  embed-3  unreachable  3 m 19 s          0       0      0     4  127.0.0.1:9103
  embed-4  other model     8.0 s          0       0      0     4  127.0.0.1:9104
  embed-1: it gets no request for 4 s, because 5 requests in a row failed; the
           last one was answered with a 5xx status
  embed-1: it answers 500 Internal Server Error
  embed-2: connection refused
  embed-3: unreachable for 3 m 19 s: cannot connect: Connection refused (os
           error 111)
  embed-4: /v1/models lists `llama`, and not `embed`

idle  process, flex, 0 to 1 replica; 0 ready
  0 in flight, 0 queued, 1 conversation
";
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_pipe_gets_each_sentence_on_one_line() {
    let status: Status = serde_json::from_str(SAMPLE).expect("the documented shape");
    let text = render(&status, Style::PLAIN);
    assert!(
        text.lines().any(|line| line.ends_with("1000 queued; 120 in progress need 5, but max is 4")),
        "{text}"
    );
}

#[test]
fn phases_have_colours_and_columns_still_line_up() {
    let status: Status = serde_json::from_str(SAMPLE).expect("the documented shape");
    let text = render(&status, Style { terminal: true, colour: true, ..NARROW });
    assert!(text.contains("\x1b[32mready\x1b[0m"));
    assert!(text.contains("\x1b[31mfailed\x1b[0m"));
    let mut bare = text;
    for code in ["0", "1", "2", "31", "32", "33", "36"] {
        bare = bare.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(bare, render(&status, NARROW));
}

#[test]
fn ages_are_said_as_people_say_them() {
    for (seconds, said) in [
        (0.0, "0.0 s"),
        (4.24, "4.2 s"),
        (31.9, "31 s"),
        (312.0, "5 m 12 s"),
        (11_040.0, "3 h 4 m"),
        (183_600.0, "2 d 3 h"),
        (-1.0, "0.0 s"),
        (f64::NAN, "0.0 s"),
        (1e300, "0.0 s"),
    ] {
        assert_eq!(age(seconds), said);
    }
}

#[test]
fn the_shape_survives_a_round_trip() {
    let status: Status = serde_json::from_str(SAMPLE).expect("the documented shape");
    let again: Status = serde_json::from_slice(&serde_json::to_vec(&status).expect("JSON")).expect("status");
    assert_eq!(again, status);
}

#[test]
fn a1_the_status_tells_what_was_set_and_tuned_and_what_the_records_suffer() {
    let status = r#"{"version":"0.1.0","uptime_s":3,"records":{"file":"s/.tidegate.db","trouble":"database or disk is full",
      "waiting":3,"dropped":0,"unreadable":[],"orphans":[],"problem":"s/.tidegate.db: nothing is saved: the disk is full"},"deployments":[{"name":"chat","mode":"flex","provider":"process","min":1,"max":4,"target":1,
      "in_flight":0,"queued":0,"promised":0,"oldest_wait_s":0,"conversations":0,"replicas":[],"decision":null,"decisions":[],"trouble":null,
      "startless_told":false,"sizing":{
      "max":{"value":4,"from":"default","age_s":null},"min":{"value":1,"from":"set","age_s":64},
      "target_concurrency":{"value":24,"from":"tuned","age_s":190000,"on":"L4"}}}]}"#;
    let text = render(&serde_json::from_str(status).expect("the shape"), Style::PLAIN);
    let expected = "tidegate 0.1.0, up 3.0 s\n  trouble: s/.tidegate.db: nothing is saved: the disk \
                    is full\n\nchat  process, flex, 1 to 4 replicas; 0 \
                    ready\n  0 in flight, 0 queued, 0 conversations\n  min 1: set by hand 1 m 4 s ago; target_concurrency \
                    24: tuned on L4 2 d 4 h ago\n";
    assert_eq!(text, expected);
}

#[test]
fn h6_the_status_tells_what_is_wrong_with_the_certificate() {
    let status = |trouble: &str| {
        let tls = format!(r#"{{"cert":"c.pem","expires_in_s":-1.5,"trouble":{trouble}}}"#);
        let text = format!(r#"{{"version":"0.1.0","uptime_s":3,"tls":{tls},"deployments":[]}}"#);
        render(&serde_json::from_str(&text).expect("the documented shape"), Style::PLAIN)
    };
    assert_eq!(status("\"c.pem expired\""), "tidegate 0.1.0, up 3.0 s\n  trouble: c.pem expired\n");
    assert_eq!(status("null"), "tidegate 0.1.0, up 3.0 s\n");
}

#[test]
fn e1_q2_who_was_told_to_come_back_stands_beside_the_queue() {
    let mut status: Status = serde_json::from_str(SAMPLE).expect("the documented shape");
    status.deployments[0].promised = 33;
    let text = render(&status, NARROW);
    let line = "  35 in flight, 2 queued (oldest 0.4 s), 33 told to come back, 1312 conversations\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn e1_decisions_that_change_nothing_are_told_in_one_row() {
    let decision = |age_s: u32, current: u32, target: u32, reason: &str| {
        let text = format!("{reason} at {age_s}");
        let quiet = ["cooling", "steady", "survivors", "at_min"].contains(&reason);
        let told = serde_json::json!({"age_s": age_s, "rule": "concurrency", "demand": 0, "queued": 0, "promised": 0,
            "oldest_wait_s": 0, "needed": 0, "current": current, "target": target, "reason": reason, "text": text,
            "quiet": quiet, "blocked": []});
        serde_json::from_value::<DecisionStatus>(told).expect("the documented shape")
    };
    let all = [
        decision(11, 1, 1, "cooling"),
        decision(12, 1, 1, "steady"),
        decision(13, 1, 1, "survivors"),
        decision(14, 1, 1, "price_cap"),
        decision(14, 1, 1, "price_cap"),
        decision(15, 1, 1, "steady"),
        decision(16, 1, 1, "at_min"),
        decision(17, 0, 1, "from_zero"),
        decision(18, 0, 0, "steady"),
    ];
    let expected = "   DECIDED  REPLICAS  WHY
  11 s ago         1  cooling at 11; and 2 alike since 13 s ago
  14 s ago         1  price_cap at 14; and 1 alike since 14 s ago
  15 s ago         1  steady at 15; and 1 alike since 16 s ago
  17 s ago    0 -> 1  from_zero at 17
  18 s ago         0  steady at 18
";
    assert_eq!(decisions(&all, NARROW), expected);
}
