//! Replicas that fail, are full, are late, or are loading again (R5, C-006, C-028, C-032, C-078, C-099):
//! what clients see, who is asked, and who is taken out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidegate_shared::names::metric;
use tidegate_tests::client::{Answer, Raw};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{assert_error_shape, chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{Log, Request, Stub, healthy};
use tokio::task::JoinSet;

use crate::{CHAT, serve};

/// The answer of an engine that is full, as the engine words it.
const FULL: &str = "{\"object\":\"error\",\"message\": \"Model is overloaded\" }\n";

/// Refuses with this status; the engine says when to come again.
fn refusal(status: u16, retry_after: &str) -> Script {
    Script::answer(status, &["content-type: application/json", &format!("retry-after: {retry_after}")], FULL)
}

fn failure() -> Script {
    Script::json(500, &json!({"error": {"message": "CUDA error"}}))
}

async fn ask(gateway: &Gateway, text: &str) -> Answer {
    gateway.client().post(CHAT, &chat("chat", text)).await
}

/// Names of the replicas that are ejected.
async fn ejected(gateway: &Gateway) -> Vec<String> {
    let status = gateway.status().await;
    let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
    let out = replicas.iter().filter(|replica| !replica["ejected"].is_null());
    out.map(|replica| replica["id"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn r5_a_replica_that_answers_with_errors_is_taken_out_and_comes_back_by_one_request() {
    let stubs = [Stub::with(|_| failure()).await, Stub::start().await];
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    let mut failed = 0;
    for index in 0..40 {
        let answer = ask(&gateway, &index.to_string()).await;
        assert!([200, 500].contains(&answer.status), "{:?}", answer.body);
        failed += usize::from(answer.status == 500);
        assert_eq!(answer.header("x-tidegate-replica") == "chat-1", answer.status == 500);
    }
    assert_eq!((failed, stubs[0].count()), (5, 5), "each error is the client's: it may come of the request");
    assert_eq!(ejected(&gateway).await, ["chat-1"]);
    let labels = [("deployment", "chat"), ("reason", "status")];
    gateway.until_metric(metric::EJECTIONS, &labels, 1.0).await;
    let status = gateway.status().await;
    let why = status["deployments"][0]["replicas"][0]["ejected"]["why"].as_str().map(str::to_owned);
    let told = "5 requests in a row failed; the last one was answered with a 5xx status";
    assert_eq!(why.as_deref(), Some(told));
    assert!(gateway.log().contains("chat-1 is taken out for 5 s"), "{}", gateway.log());
    // It is well again; somebody has to find out.
    stubs[0].on_work(reply);
    eventually("it is trusted again", async || {
        assert_eq!(ask(&gateway, "hi").await.status, 200);
        let out = ejected(&gateway).await;
        if out.is_empty() { Ok(()) } else { Err(format!("{out:?}")) }
    })
    .await;
    assert!(stubs[0].count() > 5);
}

#[tokio::test]
async fn r5_the_last_replica_is_never_taken_out() {
    let stub = Stub::with(|_| failure()).await;
    let gateway = serve(&[&stub]).await;
    for index in 0..30 {
        assert_eq!(ask(&gateway, &index.to_string()).await.status, 500, "the replica's own answer");
    }
    assert_eq!((stub.count(), ejected(&gateway).await), (30, vec![]));
}

/// Sends events, one whenever the gate lets one pass.
fn talk(gate: &Gate) -> Script {
    let one = |script: Script| script.wait(gate).event(&delta("a"));
    (0..8).fold(Script::sse().event(&delta("a")), |script, _| one(script)).wait(gate).done()
}

#[tokio::test]
async fn c_006_a_health_check_that_is_late_or_wrong_cuts_nobody_who_delivers_bytes() {
    let (gate, mut stubs) = (Gate::closed(), Vec::new());
    for _ in 0..4 {
        let gate = gate.clone();
        stubs.push(Stub::with(move |_| talk(&gate)).await);
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let mut streams = Vec::new();
    for index in 0..40 {
        let mut stream = gateway.chat(&chat_stream("chat", &index.to_string())).await;
        assert_eq!(stream.status, 200);
        stream.event().await.expect("its first event");
        streams.push(stream);
    }
    assert!(stubs.iter().all(|stub| stub.running() == 10), "ten each");
    // Two do not answer at all, two answer with an error.
    for (index, stub) in stubs.iter().enumerate() {
        stub.on_probe(move |request| match request.path() {
            "/health" if index < 2 => Script::new().stall(),
            "/health" => failure(),
            _ => healthy(request),
        });
    }
    for round in 0..4 {
        let health = |log: &Log| log.probes.iter().filter(|probe| probe.path() == "/health").count();
        let asked = stubs[0].see(health);
        let more = |log: &Log| (health(log) > asked).then_some(());
        stubs[0].until("its health is asked again", more).await;
        (0..40).for_each(|_| gate.pass());
        for stream in &mut streams {
            assert!(stream.event().await.is_some(), "round {round}");
        }
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.total(metric::REPLICAS, &[("phase", "ready")]), 4.0, "round {round}");
    }
    gate.open();
    for stream in streams {
        let rest = stream.whole().await;
        assert!(rest.body.ends_with(b"data: [DONE]\n\n"));
    }
    let metrics = gateway.metrics().await;
    let harm = [metric::RETRIES, metric::UPSTREAM_ERRORS, metric::EJECTIONS, metric::REFUSALS];
    assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 4]);
    let labels = [("deployment", "chat"), ("status", "200")];
    assert_eq!(metrics.total(metric::REQUESTS, &labels), 40.0);
}

#[tokio::test]
async fn c_006_control_no_bytes_and_a_failing_health_check_is_taken_out() {
    let silent = Stub::with(|_| Script::new().stall()).await;
    let gateway = serve(&[&silent]).await;
    let _waits = Raw::posted(gateway.address, CHAT, &chat("chat", "hi").to_string()).await;
    silent.request(0).await;
    silent.on_probe(|_| failure());
    gateway.ready_replicas(0).await;
    silent.on_probe(healthy);
    gateway.ready_replicas(1).await;
}

#[tokio::test]
async fn c_028_who_loads_again_shows_it_to_nobody() {
    let loading = |request: &Request| match request.path() {
        "/health" => Script::json(503, &json!({"error": {"message": "Loading model"}})),
        _ => healthy(request),
    };
    let load = |stub: &Stub| {
        stub.on_probe(loading);
        stub.on_work(|_| Script::json(503, &json!({"error": {"message": "Loading model", "code": 503}})));
    };
    // Others serve meanwhile.
    let stubs = [Stub::start().await, Stub::start().await];
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    load(&stubs[0]);
    for index in 0..20 {
        let answer = ask(&gateway, &index.to_string()).await;
        assert_eq!((answer.status, answer.header("x-tidegate-replica")), (200, "chat-2"));
    }
    assert!(stubs[0].count() <= 1, "it says so once");
    assert_eq!(gateway.metrics().await.total(metric::UPSTREAM_ERRORS, &[]), 0.0, "nobody's fault");
    // Nobody serves meanwhile: requests wait.
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]).set("queue.headroom", "5m"))).await;
    load(&stub);
    let mut clients = Vec::new();
    for index in 0..20 {
        clients.push(Raw::posted(gateway.address, CHAT, &chat("chat", &index.to_string()).to_string()).await);
    }
    gateway.queued(20).await;
    let told = stub.count();
    stub.on_work(reply);
    stub.on_probe(healthy);
    for client in &mut clients {
        assert_eq!(client.head().await.map(|head| head.status()), Some(200));
    }
    assert_eq!(stub.count() - told, 20);
    gateway.assert_idle().await;
}

