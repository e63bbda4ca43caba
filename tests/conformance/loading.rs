//! A replica whose model is not loaded yet (C-028): whatever it says meanwhile, it gets no request, and whoever waits for it
//! hears nothing of that.

use serde_json::{Value, json};
use tidegate_shared::names::metric;
use tidegate_tests::certificates::Issuer;
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::front::Front;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::reply;
use tidegate_tests::recipe::{Base, Way};
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Request, Stub, healthy};
use tokio::task::JoinSet;

/// Requests that wait from the start.
const CROWD: usize = 20;

/// What an engine that is not ready answers to its health check and which models it lists; `None` where it does not say.
fn says(health: u16, models: Option<Value>) -> impl Fn(&Request) -> Script + Send + Sync + 'static {
    move |request| match (request.path(), &models) {
        ("/health", _) => Script::json(health, &json!({"status": "as it is"})),
        ("/v1/models", Some(models)) => Script::json(200, &json!({"object": "list", "data": models})),
        _ => Script::json(503, &json!({"error": {"message": "Loading model", "code": 503}})),
    }
}

/// A stage of a start: its name, what probes are answered, and how many are to be awaited.
type Stage = (&'static str, Box<dyn Fn(&Request) -> Script + Send + Sync>, usize);

/// From the first open port on, in the order in which an engine starts. None of them is readiness.
fn stages() -> Vec<Stage> {
    let model = || Some(json!([{"id": "chat", "object": "model"}]));
    vec![
        ("it takes connections and closes them", Box::new(|_: &Request| Script::new().close()), 5),
        ("it takes connections and says nothing", Box::new(|_: &Request| Script::new().stall()), 1),
        ("it knows of nothing but 503", Box::new(says(503, None)), 5),
        ("it lists its model and is not well", Box::new(says(503, model())), 5),
        ("it says 400, not ready", Box::new(says(400, model())), 5),
        ("it is well and lists nothing yet", Box::new(says(200, Some(json!([])))), 5),
        ("it is well and cannot tell its models", Box::new(says(200, None)), 5),
        ("it lists another model", Box::new(says(200, Some(json!([{"id": "other"}])))), 5),
        ("it has no health check and lists nothing yet", Box::new(says(404, Some(json!([])))), 5),
        ("it lists its model and is not well still", Box::new(says(503, model())), 5),
    ]
}

/// What it would answer to a request: what engines say that have no model yet.
fn refuses(turn: usize) -> Script {
    let (status, message) =
        [(503, "Loading model"), (400, "not ready"), (404, "The model `chat` does not exist")][turn % 3];
    Script::json(status, &json!({"error": {"message": message, "code": status}}))
}

/// Sends the crowd, each way as often.
fn crowd(client: Client) -> JoinSet<(Way, Answer)> {
    let mut crowd = JoinSet::new();
    for (index, way) in Way::all(client).into_iter().cycle().take(CROWD).enumerate() {
        crowd.spawn(async move { (way, way.ask(&format!("question {index}")).await) });
    }
    crowd
}

/// Waits until the gateway has found that nobody listens there.
async fn until_refused(gateway: &Gateway) {
    eventually("its port is found to be closed", async || {
        let status = gateway.status().await;
        let why = status["deployments"][0]["replicas"][0]["why"].as_str().unwrap_or_default().to_owned();
        if why.contains("Connection refused") { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Nothing was sent to the replica, and all wait.
async fn assert_waiting(gateway: &Gateway, stub: &Stub, what: &str) {
    let metrics = gateway.metrics().await;
    let phases = ["ready", "starting"].map(|phase| metrics.total(metric::REPLICAS, &[("phase", phase)]));
    assert_eq!((phases, stub.count()), ([0.0, 1.0], 0), "{what}");
    gateway.queued(CROWD).await;
}

/// A start from a closed port on, with requests that wait from before.
async fn starts(config: Config, door: fn(&Gateway) -> Client) {
    let stub = Stub::start().await;
    stub.kill().await;
    let config = config.and(Deployment::chat([&stub]).set("queue.headroom", "5m"));
    let gateway = Gateway::launch(config).await;
    let base = Base::of(&gateway).await;
    let mut clients = crowd(door(&gateway));
    gateway.queued(CROWD).await;
    until_refused(&gateway).await;
    assert_waiting(&gateway, &stub, "nobody listens").await;
    for (turn, (what, probes, enough)) in stages().into_iter().enumerate() {
        stub.on_probe(probes);
        stub.on_work(move |_| refuses(turn));
        if turn == 0 {
            stub.revive();
        }
        // The last of these began when it was so, and what was said before it has not made the replica ready.
        let before = stub.see(|log| log.probes.len());
        stub.until(what, |log| (log.probes.len() >= before + enough).then_some(())).await;
        assert_waiting(&gateway, &stub, what).await;
    }
    stub.on_work(reply);
    stub.on_probe(healthy);
    while let Some(answer) = clients.join_next().await {
        let (way, answer) = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{way}: {:?}", answer.body);
        assert_eq!(answer.body.ends_with(b"data: [DONE]\n\n"), way.stream, "{way}");
    }
    assert_eq!(stub.count(), CROWD, "once each");
    let metrics = gateway.metrics().await;
    let harm = [metric::RETRIES, metric::UPSTREAM_ERRORS, metric::REFUSALS, metric::EJECTIONS];
    assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 4]);
    base.closed(&gateway).await;
    gateway.leaves_nothing().await;
}

#[tokio::test]
async fn c_028_a_replica_gets_nothing_before_its_model_is_loaded() {
    let front = Front::of(&Issuer::new("ca"));
    tokio::join!(
        starts(Config::default(), Gateway::client),
        starts(Config::default().secured(&front), Gateway::h2)
    );
}
