//! The exec provider with real commands: the shipped example, and scripts that fail in every way (C-005).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;

use super::{ExecProvider, ExecSpec};
use crate::provider::contract::{self, Engine, Rig, offer, start, until, up};
use crate::provider::state::StateDir;
use crate::provider::{InstanceState, Provider, ProviderError};

const SERVE: &str = "
import socket, sys
s = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True: s.accept()[0].close()
";

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

fn example() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docker/exec/local.py").to_owned()
}

fn spec(name: &str, start: &[&str], stop: &[&str], list: &[&str], dir: &Path) -> ExecSpec {
    ExecSpec {
        deployment: DeploymentName::new(name),
        start: words(start),
        stop: words(stop),
        list: words(list),
        env: BTreeMap::new(),
        dir: dir.to_owned(),
        time_limit: Duration::from_secs(60),
        list_every: Duration::from_millis(100),
        capacity: Capacity::new(2),
        price: Price::FREE,
        start_limit: Duration::from_secs(60),
    }
}

/// A provider whose commands are lines for a shell, run in a folder of their own.
fn shell(dir: &Path, start: &str, stop: &str, list: &str) -> ExecProvider {
    let line = |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let base = spec("chat", &[], &[], &[], dir);
    let spec = ExecSpec { start: line(start), stop: line(stop), list: line(list), ..base };
    ExecProvider::new(spec, StateDir::open(&dir.join("state")).unwrap()).unwrap()
}

struct Example {
    dir: tempfile::TempDir,
    state: Arc<StateDir>,
    stranger: Option<std::process::Child>,
}

impl Example {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        Self { dir, state, stranger: None }
    }

    fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// Whether a start command of ours runs, which has not become an engine yet.
    fn starts(&self) -> bool {
        let nonce = fs::read_to_string(self.dir.path().join("state/.nonce")).unwrap();
        procfs::process::all_processes().unwrap().filter_map(Result::ok).any(|process| {
            let environment = process.environ().unwrap_or_default();
            let is = |name: &str, value: &str| {
                environment.get(OsStr::new(name)).is_some_and(|found| found == value)
            };
            let engine = environment.contains_key(OsStr::new("EXEC_EXAMPLE_MARK"));
            is("TIDEGATE_OWNER", &nonce) && is("TIDEGATE_ACTION", "start") && !engine
        })
    }

    /// What the example's `list` says, run by hand.
    fn marked(&self, name: &str) -> Vec<(ReplicaId, i32)> {
        let nonce = fs::read_to_string(self.dir.path().join("state/.nonce")).unwrap();
        let wanted = format!("EXEC_EXAMPLE_MARK={nonce} {name} ");
        let processes = procfs::process::all_processes().unwrap().filter_map(Result::ok);
        let marked = processes.filter_map(|process| {
            let environment = process.environ().ok()?;
            let mark = environment.get(OsStr::new("EXEC_EXAMPLE_MARK"))?.to_str()?;
            let rest = format!("EXEC_EXAMPLE_MARK={mark}");
            let id = rest.strip_prefix(&wanted)?.split(' ').next()?.parse().ok()?;
            Some((ReplicaId(id), process.pid()))
        });
        let mut marked: Vec<_> = marked.collect();
        marked.sort_unstable();
        marked
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if let Some(mut stranger) = self.stranger.take() {
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        }
    }
}

impl Rig for Example {
    type Provider = ExecProvider;

    fn open<'a>(&'a mut self, name: &'a str, engine: Engine) -> BoxFuture<'a, ExecProvider> {
        let example = example();
        let command: &[&str] = match engine {
            Engine::Serves => &["python3", "-I", "-S", "-c", SERVE, "{port}"],
            Engine::Dies => &["/bin/sh", "-c", "echo boom; exit 3"],
            Engine::Missing => &["/nonexistent/llama-server"],
        };
        let start: Vec<&str> =
            [example.as_str(), "start"].into_iter().chain(command.iter().copied()).collect();
        fs::create_dir_all(self.logs()).unwrap();
        let spec = spec(name, &start, &[&example, "stop"], &[&example, "list"], &self.logs());
        let state = Arc::clone(&self.state);
        async move { ExecProvider::new(spec, state).unwrap() }.boxed()
    }

