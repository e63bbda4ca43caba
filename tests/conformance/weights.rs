//! A weighted fleet of which a member has nothing that is ready (C-099): its share goes to the others, and comes back.

use tidegate_shared::names::metric;
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
    served(crowd, stubs, REQUESTS, 10).await
}

/// So many new conversations, `width` at a time.
async fn served(crowd: &Crowd, stubs: &[Stub; 2], requests: usize, width: usize) -> [usize; 2] {
    let before = stubs.each_ref().map(Stub::count);
    at_a_time(requests, width, |index| {
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

/// How a member comes to have nothing that is ready.
#[derive(Clone, Copy, Debug)]
enum Down {
    /// Its health check fails.
    Ill,
    /// Nothing listens.
    Gone,
}

#[tokio::test]
async fn c_099_the_share_of_a_member_that_is_not_ready_goes_to_the_other_and_comes_back() {
    for (down, up, how) in [(0, 1, Down::Ill), (1, 0, Down::Ill), (0, 1, Down::Gone), (1, 0, Down::Gone)] {
        let stubs = [Stub::start().await, Stub::start().await];
        let deployment = Deployment::named("chat").replica(&stubs[0].url(), 90).replica(&stubs[1].url(), 10);
        let gateway = Gateway::start(Config::of(deployment.set("concurrency_limit", 100))).await;
        let crowd = Crowd::of(gateway.address, 2).await;
        // It is so before they come.
        match how {
            Down::Ill => stubs[down].on_probe(|_| Script::json(500, &serde_json::json!({}))),
            Down::Gone => stubs[down].kill().await,
        }
        gateway.ready_replicas(1).await;
        let shares = thousand(&crowd, &stubs).await;
        assert_eq!([shares[down], shares[up]], [0, REQUESTS], "{how:?}");
        // Operators see which share is missing, and where its requests went.
        let metrics = gateway.metrics().await;
        let phase = |phase| metrics.total(metric::REPLICAS, &[("deployment", "chat"), ("phase", phase)]);
        assert_eq!(["ready", "failed"].map(phase), [1.0; 2], "{how:?}");
        let labels = [("deployment", "chat"), ("route", "placed")];
        assert_eq!(metrics.total(metric::ROUTES, &labels), REQUESTS as f64, "{how:?}");
        let harm = [metric::REFUSALS, metric::UPSTREAM_ERRORS, metric::RETRIES];
        assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 3], "{how:?}");

        match how {
            Down::Ill => stubs[down].on_probe(healthy),
            Down::Gone => stubs[down].revive(),
        }
        gateway.ready_replicas(2).await;
        // One by one, so that nothing but the weights tells them apart: 90 to 10.
        let shares = served(&crowd, &stubs, 300, 1).await;
        assert!(shares[1].abs_diff(30) <= 6, "{how:?}: both have their part again, {shares:?}");
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
