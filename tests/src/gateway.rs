//! The gateway under test: the real binary as a child process, with a configuration of its own in a folder of its own.
//!
//! It is looked at only from outside: ports, `/metrics`, `/status`, what it prints, how it exits.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_shared::names::metric;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Client, Stream};
use crate::config::Config;
use crate::deadline::{eventually, within};
use crate::front::Trust;
use crate::leftovers::{self, MARK};
use crate::metrics::Metrics;

/// Lines that a process printed so far.
type Lines = Arc<Mutex<Vec<String>>>;

/// The binary, built once per test process from the workspace that this test belongs to, in the test's own profile.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(build)
}

/// Builds the binary where cargo built this test: `<target>[/<triple>]/<profile folder>/deps/<test>`.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    let folder = test.ancestors().nth(2).expect("the profile's folder");
    let parent = folder.parent().expect("the target folder");
    let profile = folder.file_name().and_then(|name| name.to_str()).expect("the profile's name");
    let profile = if profile == "debug" { "dev" } else { profile };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["build", "--quiet", "--workspace", "--bin", "tidegate", "--profile", profile]);
    // Cargo's own note lies at the top, also where somebody else made the folder, which then has no tag.
    if [".rustc_info.json", "CACHEDIR.TAG"].iter().any(|name| parent.join(name).exists()) {
        command.arg("--target-dir").arg(parent);
    } else {
        command.arg("--target-dir").arg(parent.parent().expect("the target folder"));
        command.arg("--target").arg(parent.file_name().expect("the target triple"));
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "the gateway does not build: {status}");
    folder.join("tidegate")
}

/// A running gateway. Dropped, it is killed; what it printed is shown if the test failed.
pub struct Gateway {
    child: Child,
    /// Where requests go.
    pub address: SocketAddr,
    /// Where `/metrics` and `/status` are.
    pub admin: SocketAddr,
    /// Held for it, also while it is down between two starts.
    _ports: [Port; 2],
    dir: TempDir,
    /// Whom its clients trust, where they speak TLS.
    trust: Option<&'static Trust>,
    /// Added to its environment.
    env: Vec<(String, String)>,
    out: Lines,
    err: Lines,
}

impl Gateway {
    /// Starts a gateway, waits until it serves and until every static replica of the configuration is ready.
    pub async fn start(config: Config) -> Self {
        let replicas = config.static_replicas();
        let gateway = Self::launch(config).await;
        gateway.ready_replicas(replicas).await;
        gateway
    }

    /// Starts a gateway and waits until it serves, whatever its replicas do.
    pub async fn launch(config: Config) -> Self {
        Self::launch_with(config, &[]).await
    }

    /// The same with these variables in its environment.
    pub async fn launch_with(config: Config, env: &[(&str, &str)]) -> Self {
        let env: Vec<_> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
        let ports = free_ports();
        let [listen, admin] = ports.each_ref().map(|port| port.address);
        let text = config.render(dir.path(), listen.port(), admin.port());
        std::fs::write(dir.path().join("tidegate.toml"), text).expect("write the configuration");
        let (out, err) = (Lines::default(), Lines::default());
        let child = spawn(dir.path(), &env, &out, &err).await;
        let trust = config.trust;
        let mut gateway = Self { child, address: listen, admin, _ports: ports, dir, trust, env, out, err };
        gateway.serves().await;
        gateway
    }

    /// Starts it again, after it ended, with the same configuration, ports and state.
    pub async fn restart(&mut self) {
        self.ended().await;
        self.child = spawn(self.dir.path(), &self.env, &self.out, &self.err).await;
        self.serves().await;
    }

