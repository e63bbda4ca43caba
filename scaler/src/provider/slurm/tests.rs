//! The Slurm provider against a real Slurm (C-005, C2).

#[path = "../../../../tests/src/slurm.rs"]
#[allow(unreachable_pub, reason = "it is a part of another crate, for which this is public")]
mod cluster;
mod life;
mod outage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tokio::time::Instant;

use self::cluster::Cluster;
use super::client::Whose;
use super::core::{Core, JobOf, LATE_LIMIT, LOST_LIMIT, Stray};
use super::{SlurmAccess, SlurmOffer, SlurmProvider, SlurmSpec};
use crate::provider::contract::{self, Engine, Rig, offer, start, until, up};
use crate::provider::rest::Site;
use crate::provider::state::StateDir;
use crate::provider::{Instance, InstanceState, Provider, ProviderError};

/// Listens on the port it is given.
const SERVE: &str = "import socket, sys
s = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True: s.accept()[0].close()
";

fn serving() -> Vec<String> {
    ["python3", "-I", "-S", "-c", SERVE, "{port}"].map(str::to_owned).to_vec()
}

fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script, "sh", "{port}"].map(str::to_owned).to_vec()
}

/// Over the socket.
fn by_socket(cluster: &Cluster) -> SlurmAccess {
    SlurmAccess { site: Site::Unix(cluster.socket()), token: None, user: None, api: None }
}

/// Over HTTP, with a token.
fn by_token(cluster: &Cluster) -> SlurmAccess {
    let (host, port) = cluster.http().trim_start_matches("http://").split_once(':').unwrap();
    let site = Site::Tcp { host: host.to_owned(), port: port.parse().unwrap() };
    SlurmAccess { site, token: Some(cluster.token()), user: None, api: None }
}

fn spec(cluster: &Cluster, access: SlurmAccess, name: &str, command: Vec<String>) -> SlurmSpec {
    let offer = SlurmOffer {
        name: "main".to_owned(),
        partition: None,
        gres: None,
        capacity: Capacity::new(2),
        price: Price::FREE,
        memory: None,
    };
    SlurmSpec {
        deployment: DeploymentName::new(name),
        command,
        env: BTreeMap::new(),
        dir: cluster.dir().to_owned(),
        logs: cluster.logs(),
        ports: cluster.ports(),
        account: None,
        qos: None,
        time_limit: Some(5),
        options: BTreeMap::new(),
        offers: vec![offer],
        access,
        start_limit: crate::control::START_LIMIT,
    }
}

/// The provider as a fresh run of the gateway with the state directory `state` has it.
fn open(state: &Path, spec: SlurmSpec) -> SlurmProvider {
    let name = spec.deployment.clone();
    SlurmProvider::new(spec, StateDir::open(state).unwrap(), &[name]).unwrap()
}

struct Records<'a> {
    cluster: &'a Cluster,
    access: SlurmAccess,
    state: tempfile::TempDir,
}

impl Rig for Records<'_> {
    type Provider = SlurmProvider;

    fn open<'a>(&'a mut self, name: &'a str, engine: Engine) -> BoxFuture<'a, SlurmProvider> {
        let mut spec = spec(self.cluster, self.access.clone(), name, serving());
        match engine {
            Engine::Serves => {}
            Engine::Dies => spec.command = shell("echo boom; exit 3"),
            Engine::Missing => spec.offers[0].partition = Some("nonexistent".to_owned()),
        }
        async move { open(self.state.path(), spec) }.boxed()
    }
}

#[tokio::test]
async fn c005_keeps_the_contract_of_providers_over_the_socket() {
    let Some(cluster) = Cluster::start() else { return };
    let access = by_socket(&cluster);
    contract::check(Records { cluster: &cluster, access, state: tempfile::tempdir().unwrap() }).await;
    assert_eq!(cluster.jobs(), Vec::<String>::new(), "no job is left");
}

#[tokio::test]
async fn c005_keeps_the_contract_of_providers_with_a_token() {
    let Some(cluster) = Cluster::start() else { return };
    let access = by_token(&cluster);
    contract::check(Records { cluster: &cluster, access, state: tempfile::tempdir().unwrap() }).await;
    assert_eq!(cluster.jobs(), Vec::<String>::new(), "no job is left");
}
