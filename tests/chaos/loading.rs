//! Engines that take their time to load, and fleets that grow and shrink around them.

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::{Client, Raw};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::front::Front;
use tidegate_tests::gateway::binary;
use tidegate_tests::recipe::{Base, Way};
use tidegate_tests::stub::Stub;
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{Fleet, QUICK, brief, engines, long};

/// Engines that load for two seconds.
const LOADING: &[&str] = &["--model", "chat", "--load-time", "2s", "--step-us", "2000"];

#[tokio::test]
async fn q3_c_028_a_crowd_at_zero_waits_until_the_model_is_loaded() {
    let fleet = Fleet::launch(engines(LOADING).set("max", 1)).await;
    let mut clients = JoinSet::new();
    for index in 0..20 {
        let client = if index % 2 == 0 { fleet.client() } else { fleet.h2() };
        clients.spawn(async move { client.post(CHAT, &brief(&index.to_string())).await });
    }
    while let Some(answer) = clients.join_next().await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }
    let metrics = fleet.metrics().await;
    let failures = [metric::RETRIES, metric::UPSTREAM_ERRORS, metric::REFUSALS];
    assert_eq!(failures.map(|name| metrics.total(name, &[])), [0.0; 3], "nothing was sent too early");
    assert_eq!(metrics.total(metric::STARTS, &[]), 1.0, "one engine, started once");
}

/// Engines of two sizes, told by themselves: the first to start holds nine times what the second does.
fn nine_to_one(folder: &std::path::Path) -> Deployment {
    let engine = format!(
        "mkdir '{}' 2>/dev/null && size=900000 || size=100000; exec '{}' engine --port {{port}} {} --kv-tokens $size",
        folder.join("first").display(),
        binary().display(),
        LOADING.join(" ")
    );
    Deployment::named("chat").process(&["/bin/sh", "-c", &engine])
}

#[tokio::test]
async fn c_099_a_member_at_zero_is_started_once_and_meanwhile_the_other_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let deployment = nine_to_one(folder.path()).set("min", 1).set("max", 2).set("window", "10m");
    let deployment = deployment.set("target_concurrency", 4).set("concurrency_limit", 100);
    let fleet = Fleet::launch(deployment).await;
    let first = fleet.settled(1).await;
    let crowd = Crowd::of(fleet.address, 4).await;
    // More at a time than the first is to have: the second is woken.
    let served = at_a_time(1000, 16, |index| {
        let crowd = crowd.clone();
        async move {
            let answer = crowd.post(CHAT, &[], &brief(&format!("question {index}"))).await;
            assert_eq!(answer.status, 200, "{:?}", answer.body);
            answer.header("x-tidegate-replica").to_owned()
        }
    })
    .await;
    let to_first = served.iter().filter(|name| **name == first[0].id).count();
    assert!(to_first > 500, "nine parts of ten are its own, and the rest while it is alone: {to_first}");
    let both = fleet.settled(2).await;
    assert!(both.contains(&first[0]));
    let metrics = fleet.metrics().await;
    let starts = ["ready", "failed"].map(|result| metrics.total(metric::STARTS, &[("result", result)]));
    assert_eq!(starts, [2.0, 0.0], "the second was started once");
    let harm = [metric::REFUSALS, metric::UPSTREAM_ERRORS, metric::RETRIES];
    assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 3]);
    assert_eq!(metrics.total(metric::ROUTES, &[("deployment", "chat")]), 1000.0);
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c_099_a_deployment_at_zero_is_woken_once_by_its_own_requests_and_costs_others_nothing() {
    let stub = Stub::start().await;
    let front = Deployment::named("front").set("model", "chat").set("aliases", vec!["one", "two"]);
    let back = engines(LOADING).set("max", 2).set("aliases", vec!["rare"]).set("window", "10m");
    let fleet = Fleet::with(Config::of(back).and(front.replica(&stub.url(), 1))).await;
    let crowd = Crowd::of(fleet.address, 4).await;
    let ask = |index: usize, model: &str| {
        let (crowd, mut body) = (crowd.clone(), brief(&format!("question {index}")));
        body["model"] = model.into();
        async move {
            let answer = crowd.post(CHAT, &[], &body).await;
            assert_eq!(answer.status, 200, "{:?}", answer.body);
        }
    };
    at_a_time(1000, 10, |index| ask(index, ["front", "one", "two"][index % 3])).await;
    assert_eq!((stub.count(), fleet.engines().len()), (1000, 0), "nobody has asked for the other one");
    assert_eq!(fleet.metrics().await.total(metric::STARTS, &[]), 0.0);
    let rare = at_a_time(20, 20, |index| ask(index, ["chat", "rare"][index % 2]));
    let often = at_a_time(200, 10, |index| ask(index, ["front", "one", "two"][index % 3]));
    tokio::join!(rare, often);
    assert_eq!((stub.count(), fleet.settled(1).await.len()), (1200, 1), "one start for twenty");
    let metrics = fleet.metrics().await;
    assert_eq!(metrics.total(metric::STARTS, &[]), 1.0);
    let harm = [metric::REFUSALS, metric::UPSTREAM_ERRORS, metric::RETRIES];
    assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 3]);
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c_101_nothing_but_the_cold_start_limit_ends_a_long_wait() {
    waits_long(Config::default()).await;
}

