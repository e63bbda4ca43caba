//! A Docker daemon of a test's own: its data, its socket and its network are in a folder that goes with it, and its
//! image is the binary under test.
//!
//! Looks at containers with Docker's own command line, not with the client that is under test. Needs root and `dockerd`;
//! where a machine lacks them, it says so by name.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Child;

use crate::config::Deployment;
use crate::deadline::{eventually, within};
use crate::gateway;
use crate::sdk::missing;

/// The image in which the binary under test is.
pub const IMAGE: &str = "tidegate-under-test";
/// The network that containers are in: Docker's own bridge would be shared with other daemons of the machine.
pub const NETWORK: &str = "fleet";

/// A running daemon. Dropped, it is ended with all its containers.
pub struct Dockerd {
    dir: TempDir,
    daemon: Option<Child>,
    live_restore: bool,
}

impl Dockerd {
    /// Starts one, with the image and the network in it; `None`, said aloud, where that cannot be. With
    /// `live_restore`, containers outlive it.
    pub async fn start(live_restore: bool) -> Option<Self> {
        let found = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(program).exists())
        };
        if !rustix::process::geteuid().is_root() {
            missing("root, to run a Docker daemon of its own");
            return None;
        }
        if !found("dockerd") || !found("docker") {
            missing("dockerd and docker (tests/setup.sh sets them up on Debian)");
            return None;
        }
        let dir = TempDir::with_prefix("tidegate-docker-").expect("a folder");
        let mut dockerd = Self { dir, daemon: None, live_restore };
        dockerd.revive().await;
        dockerd.docker(&["network", "create", NETWORK]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docker").join("image.sh");
        let binary = tokio::task::spawn_blocking(gateway::binary).await.expect("the binary");
        let made = Command::new(script).arg(binary).arg(IMAGE).env("DOCKER_HOST", dockerd.host()).output();
        let made = made.expect("docker/image.sh");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(dockerd)
    }

    /// Starts the daemon again, after it ended.
    pub async fn revive(&mut self) {
        let exec = self.dir.path().join("exec");
        // A daemon that was killed leaves the number of its containerd, which may still be a zombie.
        let _ = std::fs::remove_file(exec.join("containerd").join("containerd.pid"));
        let _ = std::fs::remove_file(self.dir.path().join("pid"));
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log"));
        let log = log.expect("a log");
        let mut command = tokio::process::Command::new("dockerd");
        command.arg("--data-root").arg(self.dir.path().join("data"));
        command.arg("--exec-root").arg(exec);
        command.arg("--pidfile").arg(self.dir.path().join("pid"));
        command.args(["--host", &self.host()]);
        // Published ports are carried by docker-proxy, so that the machine's packet filter is left alone.
        command.args(["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--bridge=none"]);
        if self.live_restore {
            command.arg("--live-restore");
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.daemon = Some(command.spawn().expect("start dockerd"));
        eventually("the Docker daemon answers", async || {
            let asked = self.command(&["version"]).output().expect("docker");
            if asked.status.success() { Ok(()) } else { Err(self.log()) }
        })
        .await;
    }

    /// Sends the daemon a signal and waits until it has ended.
    pub async fn end(&mut self, signal: Signal) {
        let mut daemon = self.daemon.take().expect("it runs");
        kill_process(pid(&daemon), signal).expect("signal");
        within("the Docker daemon ends", daemon.wait()).await.expect("wait");
    }

    /// Its address.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("socket").display())
    }

    /// What the daemon printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(arguments).env("DOCKER_HOST", self.host()).stdin(Stdio::null());
        command
    }

    /// Runs `docker` with these arguments; returns what it printed.
    #[track_caller]
    pub fn docker(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("docker");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "docker {arguments:?}: {err}");
        out.trim().to_owned()
    }

    /// The containers with this label, whatever became of them, as `docker inspect` shows them, in order of name.
    pub fn labelled(&self, label: &str) -> Vec<Value> {
        let ids = self.docker(&["ps", "--all", "--quiet", "--filter", &format!("label={label}")]);
        // One that goes away in between is not there.
        let inspect = |id: &str| {
            let output = self.command(&["inspect", id]).output().expect("docker");
            let list: Value = serde_json::from_slice(&output.stdout).ok()?;
            list.get(0).cloned()
        };
        let mut found: Vec<Value> = ids.lines().filter_map(inspect).collect();
        found.sort_by_key(|one| one["Name"].to_string());
        found
    }

    /// A deployment whose replicas are stand-in engines in containers.
    pub fn deployment(&self, name: &str, arguments: &[&str]) -> Deployment {
        let words =
            ["engine", "--host", "0.0.0.0", "--port", "{port}"].into_iter().chain(arguments.iter().copied());
        Deployment::named(name)
            .set("docker.host", self.host())
            .set("docker.image", IMAGE)
            .set("docker.network", NETWORK)
            .set("docker.command", words.map(toml::Value::from).collect::<Vec<_>>())
    }

    /// Folders below which a mount of the daemon's may be left.
    fn mounts(&self) -> Vec<PathBuf> {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        let mut found: Vec<PathBuf> = places.filter(|place| place.starts_with(self.dir.path())).collect();
        found.reverse();
        found
    }

    /// Ends what a daemon that is gone left: the processes that serve its containers, which name its folder.
    fn sweep(&self) {
        let folder = self.dir.path().display().to_string();
        for process in procfs::process::all_processes().into_iter().flatten().flatten() {
            let ours = process.cmdline().is_ok_and(|words| words.iter().any(|word| word.contains(&folder)));
            if let Some(pid) = Pid::from_raw(process.pid()).filter(|_| ours && process.pid() > 1) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        for mount in self.mounts() {
            let _ = Command::new("umount").arg("--lazy").arg(mount).stderr(Stdio::null()).status();
        }
    }
}

fn pid(child: &Child) -> Pid {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs")
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            eprintln!("dockerd printed at last, newest first:\n{}", tail.join("\n"));
        }
        if let Some(mut daemon) = self.daemon.take() {
            let quiet = |command: &mut Command| {
                let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            };
            let ids = self.command(&["ps", "--all", "--quiet"]).output().map(|output| output.stdout);
            for id in String::from_utf8_lossy(&ids.unwrap_or_default()).lines() {
                quiet(&mut self.command(&["rm", "--force", id]));
            }
            quiet(&mut self.command(&["network", "rm", NETWORK]));
            let _ = kill_process(pid(&daemon), Signal::TERM);
            while let Ok(None) = daemon.try_wait() {
                std::thread::yield_now();
            }
        }
        self.sweep();
    }
}
