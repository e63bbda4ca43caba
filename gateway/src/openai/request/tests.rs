//! What the scan must find and what it must refuse.

use serde_json::{Value, json};
use tidegate_shared::request::{ConversationKey, Identity};

use super::*;

const CHAT: Operation = Operation::ChatCompletions;

fn chat(body: &str) -> Scan<'_> {
    scan(CHAT, body.as_bytes()).unwrap()
}

fn refused(body: &str) -> BadBody {
    scan(CHAT, body.as_bytes()).unwrap_err()
}

fn prefix(operation: Operation, body: &Value) -> (Vec<ConversationKey>, bool) {
    let body = body.to_string();
    match scan(operation, body.as_bytes()).unwrap().identity {
        Identity::Prefix { chain, follows_up } => (chain, follows_up),
        other => panic!("{other:?}"),
    }
}

fn edited(body: &str, edits: impl IntoIterator<Item = Edit>) -> String {
    let spliced = splice(&Bytes::from(body.to_owned()), edits.into_iter().collect()).unwrap();
    let joined = spliced.pieces.concat();
    assert_eq!(joined.len(), spliced.len);
    String::from_utf8(joined).unwrap()
}

#[test]
fn h1_fields_are_found_wherever_they_stand() {
    let body = r#" { "messages" : [] , "n":2,"max_tokens":7, "stream" : true,"model" : "a/b:c",
        "stream_options":{"include_usage":true}, "unknown":[{"model":"no"},{"stream":false}] } "#;
    let scan = chat(body);
    assert_eq!(scan.model, "a/b:c");
    assert_eq!(&body[scan.model_span.clone()], r#""a/b:c""#);
    assert!(scan.stream && scan.include_usage);
    assert_eq!((scan.choices, scan.output_limit), (2, Some(7)));
    assert_eq!(&body[scan.stream_options.unwrap()], r#"{"include_usage":true}"#);
    assert_eq!(&body[scan.end..scan.end + 1], "}");
    assert_eq!(scan.identity, Identity::None);
}

#[test]
fn h1_defaults_are_those_of_the_api() {
    let scan = chat(r#"{"model":"m"}"#);
    assert!(!scan.stream && !scan.include_usage && scan.stream_options.is_none());
    assert_eq!((scan.choices, scan.output_limit), (1, None));
    let nulls = chat(
        r#"{"model":"m","stream":null,"n":null,"max_tokens":null,"stream_options":null,"messages":null}"#,
    );
    assert_eq!((nulls.stream, nulls.choices, nulls.output_limit), (false, 1, None));
}

#[test]
fn q1_the_service_tier_says_how_urgent_it_is_where_it_says_so() {
    let tier = |value: &str| {
        scan(CHAT, format!(r#"{{"model":"m","service_tier":{value}}}"#).as_bytes()).unwrap().priority
    };
    assert_eq!(tier("\"priority\""), Some(Priority::High));
    assert_eq!(tier("\"fl\\u0065x\""), Some(Priority::Low));
    for usual in ["\"auto\"", "\"default\"", "\"standard_only\"", "\"\"", "null", "7", "{\"a\":\"flex\"}"] {
        assert_eq!(tier(usual), None, "{usual}");
    }
    assert_eq!(chat(r#"{"model":"m","priority":-5}"#).priority, None, "what it means is the engine's");
}

#[test]
fn escapes_do_not_hide_a_key_or_a_name() {
    let scan = chat(r#"{"mod\u0065l":"\u0061\ud83d\ude00\n","\u0073tream":true}"#);
    assert_eq!(scan.model, "a😀\n");
    assert!(scan.stream);
    let twice = refused(r#"{"model":"a","m\u006fdel":"b"}"#);
    assert_eq!(twice, BadBody::Duplicate { param: "model", at: 13 });
    assert_eq!(refused(r#"{"model":"\ud83d"}"#).param(), Some("model"));
    assert_eq!(refused("{\"model\":\"a\nb\"}").param(), Some("model"));
    assert_eq!(scan_bytes(b"{\"model\":\"\xff\"}").unwrap_err().param(), Some("model"));
    assert_eq!(scan_bytes(b"{\"\xff\":1,\"\\ud800\":2,\"model\":\"m\"}").unwrap().model, "m");
}

fn scan_bytes(body: &[u8]) -> Result<Scan<'_>, BadBody> {
    scan(CHAT, body)
}

#[test]
fn the_last_of_two_keys_counts() {
    let scan = chat(
        r#"{"stream":true,"max_tokens":1,"messages":[{"role":"assistant","content":"abc"}],"model":"m","stream":false,"max_tokens":2,"messages":[{"role":"user","content":"d"}]}"#,
    );
    assert_eq!((scan.stream, scan.output_limit), (false, Some(2)));
    assert_eq!(scan.prompt.text_bytes, 5);
    assert!(matches!(scan.identity, Identity::Prefix { ref chain, follows_up: false } if chain.len() == 1));
}

#[test]
fn limits_of_the_output() {
    let limit = |fields: &str| chat(&format!(r#"{{"model":"m",{fields}}}"#)).output_limit;
    assert_eq!(limit(r#""max_tokens":1,"max_completion_tokens":2"#), Some(2));
    assert_eq!(limit(r#""max_output_tokens":3"#), Some(3));
    assert_eq!(limit(r#""max_tokens":-1"#), None);
    assert_eq!(limit(r#""max_tokens":1e3"#), None);
    assert_eq!(limit(r#""max_tokens":99999999999999999999999"#), Some(u64::MAX));
}

#[test]
fn h4_what_is_wrong_is_said_with_its_place() {
    let syntax = |at, expected, found: Option<char>| BadBody::Syntax {
        at,
        expected,
        found: found.map(|c| u8::try_from(c).unwrap()),
    };
    for (body, error) in [
        ("", syntax(0, "a JSON object", None)),
        ("[]", syntax(0, "a JSON object", Some('['))),
        ("hello", syntax(0, "a JSON object", Some('h'))),
        ("{", syntax(1, "a key in quotes", None)),
        ("{1:2}", syntax(1, "a key in quotes", Some('1'))),
        ("{\"a\" 1}", syntax(5, "`:` after a key", Some('1'))),
        ("{\"a\":}", syntax(5, "a value", Some('}'))),
        ("{\"a\":1,}", syntax(7, "a key in quotes", Some('}'))),
        ("{\"a\":1", syntax(6, "`,` or `}` after a member", None)),
        ("{\"a\":[1 2]}", syntax(8, "`,` or `]` after an element", Some('2'))),
        ("{\"a\":[1,]}", syntax(8, "a value", Some(']'))),
        ("{\"a\":01}", syntax(6, "no digit after a leading 0", Some('1'))),
        ("{\"a\":-}", syntax(6, "a digit", Some('}'))),
        ("{\"a\":1.}", syntax(7, "a digit", Some('}'))),
        ("{\"a\":1e+}", syntax(8, "a digit", Some('}'))),
        ("{\"a\":nul}", syntax(8, "null", Some('}'))),
        ("{\"a\":NaN}", syntax(5, "a value", Some('N'))),
        ("{\"a\":\"b", syntax(7, "the end of a string", None)),
        ("{\"a\":\"\\x\"}", syntax(7, "one of `\"\\/bfnrtu` after `\\`", Some('x'))),
        ("{\"a\":\"\\u12g4\"}", syntax(10, "a hexadecimal digit", Some('g'))),
        ("{\"model\":\"m\"} x", syntax(14, "nothing after the JSON object", Some('x'))),
        ("{\"model\":\"m\"}{}", syntax(13, "nothing after the JSON object", Some('{'))),
        ("{}", BadBody::Missing { param: "model" }),
        ("{\"model\":null}", BadBody::WrongType { param: "model", at: 9, expected: "a string" }),
        (
            "{\"model\":\"\"}",
            BadBody::WrongType { param: "model", at: 9, expected: "a string that is not empty" },
        ),
        ("{\"stream\":\"yes\"}", BadBody::WrongType { param: "stream", at: 10, expected: "true or false" }),
        ("{\"n\":true}", BadBody::WrongType { param: "n", at: 5, expected: "a whole number" }),
        (
            "{\"max_tokens\":\"9\"}",
            BadBody::WrongType { param: "max_tokens", at: 14, expected: "a whole number" },
        ),
        ("{\"messages\":\"hi\"}", BadBody::WrongType { param: "messages", at: 12, expected: "an array" }),
        (
            "{\"stream_options\":[]}",
            BadBody::WrongType { param: "stream_options", at: 18, expected: "an object" },
        ),
    ] {
        assert_eq!(refused(body), error, "{body}");
    }
    let shown = refused("{\"a\" 1}").to_string();
    assert_eq!(shown, "the body is not valid JSON: at byte 5, expected `:` after a key, found `1`");
}

#[test]
fn nesting_is_bounded() {
    let nested =
        |levels: usize| format!(r#"{{"model":"m","a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    assert!(scan(CHAT, nested(MAX_DEPTH - 1).as_bytes()).is_ok());
    assert_eq!(refused(&nested(MAX_DEPTH)), BadBody::TooDeep { at: 17 + MAX_DEPTH - 1 });
    assert!(matches!(refused(&nested(1_000_000)), BadBody::TooDeep { .. }));
    let in_messages = format!(r#"{{"model":"m","messages":[{}"#, "{\"a\":[".repeat(500_000));
    assert!(matches!(refused(&in_messages), BadBody::TooDeep { .. }));
}

#[test]
fn r1_named_conversations() {
    let named_as =
        |fields: &str| chat(&format!(r#"{{"model":"m","messages":[{{"role":"user"}}],{fields}}}"#)).identity;
    let key = |name: &str| Identity::Named(named(name.as_bytes()));
    assert_eq!(named_as(r#""prompt_cache_key":"k","metadata":{"conversation_id":"c"}"#), key("k"));
    assert_eq!(named_as(r#""metadata":{"x":{"conversation_id":"no"},"conversation_id":"\u0063"}"#), key("c"));
    assert_eq!(named_as(r#""prompt_cache_key":"","metadata":{"conversation_id":"c"}"#), key("c"));
    for unnamed in [
        r#""metadata":null"#,
        r#""metadata":{"conversation_id":""}"#,
        r#""prompt_cache_key":null"#,
        r#""user":"u""#,
    ] {
        assert!(matches!(named_as(unnamed), Identity::Prefix { .. }), "{unnamed}");
    }
}

#[test]
fn r1_a_later_turn_repeats_the_chain_of_the_turn_before() {
    let mut body = json!({"model": "m", "messages": [
        {"role": "system", "content": "Be \"brief\"."}, {"role": "user", "content": "hi"}]});
    let (first, follows_up) = prefix(CHAT, &body);
    assert!(!follows_up && first.len() == 2);
    for turn in [json!({"role": "assistant", "content": "hello"}), json!({"role": "user", "content": "more"})]
    {
        body["messages"].as_array_mut().unwrap().push(turn);
    }
    let (second, follows_up) = prefix(CHAT, &body);
    assert!(follows_up && second.len() == 4);
    assert_eq!(second[..2], first[..]);
    body["messages"][0]["content"] = json!("Be long.");
    let (other, _) = prefix(CHAT, &body);
    assert!(other.iter().all(|key| !second.contains(key)));
}

#[test]
fn r1_system_texts_count_wherever_they_stand() {
    for (operation, system, turns) in
        [(Operation::Messages, "system", "messages"), (Operation::Responses, "instructions", "input")]
    {
        let written = |first: &str| {
            let turns = format!(r#""{turns}":[{{"role":"user","content":"a"}}]"#);
            match first {
                "system" => format!(r#"{{"{system}":"s",{turns},"model":"m"}}"#),
                "turns" => format!(r#"{{"model":"m",{turns},"{system}":"s"}}"#),
                "other" => format!(r#"{{"model":"m",{turns},"{system}":"t"}}"#),
                _ => format!(r#"{{"model":"m",{turns},"{system}":null}}"#),
            }
        };
        let chain = |first: &str| match scan(operation, written(first).as_bytes()).unwrap().identity {
            Identity::Prefix { chain, .. } => chain,
            other => panic!("{other:?}"),
        };
        assert_eq!(chain("system"), chain("turns"));
        assert_eq!(chain("system").len(), 2);
        assert_eq!(chain("none").len(), 1);
        assert!(chain("other").iter().all(|key| !chain("system").contains(key)));
    }
}

#[test]
fn r1_answers_of_models_and_tools_make_a_later_turn() {
    let follows = |operation, field: &str, item: Value| {
        prefix(operation, &json!({"model": "m", field: [{"role": "user", "content": [{"role": "assistant", "type": "function_call"}]}, item]})).1
    };
    for role in ["assistant", "tool", "function"] {
        assert!(follows(CHAT, "messages", json!({"content": [], "role": role})), "{role}");
    }
    for role in ["user", "system", "developer"] {
        assert!(!follows(CHAT, "messages", json!({"role": role})), "{role}");
    }
    for kind in ["function_call_output", "function_call", "web_search_call", "reasoning"] {
        assert!(follows(Operation::Responses, "input", json!({"type": kind})), "{kind}");
    }
    assert!(!follows(Operation::Responses, "input", json!({"type": "message", "role": "user"})));
    let (chain, follows_up) = prefix(Operation::Responses, &json!({"model": "m", "input": "hi"}));
    assert!(chain.len() == 1 && !follows_up);
}

#[test]
fn r1_a_longer_completion_repeats_the_blocks_of_the_shorter() {
    let text: String =
        (0..60_000_u32).map(|i| char::from(b'a' + u8::try_from(i * i % 23).unwrap())).collect();
    for len in [16, 64, 65, 1023, 1024, 1280, 16_384, 20_000] {
        let (short, follows_up) =
            prefix(Operation::Completions, &json!({"prompt": text[..len], "model": "m"}));
        let (long, _) = prefix(Operation::Completions, &json!({"model": "m", "prompt": text}));
        assert!(follows_up);
        assert_eq!(long[..short.len()], short[..], "{len}");
    }
    let blocks =
        |len: usize| prefix(Operation::Completions, &json!({"model": "m", "prompt": text[..len]})).0.len();
    assert_eq!((blocks(16), blocks(31), blocks(128), blocks(191), blocks(192)), (1, 1, 8, 8, 9));
    assert_eq!((blocks(1023), blocks(1024), blocks(1279), blocks(1280)), (21, 22, 22, 23));
    assert_eq!((blocks(16_384), blocks(17_407), blocks(17_408)), (82, 82, 83));
    let huge = "x".repeat(5 << 20);
    assert_eq!(
        prefix(Operation::Completions, &json!({"model": "m", "prompt": huge})).0.len(),
        MAX_BOUNDARIES
    );
}

#[test]
fn r1_prompts_of_several_texts_are_no_conversation() {
    let long = "x".repeat(100);
    let ids: Vec<u32> = (0..100).collect();
    let identity = |prompt: Value| {
        let body = json!({"model": "m", "prompt": prompt}).to_string();
        scan(Operation::Completions, body.as_bytes()).unwrap().identity
    };
    for prompt in [
        json!([long, long]),
        json!([ids, ids]),
        json!([ids]),
        json!("short"),
        json!([1, long]),
        json!({"a": long}),
        json!([]),
    ] {
        assert_eq!(identity(prompt.clone()), Identity::None, "{prompt}");
    }
    assert!(matches!(identity(json!(ids)), Identity::Prefix { follows_up: true, .. }));
    assert_eq!(identity(json!([long])), identity(json!(long)));
    let embedding = json!({"model": "m", "input": long}).to_string();
    assert_eq!(scan(Operation::Embeddings, embedding.as_bytes()).unwrap().identity, Identity::None);
}

#[test]
fn r8_text_media_and_tokens_are_told_apart() {
    let url = format!("data:image/png;base64,{}", "A".repeat(1000));
    let body = json!({"model": "m", "tools": [{"a": 1}], "messages": [{"role": "user", "content": [
        {"type": "text", "text": "ä\n😀"},
        {"type": "image_url", "image_url": {"url": url, "detail": 5}},
        {"type": "text", "text": "data: none"}]}]});
    let size = scan(CHAT, body.to_string().as_bytes()).unwrap().prompt;
    let text_bytes = ("user".len() + "ä\n😀".len() + "data: none".len() + r#"[{"a":1}]"#.len()) as u64;
    assert_eq!(size, PromptSize { text_bytes, media_bytes: url.len() as u64, images: 1, tokens: 0 });
    let anthropic = json!({"model": "m", "system": "sys", "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "x", "data": "AAAA"}}]}]});
    let size = scan(Operation::Messages, anthropic.to_string().as_bytes()).unwrap().prompt;
    assert_eq!(size, PromptSize { text_bytes: 8, media_bytes: 4, images: 1, tokens: 0 });
    let ids = json!({"model": "m", "input": [[1, 2, 3], [4]]});
    assert_eq!(scan(Operation::Embeddings, ids.to_string().as_bytes()).unwrap().prompt.tokens, 4);
    let escaped = r#"{"model":"m","prompt":"\u00e4\ud83d\ude00\u4f60\"\\"}"#;
    let size = scan(Operation::Completions, escaped.as_bytes()).unwrap().prompt;
    assert_eq!(size.text_bytes, "ä😀你\"\\".len() as u64);
}

#[test]
fn h3_only_the_model_changes() {
    let body = r#"{ "x":1.0 , "model" : "al\u0069as","messages":[] }"#;
    let scan = chat(body);
    assert_eq!(
        edited(body, [scan.model_edit("a \"b\"")]),
        r#"{ "x":1.0 , "model" : "a \"b\"","messages":[] }"#
    );
    let bytes = Bytes::from_static(body.as_bytes());
    let spliced = splice_model(&bytes, &scan, "new").unwrap();
    assert_eq!(spliced.pieces.len(), 3);
    assert_eq!(spliced.pieces[0].as_ptr(), bytes.as_ptr());
    assert!(splice_model(&Bytes::new(), &scan, "new").is_none());
}

#[test]
fn h3_the_usage_option_is_put_where_it_belongs() {
    let with_usage = |body: &str| {
        let scan = chat(body);
        let out = edited(body, [scan.usage_edit().unwrap(), scan.model_edit("n")]);
        let scan = chat(&out);
        assert!(scan.include_usage && scan.usage_edit().is_none() && scan.model == "n");
        out
    };
    assert_eq!(
        with_usage(r#"{"model":"m","stream":true }"#),
        r#"{"model":"n","stream":true ,"stream_options":{"include_usage":true}}"#
    );
    with_usage(r#"{"stream_options":null,"model":"m","stream":true}"#);
    with_usage(r#"{"stream_options":{ },"model":"m","stream":true}"#);
    with_usage(r#"{"stream_options":{"a":[1]},"model":"m","stream":true}"#);
    with_usage(r#"{"stream_options":{"include_usage" : false},"model":"m","stream":true}"#);
    assert!(chat(r#"{"model":"m","stream":false}"#).usage_edit().is_none());
    assert_eq!(
        refused(r#"{"stream_options":{"include_usage":1}}"#).param(),
        Some("stream_options.include_usage")
    );
}