    fn full<'a>(&'a mut self, name: &'a str) -> Option<BoxFuture<'a, ExecProvider>> {
        let example = example();
        fs::create_dir_all(self.logs()).unwrap();
        let full = ["/bin/sh", "-c", "echo 'none of 4 machines is free' >&2; exit 75"];
        let spec = spec(name, &full, &[&example, "stop"], &[&example, "list"], &self.logs());
        let state = Arc::clone(&self.state);
        Some(async move { ExecProvider::new(spec, state).unwrap() }.boxed())
    }

    fn crash<'a>(&'a mut self, name: &'a str, id: ReplicaId) -> BoxFuture<'a, ()> {
        for (_, pid) in self.marked(name).into_iter().filter(|(one, _)| *one == id) {
            assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        }
        async {}.boxed()
    }

    /// A start command that was cut off goes on, and what it starts counts.
    fn there<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Vec<ReplicaId>> {
        async {
            while self.starts() {
                tokio::task::yield_now().await;
            }
            self.marked(name).into_iter().map(|(id, _)| id).collect()
        }
        .boxed()
    }

    fn put_stranger(&mut self) -> BoxFuture<'_, ()> {
        let mut command = Command::new("sleep");
        command.arg("1000").env("EXEC_EXAMPLE_MARK", "another-owner lives 1 9");
        self.stranger = Some(command.spawn().unwrap());
        async {}.boxed()
    }

    fn stranger_lives(&mut self) -> BoxFuture<'_, bool> {
        let ended = self.stranger.as_mut().unwrap().try_wait().unwrap();
        async move { ended.is_none() }.boxed()
    }
}

#[tokio::test]
async fn c005_the_example_keeps_the_contract_of_providers() {
    contract::check(Example::new()).await;
}

const NONE: &str = "echo '{\"version\":1,\"replicas\":[]}'";

