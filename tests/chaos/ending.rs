//! Replicas that are about to end and still answer (C-058): they get nothing new, what they have they finish, and nobody
//! sees an error. Told by whoever runs them, by their own health check, or by a port that is closed.

use tidegate_shared::names::metric;
use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::front::Front;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::listed::Listed;
use tidegate_tests::openai::{chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{End, Stub, healthy};
use tokio::task::JoinSet;

use crate::CHAT;

/// A stub whose answers wait for the gate: a stream after its first event, others before their head.
async fn gated(gate: &Gate) -> Stub {
    let gate = gate.clone();
    Stub::with(move |request| match request.json()["stream"] == true {
        true => Script::sse().event(&delta("a")).wait(&gate).event(&delta("b")).done(),
        false => Script::new().wait(&gate).then(reply(request)),
    })
    .await
}

/// Both versions of HTTP, whole and as streams: each twice, so that each of two replicas has one of each kind.
async fn occupy(gateway: &Gateway, stubs: [&Stub; 2]) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for index in 0..8 {
        let client = if index & 2 == 0 { gateway.client() } else { gateway.h2() };
        let streams = index & 4 == 0;
        clients.spawn(async move { finish(client, streams, &index.to_string()).await });
        let arrived = || Some(stubs.iter().map(|stub| stub.running()).sum::<usize>());
        eventually("it is with a replica", async || {
            arrived()
                .filter(|running| *running == index + 1)
                .map(drop)
                .ok_or_else(|| format!("{:?}", arrived()))
        })
        .await;
    }
    assert_eq!(stubs.map(Stub::running), [4, 4], "two of each kind");
    // Whoever comes now is served at once.
    stubs.iter().for_each(|stub| stub.on_work(reply));
    clients
}

/// One request to its proper end.
async fn finish(client: Client, streams: bool, text: &str) {
    if streams {
        let mut stream = client.stream(CHAT, &chat_stream("chat", text)).await;
        assert_eq!(stream.status, 200);
        let mut last = None;
        while let Some(event) = stream.event().await {
            last = Some(event);
        }
        assert_eq!(last.as_deref(), Some("data: [DONE]\n\n"), "its stream ends as it should");
    } else {
        assert_eq!(client.post(CHAT, &chat("chat", text)).await.status, 200);
    }
}

/// Twenty requests, which `ends` gets none of and which all are served.
async fn nothing_new_for(ends: &Stub, gateway: &Gateway) {
    let before = ends.count();
    for index in 0..20 {
        let client = if index % 2 == 0 { gateway.client() } else { gateway.h2() };
        finish(client, index % 4 < 2, &format!("new {index}")).await;
    }
    assert_eq!(ends.count(), before, "it gets nothing new");
}

/// What was there is finished; how many were refused, failed by a replica, and panicked.
async fn all_end_well(gateway: &Gateway, ends: &Stub, gate: &Gate, mut clients: JoinSet<()>) -> [f64; 3] {
    assert_eq!(ends.running(), 4, "what it has goes on");
    gate.open();
    while let Some(done) = clients.join_next().await {
        done.expect("a whole answer");
    }
    assert!(ends.see(|log| log.work.iter().all(|exchange| exchange.end == End::Answered)));
    gateway.assert_idle().await;
    let metrics = gateway.metrics().await;
    let harm = [metric::REFUSALS, metric::UPSTREAM_ERRORS, metric::PANICS];
    harm.map(|name| metrics.total(name, &[]))
}

