//! A weighted fleet of which a member has nothing that is ready (C-099): its share goes to the others, and comes back.

use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::chat;
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Stub, healthy};

use crate::CHAT;

const REQUESTS: usize = 1000;

/// A thousand new conversations, ten at a time, all of them served; gives how many each member got.
async fn thousand(crowd: &Crowd, stubs: &[Stub; 2]) -> [usize; 2] {
    let before = stubs.each_ref().map(Stub::count);
    at_a_time(REQUESTS, 10, |index| {
        let crowd = crowd.clone();
        async move {
            let answer = crowd.post(CHAT, &[], &chat("chat", &format!("question {index}"))).await;
            assert_eq!(answer.status, 200, "{:?}", answer.body);
        }
    })
    .await;
    let after = stubs.each_ref().map(Stub::count);
    [after[0] - before[0], after[1] - before[1]]
}

#[tokio::test]
async fn c_099_the_share_of_a_member_that_is_not_ready_goes_to_the_other_and_comes_back() {
    for (down, up) in [(0, 1), (1, 0)] {
        let stubs = [Stub::start().await, Stub::start().await];
        let deployment = Deployment::named("chat").replica(&stubs[0].url(), 90).replica(&stubs[1].url(), 10);
        let gateway = Gateway::start(Config::of(deployment.set("concurrency_limit", 100))).await;
        let crowd = Crowd::of(gateway.address, 2).await;
        // It is ill before they come.
        stubs[down].on_probe(|_| Script::json(500, &serde_json::json!({})));
        gateway.ready_replicas(1).await;
        let shares = thousand(&crowd, &stubs).await;
        assert_eq!([shares[down], shares[up]], [0, REQUESTS]);

        stubs[down].on_probe(healthy);
        gateway.ready_replicas(2).await;
    }
}

#[tokio::test]
async fn c_099_a_member_that_dies_while_they_come_fails_nobody() {
    for down in [0, 1] {
        let stubs = [Stub::start().await, Stub::start().await];
        let deployment = Deployment::named("chat").replica(&stubs[0].url(), 90).replica(&stubs[1].url(), 10);
        let gateway = Gateway::start(Config::of(deployment.set("concurrency_limit", 100))).await;
        let crowd = Crowd::of(gateway.address, 2).await;
        let dies = async {
            // The other one has a third of its share.
            let third = if down == 0 { 30 } else { 300 };
            stubs[1 - down].until("some are served", |log| (log.work.len() >= third).then_some(())).await;
            stubs[down].kill().await;
        };
        let (shares, ()) = tokio::join!(thousand(&crowd, &stubs), dies);
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        gateway.ready_replicas(1).await;
        gateway.assert_idle().await;
    }
}