/// The reason of a list that fails.
async fn unavailable(provider: &ExecProvider) -> String {
    match provider.list().await {
        Err(ProviderError::Unavailable { kind: "exec", why }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c2_a_list_that_fails_is_no_empty_list_and_is_told_with_what_it_said() {
    for (list, wanted) in [
        ("echo 'quota exceeded' >&2; exit 7", "list: exit status: 7; it said:\nquota exceeded"),
        ("echo Hello", "list: its answer is not {\"version\": 1, \"replicas\": […]}"),
        ("true", "it printed nothing"),
        ("head -c 2000000 /dev/zero", "it printed more than 1048576 bytes"),
        ("kill -9 $$", "list: signal: 9 (SIGKILL)"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let provider = shell(dir.path(), "exit 1", "exit 1", list);
        let why = unavailable(&provider).await;
        assert!(why.contains(wanted), "{list}: {why}");
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = spec("chat", &["x"], &["x"], &["no-such-program-4711"], dir.path());
    let provider = ExecProvider::new(spec, StateDir::open(&dir.path().join("state")).unwrap()).unwrap();
    let why = unavailable(&provider).await;
    assert!(why.contains("\"no-such-program-4711\": there is no such program on PATH"), "{why}");
}

#[tokio::test]
async fn c2_the_fleet_is_held_while_lists_fail_and_seen_again_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let list = "test ! -e broken && echo '{\"version\":1,\"replicas\":[{\"id\":5,\"state\":\"up\",\"url\":\"http://h:1\"}]}'";
    let provider = shell(dir.path(), "exit 1", "exit 1", list);
    let before = until(&provider, |list| up(list, 1)).await;
    assert_eq!(
        (before[0].id, provider.next_id()),
        (ReplicaId(5), ReplicaId(6)),
        "adopted, its id not used again"
    );
    fs::write(dir.path().join("broken"), "").unwrap();
    while provider.list().await.is_ok() {
        provider.changed().await;
    }
    fs::remove_file(dir.path().join("broken")).unwrap();
    while provider.list().await.is_err() {
        provider.changed().await;
    }
    assert_eq!(provider.list().await.unwrap(), before);
}

#[tokio::test]
async fn c005_an_id_that_none_can_have_is_left_out_of_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let list = r#"echo '{"version":1,"replicas":[{"id":2,"state":"up","url":"http://h:1"},{"id":4294967295,"state":"up","url":"http://h:2"}]}'"#;
    let start = r#"echo '{"version":1,"replica":{"id":3,"state":"pending"}}'"#;
    let provider = shell(dir.path(), start, "exit 0", list);
    let seen = until(&provider, |list| up(list, 1)).await;
    assert_eq!((seen.len(), seen[0].id), (1, ReplicaId(2)));
    assert_eq!(provider.next_id(), ReplicaId(3));
    provider.start(ReplicaId(3), offer(&provider)).await.unwrap();
}

#[tokio::test]
async fn c005_a_start_that_fails_says_why_and_is_stopped() {
    for (start, wanted) in [
        ("echo 'no GPU left' >&2; exit 3", "start: exit status: 3; it said:\nno GPU left"),
        ("echo ordered", "start: its answer is not {\"version\": 1, \"replica\": {…}}"),
        (
            "echo '{\"version\":1,\"replica\":{\"id\":9,\"state\":\"pending\"}}'",
            "it tells of replica 9, and 1 was to be started",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let provider = shell(dir.path(), start, "echo $TIDEGATE_ID >> stopped", NONE);
        let error = provider.start(ReplicaId(1), offer(&provider)).await.unwrap_err();
        assert!(matches!(&error, ProviderError::Start { why, .. } if why.contains(wanted)), "{error}");
        assert_eq!(provider.list().await.unwrap(), []);
        assert_eq!(fs::read_to_string(dir.path().join("stopped")).unwrap(), "1\n");
    }
}

#[tokio::test]
async fn c005_a_failed_start_is_stopped_as_long_as_the_list_names_it() {
    let dir = tempfile::tempdir().unwrap();
    // The start leaves something and fails; its first stop fails too.
    let list = "test -e there && echo '{\"version\":1,\"replicas\":[{\"id\":1,\"state\":\"pending\"}]}' \
                || echo '{\"version\":1,\"replicas\":[]}'";
    let stop =
        "if test -e tried; then rm there; mkfifo done 2>/dev/null; echo > done; else touch tried; exit 1; fi";
    let provider = shell(dir.path(), "touch there; exit 1", stop, list);
    assert!(Command::new("mkfifo").arg(dir.path().join("done")).status().unwrap().success());
    let opened =
        tokio::net::unix::pipe::OpenOptions::new().read_write(true).open_receiver(dir.path().join("done"));
    let error = provider.start(ReplicaId(1), offer(&provider)).await.unwrap_err().to_string();
    assert!(error.contains("what it left cannot be stopped yet: stop: exit status: 1"), "{error}");
    assert_eq!(provider.list().await.unwrap(), [], "it is no replica");
    let mut byte = [0; 1];
    tokio::io::AsyncReadExt::read_exact(&mut opened.unwrap(), &mut byte).await.unwrap();
    assert!(!dir.path().join("there").exists(), "stopped by the second try");
}

#[tokio::test]
async fn c2_a_list_that_fails_is_made_again_when_that_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let base = spec("chat", &["true"], &["true"], &["/bin/sh", "-c", "exit 1"], dir.path());
    let spec = ExecSpec { list_every: Duration::from_secs(3600), ..base };
    let provider = ExecProvider::new(spec, StateDir::open(&dir.path().join("state")).unwrap()).unwrap();
    assert_eq!(provider.looks_in(), Some(Duration::ZERO), "it is being asked");
    provider.list().await.unwrap_err();
    let next = provider.looks_in().unwrap();
    assert!(next > Duration::from_secs(60), "{next:?}, whatever the loop waits");
}

#[tokio::test]
async fn c005_a_late_command_is_ended_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let base = spec(
        "chat",
        &["/bin/sh", "-c", "echo waiting >&2; sleep 1000 & echo $! > pid; wait"],
        &["true"],
        &["/bin/sh", "-c", NONE],
        dir.path(),
    );
    let spec = ExecSpec { time_limit: Duration::from_secs(1), ..base };
    let provider = ExecProvider::new(spec, StateDir::open(&dir.path().join("state")).unwrap()).unwrap();
    let error = provider.start(ReplicaId(1), offer(&provider)).await.unwrap_err().to_string();
    assert!(error.contains("start: no end within 1s; it said:\nwaiting"), "{error}");
    let child: i32 = fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
    let stat = procfs::process::Process::new(child).and_then(|process| process.stat());
    assert!(!stat.is_ok_and(|stat| stat.state != 'Z'), "its child has ended too");
}

#[tokio::test]
async fn a_command_that_leaves_a_child_with_its_output_open_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let begin = "sleep 1000 & echo $! > pid; echo \"{\\\"version\\\":1,\\\"replica\\\":{\\\"id\\\":$TIDEGATE_ID,\\\"state\\\":\\\"pending\\\"}}\"";
    let provider = shell(dir.path(), begin, "kill $(cat pid)", NONE);
    let id = start(&provider).await;
    provider.stop(id).await.unwrap();
}

#[tokio::test]
async fn commands_are_told_what_is_wanted_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let told = "{ env | grep ^TIDEGATE | sort; echo \"$0\"; } > told; exit 1";
    let base = spec(
        "org/chat",
        &["/bin/sh", "-c", told, "{name}/{id}/{deployment}/{offer}"],
        &["true"],
        &["/bin/sh", "-c", NONE],
        dir.path(),
    );
    let provider = ExecProvider::new(base, StateDir::open(&dir.path().join("state")).unwrap()).unwrap();
    provider.start(ReplicaId(1), offer(&provider)).await.unwrap_err();
    let nonce = fs::read_to_string(dir.path().join("state/.nonce")).unwrap();
    let expected = format!(
        "TIDEGATE_ACTION=start\nTIDEGATE_CONTRACT=1\nTIDEGATE_DEPLOYMENT=org/chat\nTIDEGATE_ID=1\n\
         TIDEGATE_NAME=org/chat-1\nTIDEGATE_OFFER=exec\nTIDEGATE_OWNER={nonce}\norg/chat-1/1/org/chat/exec\n"
    );
    assert_eq!(fs::read_to_string(dir.path().join("told")).unwrap(), expected);
}

#[tokio::test]
async fn what_an_engine_printed_is_at_hand() {
    let dir = tempfile::tempdir().unwrap();
    let begin = "echo 'ordering a machine' >&2; echo \"{\\\"version\\\":1,\\\"replica\\\":{\\\"id\\\":$TIDEGATE_ID,\\\"state\\\":\\\"pending\\\"}}\"";
    let list = "test -e dead && echo '{\"version\":1,\"replicas\":[{\"id\":1,\"state\":\"exited\",\"how\":\"evicted\"}]}' \
                || echo '{\"version\":1,\"replicas\":[{\"id\":1,\"state\":\"pending\"}]}'";
    let provider = shell(dir.path(), begin, "true", list);
    let id = start(&provider).await;
    assert_eq!(provider.output(id), ["ordering a machine"]);
    fs::write(dir.path().join("dead"), "").unwrap();
    let list =
        until(&provider, |list| list.iter().any(|one| matches!(one.state, InstanceState::Exited { .. })))
            .await;
    let expected =
        InstanceState::Exited { how: "evicted".to_owned(), output: words(&["ordering a machine"]) };
    assert_eq!(list[0].state, expected);
    assert_eq!(offer(&provider).capacity, list[0].capacity);
}
