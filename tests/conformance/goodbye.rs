//! The gateway's own goodbye over HTTP/2 (C-151): when it stops, what it has taken is answered to the last byte, and what
//! it has not taken was sent to no replica, so that a client may send it again elsewhere.

use tidegate_shared::names::metric;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::Crowd;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::{chat, chat_stream, delta, reply};
use tidegate_tests::script::{Gate, Script};
use tidegate_tests::stub::{Stub, healthy};
use tokio::task::JoinSet;

use crate::CHAT;

/// Asks `other` again and again over a connection until it is told goodbye; gives how many were served.
async fn until_goodbye(crowd: Crowd) -> usize {
    let mut served = 0;
    while let Ok(answer) = crowd.attempt(CHAT, &[], &chat("other", "hi")).await {
        assert_eq!(answer.status, 200);
        // What has begun comes to its end.
        assert_eq!(answer.whole().await.json()["object"], "chat.completion");
        served += 1;
    }
    served
}

#[tokio::test]
async fn c_151_when_the_gateway_leaves_its_clients_of_http_2_lose_nothing() {
    let gate = Gate::closed();
    let held = gate.clone();
    let slow = Stub::with(move |request| match request.json()["stream"] == true {
        true => Script::sse().event(&delta("a")).wait(&held).event(&delta("b")).done(),
        false => Script::new().wait(&held).then(reply(request)),
    })
    .await;
    let quick = Stub::start().await;
    quick.on_probe(healthy);
    let chats = Deployment::chat([&slow]).set("concurrency_limit", 20).set("queue.headroom", "5m");
    let other = Deployment::named("other").set("model", "chat").replica(&quick.url(), 1);
    let mut gateway = Gateway::start(Config::of(chats).and(other)).await;
    // Two connections with everything on them, and two that have nothing else to wait for.
    let (crowd, mut asking) = (Crowd::of(gateway.address, 2).await, JoinSet::new());
    let mut streams = Vec::new();
    for index in 0..10 {
        let mut stream = crowd.stream(CHAT, &[], &chat_stream("chat", &format!("begun {index}"))).await;
        stream.event().await.expect("its first event");
        streams.push(stream);
    }
    let mut answers = JoinSet::new();
    for index in 0..15 {
        let crowd = crowd.clone();
        answers.spawn(async move { crowd.post(CHAT, &[], &chat("chat", &format!("waits {index}"))).await });
    }
    // Ten are with the replica and have no head yet, five stand in the line.
    gateway.in_flight(20).await;
    gateway.queued(5).await;
    for crowd in [crowd.clone(), crowd.clone(), crowd.clone(), Crowd::of(gateway.address, 2).await] {
        asking.spawn(until_goodbye(crowd.clone()));
        asking.spawn(until_goodbye(crowd));
    }
    quick.until("they ask", |log| (log.work.len() >= 100).then_some(())).await;
    gateway.terminate();
    let served = asking.join_all().await.into_iter().sum::<usize>();
    assert_eq!(served, quick.count(), "what got no answer was sent to nobody");
    assert_eq!(gateway.metrics().await.total(metric::IN_FLIGHT, &[]), 20.0, "the others are held");
    gate.open();
    for stream in streams {
        let rest = stream.whole().await.body;
        assert_eq!(rest, format!("data: {}\n\ndata: [DONE]\n\n", delta("b")));
    }
    for answer in answers.join_all().await {
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }
    assert!(gateway.ended().await.success());
    assert_eq!(slow.count(), 25, "once each");
}
