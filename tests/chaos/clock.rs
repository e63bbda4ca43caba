//! The wall clock jumps an hour ahead and an hour back, in the middle of everything (C-153, C4): nothing times out, nothing
//! is stopped, nobody waits longer, and no time is negative.

use std::path::Path;
use std::process::Command;

use tidegate_shared::names::metric;
use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::Stream;
use tidegate_tests::config::Config;
use tidegate_tests::deadline::eventually;
use tidegate_tests::front::Front;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::sdk;
use tidegate_tests::stub::Stub;

use crate::CHAT;
use crate::fleet::{QUICK, engines};

const HOUR: i64 = 3600;
/// Compiles the shim that shifts a process's wall clock; `None`, said aloud, where nothing can.
fn shim(folder: &Path) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("chaos").join("skew.c");
    let shim = folder.join("skew.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        sdk::missing("a C compiler, for a wall clock that jumps");
        return None;
    }
    Some(shim.display().to_string())
}

/// Moves the wall clock to so many seconds beside the true time.
fn jump(folder: &Path, seconds: i64) {
    let (new, file) = (folder.join("new"), folder.join("skew"));
    std::fs::write(&new, seconds.to_string()).expect("write the skew");
    std::fs::rename(new, file).expect("set the skew");
}

/// The times in the access log, to the hour.
fn hours(gateway: &Gateway) -> Vec<String> {
    let lines = gateway.printed();
    let values = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    values.filter_map(|line| Some(line["time"].as_str()?[..13].to_owned())).collect()
}

/// A line for each of so many requests; they are printed beside the requests.
async fn lines(gateway: &Gateway, requests: usize) -> Vec<String> {
    eventually("a line for each request", async || {
        let told = hours(gateway);
        if told.len() == requests { Ok(told) } else { Err(format!("{requests} asked, {told:?}")) }
    })
    .await
}

/// The jumps are in the times of day of the access log and in no time that something took.
async fn assert_no_hour_is_in_a_time(gateway: &Gateway, requests: usize) {
    let told = lines(gateway, requests).await;
    let different: std::collections::BTreeSet<&String> = told.iter().collect();
    assert!(different.len() >= 3, "its wall clock did jump: {told:?}");
    let metrics = gateway.metrics().await;
    for name in [metric::REQUEST_SECONDS, metric::QUEUE_SECONDS, metric::TTFT_SECONDS] {
        let (count, sum) =
            (metrics.total(&format!("{name}_count"), &[]), metrics.total(&format!("{name}_sum"), &[]));
        assert!(count >= 1.0 && (0.0..HOUR as f64).contains(&sum), "{name}: {sum} s in {count}");
    }
    for line in gateway.printed().lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let took = line["total_ms"].as_f64().expect("a time");
        assert!((0.0..HOUR as f64 * 1000.0).contains(&took), "{line}");
    }
}

