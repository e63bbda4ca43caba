//! Processes that are stopped where they stand, and go on (C6).

use super::*;

/// A provider whose replicas run in sessions of their own.
async fn in_sessions(dir: &Path, command: Vec<String>) -> ProcessProvider {
    let spec = ProcessSpec { launcher: vec!["setsid".to_owned()], ..spec("chat", command) };
    ProcessProvider::new(spec, StateDir::open(dir).unwrap()).await.unwrap()
}

/// The states of all processes of a replica.
fn states(provider: &ProcessProvider, id: ReplicaId) -> Vec<char> {
    let all = processes(provider, id).into_iter();
    all.map(|one| procfs::process::Process::new(one.pid).unwrap().stat().unwrap().state).collect()
}

fn is_parked(list: &[Instance]) -> bool {
    list.iter().all(|one| matches!(one.state, InstanceState::Parked { .. })) && list.len() == 1
}

#[tokio::test]
async fn c6_c_005_a_replica_stands_still_with_all_it_has_started_also_for_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let command = || serving("subprocess.Popen(['sleep', '600'])");
    let provider = in_sessions(dir.path(), command()).await;
    let id = start(&provider).await;
    let before = until(&provider, |list| up(list, 1)).await;
    let InstanceState::Up { url } = before[0].state.clone() else { panic!("{before:?}") };
    let members = processes(&provider, id);
    for _ in 0..2 {
        provider.park(id).await.unwrap();
        assert_eq!(provider.list().await.unwrap()[0].state, InstanceState::Parked { url: url.clone() });
        assert_eq!(states(&provider, id), ['T', 'T']);
    }
    drop(provider);
    let provider = in_sessions(dir.path(), command()).await;
    assert!(is_parked(&provider.list().await.unwrap()), "as the last run left it");
    assert_eq!((states(&provider, id), processes(&provider, id)), (vec!['T', 'T'], members));
    for _ in 0..2 {
        provider.unpark(id).await.unwrap();
        assert_eq!(provider.list().await.unwrap(), before, "the same as before");
    }
    let address = url.strip_prefix("http://").unwrap();
    assert!(std::net::TcpStream::connect(address).is_ok(), "and it serves");
    assert!(!states(&provider, id).contains(&'T'));
    provider.park(id).await.unwrap();
    provider.stop(id).await.unwrap();
    assert_eq!((provider.list().await.unwrap(), processes(&provider, id)), (vec![], vec![]));
    assert!(provider.park(id).await.is_err(), "it is gone");
}

#[tokio::test]
async fn c6_what_would_end_with_the_gateway_is_not_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), serving("")).await;
    let id = start(&provider).await;
    let before = until(&provider, |list| up(list, 1)).await;
    let why = provider.park(id).await.unwrap_err().to_string();
    assert!(why.contains("before `parked` was set"), "{why}");
    assert_eq!(provider.list().await.unwrap(), before);
    provider.stop(id).await.unwrap();
}

#[tokio::test]
async fn c6_a_parked_replica_that_is_killed_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let provider = in_sessions(dir.path(), serving("print('hello', flush=True)")).await;
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    provider.park(id).await.unwrap();
    let pid = processes(&provider, id)[0].pid.to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let (how, output) = exit_of(&provider).await;
    assert!(how.contains("signal: 9") && output == ["hello"], "{how} {output:?}");
    provider.stop(id).await.unwrap();
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_at_once_by_a_launcher_too() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["no-such-engine", "{port}"].map(str::to_owned).to_vec();
    let provider = in_sessions(dir.path(), command).await;
    let error = provider.start(provider.next_id(), offer(&provider)).await.unwrap_err().to_string();
    assert!(error.contains("there is no such program on PATH"), "{error}");
    assert_eq!(provider.list().await.unwrap(), []);
}