#[tokio::test]
async fn c_101_nothing_but_the_cold_start_limit_ends_a_long_wait_inside_tls() {
    let front = Front::of(&Issuer::new("ca"));
    waits_long(Config::default().secured(&front)).await;
}

/// Requests of both versions of HTTP, whole and as streams, wait for an engine that takes longer to load than any other
/// limit allows.
async fn waits_long(config: Config) {
    // A tenth or less of what it is in earnest: a load of 8 s, beside which every other limit is short.
    let arguments = ["--model", "chat", "--load-time", "8s", "--step-us", "2000"];
    let never = Deployment::named("never").engine(&["--model", "never", "--load-time", "1h"]);
    let config = config
        .and(engines(&arguments).set("max", 1))
        .and(never.set("max", 1).set("queue.cold_start", "1s"))
        .set("limits.first_byte", "2s")
        .set("limits.between_bytes", "2s")
        .set("limits.header_read", "2s")
        .set("limits.connect", "1s");
    let fleet = Fleet::with(config).await;
    let mut clients = JoinSet::new();
    for (index, client) in [fleet.client(), fleet.h2(), fleet.client(), fleet.h2()].into_iter().enumerate() {
        let mut body = brief(&index.to_string());
        body["stream"] = (index >= 2).into();
        clients.spawn(async move { client.post(CHAT, &body).await });
    }
    let mut body = brief("hi");
    body["model"] = "never".into();
    let refused = fleet.client().post(CHAT, &body).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (503, &Value::from("cold_start_too_long"))
    );
    fleet.queued(4).await;
    while let Some(answer) = clients.join_next().await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }
    let only = [("reason", "cold_start_too_long")];
    let metrics = fleet.metrics().await;
    assert_eq!((metrics.total(metric::REFUSALS, &[]), metrics.total(metric::REFUSALS, &only)), (1.0, 1.0));
    fleet.assert_idle().await;
}

#[tokio::test]
async fn c_018_a_load_that_outlasts_the_idle_window_is_not_cut() {
    outlasts(Config::default()).await;
}

#[tokio::test]
async fn c_018_a_load_that_outlasts_the_idle_window_is_not_cut_inside_tls() {
    outlasts(Config::default().secured(&Front::of(&Issuer::new("ca")))).await;
}