#[tokio::test]
async fn c_153_c4_a_wall_clock_that_jumps_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(shim) = shim(folder.path()) else { return };
    jump(folder.path(), 0);
    let gate = Gate::closed();
    let script = Script::sse().event(&delta("a")).wait(&gate).event(&delta("b")).wait(&gate).done();
    let stub = Stub::with(move |request| match request.json()["stream"] == true {
        true => script.clone(),
        false => reply(request),
    })
    .await;
    // Every limit is far shorter than the jump; a replica that idles stays, since its window has not passed.
    let cold = engines(QUICK).set("window", "20m");
    let deployment = tidegate_tests::config::Deployment::named("stub").replica(&stub.url(), 1);
    let deployment = deployment.set("model", "chat").set("concurrency_limit", 1).set("queue.headroom", "10m");
    let config = Config::of(deployment).and(cold).set("limits.between_bytes", "20m");
    let skew = folder.path().join("skew").display().to_string();
    let env = [("LD_PRELOAD", shim.as_str()), ("SKEW_FILE", skew.as_str())];
    let gateway = Gateway::launch_with(config, &env).await;
    let first = gateway.client().post(CHAT, &chat("chat", "wake up")).await;
    assert_eq!(first.status, 200);

    let mut stream: Stream = gateway.chat(&chat_stream("stub", "hi")).await;
    assert_eq!(stream.event().await, Some(format!("data: {}\n\n", delta("a"))));
    let (client, body) = (gateway.client(), chat("stub", "in the line"));
    let waits = tokio::spawn(async move { client.post(CHAT, &body).await });
    gateway.queued(1).await;
    let mut told = lines(&gateway, 1).await;
    for skew in [HOUR, -HOUR, 2 * HOUR, 0, -2 * HOUR] {
        let before = told.last().cloned();
        jump(folder.path(), skew);
        // Loops have looked at the world since: the engine was used, its replica was seen, decisions were made. The log
        // reckons the time of day on for some milliseconds, so the first of these may not be of the new hour yet.
        while told.last() == before.as_ref() {
            assert_eq!(gateway.client().post(CHAT, &chat("chat", "again")).await.status, 200, "{skew}");
            told = lines(&gateway, told.len() + 1).await;
        }
        let seen = gateway.metrics().await.total(metric::SIGNAL_ERRORS, &[]);
        assert_eq!(
            (seen, gateway.metrics().await.total(metric::QUEUED, &[])),
            (0.0, 1.0),
            "it waits on: {skew}"
        );
        let starts = gateway.metrics().await.total(metric::STARTS, &[]);
        assert_eq!(starts, 1.0, "nothing was stopped, so nothing was started again: {skew}");
    }
    gate.pass();
    assert_eq!(stream.event().await, Some(format!("data: {}\n\n", delta("b"))));
    gate.pass();
    assert_eq!(stream.event().await.as_deref(), Some("data: [DONE]\n\n"));
    drop(stream);
    assert_eq!(waits.await.expect("an answer").status, 200);
    gateway.assert_idle().await;

    // And those of the stream and of the one that waited.
    assert_no_hour_is_in_a_time(&gateway, told.len() + 2).await;
    assert_eq!(gateway.metrics().await.total(metric::REFUSALS, &[]), 0.0);
    gateway.leaves_nothing().await;
}

/// Nothing waits an hour longer either: after a step to whichever side, limits end what they bound, and who idles goes.
#[tokio::test]
async fn c_153_after_a_jump_limits_and_windows_end_as_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(shim) = shim(folder.path()) else { return };
    jump(folder.path(), 0);
    let stub = Stub::with(|_| Script::new().stall()).await;
    let silent = tidegate_tests::config::Deployment::named("silent").replica(&stub.url(), 1);
    let silent = silent.set("model", "chat").set("concurrency_limit", 1).set("queue.headroom", "1s");
    let config = Config::of(silent).and(engines(QUICK).set("window", "1s")).set("limits.first_byte", "3s");
    let front = Front::of(&Issuer::new("ca"));
    let config = config.secured(&front);
    let skew = folder.path().join("skew").display().to_string();
    let env = [("LD_PRELOAD", shim.as_str()), ("SKEW_FILE", skew.as_str())];
    let gateway = Gateway::launch_with(config, &env).await;
    for skew in [-HOUR, HOUR, 0] {
        let (client, body) = (gateway.h2(), chat("silent", "is anybody there"));
        let asks = tokio::spawn(async move { client.post(CHAT, &body).await.status });
        gateway.until_metric(metric::IN_FLIGHT, &[("deployment", "silent")], 1.0).await;
        let (client, body) = (gateway.client(), chat("silent", &format!("in the line: {skew}")));
        let waits = tokio::spawn(async move { client.post(CHAT, &body).await.status });
        jump(folder.path(), skew);
        assert_eq!(waits.await.expect("an answer"), 503, "nobody waits for longer than the headroom: {skew}");
        assert_eq!(asks.await.expect("an answer"), 504, "nor for longer for a first byte: {skew}");
        assert_eq!(gateway.client().post(CHAT, &chat("chat", "hi")).await.status, 200, "{skew}");
        gateway.until_metric(metric::REPLICAS, &[("deployment", "chat")], 0.0).await;
    }
    gateway.assert_idle().await;
    gateway.leaves_nothing().await;
}
