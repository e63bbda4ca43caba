//! The next run of the gateway: what it adopts, what it ends, what it leaves alone (C3, case C-005).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::replica::Capacity;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::super::clean_up;
use super::super::record::{self, Record, boot_id};
use super::super::table::{Identity, Table};
use super::{exit_of, identity, is_alive, open, processes, serving, spec, stop_all};
use crate::provider::Provider;
use crate::provider::contract::{start, until, up};
use crate::provider::folder::Folder;
use crate::provider::state::StateDir;

/// A process that has nothing to do with the gateway; ends with the test.
struct Stranger(std::process::Child);

impl Stranger {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap())
    }

    fn identity(&self) -> Identity {
        identity(&self.0.id().to_string())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn c3_a_changed_command_line_ends_the_old_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving("")).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let old = processes(&provider, id);
    drop(provider);
    let provider = open(dir.path(), serving("print('another model')")).await;
    assert_eq!(provider.list().await.unwrap(), []);
    assert!(!old.is_empty() && old.into_iter().all(|process| !is_alive(process)));
}

#[tokio::test]
async fn c005_engines_of_a_deployment_that_is_gone_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving("")).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let old = processes(&provider, id);
    drop(provider);
    let state = StateDir::open(dir.path()).unwrap();
    assert_eq!(clean_up(&state, &[DeploymentName::new("chat")]).await.unwrap(), Vec::<String>::new());
    assert!(old.iter().all(|process| is_alive(*process)));
    assert_eq!(clean_up(&state, &[DeploymentName::new("other")]).await.unwrap(), ["chat-1"]);
    assert!(!old.is_empty() && old.into_iter().all(|process| !is_alive(process)));
}

#[tokio::test]
async fn c005_an_engine_without_a_record_is_ended_and_its_id_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving("")).await;
    start(&provider).await;
    let id = start(&provider).await;
    let kept = until(&provider, |list| up(list, 2)).await;
    let stray = processes(&provider, id);
    drop(provider);
    fs::remove_file(dir.path().join("chat/2.json")).unwrap();
    fs::remove_file(dir.path().join("chat/next")).unwrap();
    let provider = open(dir.path(), serving("")).await;
    assert_eq!(provider.list().await.unwrap(), kept[..1]);
    assert!(!stray.is_empty() && stray.into_iter().all(|process| !is_alive(process)));
    assert_eq!(provider.next_id(), ReplicaId(3));
    stop_all(&provider).await;
}

#[tokio::test]
async fn c005_a_stranger_with_a_recorded_pid_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let (_claim, folder) = state.claim(&DeploymentName::new("chat")).unwrap();
    drop((_claim, state));
    let stranger = Stranger::new();
    let mut wrong_start = stranger.identity();
    wrong_start.start -= 1;
    forge(&folder, 1, wrong_start);
    forge(&folder, 2, stranger.identity()); // Even where all but the environment fits.
    let provider = open(dir.path(), serving("")).await;
    assert_eq!(provider.list().await.unwrap(), []);
    assert_eq!(provider.next_id(), ReplicaId(3));
    for id in [1, 2] {
        provider.stop(ReplicaId(id)).await.unwrap();
    }
    assert!(is_alive(stranger.identity()));
}

fn forge(folder: &Folder, id: u32, leader: Identity) {
    let (boot, recipe) = (boot_id().unwrap(), spec("chat", serving("")).fingerprint());
    let (id, capacity) = (ReplicaId(id), Capacity::ONE);
    let (members, parked) = (vec![leader], false);
    record::save(folder, &Record { id, leader, members, boot, parked, port: 1, capacity, recipe }).unwrap();
}

#[tokio::test]
async fn c005_an_adopted_engine_that_dies_is_noticed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving("print('hello', flush=True)")).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    drop(provider);
    let provider = open(dir.path(), serving("print('hello', flush=True)")).await;
    assert!(up(&provider.list().await.unwrap(), 1), "proven before the provider is handed out");
    let pid = processes(&provider, id)[0].pid.to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let (how, output) = exit_of(&provider).await;
    assert!(how.contains("an earlier run"), "{how}");
    assert_eq!(output, ["hello"]);
    provider.stop(id).await.unwrap();
}

