//! The docker provider keeps the contract of all providers, on Docker's network and on the machine's (C-005).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture as Boxed;
use tempfile::TempDir;
use tidegate_scaler::provider::contract::{self, Engine, Rig};
use tidegate_scaler::provider::docker::{DockerHost, DockerProvider, DockerSpec, Gpus, Network, Pull};
use tidegate_scaler::provider::state::StateDir;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tidegate_tests::dockerd::{Dockerd, IMAGE, NETWORK};

/// Providers over one daemon and one state directory.
pub(crate) struct Containers {
    pub(crate) dockerd: Dockerd,
    dir: TempDir,
    state: Arc<StateDir>,
    network: Network,
}

impl Containers {
    /// `None`, said aloud, where there can be no daemon.
    pub(crate) async fn new(network: Network) -> Option<Self> {
        let dockerd = Dockerd::start(false).await?;
        let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
        let state = StateDir::open(dir.path()).expect("the state");
        Some(Self { dockerd, dir, state, network })
    }

    /// A network of Docker's.
    pub(crate) fn fleet() -> Network {
        Network::Docker { name: NETWORK.to_owned(), port: 8000, publish: Ipv4Addr::LOCALHOST.into() }
    }

    pub(crate) fn spec(&self, name: &str, command: &[&str]) -> DockerSpec {
        DockerSpec {
            deployment: DeploymentName::new(name),
            host: DockerHost::parse(&self.dockerd.host()).expect("an address"),
            image: IMAGE.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::from([("GREETING".to_owned(), "hello on {port}".to_owned())]),
            volumes: Vec::new(),
            network: self.network.clone(),
            gpus: Gpus::None,
            memory: None,
            millicpus: None,
            shm_size: None,
            pull: Pull::Never,
            capacity: Capacity::new(2),
            price: Price::FREE,
            start_limit: Duration::from_secs(60),
        }
    }

    pub(crate) fn provider(&self, spec: DockerSpec) -> DockerProvider {
        DockerProvider::new(spec, Arc::clone(&self.state)).expect("a provider")
    }

    pub(crate) fn owner(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(".nonce")).expect("the nonce")
    }

    fn containers(&self, name: &str) -> Vec<(ReplicaId, String)> {
        let owner = self.owner();
        let all = self.dockerd.labelled(&format!("tidegate.deployment={name}"));
        let ours = all.iter().filter(|one| {
            let labels = &one["Config"]["Labels"];
            labels["tidegate.owner"] == owner.as_str() && !labels["tidegate.replica"].is_null()
        });
        let told =
            |label: &serde_json::Value| label.as_str().and_then(|text| text.parse().ok()).expect("an id");
        let mut found: Vec<_> = ours
            .map(|one| {
                let id = ReplicaId(told(&one["Config"]["Labels"]["tidegate.replica"]));
                (id, one["Id"].as_str().expect("an id").to_owned())
            })
            .collect();
        found.sort();
        found
    }
}

/// The command line of an engine that serves.
pub(crate) const SERVES: &[&str] = &["engine", "--host", "0.0.0.0", "--port", "{port}", "--load-time", "0s"];

impl Rig for Containers {
    type Provider = DockerProvider;

    fn open<'a>(&'a mut self, name: &'a str, engine: Engine) -> Boxed<'a, DockerProvider> {
        let mut spec = self.spec(name, SERVES);
        match engine {
            Engine::Serves => {}
            Engine::Dies => spec.command = vec!["engine".to_owned(), "--boom".to_owned()],
            Engine::Missing => spec.image = "no-such-image".to_owned(),
        }
        let provider = self.provider(spec);
        Box::pin(async { provider })
    }

    fn crash<'a>(&'a mut self, name: &'a str, id: ReplicaId) -> Boxed<'a, ()> {
        for (_, container) in self.containers(name).into_iter().filter(|(one, _)| *one == id) {
            self.dockerd.docker(&["kill", &container]);
        }
        Box::pin(async {})
    }

    fn there<'a>(&'a mut self, name: &'a str) -> Boxed<'a, Vec<ReplicaId>> {
        let there = self.containers(name).into_iter().map(|(id, _)| id).collect();
        Box::pin(async { there })
    }

    /// A replica of another gateway at the same daemon, and one whose labels lack what makes it one of ours.
    fn put_stranger(&mut self) -> Boxed<'_, ()> {
        let owner = format!("tidegate.owner={}", self.owner());
        for (name, owner) in [("stranger", "tidegate.owner=another"), ("half", owner.as_str())] {
            let labels = ["--label", owner, "--label", "tidegate.deployment=lives"];
            let run = ["run", "--detach", "--network", NETWORK, "--name", name];
            self.dockerd.docker(&[&run[..], &labels[..], &[IMAGE, "engine"]].concat());
        }
        Box::pin(async {})
    }

    fn stranger_lives(&mut self) -> Boxed<'_, bool> {
        let running = self.dockerd.docker(&["inspect", "--format", "{{.State.Running}}", "stranger", "half"]);
        // Not ours either way: it has no more than an owner and a deployment.
        self.dockerd.docker(&["rm", "--force", "half"]);
        Box::pin(async move { running == "true\ntrue" })
    }
}

#[tokio::test]
async fn c005_keeps_the_contract_of_providers() {
    let Some(containers) = Containers::new(Containers::fleet()).await else { return };
    contract::check(containers).await;
}

#[tokio::test]
async fn c005_keeps_the_contract_on_the_network_of_the_machine() {
    let Some(containers) = Containers::new(Network::Host).await else { return };
    contract::check(containers).await;
}
