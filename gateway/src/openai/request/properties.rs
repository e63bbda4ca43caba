//! What holds for every body: the scan never panics, and judges as a full parser does.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use tidegate_shared::request::{ConversationKey, Identity};

use super::*;

const CHAT: Operation = Operation::ChatCompletions;

fn chat(body: &str) -> Scan<'_> {
    scan(CHAT, body.as_bytes()).unwrap()
}

/// The chain of `body`; empty if it has none.
fn chain(body: &Value) -> Vec<ConversationKey> {
    match chat(&body.to_string()).identity {
        Identity::Prefix { chain, .. } => chain,
        _ => Vec::new(),
    }
}

/// Any JSON value, a few levels deep, with the names that the scan looks for among its keys.
fn any_json() -> impl Strategy<Value = Value> {
    let text =
        prop_oneof!["\\PC{0,30}", any::<String>(), Just("assistant".to_owned()), Just("image".to_owned())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let key =
            prop_oneof!["[a-z\"\\\\é]{0,6}", "role|type|model|content|data|include_usage|conversation_id"];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((key, inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A request that the scan accepts.
fn any_request() -> impl Strategy<Value = Value> {
    let model = any::<String>().prop_filter("not empty", |model| !model.is_empty());
    let fields = vec(("[a-z_]{1,12}", any_json()), 0..5);
    (model, any::<Option<bool>>(), any::<Option<u64>>(), vec(any_json(), 0..6), fields).prop_map(
        |(model, stream, limit, messages, fields)| {
            let mut body: serde_json::Map<_, _> =
                fields.into_iter().filter(|(key, _)| key.len() > 2).collect();
            for known in ["model", "stream", "max_tokens", "messages", "tools", "metadata"] {
                body.remove(known);
            }
            body.insert("model".into(), model.into());
            body.insert("stream".into(), stream.into());
            body.insert("max_tokens".into(), limit.into());
            body.insert("messages".into(), messages.into());
            Value::Object(body)
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200)) {
        for operation in Operation::ALL {
            let _ = scan(operation, &bytes);
        }
    }

    #[test]
    fn h1_agrees_with_a_full_parser(request in any_request(), pretty in any::<bool>()) {
        let body = if pretty { serde_json::to_string_pretty(&request) } else { serde_json::to_string(&request) }.unwrap();
        let scan = chat(&body);
        prop_assert_eq!(&*scan.model, request["model"].as_str().unwrap());
        let span = serde_json::from_str::<String>(&body[scan.model_span.clone()]).unwrap();
        prop_assert_eq!(&*scan.model, &*span);
        prop_assert_eq!(scan.stream, request["stream"].as_bool().unwrap_or(false));
        prop_assert_eq!(scan.output_limit, request["max_tokens"].as_u64());
        let messages = request["messages"].as_array().unwrap();
        let follows = messages.iter().any(|message| {
            let of_a_model = matches!(message["role"].as_str(), Some("assistant" | "tool" | "function"));
            of_a_model || message["type"].as_str().is_some_and(|kind| kind == "reasoning" || kind.ends_with("_call"))
        });
        match scan.identity {
            Identity::Prefix { chain, follows_up } => {
                prop_assert_eq!(chain.len(), messages.len());
                prop_assert_eq!(follows_up, follows);
            }
            _ => prop_assert!(messages.is_empty()),
        }
    }

    #[test]
    fn r1_the_chain_of_a_follow_up_contains_its_predecessor(request in any_request(), more in vec(any_json(), 1..4)) {
        let mut request = request;
        let before = chain(&request);
        request["messages"].as_array_mut().unwrap().extend(more);
        let after = chain(&request);
        prop_assert_eq!(&after[..before.len()], &before[..]);
        prop_assert!(after.len() > before.len());
    }

    #[test]
    fn h1_a_count_is_that_of_a_full_parser(
        number in "-?[0-9]{1,3}|[0-9]{18,22}|-?[0-9]{1,2}[.eE+-]{1,2}[0-9]{0,2}|null",
        space in "[ \n]{0,2}",
    ) {
        let body = format!("{{\"model\":\"m\",\"max_tokens\":{space}{number}{space}}}");
        match serde_json::from_str::<Value>(&body) {
            Ok(known) => {
                let value = &known["max_tokens"];
                let is_large = number.bytes().all(|byte| byte.is_ascii_digit()).then_some(u64::MAX);
                prop_assert_eq!(chat(&body).output_limit, value.as_u64().or(is_large));
            }
            Err(_) => prop_assert!(scan(CHAT, body.as_bytes()).is_err()),
        }
    }

    #[test]
    fn strings_end_where_a_full_parser_ends_them(
        texts in vec("[a-z]{0,9}|[a-z \\\\\"\n]{0,40}|\\PC{0,24}|[a-z]{12,20}\"?", 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let body = serde_json::json!({"model": "m", "messages": [{"content": texts}]}).to_string();
        let size: usize = texts.iter().map(String::len).sum();
        prop_assert_eq!(chat(&body).prompt.text_bytes, size as u64);
        let cut = cut.index(body.len());
        prop_assert!(scan(CHAT, &body.as_bytes()[..cut]).is_err());
    }

    #[test]
    fn r1_what_a_header_names_is_scanned_alike_but_for_its_chain(request in any_request(), key in any::<bool>()) {
        let mut request = request;
        if key {
            request["prompt_cache_key"] = "k".into();
        }
        let body = request.to_string();
        for operation in Operation::ALL {
            let mut whole = scan(operation, body.as_bytes());
            if let Ok(whole) = whole.as_mut().map(|whole| &mut whole.identity)
                && matches!(whole, Identity::Prefix { .. })
            {
                *whole = Identity::None;
            }
            prop_assert_eq!(scan_named(operation, body.as_bytes()), whole, "{}", operation);
        }
    }

    #[test]
    fn mutated_bodies_never_panic_and_are_judged_as_by_a_full_parser(
        request in any_request(),
        at in any::<prop::sample::Index>(),
        len in 0_usize..4,
        junk in "[\\[\\]{}\",:\\\\0-9.eE+ nulltruefas-]{0,4}",
    ) {
        let mut body = request.to_string().into_bytes();
        let at = at.index(body.len());
        body.splice(at..(at + len).min(body.len()), junk.into_bytes());
        let ours = scan(CHAT, &body);
        let strict = serde_json::from_slice::<serde::de::IgnoredAny>(&body);
        if strict.is_ok() && body.trim_ascii_start().starts_with(b"{") {
            prop_assert!(!matches!(ours, Err(BadBody::Syntax { .. })), "{:?}", ours);
        }
        if ours.is_ok() && body.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            prop_assert!(strict.is_ok(), "{:?}", strict);
        }
        for operation in Operation::ALL {
            let _ = scan(operation, &body);
        }
    }
}