#[tokio::test]
async fn c_032_who_is_full_is_spared_while_another_has_room_and_heard_when_nobody_has() {
    for status in [429, 503] {
        let stubs = [Stub::with(move |_| refusal(status, "9")).await, Stub::start().await];
        let gateway = serve(&[&stubs[0], &stubs[1]]).await;
        for index in 0..40 {
            let body = if index % 2 == 0 { chat("chat", "hi") } else { chat_stream("chat", "hi") };
            let answer = gateway.client().post(CHAT, &body).await;
            assert_eq!((answer.status, answer.header("x-tidegate-replica")), (200, "chat-2"), "{status}");
        }
        assert!(stubs[0].count() <= 2, "it said when to come again: {}", stubs[0].count());
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.total(metric::RETRIES, &[]), stubs[0].count() as f64);
        let harm = [metric::UPSTREAM_ERRORS, metric::EJECTIONS].map(|name| metrics.total(name, &[]));
        assert_eq!(harm, [0.0; 2], "load is no fault");
        // Now nobody has room: the engine's own words reach the client, and each is asked once.
        stubs[1].on_work(move |_| refusal(status, "7"));
        let asked = [stubs[0].count(), stubs[1].count()];
        for body in [chat_stream("chat", "hi"), chat("chat", "hi")] {
            let mut raw = Raw::posted(gateway.address, CHAT, &body.to_string()).await;
            let head = raw.head().await.expect("a head");
            assert_eq!((head.status(), head.header("content-type")), (status, Some("application/json")));
            let wait = head.header("retry-after").map(str::to_owned);
            assert!(["9", "7"].map(str::to_owned).map(Some).contains(&wait), "{wait:?}");
            assert_eq!(raw.body(&head).await.0, FULL);
        }
        let more = stubs[0].count() + stubs[1].count() - asked[0] - asked[1];
        assert!((2..=4).contains(&more), "at most once each: {more}");
    }
}

