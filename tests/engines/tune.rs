//! `tidegate tune` finds the best concurrency of llama.cpp's server with a real model (A1).

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate::quickstart::{self, Engine, Progress};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::{Gateway, binary};
use tokio::process::Command;

use super::not_tested;

/// Requests that the server works on at a time.
const PLACES: u32 = 4;

/// One replica with four places.
fn deployment(engine: &Engine) -> Deployment {
    let slots = engine.slots.to_string();
    let context = (engine.context * engine.slots).to_string();
    let words = engine.command.iter().enumerate().map(|(at, word)| {
        let before = at.checked_sub(1).and_then(|at| engine.command.get(at)).map_or("", String::as_str);
        // As an argument of llama-server, or as the launcher's third.
        let is_slots = *word == slots && (before == "-np" || before == "{port}");
        let is_context = *word == context && before == "-c";
        match (is_slots, is_context) {
            (true, _) => PLACES.to_string(),
            (_, true) => (engine.context * PLACES).to_string(),
            _ => word.clone(),
        }
    });
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let deployment = Deployment::named(engine.model).process(&words);
    let deployment = deployment.set("mode", "active").set("min", 1).set("max", 1);
    engine.env.iter().fold(deployment, |deployment, (name, value)| {
        deployment.set(&format!("process.env.{name}"), value.as_str())
    })
}

/// Runs `tidegate tune` with these options to its end, and gives what it told, an event each.
async fn tune(gateway: &Gateway, model: &str, options: &[&str]) -> Vec<Value> {
    let admin = format!("http://{}", gateway.admin);
    let mut command = Command::new(binary());
    command.args(["tune", model, "--admin", &admin, "--json"]).args(options).kill_on_drop(true);
    let done = command.output().await.expect("tidegate runs");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{err}\n{out}");
    eprintln!("{out}");
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn target(events: &[Value]) -> u32 {
    let found = events.last().filter(|event| event["event"] == "found").expect("a target");
    found["target"].as_u64().and_then(|target| u32::try_from(target).ok()).expect("a number")
}

/// The time to the first token of each concurrency, in milliseconds: the middle of the visits' 95th percentiles.
fn first_tokens(events: &[Value], concurrency: u32) -> f64 {
    let steps =
        events.iter().filter(|event| event["event"] == "measured" && event["concurrency"] == concurrency);
    let times: Vec<f64> = steps.filter_map(|step| step["ttft_p95_ms"].as_f64()).collect();
    assert!(!times.is_empty(), "{concurrency} was measured");
    times.iter().sum::<f64>() / times.len() as f64
}

/// The rate of each concurrency of a sweep, in tokens a second, its visits put together.
fn rates(events: &[Value]) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for step in events.iter().filter(|event| event["event"] == "measured") {
        let at = step["concurrency"].as_u64().and_then(|at| u32::try_from(at).ok()).expect("a number");
        let sum = sums.entry(at).or_default();
        *sum = (
            sum.0 + step["tokens"].as_f64().expect("tokens"),
            sum.1 + step["window_s"].as_f64().expect("time"),
        );
    }
    sums.into_iter().map(|(at, (tokens, seconds))| (at, tokens / seconds)).collect()
}

/// The smallest concurrency that brings this share of the most that a sweep saw.
fn knee(rates: &BTreeMap<u32, f64>, share: f64) -> u32 {
    let most = rates.values().copied().fold(0.0, f64::max);
    *rates.iter().find(|(_, rate)| **rate >= most * share).expect("the most").0
}

/// The largest concurrency that brings the most that a sweep saw, as far as that can be told: less than a twentieth is noise.
fn last_best(rates: &BTreeMap<u32, f64>) -> u32 {
    let most = rates.values().copied().fold(0.0, f64::max);
    *rates.iter().rfind(|(_, rate)| **rate >= most * 0.95).expect("the most").0
}

/// The target that was found is within one of what a sweep shows, `least` to `most`, and within the places.
fn assert_near(events: &[Value], least: u32, most: u32, swept: &str) {
    let tuned = target(events);
    let near = least.saturating_sub(1)..=(most + 1).min(PLACES);
    // Where noise leaves more open than one to both sides, it is told, and nothing is taken.
    let found = events.last().expect("a target");
    let open = found["range"].as_array().filter(|_| found["settled"] != true);
    let end = |at: usize| open.and_then(|open| u32::try_from(open[at].as_u64()?).ok());
    let (from, to) = (end(0).unwrap_or(tuned), end(1).unwrap_or(tuned));
    assert!(
        tuned <= PLACES && (from..=to).any(|target| near.contains(&target)),
        "{from} to {to}, a sweep shows {least} to {most}; {swept}"
    );
}

/// Must show: `tidegate tune` on a real llama-server with 4 slots finds a target within one of what a full sweep shows, with a
/// goal for the first token and without any, and never one over its slots. Who comes when all slots are taken waits for one,
/// which the first token tells on any machine; throughput hardly grows on two cores that others use too, and so what a sweep
/// shows of it is a range: from the first that brings 90 % of the most to the last that brings 95 % of it. The sweep goes up and down again, so that a machine that gets
/// slower does not bend it.
#[tokio::test]
async fn a1_needs_network_the_target_of_a_real_engine_is_within_one_of_a_full_sweep() {
    let engine = match quickstart::prepare(&Progress::stderr()).await {
        Ok(engine) => engine,
        Err(error) => return not_tested("tuning of llama.cpp's server", &error.to_string()),
    };
    let gateway = Gateway::launch(Config::of(deployment(&engine))).await;
    gateway.ready_replicas(1).await;
    let short = ["--prompt-tokens", "24", "--output-tokens", "16"];
    // What is not certain by then is told as such, and its target is the best that was seen.
    let search = [&short[..], &["--limit", "2m"]].concat();
    let all = ["--at", "1,2,3,4,5,6,7,8,8,7,6,5,4,3,2,1", "--dry-run"];
    let swept = tune(&gateway, engine.model, &[&short[..], &all[..]].concat()).await;
    assert!(target(&swept) <= PLACES, "a sweep goes beyond the slots, and its target does not");
    let goal = (first_tokens(&swept, PLACES) * first_tokens(&swept, PLACES + 2)).sqrt();
    let kept = (1..=PLACES).take_while(|at| first_tokens(&swept, *at) <= goal).last().expect("one keeps it");

    let rates: BTreeMap<u32, f64> = rates(&swept).into_iter().filter(|(at, _)| *at <= PLACES).collect();
    let (least, most) = (knee(&rates, 0.90), last_best(&rates));

    let goal = format!("{goal:.0}ms");
    let tuned = tune(&gateway, engine.model, &[&search[..], &["--ttft-p95", &goal]].concat()).await;
    // Whichever comes first: where throughput stops growing, or where the goal breaks.
    assert_near(&tuned, least.min(kept), most.min(kept), &format!("{kept} keep {goal}: {rates:?}"));
    let plain = tune(&gateway, engine.model, &[&search[..], &["--dry-run"]].concat()).await;
    assert_near(&plain, least, most, &format!("{rates:?}"));
    assert!(plain.iter().all(|event| event["concurrency"].as_u64().is_none_or(|at| at <= u64::from(PLACES))));
    gateway.assert_idle().await;
}
