//! Every error that the gateway makes in place of an answer, through both doors and for each kind of request, by one schema
//! (C-062). Of the statuses that OpenAI knows it makes no 401, 403, 415 and 429: there it says what a replica says. 500 is a
//! bug, which no request brings about: `gateway/src/server/tests.rs` makes one.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Answer, Client, Raw, post};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, reply};
use tidegate_tests::recipe::{Base, CHAT, Doors, Way};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Request, Stub, healthy};

/// Checks an error: its status, its type of content, its length, its schema and its code; gives its inside.
#[track_caller]
fn assert_error(answer: &Answer, status: u16, code: Option<&str>, about: &str) -> Value {
    let told = String::from_utf8_lossy(&answer.body);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, "application/json"),
        "{about}: {told}"
    );
    assert_eq!(answer.header("content-length"), answer.body.len().to_string(), "{about}: {told}");
    assert!(!answer.header("x-request-id").is_empty(), "{about}");
    let error = assert_error_shape(&answer.body);
    assert!(code.is_none_or(|code| error["code"] == code), "{about}: {error}");
    error
}

/// Bodies that are no request, and what the error says of them.
const BODIES: &[(&str, &str)] = &[
    ("", "JSON"),
    ("{\"model\":\"chat\"", "JSON"),
    ("{\"model\":\"chat\",\"messages\":[}", "JSON"),
    ("{'model':'chat'}", "JSON"),
    ("[]", "object"),
    ("null", "object"),
    ("{\"messages\":[]}", "model"),
    ("{\"model\":7}", "model"),
    ("{\"model\":1e400}", "model"),
    ("{\"model\":null}", "model"),
    ("{\"model\":true}", "model"),
    ("{\"model\":[\"chat\"]}", "model"),
    ("{\"model\":{\"id\":\"chat\"}}", "model"),
    ("{\"model\":\"chat\",\"stream\":\"yes\"}", "stream"),
];

#[tokio::test]
async fn c_062_what_is_no_request_is_told_so_by_one_schema_through_both_doors() {
    let stub = Stub::start().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub])).set("limits.body", "1MiB")).await;
    let large = "x".repeat((1 << 20) + 1);
    for (gateway, client) in doors.each() {
        let base = Base::of(gateway).await;
        for path in [CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/embeddings"] {
            let send = async |method: Method, headers: &[(&str, &str)], body: &str| {
                client.send(method, path, headers, body.to_owned()).await
            };
            for (body, named) in BODIES {
                let about = format!("{:?} {path} {body:?}", client.version());
                let error = assert_error(&send(Method::POST, &[], body).await, 400, None, &about);
                assert_eq!(error["type"], "invalid_request_error", "{about}");
                assert!(
                    error["message"].as_str().is_some_and(|text| text.contains(named)),
                    "{about}: {error}"
                );
            }
            let unknown = send(Method::POST, &[], "{\"model\":\"no \\\"such\\\"\\n\"}").await;
            let error = assert_error(&unknown, 404, Some("model_not_found"), path);
            assert!(error["message"].as_str().is_some_and(|text| text.contains("no \"such\"")), "{error}");
            for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH] {
                let answer = send(method, &[], "").await;
                assert_error(&answer, 405, Some("method_not_allowed"), path);
                assert_eq!(answer.header("allow"), "POST");
            }
            assert_error(&send(Method::POST, &[], &large).await, 413, Some("request_too_large"), path);
            let good = "{\"model\":\"chat\"}";
            let urgent = [("x-tidegate-priority", "urgent")];
            assert_error(&send(Method::POST, &urgent, good).await, 400, Some("invalid_header"), path);
            let long = "x".repeat(70_000);
            let long = [("x-long", long.as_str())];
            assert_error(&send(Method::POST, &long, good).await, 431, Some("headers_too_large"), path);
        }
        for path in ["/", "/v1", "/v2/chat/completions", "/v1/chat/completions/", "/status", "/v1/models/"] {
            for method in [Method::GET, Method::POST] {
                let answer = client.send(method, path, &[], "{\"model\":\"chat\"}").await;
                assert_error(&answer, 404, Some("unknown_url"), path);
            }
        }
        assert_error(&client.get("/v1/models/nobody").await, 404, Some("model_not_found"), "one model");
        base.closed(gateway).await;
    }
    assert_eq!(stub.count(), 0, "nothing of it reached the replica");
    doors.leave_nothing().await;
}

/// What only a head of HTTP/1.1 can be, sent as bytes.
async fn head(gateway: &Gateway, bytes: &str) -> Answer {
    let mut raw = Raw::connect(gateway.address).await;
    raw.offer(bytes).await;
    let head = raw.head().await.expect("an answer");
    let (body, end) = raw.body(&head).await;
    end.expect("all of it");
    let headers = head.headers.iter().filter_map(|(name, value)| {
        Some((hyper::header::HeaderName::try_from(name).ok()?, value.parse().ok()?))
    });
    Answer { status: head.status(), headers: headers.collect(), body }
}

