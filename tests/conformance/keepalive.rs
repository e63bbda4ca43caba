//! Comments for a client that waits for a stream and asks for them (Q3, C-083): while its model loads, in the line, while
//! the replica thinks, and between two events; never inside one, and never unasked.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Client, Stream};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, chat_stream, delta, reply};
use tidegate_tests::recipe::Doors;
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::sdk;
use tidegate_tests::stub::{End, Request, Stub, healthy};
use tidegate_tests::tap::Tap;

use crate::{CHAT, serve};

const COMMENT: &str = ": keep-alive\n\n";
const HALF: &str = "data: {\"choices\":[{\"index\":0,\"delta\":";

/// Asks for a stream with a comment after each second of silence; gives the head and the rest.
async fn ask(client: Client) -> Stream {
    let headers = [("x-tidegate-keepalive", "1"), ("accept-encoding", "gzip")];
    client.open(Method::POST, CHAT, &headers, chat_stream("chat", "quiet").to_string()).await
}

fn loading(request: &Request) -> Script {
    match request.path() {
        "/health" => Script::json(503, &json!({"error": {"message": "Loading model"}})),
        _ => healthy(request),
    }
}

/// A gateway over a stub whose model loads until it is told otherwise.
async fn cold(stub: &Stub, headroom: &str) -> Gateway {
    stub.on_probe(loading);
    let deployment = Deployment::chat([stub]).set("queue.headroom", headroom);
    Gateway::launch(Config::of(deployment)).await
}

/// The next event behind any number of comments.
async fn event(stream: &mut Stream) -> Option<String> {
    loop {
        match stream.event().await {
            Some(event) if event == COMMENT => {}
            other => return other,
        }
    }
}

/// A stub that is silent before its head, between two events, and inside one.
async fn silent() -> (Stub, [Gate; 3]) {
    let gates = [Gate::closed(), Gate::closed(), Gate::closed()];
    let [head, between, inside] = &gates;
    let script = Script::new().wait(head).then(Script::sse()).event(&delta("quiet")).wait(between);
    let script = script.chunk(HALF).wait(inside).chunk("{\"content\":\" at last\"}}]}\n\n").done();
    (Stub::with(move |_| script.clone()).await, gates)
}

#[tokio::test]
async fn q3_a_stream_that_waits_for_its_model_hears_comments_and_then_the_answer() {
    for client in [Client::h1, Client::h2] {
        let stub = Stub::start().await;
        let gateway = cold(&stub, "5m").await;
        let mut stream = ask(client(gateway.address)).await;
        assert_eq!((stream.status, stream.header("content-type")), (200, "text/event-stream"));
        assert_eq!((stream.header("x-accel-buffering"), stream.header("cache-control")), ("no", "no-cache"));
        assert!(!stream.header("x-request-id").is_empty());
        for _ in 0..2 {
            assert_eq!(stream.event().await.as_deref(), Some(COMMENT));
        }
        gateway.queued(1).await;
        stub.on_probe(healthy);
        for text in ["Hel", "lo"] {
            assert_eq!(event(&mut stream).await, Some(format!("data: {}\n\n", delta(text))));
        }
        assert_eq!(event(&mut stream).await.as_deref(), Some("data: [DONE]\n\n"));
        assert_eq!(event(&mut stream).await, None);
        let seen = stub.request(0).await.head;
        for name in ["x-tidegate-keepalive", "accept-encoding"] {
            assert_eq!(seen.header(name), None, "{name} is not for the replica");
        }
        gateway.assert_idle().await;
        gateway.until_metric(metric::REQUESTS, &[("deployment", "chat"), ("status", "200")], 1.0).await;
    }
}

#[tokio::test]
async fn c_083_comments_stand_between_events_and_never_inside_one() {
    let (stub, [head, between, inside]) = silent().await;
    let gateway = serve(&[&stub]).await;
    let mut stream = ask(gateway.client()).await;
    assert_eq!(stream.event().await.as_deref(), Some(COMMENT), "before the head");
    head.pass();
    assert_eq!(event(&mut stream).await, Some(format!("data: {}\n\n", delta("quiet"))));
    assert_eq!(stream.event().await.as_deref(), Some(COMMENT), "between two events");
    between.pass();
    // Half an event is there now. Another stream that began later hears comments: more than a second passes.
    let mut clock = ask(gateway.client()).await;
    for _ in 0..2 {
        assert_eq!(clock.event().await.as_deref(), Some(COMMENT));
    }
    inside.pass();
    let whole = format!("{HALF}{{\"content\":\" at last\"}}}}]}}\n\n");
    assert_eq!(event(&mut stream).await, Some(whole), "one piece, nothing inside it");
    assert_eq!(event(&mut stream).await.as_deref(), Some("data: [DONE]\n\n"));
    assert_eq!(event(&mut stream).await, None);
    drop(clock);
    gateway.assert_idle().await;
}

