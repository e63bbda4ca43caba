//! Every replica dies under a crowd (C-078): nobody panics, nobody spins, and who waited is served when they are back.

use std::time::Instant;

use tidegate_shared::names::metric;
use tidegate_tests::client::Raw;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::Stub;
use tokio::task::JoinSet;

use crate::CHAT;
use crate::fleet::{descriptors, processor_time, resident};

const CROWD: usize = 1000;

#[tokio::test]
async fn c_078_a_crowd_outlives_the_death_of_every_replica() {
    let gate = Gate::closed();
    let mut stubs = Vec::new();
    for _ in 0..3 {
        let gate = gate.clone();
        stubs.push(Stub::with(move |request| Script::new().wait(&gate).then(reply(request))).await);
    }
    let config =
        Config::of(Deployment::chat(&stubs).set("queue.headroom", "10m")).set("limits.header_read", "3s");
    let gateway = Gateway::start(config).await;
    let (files, memory) = (descriptors(&gateway), resident(&gateway));
    let mut clients = JoinSet::new();
    for index in 0..CROWD {
        let client = if index % 2 == 0 { gateway.client() } else { gateway.h2() };
        clients.spawn(async move { client.post(CHAT, &chat("chat", &index.to_string())).await });
    }
    gateway.queued(CROWD - 3 * 40).await;
    for stub in &stubs {
        stub.kill().await;
    }
    gateway.ready_replicas(0).await;
    gateway.queued(CROWD).await;
    // A silent connection is closed after 3 s: as long is looked at what the gateway does while all wait.
    let (began, used) = (Instant::now(), processor_time(&gateway));
    assert!(Raw::connect(gateway.address).await.head().await.is_none());
    let (window, used) = (began.elapsed(), processor_time(&gateway) - used);
    eprintln!("while all wait: {used:?} of processor time in {window:?}");
    assert!(used < window / 2, "it spins: {used:?} of processor time in {window:?}");
    gate.open();
    stubs.iter().for_each(Stub::revive);
    while let Some(answer) = clients.join_next().await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "nobody had seen a byte: {:?}", answer.body);
    }
    gateway.ready_replicas(3).await;
    gateway.assert_idle().await;
    assert_eq!(gateway.metrics().await.total(metric::PANICS, &[]), 0.0);
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
    tidegate_tests::deadline::eventually("its descriptors are closed", async || {
        match descriptors(&gateway) {
            now if now <= files + 16 => Ok(()),
            now => Err(format!("{now} after {files}")),
        }
    })
    .await;
    // What a crowd needs is given back, but for what the allocator keeps for the next one: far less than each had.
    let now = resident(&gateway);
    assert!(now <= memory + 32, "{now} MiB after {memory} MiB");
    gateway.leaves_nothing().await;
}
