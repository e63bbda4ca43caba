//! The gateway is killed, the controller restarts, an engine cannot be run: no job is lost, doubled or left, and why
//! something does not start is told (C-005, C2).

use hyper::Method;
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::Deployment;
use tidegate_tests::deadline::eventually;

use crate::fleet::Fleet;

/// Waits until the two replicas are ready; their ids and addresses.
async fn settled(fleet: &Fleet) -> Vec<(String, String)> {
    fleet.gateway.ready_replicas(2).await;
    let status = fleet.gateway.status().await;
    let replicas = status["deployments"][0]["replicas"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    replicas.iter().map(|replica| (text(&replica["id"]), text(&replica["url"]))).collect()
}

#[tokio::test]
async fn c_005_killed_at_any_moment_and_still_two_jobs() {
    let Some(mut fleet) = Fleet::launch(|deployment| deployment.set("min", 2).set("max", 2)).await else {
        return;
    };
    for round in 0..8_usize {
        // A moment that differs from round to round.
        let before = fleet.gateway.log().lines().count();
        eventually("the moment of the kill", async || {
            let (jobs, said) = (fleet.cluster.jobs().len(), fleet.gateway.log().lines().count() - before);
            if jobs >= round % 3 || said > 10 { Ok(()) } else { Err(format!("{jobs} jobs")) }
        })
        .await;
        for _ in 0..round * 97 % 509 {
            tokio::task::yield_now().await;
        }
        fleet.gateway.kill();
        fleet.gateway.restart().await;
    }
    let before = settled(&fleet).await;
    fleet.jobs(2).await;
    fleet.gateway.kill();
    fleet.cluster.tell("stop slurmctld");
    fleet.gateway.restart().await;
    eventually("it says that Slurm is away", async || {
        let status = fleet.gateway.status().await;
        let trouble = status["deployments"][0]["trouble"].as_str().unwrap_or_default().to_owned();
        if trouble.contains("provider slurm does not answer") { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    fleet.cluster.tell("start slurmctld");
    assert_eq!(settled(&fleet).await, before, "the same jobs, with their ids and addresses");
    fleet.jobs(2).await;
    fleet.leaves_no_job().await;
}

#[tokio::test]
async fn c2_an_engine_that_cannot_be_run_is_told_with_its_last_words() {
    let command: Vec<toml::Value> = ["no-such-engine", "{port}"].map(toml::Value::from).to_vec();
    let fleet =
        Fleet::launch(|deployment| deployment.set("slurm.command", command.clone()).set("min", 1)).await;
    let Some(fleet) = fleet else { return };
    eventually("the failed start is told", async || {
        let status = fleet.gateway.status().await;
        let trouble = status["deployments"][0]["trouble"].as_str().unwrap_or_default().to_owned();
        let told = trouble.contains("FAILED, exit code 127") && trouble.contains("no-such-engine: not found");
        if told { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    fleet.leaves_no_job().await;
}

#[tokio::test]
async fn e2_a_job_that_can_never_start_is_told_with_its_reason_and_what_to_do() {
    let fleet = Fleet::launch(|deployment| {
        deployment.set("slurm.partition", "short").set("slurm.time_limit", "10h").set("min", 1)
    });
    let Some(fleet) = fleet.await else { return };
    eventually("why and status tell the reason", async || {
        let why = Client::h1(fleet.gateway.admin).get("/deployments/chat/why").await.json();
        let first = &why["findings"][0];
        let (text, advice) = (first["text"].as_str(), first["advice"].as_str());
        let told = text.is_some_and(|text| text.contains("Slurm does not start its job: PartitionTimeLimit"))
            && advice.is_some_and(|advice| advice.contains("`time_limit`"));
        let chat = fleet.gateway.status().await["deployments"][0].clone();
        let labels = [("deployment", "chat"), ("reason", "provider_holds")];
        let blocked = fleet.gateway.metrics().await.total(metric::GROWTH_BLOCKED, &labels);
        let decided = chat["decision"]["reason"] == "provider_holds" && blocked == 1.0;
        if told && decided && chat["trouble"].to_string().contains("PartitionTimeLimit") {
            return Ok(());
        }
        Err(format!("{blocked} in {chat} beside {why}"))
    })
    .await;
    fleet.leaves_no_job().await;
}

#[tokio::test]
async fn c2_no_room_is_told_everywhere_and_growth_goes_on_by_itself_once_there_is_some() {
    let Some(fleet) = Fleet::launch(|deployment| deployment.set("min", 3).set("max", 3)).await else {
        return;
    };
    fleet.gateway.ready_replicas(2).await;
    let admin = || Client::h1(fleet.gateway.admin);
    eventually("status, why and metrics say that there is no room for the third", async || {
        let chat = fleet.gateway.status().await["deployments"][0].clone();
        let why = admin().get("/deployments/chat/why").await.json();
        let mut findings = why["findings"].as_array().expect("findings").iter();
        let found = findings.any(|one| one["line"] == "blocked" && one["standing"] == "now");
        let labels = [("deployment", "chat"), ("reason", "no_capacity")];
        let counted = fleet.gateway.metrics().await.total(metric::DECISIONS, &labels);
        if chat["decision"]["reason"] == "no_capacity" && found && counted >= 1.0 {
            return Ok(());
        }
        Err(format!("{counted} in {chat} beside {why}"))
    })
    .await;
    let answer = admin().send(Method::POST, "/deployments/chat/drain/chat-1", &[], "").await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    eventually("its place is taken by the one that waited", async || {
        let chat = fleet.gateway.status().await["deployments"][0].clone();
        let all = chat["replicas"].as_array().cloned().unwrap_or_default();
        let third = all.iter().any(|one| one["id"] == "chat-3" && one["phase"] == "ready");
        let first = all.iter().any(|one| one["id"] == "chat-1");
        if third && !first { Ok(()) } else { Err(chat.to_string()) }
    })
    .await;
    fleet.leaves_no_job().await;
}

#[tokio::test]
async fn m1_what_waits_on_a_full_offer_is_ordered_on_a_dearer_one_once_the_price_cap_allows_it() {
    let offer = |name: &str, price: f64| {
        let mut table = toml::Table::from_iter([("name".to_owned(), toml::Value::from(name))]);
        table.insert("price".to_owned(), price.into());
        table
    };
    let mut gpu = offer("gpu", 1.0);
    gpu.insert("gres".to_owned(), "gpu:1".into());
    let offers = vec![toml::Value::from(gpu), toml::Value::from(offer("any", 3.0))];
    let set = |deployment: Deployment| {
        let sized = deployment.set("min", 3).set("max", 3).set("price_cap", 2.0);
        sized.without("slurm", "gres").set("slurm.offer", offers.clone())
    };
    let Some(fleet) = Fleet::launch(set).await else { return };
    fleet.gateway.ready_replicas(2).await;
    eventually("the third waits, and the cap keeps it from the offer that has room", async || {
        let chat = fleet.gateway.status().await["deployments"][0].clone();
        let blocked = chat["decision"]["blocked"] == serde_json::json!(["no_capacity", "price_cap"]);
        if blocked { Ok(()) } else { Err(chat.to_string()) }
    })
    .await;
    let client = Client::h1(fleet.gateway.admin);
    let raised = r#"{"price_cap": 3}"#;
    let answer = client.send(Method::PUT, "/deployments/chat/sizing", &[], raised).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    fleet.gateway.ready_replicas(3).await;
    fleet.leaves_no_job().await;
}