    /// Waits for `/readyz` to answer 200.
    async fn serves(&mut self) {
        let client = self.client();
        let Self { child, address, err, .. } = self;
        eventually("the gateway serves", async || {
            if let Some(status) = child.try_wait().expect("wait") {
                panic!("the gateway ended at its start: {status}\n{}", text(err));
            }
            match tokio::net::TcpStream::connect(*address).await {
                Err(error) => Err(error.to_string()),
                // It tries its port with a listener that it closes again, and so resets who came that early.
                Ok(_) => match client.attempt(Method::GET, "/readyz", "").await.map(|answer| answer.status) {
                    Some(200) => Ok(()),
                    other => Err(format!("/readyz answers {other:?}")),
                },
            }
        })
        .await;
    }

    /// A client that speaks HTTP/1.1 to it.
    pub fn client(&self) -> Client {
        Client::h1(self.address).inside(self.trust)
    }

    /// A client that speaks HTTP/2 to it.
    pub fn h2(&self) -> Client {
        Client::h2(self.address).inside(self.trust)
    }

    /// Posts a chat and returns with the head of the answer.
    pub async fn chat(&self, body: &Value) -> Stream {
        self.client().stream("/v1/chat/completions", body).await
    }

    /// Its metrics now.
    pub async fn metrics(&self) -> Metrics {
        let answer = Client::h1(self.admin).get("/metrics").await;
        assert_eq!(answer.status, 200, "/metrics");
        Metrics::parse(&String::from_utf8_lossy(&answer.body))
    }

    /// Its `/status` now.
    pub async fn status(&self) -> Value {
        let answer = Client::h1(self.admin).get("/status").await;
        assert_eq!(answer.status, 200, "/status");
        answer.json()
    }

    /// Waits until the metric, summed over the series with these labels, is exactly `wanted`.
    pub async fn until_metric(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let what = format!("{name}{labels:?} is {wanted}");
        eventually(&what, async || match self.metrics().await.total(name, labels) {
            found if found == wanted => Ok(()),
            found => Err(format!("{found}")),
        })
        .await;
    }

    /// Waits until `count` replicas are ready, over all deployments.
    pub async fn ready_replicas(&self, count: usize) {
        self.until_metric(metric::REPLICAS, &[("phase", "ready")], count as f64).await;
    }

    /// Waits until `count` requests wait in the queue, over all deployments.
    pub async fn queued(&self, count: usize) {
        self.until_metric(metric::QUEUED, &[], count as f64).await;
    }

    /// Waits until `count` requests are with replicas, over all deployments.
    pub async fn in_flight(&self, count: usize) {
        self.until_metric(metric::IN_FLIGHT, &[], count as f64).await;
    }

    /// Waits until nothing is in flight, nothing queued and no body held, by `/metrics` and by `/status` (Q5); until then
    /// nothing may have panicked.
    pub async fn assert_idle(&self) {
        eventually("in flight, queued and held are zero", async || {
            let (metrics, status) = (self.metrics().await, self.status().await);
            let seen = [
                metrics.total(metric::IN_FLIGHT, &[]),
                metrics.total(metric::QUEUED, &[]),
                metrics.total(metric::BUFFERED_BYTES, &[]),
                sum(&status, "in_flight").unwrap_or(f64::NAN),
                sum(&status, "queued").unwrap_or(f64::NAN),
            ];
            assert_eq!(metrics.total(metric::PANICS, &[]), 0.0, "{}", self.log());
            if seen == [0.0; 5] {
                Ok(())
            } else {
                Err(format!("in flight, queued, bytes, and the first two again: {seen:?} in {status}"))
            }
        })
        .await;
    }