const CHILD_DIR: &str = "TIDEGATE_TEST_STATE_DIR";

/// Not a test of its own: the gateway that [`c005_ten_times_killed_exactly_three`] kills. Fills up to three replicas,
/// says when each is up, and stays.
#[tokio::test]
#[ignore = "run by another test, in a process of its own"]
async fn gateway_to_be_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let provider = open(Path::new(&dir), serving("")).await;
    while provider.list().await.unwrap().len() < 3 {
        start(&provider).await;
        println!("started");
    }
    println!("up {:?}", until(&provider, |list| up(list, 3)).await);
    std::future::pending::<()>().await;
}

/// Kills a gateway process when it has printed a line that starts with `word`; returns that line.
async fn kill_at(dir: &Path, word: &str) -> String {
    let mut gateway = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "provider::process::tests::restart::gateway_to_be_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.starts_with(word) {
            gateway.kill().await.unwrap();
            return line;
        }
    }
    panic!("the gateway ended before it said {word:?}");
}

#[tokio::test]
async fn c005_ten_times_killed_exactly_three() {
    let dir = tempfile::tempdir().unwrap();
    let stranger = Stranger::new();
    // Killed in the middle of starts, then with all three up, over and over.
    kill_at(dir.path(), "started").await;
    let first = kill_at(dir.path(), "up").await;
    for _ in 0..10 {
        assert_eq!(kill_at(dir.path(), "up").await, first, "same ids, same ports");
    }
    let provider = open(dir.path(), serving("")).await;
    let list = provider.list().await.unwrap();
    assert_eq!(format!("up {list:?}"), first);
    let mut alive: Vec<Identity> = list.iter().flat_map(|one| processes(&provider, one.id)).collect();
    assert_eq!(alive.len(), 3);
    assert_eq!(Table::read().unwrap().replicas(&provider.core.marks).len(), 3, "no orphan");
    stop_all(&provider).await;
    alive.retain(|process| is_alive(*process));
    assert_eq!(alive, []);
    assert!(is_alive(stranger.identity()));
}

#[tokio::test]
async fn c005_members_on_record_are_ended_where_marker_and_leader_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    // Like an engine that sets its process title: the child overwrites its environment. `env -i` has the same effect.
    let before = "
child = subprocess.Popen(['env', '-i', 'sleep', '1000'])
print(child.pid, flush=True)";
    let provider = open(dir.path(), serving(before)).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let child = identity(&fs::read_to_string(provider.core.folder.log(id)).unwrap());
    let leader = processes(&provider, id)[0];
    drop(provider);
    assert!(Command::new("kill").args(["-9", &leader.pid.to_string()]).status().unwrap().success());
    let provider = open(dir.path(), serving(before)).await;
    assert_eq!(provider.list().await.unwrap(), []);
    assert!(!is_alive(child));
}

/// Overwrites the environment as programs do that set their process title.
const WIPE: &str = "
import ctypes
stat = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
start, end = int(stat[47]), int(stat[48])
ctypes.memset(start, 0, end - start)
assert open('/proc/self/environ').read().strip(chr(0)) == ''";

#[tokio::test]
async fn c005_an_engine_that_overwrote_its_environment_is_adopted_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving(WIPE)).await;
    start(&provider).await;
    let before = until(&provider, |list| up(list, 1)).await;
    let leader = record::load(&provider.core.folder).unwrap().0[0].leader;
    assert_eq!(processes(&provider, ReplicaId(1)), [], "the marker is gone");
    drop(provider);
    let provider = open(dir.path(), serving(WIPE)).await;
    assert_eq!(provider.list().await.unwrap(), before);
    drop(provider);
    let state = StateDir::open(dir.path()).unwrap();
    assert_eq!(clean_up(&state, &[]).await.unwrap(), ["chat-1"]);
    assert!(!is_alive(leader));
}