async fn listed_as_ending(config: Config) {
    let gate = Gate::closed();
    let (ends, stays, comes) = (gated(&gate).await, gated(&gate).await, Stub::start().await);
    let listed = Listed::of([&ends, &stays]);
    listed.spare(&comes);
    let gateway = Gateway::launch(config.and(listed.deployment().set("min", 2).set("max", 3))).await;
    gateway.ready_replicas(2).await;
    let clients = occupy(&gateway, [&ends, &stays]).await;
    listed.ending(1);
    gateway.until_metric(metric::REPLICAS, &[("phase", "draining")], 1.0).await;
    nothing_new_for(&ends, &gateway).await;
    gateway.ready_replicas(2).await;
    comes.until("the one that took its place is asked", |log| (!log.probes.is_empty()).then_some(())).await;
    assert_eq!(all_end_well(&gateway, &ends, &gate, clients).await, [0.0; 3]);
    // It is still on the list: nobody has called its stop, since somebody else ends it.
    listed.gone(1);
    gateway.until_metric(metric::REPLICAS, &[("phase", "draining")], 0.0).await;
    gateway.ready_replicas(2).await;
    let starts = gateway.metrics().await;
    assert_eq!(starts.total(metric::STARTS, &[("result", "failed")]), 0.0, "its end is no failure");
    assert_eq!(starts.total(metric::STARTS, &[("result", "ready")]), 1.0, "one took its place");
}

#[tokio::test]
async fn c_058_who_is_listed_as_ending_gets_nothing_new_and_is_replaced() {
    listed_as_ending(Config::default()).await;
}

#[tokio::test]
async fn c_058_who_is_listed_as_ending_gets_nothing_new_inside_tls() {
    listed_as_ending(Config::default().secured(&Front::of(&Issuer::new("ca")))).await;
}

#[tokio::test]
async fn c_058_who_says_503_at_its_health_check_gets_nothing_new_and_comes_back_when_it_is_well() {
    let gate = Gate::closed();
    let (ends, stays) = (gated(&gate).await, gated(&gate).await);
    let gateway = Gateway::start(Config::of(Deployment::chat([&ends, &stays]))).await;
    let clients = occupy(&gateway, [&ends, &stays]).await;
    ends.on_probe(|request| match request.path() {
        "/health" => Script::answer(503, &[], "shutting down"),
        _ => healthy(request),
    });
    eventually("it is told", async || {
        let log = gateway.log();
        let told = "chat-1 gets no new requests, as it says that it is not ready: /health answers 503 Service \
                    Unavailable: shutting down";
        log.contains(told).then_some(()).ok_or(log)
    })
    .await;
    nothing_new_for(&ends, &gateway).await;
    assert_eq!(all_end_well(&gateway, &ends, &gate, clients).await, [0.0; 3]);
    ends.on_probe(healthy);
    let before = ends.count();
    eventually("it is asked again", async || {
        finish(gateway.client(), false, "again").await;
        if ends.count() > before { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn c_058_the_only_replica_serves_on_though_it_says_503() {
    let stub = Stub::start().await;
    let gateway = Gateway::start(Config::of(Deployment::chat([&stub]))).await;
    stub.on_probe(|request| match request.path() {
        "/health" => Script::answer(503, &[], "shutting down"),
        _ => healthy(request),
    });
    // Bytes flow, so it is not down; and nobody else is there.
    for index in 0..3 {
        let asked = stub.see(|log| log.probes.len());
        finish(gateway.client(), index % 2 == 0, "on and on").await;
        stub.until("it is asked how it is", |log| (log.probes.len() > asked).then_some(())).await;
    }
    finish(gateway.client(), true, "still").await;
    assert_eq!(gateway.metrics().await.total(metric::REFUSALS, &[]), 0.0);
}

#[tokio::test]
async fn c_058_who_has_closed_its_port_gets_nothing_new_and_finishes_what_it_has() {
    let gate = Gate::closed();
    let (ends, stays) = (gated(&gate).await, gated(&gate).await);
    let gateway = Gateway::start(Config::of(Deployment::chat([&ends, &stays]))).await;
    let clients = occupy(&gateway, [&ends, &stays]).await;
    ends.deafen();
    nothing_new_for(&ends, &gateway).await;
    let harm = all_end_well(&gateway, &ends, &gate, clients).await;
    assert!(
        harm[0] + harm[2] == 0.0 && harm[1] <= 1.0,
        "one knocks in vain at most, and is served: {harm:?}"
    );
}
