//! Streams are relayed as they come (H3, C-011): headers at once, event by event, byte for byte; and what the client
//! sees when a replica dies in the middle (C-087). What one reports in its stream is in `midway`.

use tidegate_shared::names::metric;
use tidegate_tests::client::Raw;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::{Gateway, sum};
use tidegate_tests::openai::{assert_error_shape, chat_stream, delta};
use tidegate_tests::recipe::{Base, Doors, Way, everywhere};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Stub};
use tidegate_tests::wire::Wire;
use tokio::net::TcpStream;

use crate::{CHAT, serve};

/// Whether an answer over HTTP/2 ends properly; one that is cut may lose what was on its way.
async fn ends_well(gateway: &Gateway) -> bool {
    let stream = gateway.h2().stream(CHAT, &chat_stream("chat", "hi")).await;
    assert_eq!(stream.status, 200);
    stream.end().await
}

/// Streams one chat over a raw socket; returns the body's bytes and whether it ended properly.
async fn streamed(gateway: &Gateway) -> (String, bool) {
    let mut raw = Raw::posted(gateway.address, CHAT, &chat_stream("chat", "hi").to_string()).await;
    let head = raw.head().await.expect("a head");
    assert_eq!(head.status(), 200);
    let (body, end) = raw.body(&head).await;
    (String::from_utf8(body.to_vec()).expect("text"), end.is_ok())
}

