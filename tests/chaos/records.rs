//! `kill -9` of the gateway while it writes its records: what it said is saved is there, nothing is there twice, and money
//! is neither forgotten nor spent twice (M2, M3).

use std::cell::Cell;
use std::time::Instant;

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::books::{PRICE, first_status, spent};
use tidegate_tests::client::Client;
use tidegate_tests::config::Config;
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;

use crate::fleet::{QUICK, engines};

/// How often it is killed.
const KILLS: u32 = 10;

/// Changes something; `None` once the gateway is dead, and saved where it answers.
async fn saved(admin: Client, method: Method, path: &str, change: Value) -> Option<()> {
    let answer = admin.attempt(method, path, change.to_string()).await?;
    assert_eq!((answer.status, &answer.json()["unsaved"]), (200, &Value::Null), "{path}: {:?}", answer.body);
    Some(())
}

/// Adds dollars and changes the size until the gateway dies under it, in the middle of some change; gives how many
/// dollars it said are saved.
async fn change(gateway: &Gateway) -> i64 {
    let (admin, dollars) = (Client::h1(gateway.admin), Cell::new(0));
    let changes = async {
        while saved(admin, Method::POST, "/credit", json!({"amount": 1})).await.is_some() {
            dollars.set(dollars.get() + 1);
            let size = json!({"max": 5});
            if saved(admin, Method::PUT, "/deployments/chat/sizing", size).await.is_none() {
                break;
            }
        }
    };
    let dies = async {
        eventually("some changes are saved", async || match dollars.get() {
            0..3 => Err("not yet".to_owned()),
            _ => Ok(()),
        })
        .await;
        gateway.kill();
    };
    tokio::join!(changes, dies);
    dollars.get()
}

#[tokio::test]
async fn m2_ten_kills_in_the_middle_of_writes_and_no_money_is_lost_or_spent_twice() {
    let deployment = engines(QUICK).set("min", 2).set("max", 3).set("process.price", PRICE);
    let began = Instant::now();
    let config = Config::of(deployment).set("budget.credit", 1_000_000);
    let mut gateway = Gateway::launch(config).await;
    gateway.ready_replicas(2).await;
    let mut added = 0;
    for round in 0..KILLS {
        // Both replicas are in an account that is on disk once they are seen to cost.
        let rate = f64::from(PRICE * 2);
        let cost = |money: &Value| money["rate"].as_f64() == Some(rate);
        let before = spent(&first_status(&gateway, "both cost", cost).await);
        let saved = added + change(&gateway).await;
        gateway.restart().await;
        // The time between is paid for by then.
        let status = first_status(&gateway, "both cost again", cost).await;
        let found = spent(&status);
        assert!(found >= before, "round {round}: {found} spent, and {before} before");
        let most = began.elapsed().as_secs_f64() * 2.0;
        assert!(found <= most, "round {round}: {found} spent of {most} at most");
        let chat = &status["deployments"][0];
        assert_eq!((&chat["max"], &chat["sizing"]["max"]["from"]), (&5.into(), &"set".into()), "{chat}");
        let credit = Client::h1(gateway.admin).get("/credit").await.json();
        added = credit["added"].as_i64().expect("added");
        assert!((saved..=saved + 1).contains(&added), "round {round}: {added}, and {saved} were saved");
    }
    gateway.leaves_nothing().await;
}

#[tokio::test]
async fn m2_a_replica_that_was_stopped_a_moment_before_a_kill_is_paid_for() {
    let deployment = engines(QUICK).set("max", 1).set("window", "1s").set("process.price", PRICE);
    let mut gateway = Gateway::launch(Config::of(deployment)).await;
    for round in 0..3 {
        gateway.chat(&json!({"model": "chat", "stream": true, "max_tokens": 1000})).await.whole().await;
        // What is told of one that serves is on record before it is stopped.
        let serving = Cell::new(0.0);
        eventually("nothing runs any more", async || {
            let status = gateway.status().await;
            let all = status["deployments"][0]["replicas"].as_array().expect("replicas").clone();
            if all.iter().any(|one| one["phase"] == "ready") {
                serving.set(spent(&status));
            }
            if all.is_empty() { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        gateway.kill();
        gateway.restart().await;
        let status = first_status(&gateway, "the account goes on", |money| money["spent"] != 0).await;
        let (found, before) = (spent(&status), serving.get());
        assert!(before > 0.0 && found >= before, "round {round}: {found} spent, and {before} before");
    }
    gateway.leaves_nothing().await;
}