async fn outlasts(config: Config) {
    let fleet = Fleet::with(config.and(engines(LOADING).set("max", 2).set("window", "1s"))).await;
    let mut clients = JoinSet::new();
    for (index, client) in [fleet.client(), fleet.h2(), fleet.client(), fleet.h2()].into_iter().enumerate() {
        let body = if index < 2 { brief(&index.to_string()) } else { long(&index.to_string(), 8) };
        clients.spawn(async move { client.post(CHAT, &body).await.status });
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.expect("an answer"), 200);
    }
    assert_eq!(fleet.metrics().await.total(metric::STARTS, &[]), 1.0, "exactly one start");
    fleet.empty().await;
    // Somebody who leaves during the load: it may be cut short or not, but it does not flap.
    let client = fleet.client();
    let asking = tokio::spawn(async move { client.post(CHAT, &brief("left")).await });
    fleet.until_status("it starts", |chat| (chat["replicas"][0]["phase"] == "starting").then_some(())).await;
    asking.abort();
    fleet.queued(0).await;
    fleet.empty().await;
    let metrics = fleet.metrics().await;
    assert_eq!(metrics.total(metric::STARTS, &[("result", "failed")]), 0.0);
    assert!(metrics.total(metric::STARTS, &[("result", "ready")]) <= 2.0);
    assert_eq!(fleet.ask("again").await.header("x-tidegate-replica"), "chat-3", "one engine for each");
}

#[tokio::test]
async fn c_055_the_idle_replica_goes_and_the_busy_one_stays() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "10000"];
    let deployment = engines(&arguments).set("min", 1).set("max", 3);
    let deployment = deployment.set("target_concurrency", 1);
    let fleet = Fleet::launch(deployment.set("window", "1s").set("queue.headroom", "10m")).await;
    let mut streams = Vec::new();
    for index in 0..3 {
        let mut stream = fleet.chat(&long(&format!("stream {index}"), 1500)).await;
        assert!(stream.event().await.is_some());
        streams.push(stream);
    }
    let three = fleet.settled(3).await;
    // The one that stays is neither the oldest nor the youngest.
    let busy = three[1].id.clone();
    streams.retain(|stream| stream.header("x-tidegate-replica") == busy);
    assert!(!streams.is_empty(), "a stream on {busy}");
    let left = fleet.settled(1).await;
    assert_eq!(left, [three[1].clone()]);
    for mut stream in streams {
        let mut last = String::new();
        while let Some(event) = stream.event().await {
            last = event;
        }
        assert_eq!(last, "data: [DONE]\n\n", "it was not cut");
    }
}

/// A model that never loads, with a full line before it: over connections of their own, and over `crowd`'s.
async fn never_loads(fleet: &Fleet, crowd: &Crowd) -> (Vec<Raw>, JoinSet<()>) {
    let (mut own, mut shared) = (Vec::new(), JoinSet::new());
    let body = |stream: bool| {
        let mut body = brief("hi");
        (body["model"], body["stream"]) = ("cold".into(), stream.into());
        body
    };
    for index in 0..3 {
        own.push(Raw::posted(fleet.address, CHAT, &body(index == 1).to_string()).await);
        fleet.queued(2 * index + 1).await;
        let crowd = crowd.clone();
        let body = body(index == 1);
        shared.spawn(async move { drop(crowd.attempt(CHAT, &[], &body).await) });
        fleet.queued(2 * index + 2).await;
    }
    for client in [fleet.client(), fleet.h2()] {
        let refused = client.post(CHAT, &body(false)).await;
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &Value::from("queue_full")));
    }
    (own, shared)
}

