//! The process provider against real processes (C-005).

mod parked;
mod restart;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::replica::Capacity;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::table::{Identity, Marks, Table};
use super::{ProcessProvider, ProcessSpec};
use crate::provider::contract::{self, Engine, Rig, offer, start, until, up};
use crate::provider::state::StateDir;
use crate::provider::{Instance, InstanceState, Provider, ProviderError};
use tidegate_shared::offer::Price;

/// Listens on the port it is given, once it has done what is put before it.
const SERVE: &str = "
s = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True: s.accept()[0].close()
";

fn python(script: &str) -> Vec<String> {
    let script = format!("import os, signal, socket, subprocess, sys\n{script}");
    ["python3", "-I", "-S", "-c", &script, "{port}"].map(str::to_owned).to_vec()
}

fn serving(before: &str) -> Vec<String> {
    python(&format!("{before}\n{SERVE}"))
}

fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script, "sh", "{port}"].map(str::to_owned).to_vec()
}

fn spec(name: &str, command: Vec<String>) -> ProcessSpec {
    let deployment = DeploymentName::new(name);
    let (capacity, price) = (Capacity::new(2), Price(700_000));
    let launcher = Vec::new();
    ProcessSpec { deployment, command, env: BTreeMap::new(), dir: None, capacity, price, launcher }
}

async fn open(dir: &Path, command: Vec<String>) -> ProcessProvider {
    ProcessProvider::new(spec("chat", command), StateDir::open(dir).unwrap()).await.unwrap()
}

/// The living processes of a replica, as found by marker only.
fn processes(provider: &ProcessProvider, id: ReplicaId) -> Vec<Identity> {
    Table::read().unwrap().members(&provider.core.marks, id, &[])
}

fn is_alive(identity: Identity) -> bool {
    let stat = procfs::process::Process::new(identity.pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime == identity.start && stat.state != 'Z')
}

fn identity(text: &str) -> Identity {
    Identity::of(text.trim().parse().unwrap()).unwrap()
}

async fn stop_all(provider: &ProcessProvider) {
    for one in provider.list().await.unwrap() {
        provider.stop(one.id).await.unwrap();
    }
}

async fn exit_of(provider: &ProcessProvider) -> (String, Vec<String>) {
    let ended = |list: &[Instance]| list.iter().any(|one| matches!(one.state, InstanceState::Exited { .. }));
    match until(provider, ended).await.into_iter().next().unwrap().state {
        InstanceState::Exited { how, output } => (how, output),
        other => panic!("{other:?}"),
    }
}

struct Records {
    dir: tempfile::TempDir,
    state: Arc<StateDir>,
    stranger: Option<std::process::Child>,
}

impl Records {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        Self { dir, state, stranger: None }
    }

    /// What marks the replicas of the deployment `name`.
    fn marks(&self, name: &str) -> Marks {
        Marks::new(&fs::read_to_string(self.dir.path().join(".nonce")).unwrap(), name)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if let Some(mut stranger) = self.stranger.take() {
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        }
    }
}

impl Rig for Records {
    type Provider = ProcessProvider;

    fn open<'a>(&'a mut self, name: &'a str, engine: Engine) -> BoxFuture<'a, ProcessProvider> {
        let command = match engine {
            Engine::Serves => serving(""),
            Engine::Dies => shell("echo boom; exit 3"),
            Engine::Missing => vec!["/nonexistent/llama-server".to_owned()],
        };
        let state = Arc::clone(&self.state);
        async move { ProcessProvider::new(spec(name, command), state).await.unwrap() }.boxed()
    }

    fn crash<'a>(&'a mut self, name: &'a str, id: ReplicaId) -> BoxFuture<'a, ()> {
        for process in Table::read().unwrap().members(&self.marks(name), id, &[]) {
            assert!(Command::new("kill").args(["-9", &process.pid.to_string()]).status().unwrap().success());
        }
        async {}.boxed()
    }

    fn there<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Vec<ReplicaId>> {
        let there = Table::read().unwrap().replicas(&self.marks(name)).into_iter().collect();
        async { there }.boxed()
    }