#[tokio::test]
async fn c_062_a_head_that_is_none_or_comes_too_slowly_is_told_so_by_the_same_schema() {
    let stub = Stub::start().await;
    let config = Config::of(Deployment::chat([&stub])).set("limits.header_read", "200ms");
    let gateway = Gateway::start(config).await;
    let long = "x".repeat(66_000);
    let heads = [
        (408, "request_timeout", "POST /v1/chat/comp".to_owned()),
        (408, "request_timeout", post(CHAT, &["content-length: 2"]).trim_end().to_owned()),
        (414, "url_too_long", post(&format!("{CHAT}?{long}"), &[])),
        (431, "headers_too_large", post(CHAT, &[&format!("x-long: {long}")])),
        (501, "unknown_transfer_encoding", post(CHAT, &["transfer-encoding: gzip, chunked"])),
        (400, "invalid_request", post(CHAT, &["transfer-encoding: gzip"])),
        (400, "invalid_request", post(CHAT, &["content-length: 2", "content-length: 3"])),
        (400, "invalid_request", post(CHAT, &["no colon"])),
        (400, "invalid_request", "NO HTTP\r\n\r\n".to_owned()),
        (400, "invalid_request", post(CHAT, &["transfer-encoding: chunked"]) + "zz\r\n"),
        (400, "invalid_request", post(CHAT, &["host: another"])),
    ];
    for (status, code, bytes) in heads {
        let about: String = bytes.chars().take(120).collect();
        assert_error(&head(&gateway, &bytes).await, status, Some(code), &about);
    }
    assert_eq!(stub.count(), 0);
    gateway.leaves_nothing().await;
}

/// A replica that does what the text of a request says.
fn scripted(request: &Request) -> Script {
    let body = request.json().to_string();
    match () {
        () if body.contains("breaks") => Script::new().raw("no HTTP at all\r\n\r\n").close(),
        () if body.contains("silent") => Script::new().stall(),
        () => reply(request),
    }
}

/// Replicas that fail in each way for which the gateway answers in their place.
async fn troubles() -> ([Stub; 4], Config) {
    let [well, dead, other] = [Stub::with(scripted).await, Stub::start().await, Stub::start().await];
    let full = Stub::with(|_| Script::new().stall()).await;
    dead.kill().await;
    other.on_probe(|request| match request.path() {
        "/v1/models" => Script::json(200, &json!({"object": "list", "data": [{"id": "llama"}]})),
        _ => healthy(request),
    });
    let named = |name: &str, stub: &Stub| {
        Deployment::named(name).set("model", "chat").replica(&stub.url(), 1).set("queue.headroom", "100ms")
    };
    let config = Config::of(Deployment::chat([&well]))
        .and(named("dead", &dead))
        .and(named("other", &other))
        .and(named("full", &full).set("concurrency_limit", 1).set("queue.requests", 0))
        .and(named("slow", &full).set("concurrency_limit", 1))
        .set("limits.first_byte", "300ms");
    ([well, dead, other, full], config)
}

/// Asks for another model, or with another text, by each way; each answer must be that error.
async fn each(client: Client, model: &str, text: &str, status: u16, codes: &[&str]) {
    for way in Way::all(client) {
        let mut body = way.body(text);
        body["model"] = model.into();
        let answer = way.client.post(way.path, &body).await;
        let about = format!("{way}, {model}, {text}");
        let error = assert_error(&answer, status, None, &about);
        assert!(codes.iter().any(|code| error["code"] == *code), "{about}: {error}");
        assert_eq!(status == 503, !answer.header("retry-after").is_empty(), "{about}: when to come again");
    }
}

#[tokio::test]
async fn c_062_what_is_said_in_a_replicas_place_is_of_the_same_schema_through_both_doors() {
    let (stubs, config) = troubles().await;
    let doors = Doors::launch(config.clone()).await;
    for (gateway, client) in doors.each() {
        gateway.ready_replicas(3).await;
        each(client, "chat", "breaks", 502, &["bad_gateway"]).await;
        each(client, "chat", "silent", 504, &["gateway_timeout"]).await;
        each(client, "dead", "hi", 503, &["unreachable", "waited_too_long", "would_wait_too_long"]).await;
        each(client, "other", "hi", 503, &["other_model", "waited_too_long", "would_wait_too_long"]).await;
        gateway.assert_idle().await;
        let metrics = gateway.metrics().await;
        let counted =
            ["502", "503", "504"].map(|status| metrics.total(metric::REQUESTS, &[("status", status)]));
        assert_eq!(counted, [5.0, 10.0, 5.0]);
    }
    doors.leave_nothing().await;

    // Places that stay taken: nothing ends them but their client.
    let doors = Doors::launch(config.set("limits.first_byte", "10m")).await;
    for (gateway, client) in doors.each() {
        gateway.ready_replicas(3).await;
        let taken = |model: &'static str| {
            let way = Way::all(client)[0];
            let mut body = way.body("stays");
            body["model"] = model.into();
            tokio::spawn(async move { way.client.post(way.path, &body).await })
        };
        let busy = [taken("full"), taken("slow")];
        gateway.in_flight(2).await;
        each(client, "full", "hi", 503, &["queue_full"]).await;
        each(client, "slow", "hi", 503, &["waited_too_long", "would_wait_too_long"]).await;
        busy.iter().for_each(tokio::task::JoinHandle::abort);
        gateway.until_metric(metric::REQUESTS, &[("status", "499")], 2.0).await;
    }
    doors.leave_nothing().await;
    assert_eq!(stubs.each_ref().map(|stub| stub.see(|log| log.running())), [0; 4]);
}

#[tokio::test]
async fn c_062_of_keys_media_and_rates_the_gateway_says_what_the_replica_says() {
    let stub = Stub::start().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    let words =
        json!({"error": {"message": "no", "type": "its_own", "param": null, "code": "its_own"}}).to_string();
    for status in [401_u16, 403, 415, 429] {
        let said = words.clone();
        stub.on_work(move |_| {
            Script::answer(status, &["content-type: application/json", "retry-after: 3"], &said)
        });
        for (_, client) in doors.each() {
            for way in Way::all(client) {
                let answer = way.ask("hi").await;
                assert_eq!((answer.status, &answer.body[..]), (status, words.as_bytes()), "{way}");
                assert_eq!(answer.header("retry-after"), "3", "{way}");
                assert_error(&answer, status, Some("its_own"), &way.to_string());
            }
        }
    }
    doors.leave_nothing().await;
}