#[tokio::test]
async fn c_046_a_model_that_never_loads_holds_up_nobody_else() {
    let cold = Deployment::named("cold").engine(&["--model", "cold", "--load-time", "1h"]);
    let served = engines(QUICK).set("min", 1).set("max", 1).set("target_concurrency", 1);
    let served = served.set("concurrency_limit", 1).set("queue.headroom", "10m");
    let fleet = Fleet::with(Config::of(served).and(cold.set("max", 1).set("queue.requests", 6))).await;
    fleet.ready_replicas(1).await;
    let base = Base::of(&fleet).await;
    let crowd = Crowd::of(fleet.address, 1).await;
    let waiting = never_loads(&fleet, &crowd).await;
    let mut served = 0.0;
    for index in 0..4 {
        for way in [fleet.client(), fleet.h2()].map(Way::all).concat() {
            let answer = way.ask(&format!("question {index}")).await;
            assert_eq!(answer.status, 200, "{way}: {:?}", answer.body);
            // On the very connection on which others wait.
            assert_eq!(crowd.post(way.path, &[], &way.body("the same")).await.status, 200, "{way}");
            served += 2.0;
        }
        for client in [fleet.client(), fleet.h2()] {
            for path in ["/livez", "/readyz", "/healthz", "/v1/models", "/v1/models/cold"] {
                assert_eq!(client.get(path).await.status, 200, "{path}");
            }
        }
        for path in ["/metrics", "/status", "/deployments/cold/why", "/deployments/chat/why"] {
            assert_eq!(Client::h1(fleet.admin).get(path).await.status, 200, "{path}");
        }
        let said = Client::h1(fleet.admin).post("/route", &brief("where to")).await;
        assert_eq!(said.status, 200, "{:?}", said.body);
        fleet.queued(6).await;
    }
    // No time is compared: none of those that were served has waited in any line, while all of these wait.
    let chat = [("deployment", "chat")];
    fleet.until_metric(metric::REQUESTS, &chat, served).await;
    let metrics = fleet.metrics().await;
    let waited = format!("{}_count", metric::QUEUE_SECONDS);
    assert_eq!(metrics.total(&waited, &chat), 0.0);
    let harm = [metric::REFUSALS, metric::RETRIES, metric::UPSTREAM_ERRORS];
    assert_eq!(harm.map(|name| metrics.total(name, &chat)), [0.0; 3]);
    drop((waiting, crowd));
    base.closed(&fleet).await;
    // The control: one that does wait is counted.
    let busy = fleet.chat(&long("busy", 3000)).await;
    let waits = tokio::spawn({
        let client = fleet.client();
        async move { client.post(CHAT, &brief("waits")).await.status }
    });
    fleet.queued(1).await;
    drop(busy);
    assert_eq!(waits.await.expect("an answer"), 200);
    fleet.until_metric(&waited, &chat, 1.0).await;
}

/// The virtual loops of the scaler swap for as long as the case wants; here real streams end as they should.
#[tokio::test]
async fn c_108_one_that_needs_the_only_place_waits_for_streams_and_cuts_none() {
    let arguments =
        |model: &str| ["--model", model, "--load-time", "0s", "--step-us", "10000"].map(str::to_owned);
    let deployment = |model: &str| {
        let arguments = arguments(model);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Deployment::named(model).engine(&arguments).set("max", 1).set("window", "1s")
    };
    let config = Config::of(deployment("chat")).and(deployment("other")).set("budget.replicas", 1);
    let fleet = Fleet::with(config).await;
    let of = |model: &str, body: Value| {
        let mut body = body;
        body["model"] = model.into();
        body
    };
    for (one, two) in [("chat", "other"), ("other", "chat")] {
        let mut streams = [
            fleet.chat(&of(one, long("h1", 200))).await,
            fleet.h2().stream(CHAT, &of(one, long("h2", 200))).await,
        ];
        for stream in &mut streams {
            assert!(stream.event().await.is_some(), "it runs");
        }
        let mut waiting = JoinSet::new();
        for client in [fleet.client(), fleet.h2()] {
            let body = of(two, brief("may I"));
            waiting.spawn(async move { client.post(CHAT, &body).await.status });
        }
        fleet.queued(2).await;
        for mut stream in streams {
            let mut last = String::new();
            while let Some(event) = stream.event().await {
                last = event;
            }
            assert_eq!(last, "data: [DONE]\n\n", "it was not cut");
        }
        while let Some(status) = waiting.join_next().await {
            assert_eq!(status.expect("an answer"), 200, "who waited has the place");
        }
        let there = fleet.engines();
        assert!(there.len() <= 1, "one place: {there:?}");
    }
    fleet.assert_idle().await;
    fleet.empty().await;
}