    /// The replica of a gateway with another state directory.
    fn put_stranger(&mut self) -> BoxFuture<'_, ()> {
        let mark = Marks::new("00000000-0000-0000-0000-000000000000", "lives").value(ReplicaId(1));
        let mut command = Command::new("sleep");
        command.arg("1000").env(super::table::MARKER, mark);
        self.stranger = Some(command.spawn().unwrap());
        async {}.boxed()
    }

    fn stranger_lives(&mut self) -> BoxFuture<'_, bool> {
        let ended = self.stranger.as_mut().unwrap().try_wait().unwrap();
        async move { ended.is_none() }.boxed()
    }
}

#[tokio::test]
async fn c005_keeps_the_contract_of_providers() {
    contract::check(Records::new()).await;
}

/// The tasks that follow its engines end a moment after it, and must not keep the ports from the next one until then.
#[tokio::test]
async fn c005_who_adopts_has_the_ports_as_soon_as_the_one_before_is_dropped() {
    let mut rig = Records::new();
    let provider = rig.open("ports", Engine::Serves).await;
    contract::start(&provider).await;
    contract::until(&provider, |list| contract::up(list, 1)).await;
    let core = Arc::clone(&provider.core);
    drop(provider);
    let provider = rig.open("ports", Engine::Serves).await;
    drop(core);
    for one in contract::until(&provider, |list| contract::up(list, 1)).await {
        provider.stop(one.id).await.unwrap();
    }
}

#[tokio::test]
async fn h4_an_engine_that_cannot_be_run_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    let state = StateDir::open(&dir.path().join("state")).unwrap();
    let cases = [
        (
            "missing",
            vec!["no-such-engine-4711".to_owned()],
            None,
            "no-such-engine-4711\": there is no such program",
        ),
        ("plain", vec![plain.display().to_string()], None, "plain\": Permission denied"),
        (
            "dir",
            vec!["sleep".to_owned()],
            Some(PathBuf::from("/nonexistent")),
            "dir /nonexistent: No such file",
        ),
        ("file", vec!["sleep".to_owned()], Some(plain.clone()), "plain: not a directory"),
    ];
    for (name, command, work, expected) in cases {
        let spec = ProcessSpec { dir: work, ..spec(name, command) };
        let provider = ProcessProvider::new(spec, Arc::clone(&state)).await.unwrap();
        let error = provider.start(ReplicaId(1), offer(&provider)).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot start replica 1: ") && error.contains(expected), "{error}");
        assert_eq!(provider.list().await.unwrap(), []);
        assert_eq!(provider.next_id(), ReplicaId(2));
        let left =
            fs::read_dir(dir.path().join("state").join(name)).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["next"]);
    }
    let error = ProcessProvider::new(spec("none", Vec::new()), state).await.unwrap_err();
    assert!(
        matches!(&error, ProviderError::Unavailable { why, .. } if why.contains("empty command")),
        "{error}"
    );
}

#[tokio::test]
async fn an_exit_shows_code_and_output() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), shell("echo port=$1; echo 'no \\033[1mGPU' >&2; kill -ABRT $$")).await;
    let id = start(&provider).await;
    let (how, output) = exit_of(&provider).await;
    assert!(how.contains("SIGABRT"), "{how}");
    assert!(output[0].starts_with("port=") && output[0] != "port={port}", "{output:?}");
    assert_eq!(output[1], "no \\u{1b}[1mGPU");
    provider.stop(id).await.unwrap();
    assert!(dir.path().join("chat/1.log").exists(), "the log of a failed start is kept");
    assert!(!dir.path().join("chat/1.json").exists());
}

