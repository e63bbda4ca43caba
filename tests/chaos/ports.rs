//! What the machine or the operator has wrong before anything is served: told with its key, exit code 1, nothing left
//! running.

use std::path::Path;
use std::process::Output;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_tests::config::Config;
use tidegate_tests::deadline::within;
use tidegate_tests::gateway::binary;
use tidegate_tests::stub::Stub;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::fleet::{Fleet, QUICK, engines};

/// Runs a command of the binary to its end in `dir`.
async fn run(dir: &Path, command: &str) -> Output {
    let program = tokio::task::spawn_blocking(binary).await.expect("the binary");
    let mut process = Command::new(program);
    process.args([command, "--config", "tidegate.toml"]).current_dir(dir).kill_on_drop(true);
    within("the command ends", process.output()).await.expect("run it")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(dir: &TempDir, text: &str) {
    std::fs::write(dir.path().join("tidegate.toml"), text).expect("write the configuration");
}

/// Panics if a process works in this folder, as engines do; ends it first.
fn assert_nobody_in(dir: &Path) {
    let mut left = Vec::new();
    for process in procfs::process::all_processes().expect("the table").flatten() {
        if process.cwd().is_ok_and(|place| place.starts_with(dir)) {
            left.push(format!("{} {:?}", process.pid, process.cmdline()));
            let _ = kill_process(Pid::from_raw(process.pid).expect("a pid"), Signal::KILL);
        }
    }
    assert!(left.is_empty(), "left running: {left:?}");
}

#[tokio::test]
async fn h4_a_port_that_is_taken_is_named_with_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (taken_port, free_port) = [&taken, &free].map(|one| one.local_addr().expect("address").port()).into();
    drop(free);
    for (key, listen, admin) in [("listen", taken_port, free_port), ("admin", free_port, taken_port)] {
        let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
        let config = Config::of(engines(QUICK).set("min", 1).set("max", 1));
        write(&dir, &config.render(dir.path(), listen, admin));
        let output = run(dir.path(), "serve").await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in [&format!("127.0.0.1:{taken_port}"), &format!("`{key}`"), "another process has that port"]
        {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
        assert_nobody_in(dir.path());
        let output = run(dir.path(), "check").await;
        assert_eq!(output.status.code(), Some(0), "a check opens no port: {}", text(&output.stdout));
    }
}

#[tokio::test]
async fn c_005_a_state_directory_belongs_to_one_gateway() {
    let fleet = Fleet::launch(engines(QUICK).set("min", 1).set("max", 1)).await;
    let before = fleet.settled(1).await;
    let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
    let config = Config::of(engines(QUICK).set("min", 1).set("max", 1));
    // The same state directory, other ports.
    write(&dir, &config.render(fleet.dir(), 0, 0));
    let output = run(dir.path(), "serve").await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let holder = format!("in use by process {}", fleet.pid().expect("it runs").as_raw_nonzero());
    assert!(said.contains(&holder) && said.contains("state_dir"), "{said}");
    assert_nobody_in(dir.path());
    assert_eq!(fleet.settled(1).await, before, "the first one is not hurt");
}

#[tokio::test]
async fn a_start_that_fails_late_leaves_no_engine() {
    let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
    let second = engines(QUICK).set("name", "second").set("model", "chat").set("min", 1);
    let config = Config::of(engines(QUICK).set("min", 1)).and(second);
    write(&dir, &config.render(dir.path(), 0, 0));
    // A record of the second deployment that cannot be read.
    std::fs::create_dir_all(dir.path().join("state/second/1.json")).expect("a folder");
    let output = run(dir.path(), "serve").await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot adopt what an earlier run left"), "{said}");
    assert_nobody_in(dir.path());
}

#[tokio::test]
async fn ten_faults_are_told_at_once() {
    let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
    let stub = Stub::start().await;
    write(
        &dir,
        &format!(
            "listen = \"nowhere\"\nadmin = 8081\ncolour = \"blue\"\n\
             [limits]\nbody = \"64 parsecs\"\nconnect = \"0s\"\n\
             [log]\nlevel = \"loud\"\n\
             [[deployment]]\nname = \"a b\"\ntask = \"poetry\"\nmax = -1\n\
             [[deployment.replica]]\nurl = \"{}\"\ncapacity = 0\n",
            stub.url()
        ),
    );
    let keys = [
        "listen",
        "admin",
        "colour",
        "limits.body",
        "limits.connect",
        "log.level",
        "deployment 1 (line 9): name",
        "deployment 1 (line 9): task",
        "deployment 1 (line 9): max",
        "deployment 1 (line 9): replica[0].capacity",
    ];
    for command in ["serve", "check"] {
        let output = run(dir.path(), command).await;
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stdout) + &text(&output.stderr);
        let faults = said.lines().filter(|line| line.starts_with("tidegate.toml:")).count();
        assert_eq!(faults, 10, "{command}: {said}");
        assert!(said.contains("10 "), "{command}: {said}");
        for key in keys {
            let short = key.rsplit('.').next().unwrap_or(key);
            assert!(said.contains(short), "{command}: {key} is missing: {said}");
        }
    }
    assert_nobody_in(dir.path());
}
