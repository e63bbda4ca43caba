//! The Slurm provider against a real Slurm (C-005, C2).

#[path = "../../../../tests/src/slurm.rs"]
#[allow(unreachable_pub, reason = "it is a part of another crate, for which this is public")]
mod cluster;
mod life;
mod outage;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use rustix::process::{Pid, Signal};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tokio::time::Instant;

use self::cluster::Cluster;
use super::core::{Core, JobOf, LATE_LIMIT, LOST_LIMIT, Stray};
use super::mark::Mark;
use super::whose::Whose;
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
        cached: false,
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
    /// As it stands in comments of our jobs.
    owner: String,
}

/// Whose jobs ours are.
const USER: &str = "nobody";
/// The name of jobs that are nobody's here.
const STRANGER: &str = "tidegate:lives-1";

impl<'a> Records<'a> {
    fn new(cluster: &'a Cluster, access: SlurmAccess) -> Self {
        let state = tempfile::tempdir().unwrap();
        let owner = format!("owner={}", StateDir::open(state.path()).unwrap().nonce());
        Self { cluster, access, state, owner }
    }

    /// Numbers and ids of the jobs of a deployment, as Slurm's own command lists them.
    fn jobs(&self, name: &str) -> Vec<(u32, ReplicaId)> {
        let prefix = format!("tidegate:{name}-");
        let told = self.cluster.run("squeue", &["-h", "-u", USER, "-o", "%i %j %k"]);
        let ours = told.lines().filter(|line| line.contains(&self.owner));
        let job = |line: &str| {
            let mut words = line.split(' ');
            let number = words.next()?.parse().ok()?;
            let id = words.next()?.strip_prefix(&prefix)?.parse().ok()?;
            Some((number, ReplicaId(id)))
        };
        ours.filter_map(job).collect()
    }
}

/// Kills the engine of a job, and not its script.
fn kill_engine(job: u32) {
    let number = job.to_string();
    let engine = |process: &procfs::process::Process| {
        let of_job = process
            .environ()
            .is_ok_and(|all| all.get(OsStr::new("SLURM_JOB_ID")).is_some_and(|id| *id == *number));
        of_job && process.cmdline().is_ok_and(|words| words.first().is_some_and(|word| word == "python3"))
    };
    let engine = procfs::process::all_processes().unwrap().flatten().find(engine).expect("its engine");
    rustix::process::kill_process(Pid::from_raw(engine.pid).unwrap(), Signal::KILL).unwrap();
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

    fn crash<'a>(&'a mut self, name: &'a str, id: ReplicaId) -> BoxFuture<'a, ()> {
        let jobs = self.jobs(name);
        let (job, _) = jobs.iter().find(|(_, of)| *of == id).unwrap();
        kill_engine(*job);
        async {}.boxed()
    }

    fn there<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Vec<ReplicaId>> {
        let mut ids: Vec<ReplicaId> = self.jobs(name).into_iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        async move { ids }.boxed()
    }

    /// Another user's job that says it is ours, and one of our user that another gateway started.
    fn put_stranger(&mut self) -> BoxFuture<'_, ()> {
        async move {
            let provider = self.open("lives", Engine::Serves).await;
            let comment = provider.core.mark(ReplicaId(1), &provider.core.spec.offers[0]).to_string();
            let comment = comment + " run=0 port=22";
            let foreign = comment.replace(&self.owner, "owner=another");
            for (user, comment) in [("root", comment), (USER, foreign)] {
                let words = ["--uid", user, "--comment", &comment, "--job-name", STRANGER];
                let rest = ["--chdir", "/tmp", "-o", "/dev/null", "--wrap", "sleep 600"];
                self.cluster.run("sbatch", &[words, rest].concat());
            }
        }
        .boxed()
    }

    fn stranger_lives(&mut self) -> BoxFuture<'_, bool> {
        let running = format!("{STRANGER} RUNNING");
        let lives = self.cluster.jobs() == [running.clone(), running];
        async move { lives }.boxed()
    }
}

#[tokio::test]
async fn c005_keeps_the_contract_of_providers_over_the_socket() {
    let Some(cluster) = Cluster::start() else { return };
    contract::check(Records::new(&cluster, by_socket(&cluster))).await;
}

#[tokio::test]
async fn c005_keeps_the_contract_of_providers_with_a_token() {
    let Some(cluster) = Cluster::start() else { return };
    contract::check(Records::new(&cluster, by_token(&cluster))).await;
}