    /// Waits for a line of JSON on stdout (the access log) in which `look` finds what it wants.
    pub async fn access_line<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        eventually(what, async || {
            let lines = self.out.lock().expect("lines").clone();
            let mut values = lines.iter().filter_map(|line| serde_json::from_str(line).ok());
            values.find_map(|value| look(&value)).ok_or_else(|| lines.join("\n"))
        })
        .await
    }

    /// What it printed on stdout: the access log, unless the configuration says otherwise.
    pub fn printed(&self) -> String {
        text(&self.out)
    }

    /// What it printed on stderr.
    pub fn log(&self) -> String {
        text(&self.err)
    }

    /// The folder with its configuration and its state.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The number of its process; `None` once it has ended and was waited for.
    pub fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks it to end as a terminal does (SIGINT).
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks it to end as a terminal does (SIGHUP).
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid().expect("it runs"), signal).expect("signal");
    }

    /// Asks it to end, and waits until it and everything that it started has ended (C-005).
    pub async fn leaves_nothing(mut self) {
        self.terminate();
        let status = self.ended().await;
        assert!(status.success(), "it ends in peace: {status}\n{}", self.log());
        leftovers::none_left(self.dir.path()).await;
    }

    /// The base URL for OpenAI's SDKs.
    pub fn base_url(&self) -> String {
        let scheme = if self.trust.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/v1", self.address)
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        within("the gateway ends", self.child.wait()).await.expect("wait")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the gateway printed:\n{}{}", text(&self.out), text(&self.err));
        }
        // Engines outlive a gateway that is killed, as they should; a test that is over must not leave them.
        let _ = self.child.start_kill();
        leftovers::sweep(self.dir.path());
    }
}

/// The sum of all numbers of that key, wherever they are; `None` when there is none.
pub fn sum(value: &Value, key: &str) -> Option<f64> {
    let inner = |parts: &mut dyn Iterator<Item = &Value>| {
        parts
            .filter_map(|part| sum(part, key))
            .fold(None, |sum: Option<f64>, part| Some(sum.unwrap_or(0.0) + part))
    };
    match value {
        Value::Object(map) => match map.get(key).and_then(Value::as_f64) {
            Some(here) => Some(here),
            None => inner(&mut map.values()),
        },
        Value::Array(list) => inner(&mut list.iter()),
        _ => None,
    }
}

/// A port that nobody has, neither now nor for one of his gateways that is about to start: while this is held, no other test
/// of this machine takes it, whose process or folder it may be of. Else a test could find another's gateway where it
/// waits for its own, and lose its connections when that one ends.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    /// Its name is the port's. It goes with the process, whatever ends that.
    _mark: UnixListener,
}

impl Port {
    fn take(port: u16) -> Option<Self> {
        let name = LocalAddr::from_abstract_name(format!("tidegate-test-port-{port}")).ok()?;
        let mark = UnixListener::bind_addr(&name).ok()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?.local_addr().ok()?;
        Some(Self { address, _mark: mark })
    }
}

/// Two ports that nobody has: below those that the kernel gives to connections, which may take a port between its choice
/// and its use.
fn free_ports() -> [Port; 2] {
    const PORTS: std::ops::Range<u32> = 30_000..32_768;
    static TURN: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id().wrapping_mul(97);
    let mut ports = std::iter::repeat_with(|| own.wrapping_add(TURN.fetch_add(1, Ordering::Relaxed)))
        .take(PORTS.len())
        .filter_map(|turn| u16::try_from(PORTS.start + turn % (PORTS.end - PORTS.start)).ok())
        .filter_map(Port::take);
    let mut port = || ports.next().expect("a free port");
    [port(), port()]
}

/// Starts the binary in `dir`; what it prints is added to the lines.
async fn spawn(dir: &Path, env: &[(String, String)], out: &Lines, err: &Lines) -> Child {
    let program = tokio::task::spawn_blocking(binary).await.expect("the binary");
    let mut child = Command::new(program)
        .args(["serve", "--config", "tidegate.toml"])
        .current_dir(dir)
        .env(MARK, dir)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("start the gateway");
    keep(child.stdout.take().expect("stdout"), out);
    keep(child.stderr.take().expect("stderr"), err);
    child
}

/// Adds the lines of a pipe to `lines`.
fn keep(pipe: impl AsyncRead + Send + Unpin + 'static, lines: &Lines) {
    let kept = Arc::clone(lines);
    tokio::spawn(async move {
        let mut pipe = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = pipe.next_line().await {
            kept.lock().expect("lines").push(line);
        }
    });
}

fn text(lines: &Lines) -> String {
    lines.lock().expect("lines").iter().map(|line| format!("{line}\n")).collect()
}
