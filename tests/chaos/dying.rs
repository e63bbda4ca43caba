//! Engines that die, hang or are only slow while they serve: the dead are replaced, the slow are left alone (C-006),
//! and a request that has seen no byte is served elsewhere (R5).

use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::client::{Answer, Stream};
use tidegate_tests::deadline::eventually;
use tokio::task::JoinHandle;

use crate::CHAT;
use crate::fleet::{Engine, Fleet, QUICK, brief, engines, long};

/// A streamed chat of a conversation.
async fn stream(fleet: &Fleet, conversation: &str, tokens: u32) -> Stream {
    let headers = [("x-conversation-id", conversation)];
    let body = long("tell me", tokens).to_string();
    let mut stream = fleet.client().open(hyper::Method::POST, CHAT, &headers, body).await;
    assert_eq!(stream.status, 200);
    assert!(stream.event().await.is_some(), "its first event");
    stream
}

/// A chat of a conversation, in the background.
fn ask(fleet: &Fleet, conversation: &str, body: Value) -> JoinHandle<Answer> {
    let (client, conversation) = (fleet.client(), conversation.to_owned());
    tokio::spawn(async move { client.post_with(CHAT, &[("x-conversation-id", &conversation)], &body).await })
}

fn of<'a>(engines: &'a [Engine], id: &str) -> &'a Engine {
    engines.iter().find(|engine| engine.id == id).expect("an engine of that name")
}

#[tokio::test]
async fn r5_an_engine_that_is_killed_is_replaced_and_fails_only_what_it_had_begun() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--prefill-rate", "1000"];
    let fleet = Fleet::launch(engines(&arguments).set("min", 2).set("max", 2)).await;
    let before = fleet.settled(2).await;
    let mut begun = stream(&fleet, "one", 4000).await;
    let victim = of(&before, begun.header("x-tidegate-replica")).clone();
    // Prefills of some seconds each: nobody has seen a byte of these.
    let prompt = "tide ".repeat(1500);
    let waiting: Vec<_> = (0..5).map(|_| ask(&fleet, "one", brief(&prompt))).collect();
    eventually("they are with the engine", async || match victim.busy().await {
        (running, waiting) if running + waiting == 6.0 => Ok(()),
        busy => Err(format!("{busy:?}")),
    })
    .await;
    victim.signal(Signal::KILL);
    let mut last = String::new();
    while let Some(event) = begun.event().await {
        last = event;
    }
    assert!(last.contains("\"error\"") && !last.contains("[DONE]"), "it ends visibly: {last:?}");
    for answer in waiting {
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_ne!(answer.header("x-tidegate-replica"), victim.id);
    }
    let after = fleet.settled(2).await;
    assert!(!after.contains(&victim), "replaced");
    fleet.assert_idle().await;
    let metrics = fleet.metrics().await;
    assert_eq!(metrics.total(metric::IN_FLIGHT, &[("replica", &victim.id)]), 0.0, "C-104");
    assert_eq!(metrics.total(metric::PANICS, &[]), 0.0);
}

#[tokio::test]
async fn an_engine_that_hangs_is_taken_out_and_replaced() {
    let fleet = Fleet::launch(engines(QUICK).set("min", 2).set("max", 2)).await;
    let before = fleet.settled(2).await;
    before[0].signal(Signal::STOP);
    eventually("it is replaced", async || {
        let now = fleet.engines();
        if now.contains(&before[0]) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await;
    let after = fleet.settled(2).await;
    assert!(after.contains(&before[1]), "the other one goes on");
    assert_eq!(fleet.ask("after").await.status, 200);
}

#[tokio::test]
async fn c_006_an_engine_that_is_busy_and_late_to_its_health_check_is_left_alone() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "50000", "--prefill-rate", "100"];
    let fleet = Fleet::launch(engines(&arguments).set("min", 2).set("max", 2)).await;
    let before = fleet.settled(2).await;
    // One delivers tokens for 20 s, the other computes a prompt for as long and delivers nothing.
    let mut talking = stream(&fleet, "talking", 400).await;
    let talker = of(&before, talking.header("x-tidegate-replica")).clone();
    let thinking = ask(&fleet, "thinking", brief(&"tide ".repeat(1600)));
    for engine in &before {
        engine.faults(&json!({"health": "slow"})).await;
    }
    let mut last = String::new();
    while let Some(event) = talking.event().await {
        last = event;
    }
    assert_eq!(last, "data: [DONE]\n\n");
    let answer = thinking.await.expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_ne!(answer.header("x-tidegate-replica"), talker.id, "one each");
    assert_eq!(fleet.engines(), before, "nobody was restarted");
    assert_eq!(fleet.metrics().await.total(metric::RETRIES, &[]), 0.0);
}