/// Comments in `heard` behind the last byte that is none.
fn in_silence(heard: &str) -> usize {
    let behind = heard.rfind("data: ").map_or(0, |at| at);
    heard[behind..].matches(COMMENT).count()
}

/// The stream of `silent` with nothing but comments beside it, each between two events.
fn assert_only_comments(body: &str, about: &str) {
    let events: Vec<&str> = body.split_inclusive("\n\n").filter(|event| *event != COMMENT).collect();
    let first = format!("data: {}\n\n", delta("quiet"));
    let second = format!("{HALF}{{\"content\":\" at last\"}}}}]}}\n\n");
    assert_eq!(events, [first.as_str(), second.as_str(), "data: [DONE]\n\n"], "{about}");
    assert!(body.matches(COMMENT).count() >= 6, "{about}: {body}");
}

#[tokio::test]
async fn c_083_both_sdks_read_a_stream_with_three_comments_and_more_in_each_of_its_silences() {
    if sdk::python_folder().is_none() {
        return;
    }
    let (stub, [head, between, inside]) = silent().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    let [(clear, _), (_, h2)] = doors.each();
    let taps = [Tap::on(clear.address).await, Tap::on(clear.address).await];
    let urls = taps.each_ref().map(|tap| format!("http://{}/v1", tap.address()));
    let (python, node) = ([urls[0].as_str()], [urls[1].as_str()]);
    let told = async { tokio::join!(sdk::python("quiet.py", &python), sdk::node("quiet.mjs", &node)) };
    // Beside them one that speaks HTTP/2 inside TLS. What it hears is read to the end behind the last gate.
    let silences = async {
        let mut stream = ask(h2).await;
        let mut heard = String::new();
        stub.until("all three are there", |log| (log.running() == 3).then_some(())).await;
        for gate in [head, between] {
            for tap in &taps {
                tap.until("three comments", |heard| in_silence(heard) >= 3).await;
            }
            while in_silence(&heard) < 3 {
                heard += &stream.event().await.expect("a comment");
            }
            gate.open();
            let begun = taps.each_ref().map(|tap| tap.until("what follows", |heard| in_silence(heard) == 0));
            futures_util::future::join_all(begun).await;
            if !heard.contains("data: ") {
                heard += &event(&mut stream).await.expect("an event");
            }
        }
        // Inside an event nothing can be heard: a third stream, at another replica, hears three comments meanwhile.
        let slow = Stub::with(|_| Script::new().stall()).await;
        let clock = serve(&[&slow]).await;
        let mut clock = ask(clock.client()).await;
        for _ in 0..3 {
            assert_eq!(clock.event().await.as_deref(), Some(COMMENT));
        }
        inside.open();
        heard + std::str::from_utf8(&stream.whole().await.body).expect("text")
    };
    let ((python, node), heard) = tokio::join!(told, silences);
    for told in [python, node].into_iter().flatten() {
        assert_eq!(told, json!({"text": "quiet at last"}));
    }
    assert_only_comments(&heard, "HTTP/2 inside TLS");
    for (tap, name) in taps.iter().zip(["Python", "Node"]) {
        assert_only_comments(&tap.chunked(), name);
    }
    doors.leave_nothing().await;
}

