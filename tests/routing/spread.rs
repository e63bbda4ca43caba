//! New conversations follow the capacities (R3, C-129), one by one and in bursts, and nobody herds.

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{Stub, healthy};
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{Way, counts};

/// New conversations of one test of R3.
const NEW: usize = 1000;

/// A gateway over stubs of these capacities that answer when the gate lets them; no replica's limit is in the way.
async fn fleet(capacities: &[u32], gate: &Gate) -> (Gateway, Vec<Stub>) {
    let (mut deployment, mut stubs) = (Deployment::named("chat").set("concurrency_limit", 400), Vec::new());
    for capacity in capacities {
        let gate = gate.clone();
        let stub = Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await;
        deployment = deployment.replica(&stub.url(), *capacity);
        stubs.push(stub);
    }
    (Gateway::start(Config::of(deployment)).await, stubs)
}

/// A gate that lets everything pass.
fn open_gate() -> Gate {
    let gate = Gate::closed();
    gate.open();
    gate
}

async fn ask(crowd: Crowd, name: String) -> Way {
    Way::of(&crowd.post(CHAT, &[("x-conversation-id", &name)], &chat("chat", "hi")).await)
}

async fn open_conversation(crowd: Crowd, name: String) -> Way {
    let way = ask(crowd, name).await;
    assert_eq!(way.route, "placed");
    way
}

/// Opens a thousand conversations whose names begin with `prefix`, `width` at a time.
async fn open_all(crowd: &Crowd, prefix: &str, width: usize) -> Vec<Way> {
    at_a_time(NEW, width, |index| open_conversation(crowd.clone(), format!("{prefix}{index}"))).await
}

/// Checks that a thousand were spread like `wanted`, each ±5 %.
#[track_caller]
fn assert_spread(ways: &[Way], wanted: [usize; 3]) {
    let counts = counts(ways, wanted.len());
    assert_eq!(ways.len(), NEW);
    for (count, wanted_here) in counts.iter().zip(wanted) {
        assert!(count.abs_diff(wanted_here) * 20 <= wanted_here, "{counts:?}, wanted {wanted:?}");
    }
}

#[tokio::test]
async fn r3_one_by_one_on_an_idle_fleet() {
    let (gateway, stubs) = fleet(&[4, 4, 8], &open_gate()).await;
    let crowd = Crowd::of(gateway.address, 1).await;
    assert_spread(&open_all(&crowd, "c", 1).await, [250, 250, 500]);
    assert_eq!(stubs.iter().map(Stub::count).sum::<usize>(), NEW, "each was sent once");
}

#[tokio::test]
async fn r3_a_hundred_at_a_time() {
    let gate = Gate::closed();
    let (gateway, _stubs) = fleet(&[4, 4, 8], &gate).await;
    let crowd = Crowd::of(gateway.address, 4).await;
    let mut ways = Vec::new();
    for batch in 0..NEW / 100 {
        let mut clients = JoinSet::new();
        for index in 0..100 {
            clients.spawn(open_conversation(crowd.clone(), format!("c{batch}-{index}")));
        }
        // All of the batch is placed before the first of it ends.
        gateway.in_flight(100).await;
        for _ in 0..100 {
            gate.pass();
        }
        ways.extend(clients.join_all().await);
    }
    assert_spread(&ways, [250, 250, 500]);
    gateway.assert_idle().await;
}

/// Tokens that one of these conversations holds in an engine.
const HELD: f64 = 24.0;

/// The metrics page of an engine that can hold so many tokens and tells what it runs.
fn holds(stub: &Stub, tokens: u32) {
    let running = stub.counter();
    stub.on_probe(move |request| match request.path() {
        "/metrics" => {
            let running = running();
            let usage = HELD * running as f64 / f64::from(tokens);
            let page = format!(
                "vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n\
                 vllm:kv_cache_usage_perc{{engine=\"0\"}} {usage}\n\
                 vllm:cache_config_info{{engine=\"0\",kv_cache_size_tokens=\"{tokens}\"}} 1\n"
            );
            Script::answer(200, &["content-type: text/plain"], &page)
        },
        _ => healthy(request),
    });
}

