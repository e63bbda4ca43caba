//! What engines say in a fleet that is sized by it: nonsense moves nothing (C-051), and what is said of a replica goes with
//! it (C-104).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::client::{Client, Stream};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::listed::Listed;
use tidegate_tests::openai::{chat_stream, delta};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{Log, Stub, healthy};

use super::{has, until_engine};

const GOOD: &str = "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"0\"} 0\n\
    vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n\
    vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"1000\"} 1\n";

/// A stub whose streams wait for the gate, and whose figures are these.
async fn engine(gate: &Gate, page: &'static str) -> Stub {
    let script = Script::sse().event(&delta("a")).wait(gate).done();
    let stub = Stub::with(move |_| script.clone()).await;
    stub.on_probe(move |request| match request.path() {
        "/metrics" => Script::answer(200, &["content-type: text/plain"], page),
        _ => healthy(request),
    });
    stub
}

/// A gateway over these, which may have up to three.
async fn over(listed: &Listed, count: usize, set: impl Fn(Deployment) -> Deployment) -> Gateway {
    let deployment = listed.deployment().set("min", 1).set("max", 3).set("window", "10m");
    let gateway = Gateway::launch(Config::of(set(deployment))).await;
    gateway.ready_replicas(count).await;
    gateway
}

async fn open(gateway: &Gateway, count: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for index in 0..count {
        let mut stream = gateway.chat(&chat_stream("chat", &format!("stream {index}"))).await;
        assert!(stream.event().await.is_some());
        streams.push(stream);
    }
    streams
}

/// The page as it is; every figure on it is a number that can be.
async fn page_without_nonsense(gateway: &Gateway) {
    let page = Client::h1(gateway.admin).get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let figure = line.rsplit(' ').next().unwrap_or_default().parse::<f64>().expect("a figure");
        assert!((0.0..1e300).contains(&figure), "{line}");
    }
}