#[tokio::test]
async fn q3_a_refusal_keeps_its_status_before_the_first_comment_and_is_an_event_after_it() {
    let stub = Stub::start().await;
    let gateway = cold(&stub, "200ms").await;
    let early = ask(gateway.client()).await.whole().await;
    assert_eq!((early.status, early.header("retry-after").is_empty()), (503, false));
    assert_error_shape(&early.body);

    let gateway = cold(&stub, "1500ms").await;
    let mut late = ask(gateway.client()).await;
    assert_eq!((late.status, late.event().await.as_deref()), (200, Some(COMMENT)));
    let error = event(&mut late).await.expect("an event");
    let data = error.strip_prefix("data: ").expect("a data event of one line");
    let error = assert_error_shape(data.trim_end().as_bytes());
    assert!(error["message"].as_str().is_some_and(|text| text.contains("try again in")), "{error}");
    assert_eq!(late.event().await, None, "the stream ends behind it, and properly");
    gateway.until_metric(metric::REQUESTS, &[("status", "503")], 1.0).await;
    let status = gateway.access_line("its line", |line| line["status"].as_u64()).await;
    assert_eq!(status, 503, "the log tells what became of it");
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_083_an_answer_that_is_no_stream_becomes_one_event_behind_comments() {
    let gate = Gate::closed();
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let pretty =
        "{\n  \"error\": {\"message\": \"no\", \"type\": \"t\", \"param\": null, \"code\": null}\n}\n";
    let refuses = Script::answer(400, &["content-type: application/json"], pretty);
    let zipped = Script::answer(200, &["content-type: text/event-stream", "content-encoding: gzip"], "?");
    for (script, code) in [(refuses, Value::Null), (zipped, "bad_gateway".into())] {
        let script = Script::new().wait(&gate).then(script);
        stub.on_work(move |_| script.clone());
        let mut stream = ask(gateway.client()).await;
        assert_eq!((stream.status, stream.event().await.as_deref()), (200, Some(COMMENT)));
        gate.pass();
        let told = event(&mut stream).await.expect("an event");
        let data: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(assert_error_shape(data.join("\n").as_bytes())["code"], code, "{told}");
        assert_eq!(stream.event().await, None);
    }
    gateway.assert_idle().await;
}

#[tokio::test]
async fn h7_a_client_that_leaves_between_comments_frees_what_it_had() {
    let stub = Stub::with(|_| Script::new().stall()).await;
    let deployment = Deployment::chat([&stub]).set("concurrency_limit", 1).set("queue.headroom", "5m");
    let gateway = Gateway::start(Config::of(deployment)).await;
    for client in [Client::h1, Client::h2] {
        let (mut first, asked) = (ask(client(gateway.address)).await, stub.count());
        assert_eq!(first.event().await.as_deref(), Some(COMMENT));
        let mut second = ask(client(gateway.address)).await;
        assert_eq!(second.event().await.as_deref(), Some(COMMENT));
        gateway.queued(1).await;
        drop(second);
        gateway.queued(0).await;
        drop(first);
        gateway.assert_idle().await;
        assert_eq!(stub.count(), asked, "who left the line was never sent");
        assert_eq!(stub.ended(asked - 1).await, End::PeerLeft);
    }
    gateway.until_metric(metric::REQUESTS, &[("status", "499")], 4.0).await;
}

#[tokio::test]
async fn c_083_comments_are_for_streams_that_ask_for_them_rightly() {
    let stub = Stub::start().await;
    let gateway = serve(&[&stub]).await;
    let wrong = [("x-tidegate-keepalive", "soon")];
    let refused = gateway.client().post_with(CHAT, &wrong, &chat_stream("chat", "hi")).await;
    assert_eq!(refused.status, 400);
    let message = assert_error_shape(&refused.body)["message"].to_string();
    assert!(message.contains("soon") && message.contains("1 to 300"), "{message}");
    let twice = [("x-tidegate-keepalive", "1"), ("x-tidegate-keepalive", "2")];
    for client in [gateway.client(), gateway.h2()] {
        let refused = client.post_with(CHAT, &twice, &chat_stream("chat", "hi")).await;
        let error = assert_error_shape(&refused.body);
        assert_eq!((refused.status, &error["param"]), (400, &json!("x-tidegate-keepalive")));
    }
    assert_eq!(stub.count(), 0);
    // Whole answers and those that come at once are as ever.
    let asked = [("x-tidegate-keepalive", "1")];
    let whole = gateway.client().post_with(CHAT, &asked, &chat("chat", "hi")).await;
    assert_eq!((whole.status, whole.header("content-type")), (200, "application/json"));
    let quick = gateway.client().post_with(CHAT, &asked, &chat_stream("chat", "hi")).await;
    let plain = gateway.client().post(CHAT, &chat_stream("chat", "hi")).await;
    assert_eq!((quick.status, &quick.body), (200, &plain.body), "no silence, no comment");
    assert_eq!(quick.header("x-tidegate-replica"), "chat-1");
    stub.on_work(|_| Script::json(429, &json!({"error": "slower"})));
    let early = gateway.client().post_with(CHAT, &asked, &chat_stream("chat", "hi")).await;
    assert_eq!((early.status, early.json()), (429, json!({"error": "slower"})));
    stub.on_work(reply);
    gateway.assert_idle().await;
}