#[tokio::test]
async fn c_011_headers_and_each_event_are_relayed_when_they_come() {
    let gate = Gate::closed();
    let mut script = Script::sse();
    for index in 0..20 {
        script = script.wait(&gate).event(&delta(&index.to_string()));
    }
    let script = script.wait(&gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    for (_, client) in doors.each() {
        for way in Way::streams(client) {
            let mut stream = way.open("hi", &[]).await;
            assert_eq!((stream.status, stream.header("content-type")), (200, "text/event-stream"));
            assert_eq!(stream.header("x-accel-buffering"), "no");
            assert!(stream.header("cache-control").contains("no-cache"), "{way}: {:?}", stream.headers);
            // The next event is not even written before this one was seen.
            for index in 0..20 {
                gate.pass();
                let event = format!("data: {}\n\n", delta(&index.to_string()));
                assert_eq!(stream.event().await, Some(event), "{way}");
            }
            gate.pass();
            assert_eq!(stream.event().await.as_deref(), Some("data: [DONE]\n\n"));
            assert_eq!(stream.event().await, None);
        }
    }
    doors.leave_nothing().await;
}

#[tokio::test]
async fn h3_stream_bytes_survive_however_they_are_cut() {
    let bytes = ": hello\n\nid: 7\nevent: note\nretry: 10\ndata: {\"a\":\ndata: \"é😀\"}\n\ndata:{\"b\":1}\r\n\r\n\
                 : ping\n\ndata: \n\ndata: [DONE]\n\n";
    let dribble = bytes.as_bytes().iter().fold(Script::sse(), |script, byte| script.chunk([*byte])).end();
    let whole = Script::sse().chunk(bytes).end();
    let by_close =
        Script::new().raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").raw(bytes).close();
    let sized = Script::answer(200, &["content-type: text/event-stream"], bytes);
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for script in [dribble, whole, by_close, sized] {
        stub.on_work(move |_| script.clone());
        assert_eq!(streamed(&gateway).await, (bytes.to_owned(), true));
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_083_a_quiet_stream_gets_nothing_but_comments() {
    let gate = Gate::closed();
    let script =
        Script::sse().event(&delta("a")).chunk("data: {\"half\"").wait(&gate).chunk(":1}\n\n").done();
    let stub = Stub::with(move |_| script.clone()).await;
    let gateway = serve(&[&stub]).await;
    let mut stream = gateway.chat(&chat_stream("chat", "hi")).await;
    stream.event().await.expect("an event");
    gate.pass();
    let mut rest = Vec::new();
    while let Some(event) = stream.event().await {
        rest.push(event);
    }
    rest.retain(|event| !event.lines().all(|line| line.is_empty() || line.starts_with(':')));
    assert_eq!(rest, ["data: {\"half\":1}\n\n", "data: [DONE]\n\n"]);
}

/// Forty streams are with four replicas, ten each to within one, and the gateway says of each what it has.
async fn assert_spread(gateway: &Gateway, stubs: &[Stub], when: &str) {
    gateway.in_flight(40).await;
    let (metrics, status) = (gateway.metrics().await, gateway.status().await);
    for (index, stub) in stubs.iter().enumerate() {
        let (name, running) = (format!("chat-{}", index + 1), stub.running());
        assert!((9..=11).contains(&running), "{when}: {running} at {name}");
        let labels = [("deployment", "chat"), ("replica", name.as_str())];
        assert_eq!(metrics.total(metric::IN_FLIGHT, &labels), running as f64, "{when}: {name}");
        let told = &status["deployments"][0]["replicas"][index];
        assert_eq!((&told["id"], &told["in_flight"]), (&name.into(), &running.into()), "{when}: {told}");
    }
    assert_eq!(sum(&status, "in_flight"), Some(40.0), "{when}");
}

#[tokio::test]
async fn c_044_a_stream_counts_until_its_last_byte() {
    let mut stubs = Vec::new();
    for _ in 0..4 {
        stubs.push(Stub::start().await);
    }
    let doors = Doors::start(Config::of(Deployment::chat(&stubs))).await;
    for (gateway, client) in doors.each() {
        let (first, last) = (Gate::closed(), Gate::closed());
        let script = Script::sse().wait(&first).event(&delta("a")).wait(&last).done();
        for stub in &stubs {
            let script = script.clone();
            stub.on_work(move |_| script.clone());
        }
        let base = Base::of(gateway).await;
        let mut streams = Vec::new();
        for index in 0..40 {
            let way = Way::streams(client)[index % 2];
            streams.push(way.open(&format!("conversation {index}"), &[]).await);
        }
        assert_spread(gateway, &stubs, "the heads are there").await;
        first.open();
        for stream in &mut streams {
            stream.event().await.expect("an event");
        }
        assert_spread(gateway, &stubs, "all but the last bytes are there").await;
        last.open();
        for stream in streams {
            assert!(stream.whole().await.body.ends_with(b"data: [DONE]\n\n"));
        }
        base.closed(gateway).await;
    }
    doors.leave_nothing().await;
}

#[tokio::test]
async fn c_087_a_replica_that_dies_between_two_events_ends_in_a_visible_error() {
    let stub = Stub::start().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    for (gateway, client) in doors.each() {
        let before = stub.count();
        for (death, way) in [Script::reset, Script::close].into_iter().zip(Way::streams(client)) {
            // The death comes after the client has seen the events: a reset may overtake what is still on its way.
            let gate = Gate::closed();
            let dies = death(Script::sse().event(&delta("a")).event(&delta("b")).wait(&gate));
            stub.on_work(move |_| dies.clone());
            let mut stream = way.open("hi", &[]).await;
            for text in ["a", "b"] {
                assert_eq!(stream.event().await, Some(format!("data: {}\n\n", delta(text))));
            }
            gate.pass();
            let error = stream.event().await.expect("an error event");
            let data = error.strip_prefix("data: ").expect("a data event of one line");
            assert_error_shape(data.trim_end().as_bytes());
            let rest = stream.event().await;
            assert!(rest.is_none(), "the stream ends behind the error: {rest:?}");
        }
        gateway.assert_idle().await;
        assert_eq!(stub.count() - before, 2, "no second try after the first byte");
        gateway.until_metric(metric::UPSTREAM_ERRORS, &[], 2.0).await;
    }
    doors.leave_nothing().await;
}

#[tokio::test]
async fn c_087_a_replica_that_dies_inside_an_event_aborts_the_transfer() {
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"x";
    let wanted = format!("data: {}\n\n{half}", delta("a"));
    let stub = Stub::start().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    for death in [Script::reset, Script::close] {
        for way in doors.each().map(|(_, client)| Way::streams(client)).concat() {
            let gate = Gate::closed();
            let dies = death(Script::sse().event(&delta("a")).chunk(half).wait(&gate));
            stub.on_work(move |_| dies.clone());
            let mut stream = way.open("hi", &[]).await;
            assert_eq!(stream.status, 200, "{way}");
            // The death comes when all of this has arrived: a reset may overtake what is still on its way.
            stream.begins(&wanted).await;
            gate.pass();
            let seen = stream.cut().await;
            assert_eq!(String::from_utf8_lossy(&seen), wanted, "no text of the gateway inside an event");
            assert_eq!(stub.ended(stub.count() - 1).await, End::Cut);
        }
    }
    doors.leave_nothing().await;
    assert_eq!(stub.count(), 8, "no second try after the first byte");
}

#[tokio::test]
async fn c_087_no_half_of_an_error_fills_up_a_length_that_was_told() {
    let body = format!("data: {}\n\n", delta("a"));
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for missing in [1, 11] {
        let length = body.len() + missing;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n");
        let script = Script::new().raw(head).raw(body.clone()).close();
        stub.on_work(move |_| script.clone());
        assert_eq!(streamed(&gateway).await, (body.clone(), false), "{missing}");
        assert!(!ends_well(&gateway).await, "{missing} over HTTP/2");
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_087_an_answer_that_ends_by_close_inside_an_event_is_cut_for_the_client() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let torn = format!("data: {}\n\ndata: {{\"choices\":[{{\"delta\":", delta("a"));
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    for (body, whole) in [(torn.clone(), false), (torn + "1}]}\n", false), (": ping\n".into(), true)] {
        let script = Script::new().raw(head).raw(body.clone()).close();
        stub.on_work(move |_| script.clone());
        assert_eq!(streamed(&gateway).await, (body, whole));
        assert_eq!(ends_well(&gateway).await, whole, "over HTTP/2");
    }
    gateway.assert_idle().await;
    gateway.until_metric(metric::UPSTREAM_ERRORS, &[("deployment", "chat")], 4.0).await;
}

#[tokio::test]
async fn c_087_a_sized_answer_that_is_cut_is_cut_for_the_client() {
    let gate = Gate::closed();
    let script = Script::new()
        .raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"a\":")
        .wait(&gate)
        .close();
    let stub = Stub::with(move |_| script.clone()).await;
    let gateway = serve(&[&stub]).await;
    let mut raw = Raw::posted(gateway.address, CHAT, &chat_stream("chat", "hi").to_string()).await;
    let head = raw.head().await.expect("a head");
    gate.pass();
    let (body, end) = raw.body(&head).await;
    assert_eq!((&body[..], end.is_err()), (&b"{\"a\":"[..], true));
    gateway.assert_idle().await;
}

#[tokio::test]
async fn shutdown_finishes_running_streams() {
    let gate = Gate::closed();
    let script = Script::sse().event(&delta("a")).wait(&gate).event(&delta("b")).done();
    let stub = Stub::with(move |_| script.clone()).await;
    let mut gateway = serve(&[&stub]).await;
    let mut stream = gateway.chat(&chat_stream("chat", "hi")).await;
    stream.event().await.expect("an event");
    gateway.terminate();
    eventually("it takes no new work", async || {
        let Ok(socket) = TcpStream::connect(gateway.address).await else { return Ok(()) };
        let mut wire = Wire::new(socket);
        let asked = wire.send(b"GET /readyz HTTP/1.1\r\nhost: tidegate\r\n\r\n").await;
        match wire.head().await {
            Ok(Some(head)) if asked.is_ok() && head.status() == 200 => Err(head.start),
            _ => Ok(()),
        }
    })
    .await;
    gate.pass();
    let rest = stream.whole().await;
    assert_eq!(rest.body, format!("data: {}\n\ndata: [DONE]\n\n", delta("b")));
    assert!(gateway.ended().await.success());
    assert_eq!(stub.ended(0).await, End::Answered);
}

#[tokio::test]
async fn c_032_a_stream_that_is_refused_before_it_begins_keeps_its_status() {
    let stub = Stub::start().await;
    let body = "{\"object\":\"error\", \"message\" : \"no\",\"code\":40000 }\n";
    everywhere(Config::of(Deployment::chat([&stub])), async |_, way| {
        for status in [400_u16, 401, 404, 413, 422, 429, 500, 503] {
            // Engines answer with the id that they were sent.
            stub.on_work(move |request| {
                let id = format!("x-request-id: {}", request.head.header("x-request-id").unwrap_or("none"));
                let headers =
                    ["content-type: application/json", "retry-after: 7", "x-engine: e", id.as_str()];
                Script::answer(status, &headers, body)
            });
            let id = format!("{status} {}", way.path);
            // That it ends properly and that a length which is told is kept is for the client to see (C-091).
            let answer = way.open("x", &[("x-request-id", &id)]).await.whole().await;
            assert_eq!(answer.status, status, "{way}");
            let names = ["content-type", "retry-after", "x-engine", "x-request-id", "content-length"];
            let length = body.len().to_string();
            let wanted = ["application/json", "7", "e", id.as_str(), length.as_str()];
            assert_eq!(names.map(|name| answer.header(name)), wanted, "{way}");
            assert_eq!(answer.headers.get_all("x-request-id").iter().count(), 1, "{way}");
            assert_eq!(answer.body, body, "{way}");
        }
    })
    .await;
}
