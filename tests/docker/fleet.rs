//! A gateway whose replicas are containers of a daemon of its own, and those containers as Docker's command line shows
//! them.

use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::dockerd::Dockerd;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::shown::{replicas, shown};

/// The arguments of an engine that loads at once, serves the model `chat` and answers fast.
pub(crate) const QUICK: &[&str] = &["--model", "chat", "--load-time", "0s", "--step-us", "2000"];

/// A container of the deployment `chat`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Container {
    /// The public name of the replica.
    pub(crate) replica: String,
    /// Docker's id.
    pub(crate) id: String,
    pub(crate) running: bool,
    /// The port of the machine; 0 when there is none.
    pub(crate) port: u16,
}

/// A gateway and a daemon. Dropped, both are ended, the gateway first.
pub(crate) struct Fleet {
    gateway: Gateway,
    pub(crate) dockerd: Dockerd,
}

impl Fleet {
    /// Starts both; the deployment `chat` is as `set` makes it. `None`, said aloud, where there can be no daemon.
    pub(crate) async fn launch(
        live_restore: bool,
        set: impl FnOnce(Deployment) -> Deployment,
    ) -> Option<Self> {
        let dockerd = Dockerd::start(live_restore).await?;
        let deployment = set(dockerd.deployment("chat", QUICK));
        Some(Self::over(dockerd, deployment).await)
    }

    /// The same with other arguments for its engines.
    pub(crate) async fn launch_with(
        arguments: &[&str],
        set: impl FnOnce(Deployment) -> Deployment,
    ) -> Option<Self> {
        let dockerd = Dockerd::start(false).await?;
        let deployment = set(dockerd.deployment("chat", arguments));
        Some(Self::over(dockerd, deployment).await)
    }

    async fn over(dockerd: Dockerd, deployment: Deployment) -> Self {
        let config = Config::of(deployment).set("budget.credit", 1_000_000);
        let gateway = Gateway::launch(config).await;
        Self { gateway, dockerd }
    }

    /// Every container of the deployment that this gateway owns, whatever became of it, in order.
    pub(crate) fn containers(&self) -> Vec<Container> {
        let nonce = std::fs::read_to_string(self.gateway.dir().join("state/.nonce")).expect("the nonce");
        let one = |told: Value| {
            let labels = &told["Config"]["Labels"];
            if labels["tidegate.owner"] != nonce.trim() {
                return None;
            }
            let port = told["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"].as_str();
            Some(Container {
                replica: format!("chat-{}", labels["tidegate.replica"].as_str()?),
                id: told["Id"].as_str()?.to_owned(),
                running: told["State"]["Running"] == true,
                port: port.and_then(|port| port.parse().ok()).unwrap_or(0),
            })
        };
        let mut found: Vec<_> =
            self.dockerd.labelled("tidegate.deployment=chat").into_iter().filter_map(one).collect();
        found.sort();
        found
    }

    /// Waits until exactly `count` containers are there, all run, and the status names exactly these, on their ports, all
    /// ready.
    pub(crate) async fn settled(&self, count: usize) -> Vec<Container> {
        eventually(&format!("{count} containers, all ready and in the status"), async || {
            let status = self.status().await;
            let containers = self.containers();
            let there: Vec<_> = containers.iter().map(|one| (one.replica.clone(), one.port)).collect();
            let fine = containers.iter().all(|one| one.running)
                && replicas(&status).iter().all(|one| one["phase"] == "ready");
            if fine && containers.len() == count && shown(&status) == there {
                return Ok(containers);
            }
            Err(format!("{containers:?} beside {status}"))
        })
        .await
    }

    /// Waits until the status of the deployment `chat` is as `look` wants it.
    pub(crate) async fn until_status<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        eventually(what, async || {
            let status = self.status().await;
            look(&status["deployments"][0]).ok_or_else(|| status.to_string())
        })
        .await
    }

    /// The status of an answer to a short question.
    pub(crate) async fn ask(&self, text: &str) -> u16 {
        self.client().post("/v1/chat/completions", &brief(text)).await.status
    }
}

/// A chat that asks for a short answer.
pub(crate) fn brief(text: &str) -> Value {
    json!({"model": "chat", "max_tokens": 8, "messages": [{"role": "user", "content": text}]})
}

impl Deref for Fleet {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl DerefMut for Fleet {
    fn deref_mut(&mut self) -> &mut Gateway {
        &mut self.gateway
    }
}
