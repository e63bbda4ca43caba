//! A weighted fleet of which a member has nothing that is ready (C-099): its share goes to the others by their weights, and
//! comes back.
//!
//! A deployment has one source of replicas, so members of a weighted fleet are replicas whose URLs stand in the
//! configuration; a member that is at zero and can be started is in `chaos/loading`, and so are two deployments of which
//! one is at zero. What is proven here, of a member at ten percent or at sixty: it is ill or gone from the beginning,
//! taken out, left to its own conversations, or it dies meanwhile. Each time a thousand requests come, none fails, and where
//! nothing changes meanwhile the others get its share by their weights.

use hyper::Method;
use tidegate_shared::names::metric;
use tidegate_tests::client::Client;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::crowd::{Crowd, at_a_time};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::openai::chat;
use tidegate_tests::script::Script;
use tidegate_tests::stub::{Stub, healthy};

use crate::CHAT;

const REQUESTS: usize = 1000;
const TOGETHER: usize = 400;
const WEIGHTS: [usize; 3] = [60, 30, 10];

async fn fleet() -> ([Stub; 3], Gateway) {
    let stubs = [Stub::start().await, Stub::start().await, Stub::start().await];
    let weighted = stubs.iter().zip([60, 30, 10]);
    let deployment = weighted.fold(Deployment::named("chat"), |deployment, (stub, weight)| {
        deployment.replica(&stub.url(), weight)
    });
    let gateway = Gateway::start(Config::of(deployment.set("concurrency_limit", 100))).await;
    (stubs, gateway)
}

/// So many new conversations, `width` at a time, all of them served; gives how many each member got.
async fn served(crowd: &Crowd, stubs: &[Stub; 3], requests: usize, width: usize) -> [usize; 3] {
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
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// Checks that the members that are up have their parts of `shares` by weight, within 5 % (R3), and the others nothing.
#[track_caller]
fn assert_shares(shares: [usize; 3], up: [bool; 3], how: Down) {
    let all: usize = shares.iter().sum();
    let whole: usize = (0..3).filter(|at| up[*at]).map(|at| WEIGHTS[at]).sum();
    for at in 0..3 {
        let wanted = if up[at] { all * WEIGHTS[at] / whole } else { 0 };
        assert!(shares[at].abs_diff(wanted) * 20 <= wanted, "{how:?}: {shares:?}, up are {up:?}");
    }
}

/// How a member comes to have nothing that is ready.
#[derive(Clone, Copy, Debug)]
enum Down {
    /// Its health check fails.
    Ill,
    /// Nothing listens.
    Gone,
    /// An operator takes it out.
    Drained,
    /// An operator leaves it to the conversations that it has: a weight of zero.
    OwnOnly,
}

impl Down {
    async fn take(self, gateway: &Gateway, stub: &Stub, at: usize) {
        match self {
            Self::Ill => stub.on_probe(|_| Script::json(500, &serde_json::json!({}))),
            Self::Gone => stub.kill().await,
            Self::Drained => self.say(gateway, Method::POST, at, "").await,
            Self::OwnOnly => self.say(gateway, Method::POST, at, r#"{"conversations": "stay"}"#).await,
        }
        self.seen(gateway, at, true).await;
    }

    async fn give_back(self, gateway: &Gateway, stub: &Stub, at: usize) {
        match self {
            Self::Ill => stub.on_probe(healthy),
            Self::Gone => stub.revive(),
            Self::Drained | Self::OwnOnly => self.say(gateway, Method::DELETE, at, "").await,
        }
        self.seen(gateway, at, false).await;
    }

    async fn say(self, gateway: &Gateway, method: Method, at: usize, body: &'static str) {
        let path = format!("/deployments/chat/drain/{}", at + 1);
        let answer = Client::h1(gateway.admin).send(method, &path, &[], body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }

    /// Waits until the gateway knows it.
    async fn seen(self, gateway: &Gateway, at: usize, down: bool) {
        eventually(&format!("{self:?} is {down}"), async || {
            let status = gateway.status().await;
            let replica = &status["deployments"][0]["replicas"][at];
            let is = match self {
                Self::Ill | Self::Gone => replica["phase"] == "failed",
                Self::Drained => replica["phase"] == "draining",
                Self::OwnOnly => replica["own_only"] == true,
            };
            let ready = replica["phase"] == "ready";
            if is == down && (down || ready) { Ok(()) } else { Err(replica.to_string()) }
        })
        .await;
    }
}

#[tokio::test]
async fn c_099_the_share_of_a_member_that_is_not_ready_goes_to_the_others_by_weight_and_comes_back() {
    let forms = [
        (Down::Ill, 2),
        (Down::Ill, 0),
        (Down::Gone, 2),
        (Down::Drained, 0),
        (Down::Drained, 2),
        (Down::OwnOnly, 2),
    ];
    for (how, down) in forms {
        let (stubs, gateway) = fleet().await;
        let crowd = Crowd::of(gateway.address, 2).await;
        let up = [0, 1, 2].map(|at| at != down);
        // It is so before they come.
        how.take(&gateway, &stubs[down], down).await;
        // One by one, so that nothing but the weights tells the others apart.
        assert_shares(served(&crowd, &stubs, REQUESTS, 1).await, up, how);
        // Together nobody fails either, and it still gets none.
        assert_eq!(served(&crowd, &stubs, TOGETHER, 10).await[down], 0, "{how:?}");
        // Operators see which share is missing, and where its requests went.
        let metrics = gateway.metrics().await;
        let ready = metrics.total(metric::REPLICAS, &[("deployment", "chat"), ("phase", "ready")]);
        assert_eq!(ready, if matches!(how, Down::OwnOnly) { 3.0 } else { 2.0 }, "{how:?}");
        let labels = [("deployment", "chat"), ("route", "placed")];
        assert_eq!(metrics.total(metric::ROUTES, &labels), (REQUESTS + TOGETHER) as f64, "{how:?}");
        let harm = [metric::REFUSALS, metric::UPSTREAM_ERRORS, metric::RETRIES];
        assert_eq!(harm.map(|name| metrics.total(name, &[])), [0.0; 3], "{how:?}");

        how.give_back(&gateway, &stubs[down], down).await;
        assert_shares(served(&crowd, &stubs, TOGETHER, 1).await, [true; 3], how);
    }
}

#[tokio::test]
async fn c_099_a_member_that_dies_while_they_come_fails_nobody() {
    for down in [0, 2] {
        let (stubs, gateway) = fleet().await;
        let crowd = Crowd::of(gateway.address, 2).await;
        let dies = async {
            // The second one has a third of its share.
            stubs[1].until("some are served", |log| (log.work.len() >= 100).then_some(())).await;
            stubs[down].kill().await;
        };
        let (shares, ()) = tokio::join!(served(&crowd, &stubs, REQUESTS, 10), dies);
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        gateway.ready_replicas(2).await;
        gateway.assert_idle().await;
    }
}
