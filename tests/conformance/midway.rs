//! An engine reports an error inside a stream that began with 200 (C-126): its bytes reach the client as a direct call gets
//! them, it counts as one failure and no success, and it is held against its replica once.

use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{delta, reply};
use tidegate_tests::recipe::{Base, Doors, Way};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;

const ERROR: &str = r#"{"error":{"message":"CUDA out of memory","type":"InternalServerError","code":500}}"#;

/// Two deltas and then the error: as an event, as one with a name, as a line without `data:`, and as one without an end,
/// each followed by the end of the chunks or by that of the connection.
fn endings() -> Vec<Script> {
    let told = [
        format!("data: {ERROR}\n\n"),
        format!("event: error\ndata: {ERROR}\n\n"),
        format!("{ERROR}\n"),
        ERROR.to_owned(),
    ];
    let chunked = || Script::sse().event(&delta("a")).event(&delta("b"));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let bare = || Script::new().raw(head).raw(format!("data: {}\n\ndata: {}\n\n", delta("a"), delta("b")));
    let each = told.into_iter().flat_map(|told| [chunked().chunk(&told).end(), bare().raw(told).close()]);
    each.collect()
}

/// Requests of a gateway so far: those that a replica failed, those that failed after they had begun, and those that
/// succeeded.
async fn counts(gateway: &Gateway) -> [f64; 3] {
    let metrics = gateway.metrics().await;
    let ended = |outcome| [("deployment", "chat"), ("status", "200"), ("outcome", outcome)];
    [
        metrics.total(metric::UPSTREAM_ERRORS, &[("deployment", "chat")]),
        metrics.total(metric::REQUESTS, &ended("failed_midway")),
        metrics.total(metric::REQUESTS, &ended("complete")),
    ]
}

#[tokio::test]
async fn c_126_an_error_inside_a_stream_passes_unchanged_and_is_a_failure_and_no_success() {
    let stub = Stub::start().await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    for (gateway, client) in doors.each() {
        let (mut failed, mut good) = (0.0, 0.0);
        let mut base = None;
        for way in [Way::streams(client), Way::streams(client)].concat() {
            assert_eq!(way.ask("good").await.status, 200);
            good += 1.0;
            for ending in endings() {
                stub.on_work(move |_| ending.clone());
                let direct = Client::h1(stub.address()).post(way.path, &way.body("hi")).await;
                let through = way.ask("hi").await;
                assert_eq!((through.status, &through.body), (200, &direct.body), "{way}");
                assert_eq!(through.header("content-type"), "text/event-stream", "{way}");
                failed += 1.0;
                // A request is counted when all of it is over, which is after its last byte.
                let wanted = [failed, failed, good];
                eventually(&format!("one failure more, and no success: {way}"), async || {
                    match counts(gateway).await {
                        counted if counted == wanted => Ok(()),
                        counted => Err(format!("{counted:?}, not {wanted:?}")),
                    }
                })
                .await;
            }
            stub.on_work(reply);
            base.get_or_insert(Base::of(gateway).await);
        }
        base.expect("a base").restored(gateway).await;
    }
    doors.leave_nothing().await;
}

#[tokio::test]
async fn c_126_each_event_before_the_error_comes_when_it_is_sent() {
    let gate = Gate::closed();
    let script =
        Script::sse().event(&delta("a")).wait(&gate).event(&delta("b")).wait(&gate).event(ERROR).end();
    let stub = Stub::with(move |_| script.clone()).await;
    let doors = Doors::start(Config::of(Deployment::chat([&stub]))).await;
    for (_, client) in doors.each() {
        for way in Way::streams(client) {
            let mut stream = way.open("hi", &[]).await;
            for data in [&delta("a"), &delta("b"), ERROR] {
                assert_eq!(stream.event().await, Some(format!("data: {data}\n\n")), "{way}");
                gate.pass();
            }
            assert_eq!(stream.event().await, None, "and nothing of the gateway's behind it: {way}");
            // The last pass was for nobody.
            gate.passed().await;
        }
    }
    doors.leave_nothing().await;
}

/// Names of the replicas that are ejected.
async fn ejected(gateway: &Gateway) -> Vec<String> {
    let status = gateway.status().await;
    let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
    let out = replicas.iter().filter(|replica| !replica["ejected"].is_null());
    out.map(|replica| replica["id"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn c_126_a_stream_that_ends_in_an_error_is_held_against_its_replica_once() {
    let reset = Script::sse().event(&delta("a")).reset();
    let ends = [&endings()[..4], &[reset]].concat();
    let stubs = [Stub::start().await, Stub::start().await];
    for path in 0..2 {
        stubs.iter().for_each(|stub| stub.on_work(reply));
        let doors = Doors::start(Config::of(Deployment::chat(&stubs))).await;
        for (gateway, client) in doors.each() {
            let way = Way::streams(client)[path];
            let ask = async || way.open("hi", &[("x-conversation-id", "one")]).await;
            let first = ask().await;
            let home = first.header("x-tidegate-replica").to_owned();
            assert_eq!(first.status, 200);
            first.whole().await;
            let stub = &stubs[usize::from(home == "chat-2")];
            for (index, end) in ends.iter().enumerate() {
                assert_eq!(ejected(gateway).await, Vec::<String>::new(), "after {index}: {way}");
                let end = end.clone();
                stub.on_work(move |_| end.clone());
                let stream = ask().await;
                assert_eq!((stream.status, stream.header("x-tidegate-replica")), (200, home.as_str()));
                stream.whole().await;
                gateway.until_metric(metric::UPSTREAM_ERRORS, &[], (index + 1) as f64).await;
            }
            gateway.assert_idle().await;
            assert_eq!(ejected(gateway).await, [home], "five faults, not ten: {way}");
            gateway.until_metric(metric::EJECTIONS, &[("reason", "midway")], 1.0).await;
            stub.on_work(reply);
        }
        doors.leave_nothing().await;
    }
}