/// Lets the engines report these sizes and waits until the gateway knows them.
async fn report(gateway: &Gateway, stubs: &[Stub], tokens: &[u32]) {
    stubs.iter().zip(tokens).for_each(|(stub, tokens)| holds(stub, *tokens));
    eventually("the gateway knows the engines' sizes", async || {
        let status = gateway.status().await;
        let told = (0..tokens.len())
            .map(|index| status.pointer(&format!("/deployments/0/replicas/{index}/engine/kv_capacity")));
        let told: Vec<Option<u64>> = told.map(|told| told.and_then(Value::as_u64)).collect();
        let wanted: Vec<Option<u64>> = tokens.iter().map(|tokens| Some(u64::from(*tokens))).collect();
        if told == wanted { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Engines whose sizes change while they serve: the next conversations follow the new ones, whatever was placed by
/// declared sizes before anything was reported.
#[tokio::test]
async fn r3_weights_that_change_in_flight_hold_for_the_next_thousand() {
    let (gateway, stubs) = fleet(&[1, 1, 1], &open_gate()).await;
    let crowd = Crowd::of(gateway.address, 2).await;
    // The first ones are placed by the sizes that were declared.
    at_a_time(10, 1, |index| open_conversation(crowd.clone(), format!("early {index}"))).await;
    report(&gateway, &stubs, &[400_000, 400_000, 800_000]).await;
    assert_spread(&open_all(&crowd, "before ", 1).await, [250, 250, 500]);
    assert_spread(&open_all(&crowd, "before, together ", 50).await, [250, 250, 500]);
    report(&gateway, &stubs, &[800_000, 400_000, 400_000]).await;
    assert_spread(&open_all(&crowd, "after ", 1).await, [500, 250, 250]);
    assert_spread(&open_all(&crowd, "after, together ", 50).await, [500, 250, 250]);
}

/// A turn of each of `count` conversations.
async fn turns(crowd: &Crowd, first: usize, count: usize) -> Vec<Way> {
    at_a_time(count, 40, |index| ask(crowd.clone(), format!("user-{}@example.com", first + index))).await
}

/// The share of the first replica, in points.
fn points(ways: &[Way]) -> f64 {
    100.0 * counts(ways, 2)[0] as f64 / ways.len() as f64
}

#[tokio::test]
async fn c_129_new_conversations_follow_the_weights_and_old_ones_stay() {
    const USERS: usize = 5000;
    let (gateway, stubs) = fleet(&[1, 1], &open_gate()).await;
    report(&gateway, &stubs, &[9_000_000, 1_000_000]).await;
    let crowd = Crowd::of(gateway.address, 2).await;
    let homes = turns(&crowd, 0, USERS).await;
    assert!((87.0..=93.0).contains(&points(&homes)), "{} of 90 points", points(&homes));
    let stayed = |turn: &[Way]| turn.iter().zip(&homes).all(|(now, home)| now.replica == home.replica);
    assert!(stayed(&turns(&crowd, 0, USERS).await), "nobody bounces");

    report(&gateway, &stubs, &[5_000_000, 5_000_000]).await;
    let third = turns(&crowd, 0, USERS).await;
    assert!(stayed(&third) && third.iter().all(|way| way.route == "home"), "old ones stay");
    let new = turns(&crowd, USERS, 1000).await;
    assert!((47.0..=53.0).contains(&points(&new)), "{} of 50 points", points(&new));

    // A weight of zero: the second keeps what it has and gets nothing new.
    let path = "/deployments/chat/drain/chat-2";
    let zero = Client::h1(gateway.admin).post(path, &json!({"conversations": "stay"})).await;
    assert_eq!((zero.status, &zero.json()["state"]), (200, &"own_only".into()), "{:?}", zero.body);
    let fourth = turns(&crowd, 0, USERS).await;
    assert!(stayed(&fourth) && fourth.iter().all(|way| way.route == "home"), "old ones stay");
    let none = turns(&crowd, 2 * USERS, 1000).await;
    assert!(none.iter().all(|way| way.replica == 0 && way.route == "placed"), "no new ones");
    assert!(stayed(&turns(&crowd, 0, 1000).await), "nor do new ones elsewhere move them");
    assert_eq!(Client::h1(gateway.admin).send(Method::DELETE, path, &[], "").await.status, 200);
    let back = turns(&crowd, 3 * USERS, 1000).await;
    assert!((47.0..=53.0).contains(&points(&back)), "{} of 50 points", points(&back));
}
