//! Half of a fleet stays at work, whatever load does to it (C-006): for errors and for slow health checks alike.

use serde_json::Value;
use tidegate_shared::names::metric;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{Log, Stub, healthy};

use crate::CHAT;

async fn four(work: impl Fn() -> Script + Clone + Send + Sync + 'static) -> (Gateway, Vec<Stub>) {
    let mut stubs = Vec::new();
    for _ in 0..4 {
        let work = work.clone();
        stubs.push(Stub::with(move |_| work()).await);
    }
    (Gateway::start(Config::of(Deployment::chat(&stubs))).await, stubs)
}

/// How many replicas are taken out for what they answered.
async fn out(gateway: &Gateway) -> usize {
    let status = gateway.status().await;
    let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
    replicas.iter().filter(|replica| !replica["ejected"].is_null()).count()
}

#[tokio::test]
async fn c_006_of_a_fleet_that_fails_under_load_half_stays_at_work() {
    let fails = || Script::json(500, &Value::from("CUDA error"));
    let (gateway, stubs) = four(fails).await;
    let crowd = Crowd::of(gateway.address, 4).await;
    for round in 0..5 {
        let statuses = at_a_time(200, 40, |index| {
            let crowd = crowd.clone();
            async move { crowd.post(CHAT, &[], &chat("chat", &format!("{round} {index}"))).await.status }
        });
        let (statuses, out) = tokio::join!(statuses, out(&gateway));
        assert!(out <= 2, "round {round}: {out} of 4 are out");
        assert!(statuses.iter().all(|status| *status == 500), "an engine's own words: {statuses:?}");
    }
    assert_eq!(out(&gateway).await, 2);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.total(metric::REPLICAS, &[("phase", "ready")]), 4.0, "their health is well");
    assert_eq!(metrics.total(metric::REFUSALS, &[]), 0.0);
    // The two that are left carry it all.
    let before: Vec<usize> = stubs.iter().map(Stub::count).collect();
    stubs.iter().for_each(|stub| stub.on_work(reply));
    let answers = at_a_time(100, 40, |index| {
        let crowd = crowd.clone();
        async move { crowd.post(CHAT, &[], &chat("chat", &format!("well {index}"))).await.status }
    });
    assert!(answers.await.iter().all(|status| *status == 200));
    let served = stubs.iter().zip(before).filter(|(stub, before)| stub.count() > *before + 10).count();
    assert!(served >= 2, "{served}");
    gateway.assert_idle().await;
}

/// How often its health was asked.
fn asked(log: &Log) -> usize {
    log.probes.iter().filter(|probe| probe.path() == "/health").count()
}

/// A minute or more of the probe's own patience: twelve checks in a row that are late, of engines that work in silence.
#[tokio::test]
async fn c_006_of_a_fleet_that_is_late_to_its_health_checks_under_load_half_stays_at_work() {
    let gate = Gate::closed();
    let held = gate.clone();
    let (gateway, stubs) = four(move || Script::sse().event(&delta("a")).wait(&held).done()).await;
    let (crowd, mut streams) = (Crowd::of(gateway.address, 2).await, Vec::new());
    for index in 0..40 {
        let mut stream = crowd.stream(CHAT, &[], &chat_stream("chat", &index.to_string())).await;
        stream.event().await.expect("its first event");
        streams.push(stream);
    }
    stubs.iter().for_each(|stub| {
        stub.on_probe(|request| match request.path() {
            "/health" => Script::new().stall(),
            _ => healthy(request),
        });
    });
    // Two go, and the two others are asked again and again and stay.
    for more in [3, 6, 9, 12] {
        for stub in &stubs {
            let seen = stub.see(asked);
            let wanted = seen.max(more);
            stub.until("its health is asked", |log| (asked(log) >= wanted).then_some(())).await;
        }
        assert!(gateway.metrics().await.total(metric::REPLICAS, &[("phase", "ready")]) >= 2.0);
    }
    gateway.ready_replicas(2).await;
    let before: Vec<usize> = stubs.iter().map(|stub| stub.see(asked)).collect();
    for (stub, before) in stubs.iter().zip(before) {
        stub.until("its health is asked again", |log| (asked(log) > before + 1).then_some(())).await;
    }
    let ready = gateway.metrics().await.total(metric::REPLICAS, &[("phase", "ready")]);
    assert_eq!(ready, 2.0, "the other half stays");
    gate.open();
    for stream in streams {
        assert_eq!(stream.whole().await.body, "data: [DONE]\n\n", "nobody is cut");
    }
    stubs.iter().for_each(|stub| stub.on_probe(healthy));
    gateway.ready_replicas(4).await;
    let metrics = gateway.metrics().await;
    let harm = [metric::RETRIES, metric::UPSTREAM_ERRORS, metric::EJECTIONS, metric::REFUSALS];
    assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 4]);
}
