//! What is taken is what hyper takes, with the same meaning; hyper may take more. What is well-formed is taken, however it
//! is cut.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::body::Left;
use super::fields::Fields;
use super::head::{self, BadHead, HEAD_MAX};
use super::write::{self, After, Framing};

mod bounds;
mod broken;

/// Gives `bytes` in pieces of `cut` to `read`, with all that it left before.
fn in_pieces<T>(
    bytes: &[u8],
    cut: usize,
    mut read: impl FnMut(&mut BytesMut) -> Option<T>,
) -> Option<(T, BytesMut)> {
    let mut held = BytesMut::new();
    let mut pieces = bytes.chunks(cut.max(1));
    while let Some(piece) = pieces.next() {
        held.extend_from_slice(piece);
        if let Some(found) = read(&mut held) {
            pieces.for_each(|rest| held.extend_from_slice(rest));
            return Some((found, held));
        }
    }
    None
}

/// The whole body of `bytes` and what follows it; `None` where it is broken or has no end.
fn body(bytes: &[u8], cut: usize, mut left: Left) -> Option<(Vec<u8>, BytesMut)> {
    let mut whole = Vec::new();
    let read = |held: &mut BytesMut| loop {
        match left.take(held) {
            Ok(Some(data)) => whole.extend_from_slice(&data),
            Ok(None) => return left.is_over().then_some(Ok(())),
            Err(bad) => return Some(Err(bad)),
        }
    };
    let (end, rest) = in_pieces(bytes, cut, read)?;
    end.ok().map(|()| (whole, rest))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test)
}

/// What hyper makes of `bytes` as an answer that the end of the connection follows.
fn hypers_answer(bytes: &[u8]) -> Option<(StatusCode, HeaderMap, Bytes)> {
    let bytes = bytes.to_vec();
    run(async move {
        let (ours, mut theirs) = duplex(1 << 20);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.ok()?;
        let answer = async {
            let request = Request::post("/").header("host", "x").body(Empty::<Bytes>::new()).ok()?;
            let (head, body) = sender.send_request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            Some((head.status, head.headers, body))
        };
        let replica = async {
            let mut request = [0; 512];
            drop(theirs.read(&mut request).await);
            drop(theirs.write_all(&bytes).await);
            drop(theirs);
        };
        tokio::pin!(answer, connection, replica);
        let mut driven = false;
        let mut played = false;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                _ = &mut connection, if !driven => driven = true,
                () = &mut replica, if !played => played = true,
            }
        }
    })
}

type Seen = (Method, String, Version, HeaderMap, Option<u64>);

/// What hyper makes of `bytes` as the head of a request.
fn hypers_request(bytes: &[u8]) -> Option<Seen> {
    let bytes = bytes.to_vec();
    let seen: Arc<Mutex<Option<Seen>>> = Arc::default();
    let told = Arc::clone(&seen);
    run(async move {
        let (ours, mut theirs) = duplex(1 << 20);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let length = request.body().size_hint().exact();
            let (head, _) = request.into_parts();
            let seen = (head.method, head.uri.to_string(), head.version, head.headers, length);
            told.lock().expect("told").get_or_insert(seen);
            async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
        });
        theirs.write_all(&bytes).await.expect("written");
        theirs.shutdown().await.expect("ended");
        drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(ours), service).await);
    });
    Arc::into_inner(seen).and_then(|seen| seen.into_inner().expect("told"))
}

fn ours_request(bytes: &[u8], cut: usize) -> Option<(Seen, BytesMut)> {
    let mut seen = 0;
    let read = |held: &mut BytesMut| match head::request(held, seen) {
        Ok(None) => {
            seen = held.len();
            None
        }
        Ok(Some(head)) => Some(Ok(head)),
        Err(bad) => Some(Err(bad)),
    };
    let (head, rest) = in_pieces(bytes, cut, read)?;
    let head = head.ok()?;
    let (message, length) = (head.message, head.body.size_hint().exact());
    let (target, headers) = (message.target.to_string(), message.fields.to_map());
    Some(((message.method, target, message.version, headers, length), rest))
}

/// Pieces of which heads and bodies are made, well and badly.
const SCRAPS: [&str; 30] = [
    "GET / HTTP/1.1\r\n",
    "POST /v1/x?a=%20 HTTP/1.1\r\n",
    "POST http://a/b HTTP/1.0\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 404\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 204 No\r\n",
    "host: a\r\n",
    "Host : a\r\n",
    "content-length: 3\r\n",
    "content-length: 03, 3\r\n",
    "Content-Length: -1\r\n",
    "content-length: 5\r\n",
    "transfer-encoding: chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "connection: close\r\n",
    "x: \u{e9}\t1 \r\n",
    " folded\r\n",
    "\r\n",
    "\n",
    "\r",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "0;a=b\r\nx: y\r\n\r\n",
    "abc",
    "ffffffffffffffff\r\n",
    "00000000000000003\r\nabc\r\n",
    "3 \t;x\r\nabc\r\n",
    "\0",
];

