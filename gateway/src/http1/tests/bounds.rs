//! Heads that are too large, and codings that are not read.

use super::*;

#[test]
fn h6_heads_are_bounded_however_they_come() {
    let bad = |text: &str, cut: usize| {
        let mut seen = 0;
        let read = |held: &mut BytesMut| match head::request(held, seen) {
            Ok(None) => {
                seen = held.len();
                None
            }
            Ok(Some(_)) => Some(None),
            Err(bad) => Some(Some(bad)),
        };
        in_pieces(text.as_bytes(), cut, read).and_then(|(bad, _)| bad)
    };
    let start = "GET / HTTP/1.1\r\nx: ";
    let sized = |size: usize| format!("{start}{}\r\n\r\n", "y".repeat(size - start.len() - 4));
    for cut in [usize::MAX, 4096] {
        assert_eq!(bad(&sized(HEAD_MAX), cut), None);
        assert_eq!(bad(&sized(HEAD_MAX + 1), cut), Some(BadHead::TooLarge));
        assert_eq!(bad(&sized(10 * HEAD_MAX), cut), Some(BadHead::TooLarge));
        let many = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(count));
        assert_eq!((bad(&many(101), cut), bad(&many(100), cut)), (Some(BadHead::TooLarge), None));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
        assert_eq!(bad(&long, cut), Some(BadHead::TargetTooLong));
    }
    let answer = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(HEAD_MAX));
    let answer = head::response(&mut BytesMut::from(answer.as_bytes()), 0);
    assert_eq!(answer.err(), Some(BadHead::TooLarge));
}

#[test]
fn h6_a_body_in_another_transfer_coding_is_not_read() {
    let read = |coding: &str| {
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{coding}\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\n{coding}\r\n");
        let request = head::request(&mut BytesMut::from(request.as_bytes()), 0);
        let answer = head::response(&mut BytesMut::from(answer.as_bytes()), 0);
        let bodies =
            (request.map(|head| head.map(|head| head.body)), answer.map(|head| head.map(|head| head.body)));
        assert_eq!(bodies.0, bodies.1, "{coding}");
        bodies.0
    };
    assert_eq!(read("transfer-encoding: Chunked\r\n"), Ok(Some(Left::chunked())));
    for coding in
        ["gzip, chunked", "gzip,identity , chunked", "gzip\r\ntransfer-encoding: chunked", "\t,chunked"]
    {
        assert_eq!(read(&format!("transfer-encoding: {coding}\r\n")), Err(BadHead::Coding), "{coding}");
    }
    for coding in [
        "gzip",
        "identity",
        "chunked, gzip",
        "chunked,",
        "chunked, chunked",
        "chunked\r\ntransfer-encoding: chunked",
        "xchunked",
        "chunked;q=1",
        "",
    ] {
        let bad = read(&format!("transfer-encoding: {coding}\r\n"));
        assert!(matches!(bad, Err(BadHead::Malformed(why)) if why.contains("chunked")), "{coding}: {bad:?}");
    }
}

#[test]
fn h6_empty_lines_before_a_head_are_not_kept() {
    let lines = "\r\n\n".repeat(HEAD_MAX);
    let mut held = BytesMut::from(lines.as_bytes());
    assert!(matches!(head::request(&mut held, 10), Ok(None)));
    assert_eq!(held.len(), 0);
    held.extend_from_slice(b"\r\n\r");
    assert!(matches!(head::request(&mut held, 0), Ok(None)));
    held.extend_from_slice(b"\nGET / HTTP/1.1\r\n\r\n");
    assert!(matches!(head::request(&mut held, 1), Ok(Some(_))));
    let answer = head::response(&mut BytesMut::from(lines.as_bytes()), 10);
    assert_eq!(answer.err(), Some(BadHead::TooLarge), "a replica that sends nothing else");
}

#[test]
fn h6_a_target_is_the_requests_own_whatever_was_asked_for_before() {
    let target = |target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n");
        let head = head::request(&mut BytesMut::from(request.as_bytes()), 0).expect("a head").expect("whole");
        head.message.target.to_string()
    };
    let long = format!("/{}", "x".repeat(200));
    for asked in ["/", "/a?b", "/a?b", "/a", "http://h/a", "/a", "*", "/a", &long, "/a", &long, "/a?"] {
        assert_eq!(target(asked), asked);
    }
    assert_eq!([target("/a#b"), target("/a"), target("/a#c")], ["/a"; 3]);
}