/// How many seconds the streams of a busy fleet last; `TIDEGATE_BUSY=300` makes them as long as users reported.
fn busy_for() -> u32 {
    std::env::var("TIDEGATE_BUSY").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// Engines that serve ten streams each answer their health checks after ten seconds, which is later than any probe waits:
/// nobody is cut, restarted, taken out or refused for that. When the tokens have ended and the checks fail, all are replaced.
#[tokio::test]
async fn c_006_forty_streams_on_four_engines_that_are_late_to_every_health_check() {
    let arguments = ["--model", "chat", "--load-time", "0s", "--step-us", "50000", "--step-sequence-us", "0"];
    let arguments =
        [&arguments[..], &["--step-kv-ns", "0", "--slots", "16", "--kv-tokens", "2000000"]].concat();
    let fleet = Fleet::launch(engines(&arguments).set("min", 4).set("max", 4)).await;
    let before = fleet.settled(4).await;
    let (mut streams, tokens) = (Vec::new(), busy_for() * 20);
    for engine in &before {
        engine.faults(&json!({"health": "slow"})).await;
    }
    for index in 0..40 {
        streams.push(stream(&fleet, &format!("stream {index}"), tokens).await);
    }
    let there = |engine: &Engine| {
        streams.iter().filter(|stream| stream.header("x-tidegate-replica") == engine.id).count()
    };
    assert!(before.iter().all(|engine| there(engine) > 8), "more than eight run on each");
    let mut reading = tokio::task::JoinSet::new();
    for mut stream in streams {
        reading.spawn(async move {
            let (mut events, mut last) = (1, String::new());
            while let Some(event) = stream.event().await {
                (events, last) = (events + 1, event);
            }
            (events, last)
        });
    }
    while let Some(read) = reading.join_next().await {
        let (events, last) = read.expect("a stream");
        assert_eq!(last, "data: [DONE]\n\n", "not cut after {events} events");
        assert!(events > tokens, "{events} events of {tokens} tokens");
    }
    assert_eq!(fleet.engines(), before, "no restart");
    let status = fleet.status().await;
    let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
    let ready_since_then = |replica: &Value| {
        replica["phase"] == "ready" && replica["age_s"].as_f64() >= Some(f64::from(busy_for() / 2))
    };
    assert!(replicas.iter().all(ready_since_then), "none was ever out: {status}");
    let metrics = fleet.metrics().await;
    let harm = [metric::RETRIES, metric::UPSTREAM_ERRORS, metric::EJECTIONS, metric::REFUSALS];
    assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 4]);
    let labels = [("deployment", "chat"), ("status", "200")];
    assert_eq!(metrics.total(metric::REQUESTS, &labels), 40.0);
    // The control: no tokens any more, and the checks fail.
    for engine in &before {
        engine.faults(&json!({"health": "fail"})).await;
    }
    eventually("they are replaced", async || match fleet.engines() {
        now if before.iter().all(|engine| !now.contains(engine)) => Ok(()),
        now => Err(format!("{now:?}")),
    })
    .await;
    fleet.settled(4).await;
    assert_eq!(fleet.ask("after").await.status, 200);
}

#[tokio::test]
async fn control_an_idle_engine_that_fails_its_health_check_is_replaced() {
    let fleet = Fleet::launch(engines(QUICK).set("min", 1).set("max", 1)).await;
    let before = fleet.settled(1).await;
    before[0].faults(&json!({"health": "fail"})).await;
    eventually("it is replaced", async || match fleet.engines() {
        now if now.iter().any(|engine| engine != &before[0]) => Ok(()),
        now => Err(format!("{now:?}")),
    })
    .await;
    fleet.settled(1).await;
    assert_eq!(fleet.ask("after").await.status, 200);
}