fn scraps() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&SCRAPS[..]), 1..9)
        .prop_map(|scraps| scraps.concat().into_bytes())
}

/// A head that begins well and goes on with anything, so that much of it is taken.
fn headed(start: &'static str) -> impl Strategy<Value = Vec<u8>> {
    scraps().prop_map(move |rest| [start.as_bytes(), &rest].concat())
}

proptest! {
    #[test]
    fn h3_chunks_are_read_however_they_are_cut(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..6),
        cut in 1_usize..700,
        aside in prop::sample::select(&["", ";a=b", " \t", " ;x=\"y\""][..]),
        trailer in prop::sample::select(&["", "x: 1\r\n", "x: 1\r\ny: 2\r\n"][..]),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend(format!("{:X}{aside}\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(format!("0{aside}\r\n{trailer}\r\nGET /next").bytes());
        let (whole, rest) = body(&bytes, cut, Left::chunked()).expect("a whole body");
        prop_assert_eq!((whole, &rest[..]), (chunks.concat(), &b"GET /next"[..]));
    }

    #[test]
    fn h3_chunks_are_read_back_as_they_are_written(chunks in prop::collection::vec(1_usize..100_000, 0..4)) {
        let mut bytes = Vec::new();
        for size in &chunks {
            write::chunk(&mut bytes, &Bytes::from(vec![b'x'; *size]));
        }
        bytes.extend(b"0\r\n\r\n");
        let (whole, rest) = body(&bytes, 4096, Left::chunked()).expect("a whole body");
        prop_assert_eq!((whole.len(), rest.len()), (chunks.iter().sum(), 0));
    }

    #[test]
    fn h6_no_request_is_read_otherwise_than_by_hyper(bytes in prop_oneof![scraps(), headed("POST /a HTTP/1.1\r\nhost: a\r\n")], cut in 1_usize..60) {
        let whole = ours_request(&bytes, usize::MAX);
        prop_assert_eq!(whole.is_some(), ours_request(&bytes, cut).is_some(), "however it is cut");
        if let Some((ours, _)) = whole {
            let mut theirs = hypers_request(&bytes).expect("hyper takes it too");
            // Of a length beside chunks or another length like it, hyper keeps no trace.
            let mut ours = ours;
            for headers in [&mut ours.3, &mut theirs.3] {
                headers.remove("content-length");
            }
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn h6_no_answer_is_read_otherwise_than_by_hyper(bytes in prop_oneof![scraps(), headed("HTTP/1.1 200 OK\r\n")], cut in 1_usize..60) {
        let mut seen = 0;
        let read = |held: &mut BytesMut| match head::response(held, seen) {
            Ok(None) => { seen = held.len(); None }
            Ok(Some(head)) => Some(Ok(head)),
            Err(bad) => Some(Err(bad)),
        };
        if let Some((Ok(head), rest)) = in_pieces(&bytes, cut, read)
            && let Some((ours, _)) = match head.body {
                Left::Close => Some((rest.to_vec(), BytesMut::new())),
                left => body(&rest, cut, left.clone()).or_else(|| left.is_over().then(Default::default)),
            }
        {
            let (status, headers, theirs) = hypers_answer(&bytes).expect("hyper takes it too");
            prop_assert_eq!((head.message.status, head.message.fields.to_map()), (status, headers));
            prop_assert_eq!(&ours[..], &theirs[..]);
        }
    }

    #[test]
    fn h6_nothing_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 1_usize..50) {
        ours_request(&bytes, cut);
        body(&bytes, cut, Left::chunked());
        drop(head::response(&mut BytesMut::from(&bytes[..]), 0));
    }
}

#[test]
fn h6_a_request_tells_its_length_once_or_always_the_same() {
    let length = |lines: &str| {
        let text = format!("POST / HTTP/1.1\r\n{lines}\r\n");
        head::request(&mut BytesMut::from(text.as_bytes()), 0).ok().flatten().map(|head| head.body)
    };
    assert_eq!(length("content-length: 3\r\ncontent-length: 3\r\n"), Some(Left::Length(3)));
    for lines in ["3, 3", "+3", "3x", "", "18446744073709551616"] {
        assert_eq!(length(&format!("content-length: {lines}\r\n")), None, "{lines:?}");
    }
    assert_eq!(length("content-length: 3\r\ncontent-length: 4\r\n"), None);
    assert_eq!(length("content-length: 03, 3\r\ntransfer-encoding: chunked\r\n"), None, "beside chunks too");
}

#[test]
fn h6_a_request_that_says_twice_where_it_ends_is_refused_and_nothing_follows_such_an_answer() {
    let keeps = |lines: &str| {
        let request = format!("GET /livez HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        let request = head::request(&mut BytesMut::from(request.as_bytes()), 0);
        let answer = head::response(&mut BytesMut::from(answer.as_bytes()), 0);
        [request.ok().flatten().map(|head| head.keeps), answer.ok().flatten().map(|head| head.keeps)]
    };
    assert_eq!(keeps("content-length: 5\r\n"), [Some(true); 2]);
    assert_eq!(keeps("transfer-encoding: chunked\r\n"), [Some(true); 2]);
    assert_eq!(keeps("content-length: 5\r\ntransfer-encoding: chunked\r\n"), [None, Some(false)]);
}

#[test]
fn h6_what_is_written_says_once_where_it_ends() {
    let fields = Fields::from(&HeaderMap::from_iter([
        (http::header::CONTENT_LENGTH, HeaderValue::from_static("7")),
        (http::header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
        (http::header::CONNECTION, HeaderValue::from_static("keep-alive")),
        (http::header::ACCEPT, HeaderValue::from_static("a")),
    ]));
    let answer = |version, status, framing, after| {
        let mut bytes = Vec::new();
        write::response(&mut bytes, (version, status), &fields, framing, after, std::time::UNIX_EPOCH);
        String::from_utf8(bytes).expect("text")
    };
    let date = "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
    assert_eq!(
        answer(Version::HTTP_11, StatusCode::OK, Framing::Length(12), After::Keep),
        format!("HTTP/1.1 200 OK\r\naccept: a\r\ncontent-length: 12\r\n{date}")
    );
    assert_eq!(
        answer(Version::HTTP_11, StatusCode::OK, Framing::Chunked, After::Close),
        format!("HTTP/1.1 200 OK\r\naccept: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n{date}")
    );
    assert_eq!(
        answer(Version::HTTP_10, StatusCode::OK, Framing::Length(0), After::KeepAlive),
        format!("HTTP/1.0 200 OK\r\naccept: a\r\ncontent-length: 0\r\nconnection: keep-alive\r\n{date}")
    );
    assert_eq!(
        answer(Version::HTTP_11, StatusCode::NO_CONTENT, Framing::None, After::Keep),
        format!("HTTP/1.1 204 No Content\r\naccept: a\r\n{date}")
    );
    let mut bytes = Vec::new();
    let target = "/v1/x?a=%zz".parse().expect("a target");
    write::request(&mut bytes, &Method::POST, &target, &HeaderValue::from_static("h:1"), &fields, 0);
    let wanted = "POST /v1/x?a=%zz HTTP/1.1\r\nhost: h:1\r\nconnection: keep-alive\r\naccept: a\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(String::from_utf8(bytes).expect("text"), wanted);
}

#[test]
fn h6_a_connection_is_kept_as_both_versions_have_it() {
    for (start, keeps) in [
        ("GET / HTTP/1.1\r\n", true),
        ("GET / HTTP/1.1\r\nconnection: x, Close\r\nconnection: keep-alive\r\n", false),
        ("GET / HTTP/1.0\r\n", false),
        ("GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n", true),
    ] {
        let head = head::request(&mut BytesMut::from(format!("{start}\r\n").as_bytes()), 0);
        assert_eq!(head.expect("a head").expect("a whole one").keeps, keeps, "{start:?}");
    }
    for (answer, keeps) in [
        ("content-length: 0\r\n", true),
        ("", false),
        ("content-length: 0\r\ntransfer-encoding: chunked\r\n", false),
        ("transfer-encoding: chunked\r\nconnection: close\r\n", false),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{answer}\r\n");
        let head = head::response(&mut BytesMut::from(text.as_bytes()), 0);
        assert_eq!(head.expect("a head").expect("a whole one").keeps, keeps, "{answer:?}");
    }
    for (answer, keeps) in [
        ("", true),
        ("content-length: 0\r\n", true),
        ("content-length: 5\r\n", false),
        ("transfer-encoding: chunked\r\n", false),
    ] {
        for status in ["204 No Content", "304 Not Modified"] {
            let text = format!("HTTP/1.1 {status}\r\n{answer}\r\n");
            let head = head::response(&mut BytesMut::from(text.as_bytes()), 0);
            assert_eq!(head.expect("a head").expect("a whole one").keeps, keeps, "{status} {answer:?}");
        }
    }
}
