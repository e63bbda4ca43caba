//! What HTTP/2 forbids in a request, as frames on a socket (RFC 9113): it is refused, and nothing of it reaches a replica;
//! what it allows reaches one as HTTP/1.1 has it (H3, H5, H6).

use tidegate_shared::names::metric;
use tidegate_tests::openai::{assert_error_shape, chat};
use tidegate_tests::streams::{END_HEADERS, END_STREAM, Ended, Streams, kind, post, reason};
use tidegate_tests::stub::Stub;

use crate::{CHAT, serve};

/// Fields and more fields.
fn with<'a>(fields: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [fields, more].concat()
}

/// A `GET` of the list of models on a stream of its own: the connection goes on.
async fn goes_on(client: &mut Streams, stream: u32) {
    let fields =
        [(":method", "GET"), (":scheme", "http"), (":path", "/v1/models"), (":authority", "tidegate")];
    client.head(stream, END_STREAM, &fields).await;
    assert!(!client.answer(stream).await.is_empty());
}

#[tokio::test]
async fn h6_a_head_that_http_2_forbids_is_reset_and_nothing_of_it_is_forwarded() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let good = post(CHAT);
    let without = |name: &str| good.iter().copied().filter(|(have, _)| *have != name).collect::<Vec<_>>();
    let replaced = |name: &'static str, value: &'static str| {
        good.iter().map(|pair| if pair.0 == name { (name, value) } else { *pair }).collect::<Vec<_>>()
    };
    let mut heads = vec![
        without(":method"),
        without(":scheme"),
        without(":path"),
        replaced(":path", ""),
        replaced(":path", "/v1/chat completions"),
        replaced(":method", "PO ST"),
        replaced(":authority", "a b"),
        with(&[(":path", CHAT)], &good),
    ];
    let more = [
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("X-Upper", "1"),
        ("x-line", "a\r\nx-hidden: b"),
        ("x-nul", "a\0b"),
        (":path", "/late"),
        (":status", "200"),
        ("content-length", "+5"),
        ("content-length", "99999999999999999999"),
    ];
    heads.extend(more.map(|field| with(&good, &[field])));
    heads.push(with(&good, &[("content-length", "1"), ("content-length", "2")]));
    for head in heads {
        let mut client = Streams::connect(gateway.address, &[]).await;
        client.head(1, 0, &head).await;
        client.send(kind::DATA, END_STREAM, 1, body.as_bytes()).await;
        match client.ended(1).await {
            Ended::Reset(reason) => {
                assert_eq!(reason, reason::PROTOCOL_ERROR, "{head:?}");
                goes_on(&mut client, 3).await;
            }
            ended => assert_eq!(ended, Ended::Gone(Some(reason::PROTOCOL_ERROR)), "{head:?}"),
        }
    }
    assert_eq!(stub.count(), 0);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_http_2_needs_one_authority_and_no_other_host() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let nameless: Vec<_> = post(CHAT).into_iter().filter(|(name, _)| *name != ":authority").collect();
    let mut client = Streams::connect(gateway.address, &[]).await;
    let bad = [
        nameless.clone(),
        with(&nameless, &[("host", "")]),
        with(&nameless, &[("host", "a/b")]),
        with(&nameless, &[("host", "tidegate"), ("host", "tidegate")]),
        with(&[(":authority", "user@tidegate")], &nameless),
        with(&post(CHAT), &[("host", "elsewhere")]),
        with(&post(CHAT), &[("host", "tidegate:8080")]),
        with(&post(CHAT), &[("host", "tidegate"), ("host", "elsewhere")]),
    ];
    let mut stream = 1;
    for head in bad {
        client.request(stream, &head, &body).await;
        let error = assert_error_shape(&client.answer(stream).await);
        assert!(
            error["message"].as_str().is_some_and(|text| text.contains(":authority")),
            "{head:?}: {error}"
        );
        stream += 2;
    }
    assert_eq!(stub.count(), 0);
    let good = [with(&nameless, &[("host", "tidegate")]), with(&post(CHAT), &[("host", "Tidegate")])];
    for head in good {
        client.request(stream, &head, &body).await;
        assert!(
            String::from_utf8_lossy(&client.answer(stream).await).contains("chat.completion"),
            "{head:?}"
        );
        stream += 2;
    }
}

#[tokio::test]
async fn h3_h5_crumbs_of_cookies_are_joined_and_what_is_of_one_hop_ends_here() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let crumbs = [("cookie", "a=1"), ("x-a", "1"), ("te", "trailers"), ("cookie", "b=2"), ("cookie", "c=3")];
    let mut client = Streams::connect(gateway.address, &[]).await;
    client.request(1, &with(&post(CHAT), &crumbs), &chat("chat", "hi").to_string()).await;
    client.answer(1).await;
    let seen = stub.request(0).await.head;
    assert_eq!(seen.all("cookie").collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    assert_eq!((seen.header("x-a"), seen.header("te")), (Some("1"), None));
}