#[tokio::test]
async fn r5_beyond_the_budget_failures_are_told_and_not_multiplied() {
    // It is never full for long, so that it is asked again and again.
    let stubs = [Stub::with(|_| refusal(429, "0")).await, Stub::start().await];
    let gateway = serve(&[&stubs[0], &stubs[1]]).await;
    let told = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for worker in 0..8 {
        let (client, told) = (gateway.address, Arc::clone(&told));
        clients.spawn(async move {
            for index in 0..100 {
                let body = chat("chat", &format!("{worker} {index}"));
                let answer = tidegate_tests::client::Client::h1(client).post(CHAT, &body).await;
                match answer.status {
                    200 => {}
                    429 => {
                        assert_eq!((told.fetch_add(1, Ordering::SeqCst), &answer.body[..]).1, FULL.as_bytes())
                    }
                    other => panic!("{other}"),
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client");
    }
    let told = told.load(Ordering::SeqCst);
    let metrics = gateway.metrics().await;
    let (retries, refused) =
        (metrics.total(metric::RETRIES, &[]), metrics.total(metric::RETRIES_REFUSED, &[]));
    assert_eq!(retries + told as f64, stubs[0].count() as f64, "each was tried elsewhere or told");
    assert_eq!(refused, told as f64);
    assert!(told > 0 && retries >= 100.0, "{told} told, {retries} tried again");
    let line = gateway.access_line("a refusal", |line| {
        (line["status"] == 429).then(|| line["trouble"].as_str().unwrap_or_default().to_owned())
    });
    assert!(line.await.contains("sent twice lately"));
}

#[tokio::test]
async fn c_078_a_request_that_kills_engines_does_not_take_the_fleet_down() {
    let deadly = |request: &Request| match request.json()["messages"][0]["content"].as_str() {
        Some("deadly") => Script::new().reset(),
        _ => reply(request),
    };
    let mut stubs = Vec::new();
    for _ in 0..4 {
        stubs.push(Stub::with(deadly).await);
    }
    let gateway = Gateway::start(Config::of(Deployment::chat(&stubs))).await;
    let answer = ask(&gateway, "deadly").await;
    assert_eq!(answer.status, 502);
    assert_error_shape(&answer.body);
    let met = stubs.iter().filter(|stub| stub.count() > 0);
    assert_eq!(met.clone().count(), 2, "two at most");
    for stub in met {
        stub.kill().await;
    }
    for index in 0..20 {
        assert_eq!(ask(&gateway, &index.to_string()).await.status, 200);
    }
    stubs
        .iter()
        .filter(|stub| stub.see(|log| log.work[0].request.json()["messages"][0]["content"] == "deadly"))
        .for_each(Stub::revive);
    gateway.ready_replicas(4).await;
    // Again and again: half of the fleet serves on.
    for index in 0..30 {
        assert_eq!(ask(&gateway, "deadly").await.status, 502);
        assert_eq!(ask(&gateway, &index.to_string()).await.status, 200);
    }
    assert!(ejected(&gateway).await.len() <= 2);
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
    gateway.assert_idle().await;
}
