//! What the stream scan must see, however the stream is cut.

use proptest::prelude::*;

use super::*;

fn whole(stream: &[u8]) -> StreamEnd {
    let mut scan = SseScan::new();
    scan.push(stream);
    scan.finish()
}

const CHAT: &str = ": ping\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\\n\\n\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";

const MESSAGES: &str = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":30,\"output_tokens\":1}}}\r\n\r\nevent: message_delta\r\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\r\n\r\nevent: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n";

#[test]
fn a_chat_stream_is_understood() {
    let usage = Some(Usage { prompt: Some(9), completion: Some(2), cached: Some(4) });
    assert_eq!(
        whole(CHAT.as_bytes()),
        StreamEnd { events: 3, done: true, failed: false, at_boundary: true, torn: false, usage }
    );
}

#[test]
fn r8_usage_of_the_first_event_completes_that_of_the_last() {
    let end = whole(MESSAGES.as_bytes());
    assert_eq!(end.usage, Some(Usage { prompt: Some(30), completion: Some(7), cached: None }));
    assert_eq!((end.events, end.done, end.failed), (3, true, false));
}

#[test]
fn every_kind_of_line_end_makes_a_boundary() {
    for stream in [
        "data: a\n\n",
        "data: a\r\n\r\n",
        "data: a\r\r",
        "data: a\n\r\n",
        "data: a\r\n\r",
        "data: a\r\n\n",
        "",
    ] {
        let mut scan = SseScan::new();
        scan.push(stream.as_bytes());
        assert!(scan.at_boundary(), "{stream:?}");
        assert_eq!(scan.events(), u64::from(!stream.is_empty()), "{stream:?}");
        scan.push(b"d");
        assert!(!scan.at_boundary(), "{stream:?}");
    }
    for stream in ["data: a", "data: a\n", "data: a\r\n", "data: a\r", "\n\nx", ": comment\n"] {
        assert!(!whole(stream.as_bytes()).at_boundary, "{stream:?}");
    }
}

#[test]
fn c126_errors_in_a_stream_are_seen() {
    for stream in [
        "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n",
        "data:{ \"error\" : \"oom\"}\n\n",
        "data: {\"object\": \"error\", \"message\": \"x\"}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n",
        "data: {\"type\":\"error\",\"message\":\"x\"}\n\n",
        "error: {\"code\":500}\n\n",
        "{\"error\":{\"message\":\"bare\"}}",
        "data: {\"id\":\"x\",\"choices\":[{\"delta\":{}}],\"error\":{\"message\":\"late\"}}\n\n",
        "data: {\"type\":\"response.failed\",\"response\":{\"error\": {\"code\":\"server_error\"}}}\n\n",
    ] {
        let after_tokens = CHAT.replace("data: [DONE]\n\n", stream);
        assert!(whole(after_tokens.as_bytes()).failed, "{stream}");
        assert!(whole(stream.as_bytes()).failed, "{stream}");
    }
    for stream in [
        CHAT,
        MESSAGES,
        "data: {\"error\":null,\"choices\":[]}\n\n",
        "data: {\"delta\":\"{\\\"error\\\":{}}\"}\n\n",
        "data: {\"delta\":\"error\"}\n\n",
        ": {\"error\":1}\n\n",
        "event: errors\n\n",
    ] {
        assert!(!whole(stream.as_bytes()).failed, "{stream}");
    }
}

#[test]
fn the_last_line_counts_without_its_end() {
    assert!(whole(b"data: x\n\ndata: [DONE]").done);
    assert!(whole(b"data: x\n\ndata:[DONE]\n").done);
    assert!(!whole(b"data: \"[DONE]\"\n\n").done);
}

#[test]
fn long_events_cost_no_memory() {
    let mut scan = SseScan::new();
    scan.push(b"data: {\"response\":{\"output\":\"");
    for _ in 0..1000 {
        scan.push(&[b'x'; 1000]);
    }
    scan.push(b"\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n");
    assert!(scan.tail.as_slice().len() <= TAIL_BYTES);
    let end = scan.finish();
    assert_eq!(end.events, 1);
    assert_eq!(end.usage, Some(Usage { prompt: Some(3), completion: Some(4), cached: None }));
}

#[test]
fn every_split_gives_the_same_result() {
    for stream in [
        CHAT.to_owned(),
        MESSAGES.to_owned(),
        CHAT.replace('\n', "\r"),
        CHAT.replace("[DONE]", "{\"error\":{\"a\":1}}"),
    ] {
        let expected = whole(stream.as_bytes());
        for at in 0..=stream.len() {
            let (first, second) = stream.as_bytes().split_at(at);
            let mut scan = SseScan::new();
            scan.push(first);
            scan.push(second);
            assert_eq!(scan.finish(), expected, "split at {at}");
        }
        let mut scan = SseScan::new();
        for byte in stream.as_bytes() {
            scan.push(&[*byte]);
        }
        assert_eq!(scan.finish(), expected, "byte by byte");
    }
}

proptest! {
    #[test]
    fn any_bytes_in_any_chunks_give_the_same_result(
        lines in proptest::collection::vec("(data: ?)?(\\{\"error\": ?|\\[DONE\\]|\"usage\":\\{\"prompt_tokens\":[0-9]\\}|[a-z:]{0,90})?(\r|\n|\r\n|\n\n|\r\r)?", 0..30),
        sizes in proptest::collection::vec(1_usize..40, 1..8),
    ) {
        let stream = lines.concat().into_bytes();
        let mut scan = SseScan::new();
        let mut rest = &stream[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            scan.push(chunk);
            rest = after;
        }
        prop_assert_eq!(scan.finish(), whole(&stream));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = whole(&bytes);
    }
}

#[test]
fn c_087_a_stream_is_torn_where_a_client_waits_for_the_rest_of_an_event() {
    let torn = |stream: &str| {
        let mut scan = SseScan::new();
        scan.push(stream.as_bytes());
        scan.finish().torn
    };
    for whole in
        ["", "data: 1\n\n", ": ping", ": ping\n", "data: 1\n\n: ping\n", "data: [DONE]", "data: [DONE]\n"]
    {
        assert!(!torn(whole), "{whole:?}");
    }
    for half in ["dat", "data: {\"a\":", "data: 1\n", "data: 1\n\nevent: x\ndata: {", "data: 1\n\nevent: x"] {
        assert!(torn(half), "{half:?}");
    }
    assert!(!torn("data: 1\n\n{\"error\":{\"message\":\"no\"}}\n"), "the engine said why it ends");
}

#[test]
fn h4_all_is_said_with_the_last_event_and_not_with_its_name() {
    let done = |stream: &str| {
        let mut scan = SseScan::new();
        scan.push(stream.as_bytes());
        scan.done()
    };
    let delta = "event: response.output_text.delta\ndata: {}\n\n";
    for last in ["message_stop", "response.completed", "response.incomplete"] {
        let named = format!("{delta}event: {last}\n");
        let whole = format!("{named}data: {{\"type\":\"{last}\"}}\n\n");
        assert_eq!([delta, &named, &whole[..whole.len() - 1], &whole].map(done), [false, false, false, true]);
        assert!(!done(&format!("event: {last}\n\n{delta}")), "an event without data is none");
    }
    assert!(!done(&format!("{delta}event: response.completely\ndata: {{}}\n\n")));
}