#[tokio::test]
async fn h6_heads_over_http_2_have_the_bounds_of_those_over_http_1() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let names: Vec<String> = (0..1500).map(|index| format!("x-{index}")).collect();
    // With its content type.
    let fields = |count: usize| {
        let more: Vec<_> = names.iter().take(count - 1).map(|name| (name.as_str(), "1")).collect();
        with(&post(CHAT), &more)
    };
    let mut client = Streams::connect(gateway.address, &[]).await;
    client.request(1, &fields(100), &body).await;
    assert!(String::from_utf8_lossy(&client.answer(1).await).contains("chat.completion"));
    let long = "x".repeat(65 << 10);
    for (stream, head) in [(3, fields(101)), (5, fields(1500)), (7, with(&post(CHAT), &[("x-long", &long)]))]
    {
        client.request(stream, &head, &body).await;
        assert_eq!(assert_error_shape(&client.answer(stream).await)["code"], "headers_too_large");
    }
    gateway.until_metric(metric::REQUESTS, &[("status", "431")], 3.0).await;
    // The library keeps nothing of these, and so nobody can say why.
    let longer = "x".repeat(140 << 10);
    client.request(9, &with(&post(CHAT), &[("x-long", &longer)]), &body).await;
    assert_eq!(client.answer(9).await, b"");
    goes_on(&mut client, 11).await;
    let longest = "x".repeat(600 << 10);
    client.offer(&tidegate_tests::streams::head(13, 0, &with(&post(CHAT), &[("x-long", &longest)]))).await;
    assert!(matches!(client.ended(13).await, Ended::Gone(_)));
    assert_eq!(stub.count(), 1);
}

#[tokio::test]
async fn c_136_a_body_over_http_2_has_the_length_that_was_told_or_is_not_forwarded() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let length = body.len().to_string();
    let head = with(&post(CHAT), &[("content-length", &length)]);
    let mut client = Streams::connect(gateway.address, &[]).await;
    let reset = Ended::Reset(reason::PROTOCOL_ERROR);
    // Less than was told; more; none at all.
    client.request(1, &head, &body[1..]).await;
    assert_eq!(client.ended(1).await, reset);
    client.request(3, &head, &format!("{body} ")).await;
    assert_eq!(client.ended(3).await, reset);
    client.head(5, END_STREAM, &head).await;
    assert_eq!(client.ended(5).await, reset);
    // All of it, and later more.
    client.head(7, 0, &head).await;
    assert!(client.send(kind::DATA, 0, 7, body.as_bytes()).await);
    // Its answer says that the gateway has seen what came before.
    goes_on(&mut client, 9).await;
    assert!(client.send(kind::DATA, END_STREAM, 7, b"x").await);
    assert_eq!(client.ended(7).await, reset);
    goes_on(&mut client, 11).await;
    assert_eq!(stub.count(), 0);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h5_trailers_of_a_client_end_here() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let body = chat("chat", "hi").to_string();
    let mut client = Streams::connect(gateway.address, &[]).await;
    client.head(1, 0, &post(CHAT)).await;
    assert!(client.send(kind::DATA, 0, 1, body.as_bytes()).await);
    client.head(1, END_STREAM, &[("x-trailer", "1"), ("authorization", "Bearer sk")]).await;
    assert!(String::from_utf8_lossy(&client.answer(1).await).contains("chat.completion"));
    let seen = stub.request(0).await;
    assert_eq!((&seen.body[..], seen.head.header("x-trailer")), (body.as_bytes(), None));
    // Fields that HTTP/2 forbids are forbidden here as well.
    client.head(3, 0, &post(CHAT)).await;
    assert!(client.send(kind::DATA, 0, 3, body.as_bytes()).await);
    client.head(3, END_STREAM, &[("connection", "close")]).await;
    assert_eq!(client.ended(3).await, Ended::Reset(reason::PROTOCOL_ERROR));
    assert_eq!(stub.count(), 1);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_streams_beyond_the_limit_are_refused_to_be_sent_again() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let mut client = Streams::connect(gateway.address, &[]).await;
    // Uploads that go on.
    for index in 0..257 {
        client.head(2 * index + 1, 0, &post(CHAT)).await;
    }
    assert_eq!(client.ended(2 * 256 + 1).await, Ended::Reset(reason::REFUSED_STREAM));
    let body = chat("chat", "hi").to_string();
    assert!(client.send(kind::DATA, END_STREAM, 1, body.as_bytes()).await);
    assert!(!client.answer(1).await.is_empty(), "the others go on");
    drop(client);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h6_an_expecting_client_is_told_to_go_on_over_http_2() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let mut client = Streams::connect(gateway.address, &[]).await;
    client.head(1, 0, &with(&post(CHAT), &[("expect", "100-continue")])).await;
    let interim = client.next().await.expect("an interim answer");
    assert_eq!((interim.kind, interim.stream, interim.flags), (kind::HEADERS, 1, END_HEADERS));
    assert!(client.send(kind::DATA, END_STREAM, 1, chat("chat", "hi").to_string().as_bytes()).await);
    assert!(String::from_utf8_lossy(&client.answer(1).await).contains("chat.completion"));
    assert_eq!(stub.request(0).await.head.header("expect"), None);
    // Who gets a refusal at once is not told to send what nobody reads.
    let refused = with(&post("/v1/nothing"), &[("expect", "100-continue")]);
    client.head(3, 0, &refused).await;
    assert_error_shape(&client.answer(3).await);
}

#[tokio::test]
async fn h2_an_answer_to_head_has_no_body_over_http_2() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let mut client = Streams::connect(gateway.address, &[]).await;
    let fields =
        [(":method", "HEAD"), (":scheme", "http"), (":path", "/v1/models"), (":authority", "tidegate")];
    client.head(1, END_STREAM, &fields).await;
    assert_eq!(client.answer(1).await, b"");
    goes_on(&mut client, 3).await;
}