/// Figures of the last metrics page that `/status` tells.
fn decisions(status: &Value) -> Vec<Value> {
    status["deployments"][0]["decisions"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn c_051_each_nonsense_counts_once_and_no_decision_leaves_the_bounds() {
    let gate = Gate::closed();
    let (liar, honest, spare) =
        (engine(&gate, GOOD).await, engine(&gate, GOOD).await, engine(&gate, GOOD).await);
    let listed = Listed::of([&liar, &honest]);
    listed.spare(&spare);
    let gateway = over(&listed, 2, |deployment| deployment.set("rule", "token-load")).await;
    let streams = open(&gateway, 2).await;
    for replica in 0..2 {
        until_engine(&gateway, replica, "it is known", |engine| has(engine, 1, 0)).await;
    }
    let with = |bad: &str| GOOD.replace("waiting{engine=\"0\"} 0", &format!("waiting{{engine=\"0\"}} {bad}"));
    let html = "<html><body>502 Bad Gateway</body></html>\n".to_owned();
    let pages = ["NaN", "+Inf", "-Inf", "-1", "1e308", ""].map(with);
    for bad in pages.into_iter().chain([html, String::new()]) {
        nonsense_once(&gateway, &liar, &bad).await;
    }
    let status = gateway.status().await;
    let within =
        |decision: &Value| decision["target"].as_u64().is_some_and(|target| (1..=3).contains(&target));
    let all = decisions(&status);
    assert!(!all.is_empty() && all.iter().all(within), "{all:?}");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.total(metric::STARTS, &[]), 0.0, "half full is full enough for nobody: {all:?}");
    assert_eq!(metrics.total(metric::REPLICAS, &[("phase", "ready")]), 2.0);
    let honest = [("replica", "chat-2")];
    assert_eq!(metrics.total(metric::SIGNAL_ERRORS, &honest), 0.0, "nobody else is harmed");
    gate.open();
    for stream in streams {
        assert!(stream.end().await);
    }
    gateway.assert_idle().await;
}

/// One page of it, and good ones after: one more error, and no figure of it anywhere.
async fn nonsense_once(gateway: &Gateway, liar: &Stub, bad: &str) {
    let replica = [("replica", "chat-1")];
    let before = gateway.metrics().await.total(metric::SIGNAL_ERRORS, &replica);
    let (armed, bad) = (Arc::new(AtomicBool::new(true)), bad.to_owned());
    let page = bad.clone();
    liar.on_probe(move |request| match request.path() {
        "/metrics" if armed.swap(false, Ordering::Relaxed) => {
            Script::answer(200, &["content-type: text/plain"], &page)
        }
        "/metrics" => Script::answer(200, &["content-type: text/plain"], GOOD),
        _ => healthy(request),
    });
    gateway.until_metric(metric::SIGNAL_ERRORS, &replica, before + 1.0).await;
    page_without_nonsense(gateway).await;
    let looks = |log: &Log| log.probes.iter().filter(|probe| probe.path() == "/metrics").count();
    let asked = liar.see(looks);
    liar.until("it is asked again", |log| (looks(log) > asked).then_some(())).await;
    let errors = gateway.metrics().await.total(metric::SIGNAL_ERRORS, &replica);
    assert_eq!(errors, before + 1.0, "{bad:?} is one error");
    until_engine(gateway, 0, "it has come to its senses", |engine| has(engine, 1, 0)).await;
}

#[tokio::test]
async fn c_104_what_is_deleted_counts_no_more_and_a_port_that_is_used_again_has_no_history() {
    let gate = Gate::closed();
    let stubs = [engine(&gate, GOOD).await, engine(&gate, GOOD).await, engine(&gate, GOOD).await];
    let listed = Listed::of(&stubs);
    let gateway = over(&listed, 3, |deployment| {
        deployment.set("rule", "concurrency").set("target_concurrency", 2).set("concurrency_limit", 4)
    })
    .await;
    let streams = open(&gateway, 6).await;
    let newest = async |what: &str, current: u32, demand: u32| {
        eventually(what, async || {
            let decision = gateway.status().await["deployments"][0]["decision"].clone();
            let fits = decision["current"] == current && decision["demand"] == demand;
            if fits { Ok(decision) } else { Err(decision.to_string()) }
        })
        .await
    };
    assert_eq!(newest("all six are counted", 3, 6).await["needed"], 3);
    listed.gone(1);
    listed.gone(2);
    gateway.ready_replicas(1).await;
    let left =
        gateway.status().await["deployments"][0]["replicas"][0]["in_flight"].as_u64().expect("a number");
    let left = u32::try_from(left).expect("a few");
    assert!((1..6).contains(&left), "{left}");
    assert_eq!(newest("only those of the one that is left", 1, left).await["needed"], left.div_ceil(2));
    let metrics = gateway.metrics().await;
    for replica in ["chat-1", "chat-2"] {
        for name in metrics.names() {
            assert_eq!(metrics.sum(name, &[("replica", replica)]).unwrap_or(0.0), 0.0, "{name} of {replica}");
        }
    }

    // Another engine at the port of the first, under a name of its own.
    stubs[0].on_probe(|request| match request.path() {
        "/metrics" => Script::answer(200, &[], "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n"),
        _ => healthy(request),
    });
    listed.up(4, &stubs[0]);
    gateway.ready_replicas(2).await;
    let engine = until_engine(&gateway, 1, "it is asked anew", |engine| has(engine, 0, 0)).await;
    assert_eq!(engine["dialect"], "sglang");
    assert!(engine["kv_used"].is_null() && engine["kv_capacity"].is_null(), "{engine}");
    let status = gateway.status().await;
    let new = &status["deployments"][0]["replicas"][1];
    assert_eq!((&new["id"], &new["in_flight"]), (&Value::from("chat-4"), &Value::from(0)), "{new}");
    assert!(new["ejected"].is_null(), "{new}");
    gate.open();
    for stream in streams {
        assert!(stream.end().await, "what runs at one that is off the list may finish");
    }
    gateway.assert_idle().await;
}