#[tokio::test]
async fn the_engine_gets_its_environment_and_directory_and_nothing_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let command = shell("pwd; echo $ADDRESS; cat; ls -l /proc/self/fd; exit 1");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap(); // Not to be inherited.
    let env = [("ADDRESS".to_owned(), "127.0.0.1:{port}".to_owned())].into();
    let work = dir.path().canonicalize().unwrap();
    let spec = ProcessSpec { env, dir: Some(work.clone()), ..spec("chat", command) };
    let provider = ProcessProvider::new(spec, StateDir::open(dir.path()).unwrap()).await.unwrap();
    start(&provider).await;
    let (_, output) = exit_of(&provider).await;
    assert_eq!(Path::new(&output[0]), work);
    assert!(output[1].starts_with("127.0.0.1:") && !output[1].contains('{'), "{output:?}");
    let inode = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
    assert!(output.iter().any(|line| line.ends_with("0 -> /dev/null")), "{output:?}");
    assert!(!output.iter().any(|line| line.contains(inode.to_str().unwrap())), "{output:?}");
}

#[tokio::test]
async fn c005_a_port_that_a_stranger_took_fails_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let provider = open(dir.path(), shell(&format!("echo $1 > {}; exec sleep 1000", pipe.display()))).await;
    let id = start(&provider).await;
    let engine = processes(&provider, id);
    let opened = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&pipe).unwrap();
    let port = BufReader::new(opened).lines().next_line().await.unwrap().unwrap();
    let _stranger = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    let (how, _) = exit_of(&provider).await;
    assert!(how.starts_with(&format!("port {port} was taken by process {} (", std::process::id())), "{how}");
    assert!(engine.into_iter().all(|process| !is_alive(process)));
    provider.stop(id).await.unwrap();
}

#[tokio::test]
async fn c005_stop_ends_children_that_left_the_group_and_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let before = "
def run(*words, **more): return subprocess.Popen(words, **more).pid
pids = [run('sleep', '1000'), run('sleep', '1001', start_new_session=True)]
pids.append(run('sleep', '1002', env={'PATH': os.environ['PATH']}, start_new_session=True))
out = subprocess.run(['setsid', '--fork', 'sh', '-c', 'sleep 1003 >/dev/null 2>&1 & echo $!'], capture_output=True)
print(*pids, int(out.stdout), flush=True)";
    let provider = open(dir.path(), serving(before)).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let log = fs::read_to_string(provider.core.folder.log(id)).unwrap();
    let children: Vec<Identity> = log.split_whitespace().map(identity).collect();
    assert_eq!(children.len(), 4);
    provider.stop(id).await.unwrap();
    assert!(children.into_iter().all(|child| !is_alive(child)));
    assert!(!provider.core.folder.log(id).exists(), "the log of a wanted stop goes");
}

#[tokio::test]
async fn c005_children_of_a_dead_engine_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), shell("sleep 1000 & setsid sleep 1001 & echo $!; exit 7")).await;
    let id = start(&provider).await;
    let (how, _) = exit_of(&provider).await;
    assert!(how.contains('7'), "{how}");
    // Ended by the one that follows the engine; a stop waits for it.
    provider.stop(id).await.unwrap();
    assert_eq!(processes(&provider, id), []);
}

#[tokio::test]
async fn c005_an_engine_that_ignores_sigterm_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving("signal.signal(signal.SIGTERM, signal.SIG_IGN)")).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let engine = processes(&provider, id);
    provider.stop(id).await.unwrap();
    assert!(!engine.is_empty() && engine.into_iter().all(|process| !is_alive(process)));
    assert_eq!(provider.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_log_is_bounded_while_and_after_the_engine_runs() {
    let dir = tempfile::tempdir().unwrap();
    let noise = "
for n in range(40000): print('line', n, 'x' * 60)
print('last', flush=True)";
    let provider = open(dir.path(), serving(noise)).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let log = fs::read_to_string(provider.core.folder.log(id)).unwrap();
    assert!(log.len() <= 64 * 1024 && log.ends_with("last\n"), "{}", log.len());
    stop_all(&provider).await;
}

#[test]
fn marks_name_one_replica() {
    let marks = Marks::new("nonce", "org/model");
    assert_eq!(marks.value(ReplicaId(3)), "nonce/org/model/3");
}
