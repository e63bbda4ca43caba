//! `kill -9` of the gateway while it writes its records: what it said is saved is there, nothing is there twice, and money
//! is neither forgotten nor spent twice (M2, M3).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use hyper::Method;
use serde_json::{Value, json};
use tidegate_tests::client::Client;
use tidegate_tests::config::Config;
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;

use crate::fleet::{QUICK, engines};

/// How often it is killed.
const KILLS: u32 = 10;
/// What a replica costs: a dollar a second.
const PRICE: u32 = 3600;

fn spent(status: &Value) -> f64 {
    status["deployments"][0]["money"]["spent"].as_f64().expect("what was spent") / 1e6
}

/// Adds dollars and changes the size until the gateway dies under it, in the middle of some change; gives how many
/// dollars it said are saved.
async fn change(gateway: &Gateway) -> i64 {
    let (admin, saved) = (gateway.admin, Arc::new(AtomicI64::new(0)));
    let counted = Arc::clone(&saved);
    let changes = tokio::spawn(async move {
        loop {
            let add = json!({"amount": 1}).to_string();
            let answer = Client::h1(admin).send(Method::POST, "/credit", &[], add).await.json();
            assert_eq!(answer["unsaved"], Value::Null, "{answer}");
            counted.fetch_add(1, Ordering::SeqCst);
            let size = json!({"max": 5}).to_string();
            Client::h1(admin).send(Method::PUT, "/deployments/chat/sizing", &[], size).await;
        }
    });
    eventually("some changes are saved", async || match saved.load(Ordering::SeqCst) {
        0..3 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    gateway.kill();
    // It ends with the connection.
    let _ = changes.await;
    saved.load(Ordering::SeqCst)
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
        let rate = f64::from(PRICE * 2) * 1e6;
        let before = eventually("both cost", async || {
            let status = gateway.status().await;
            let money = &status["deployments"][0]["money"];
            if money["rate"].as_f64() == Some(rate) { Ok(spent(&status)) } else { Err(money.to_string()) }
        })
        .await;
        let saved = added + change(&gateway).await;
        gateway.restart().await;
        gateway.ready_replicas(2).await;
        let status = eventually("the account goes on", async || {
            let status = gateway.status().await;
            if spent(&status) >= before { Ok(status) } else { Err(format!("{} < {before}", spent(&status))) }
        })
        .await;
        let most = began.elapsed().as_secs_f64() * 2.0;
        assert!(spent(&status) <= most, "round {round}: {} spent of {most} at most", spent(&status));
        let chat = &status["deployments"][0];
        assert_eq!((&chat["max"], &chat["sizing"]["max"]["from"]), (&5.into(), &"set".into()), "{chat}");
        let credit = Client::h1(gateway.admin).get("/credit").await.json();
        added = credit["added"].as_i64().expect("added") / 1_000_000;
        assert!((saved..=saved + 1).contains(&added), "round {round}: {added}, and {saved} were saved");
    }
    gateway.leaves_nothing().await;
}
