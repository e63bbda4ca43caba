//! A gateway whose replicas are processes, and those processes as the kernel knows them: found by the mark that they
//! carry in their environment, whoever is their parent now.
//!
//! Signals no other process. Dropped, it ends the gateway and every engine of its state directory.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tidegate_tests::client::{Answer, Client};
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::Gateway;
use tidegate_tests::metrics::Metrics;
use tidegate_tests::shown::{replicas, shown};

use crate::CHAT;

/// The arguments of an engine that loads at once, serves the model `chat` and answers fast.
pub(crate) const QUICK: &[&str] = &["--model", "chat", "--load-time", "0s", "--step-us", "2000"];

/// The deployment `chat` whose replicas are stand-in engines.
pub(crate) fn engines(arguments: &[&str]) -> Deployment {
    Deployment::named("chat").engine(arguments)
}

/// A process that the gateway started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Engine {
    /// Its public name, as in `/status`.
    pub(crate) id: String,
    pub(crate) pid: i32,
    /// When it started, in ticks since boot: with the pid, its identity.
    pub(crate) started: u64,
    /// The port on its command line; 0 when there is none.
    pub(crate) port: u16,
}

impl Engine {
    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid).expect("a pid"), signal).expect("signal an engine");
    }

    /// Asks it directly, without the gateway.
    pub(crate) fn client(&self) -> Client {
        Client::h1(([127, 0, 0, 1], self.port).into())
    }

    /// Orders faults from it; see `tidegate engine --help`.
    pub(crate) async fn faults(&self, faults: &Value) {
        assert_eq!(self.client().post("/faults", faults).await.status, 200, "{faults}");
    }

    /// Requests that it runs, and that wait in it.
    pub(crate) async fn busy(&self) -> (f64, f64) {
        let page = self.client().get("/metrics").await;
        let metrics = Metrics::parse(&String::from_utf8_lossy(&page.body));
        let figure = |name| metrics.sum(name, &[]).expect("a figure of the engine");
        (figure("vllm:num_requests_running"), figure("vllm:num_requests_waiting"))
    }
}

/// A gateway with process replicas.
pub(crate) struct Fleet {
    gateway: Gateway,
    nonce: String,
}

impl Fleet {
    /// Starts it and waits until it serves, whatever its replicas do.
    pub(crate) async fn launch(deployment: Deployment) -> Self {
        Self::with(Config::of(deployment)).await
    }

    /// The same with a whole configuration.
    pub(crate) async fn with(config: Config) -> Self {
        let gateway = Gateway::launch(config).await;
        let nonce = std::fs::read_to_string(gateway.dir().join("state/.nonce")).expect("the nonce");
        Self { gateway, nonce: nonce.trim().to_owned() }
    }

    /// Every engine that lives, in order of id.
    pub(crate) fn engines(&self) -> Vec<Engine> {
        let processes = all_processes().expect("the table of processes");
        let mut found: Vec<_> = processes.filter_map(|process| self.engine(&process.ok()?)).collect();
        found.sort();
        found
    }

    /// `None` for a process that is no engine of this gateway, or is over.
    fn engine(&self, process: &Process) -> Option<Engine> {
        let environment = process.environ().ok()?;
        let mark = environment.get(std::ffi::OsStr::new("TIDEGATE_REPLICA"))?.to_str()?;
        let id = mark.strip_prefix(&self.nonce)?.trim_start_matches('/').replace('/', "-");
        let words = process.cmdline().ok()?;
        let port = words.iter().skip_while(|word| *word != "--port").nth(1);
        let port = port.and_then(|port| port.parse().ok()).unwrap_or(0);
        let stat = process.stat().ok().filter(|stat| stat.state != 'Z')?;
        Some(Engine { id, pid: stat.pid, started: stat.starttime, port })
    }

    /// Waits until exactly `count` engines live and the status names exactly these, on their ports, all ready.
    pub(crate) async fn settled(&self, count: usize) -> Vec<Engine> {
        eventually(&format!("{count} engines, all ready and in the status"), async || {
            let engines = self.engines();
            let status = self.status().await;
            let shown = shown(&status);
            let there: Vec<_> = engines.iter().map(|engine| (engine.id.clone(), engine.port)).collect();
            let ready = replicas(&status).iter().all(|replica| replica["phase"] == "ready");
            if shown == there && ready && engines.len() == count {
                return Ok(engines);
            }
            Err(format!("{engines:?} beside {status}"))
        })
        .await
    }

    /// Waits until no engine lives and the status names no replica.
    pub(crate) async fn empty(&self) {
        self.settled(0).await;
    }

    /// Waits until the status of the deployment `chat` is as `look` wants it.
    pub(crate) async fn until_status<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        eventually(what, async || {
            let status = self.status().await;
            look(&status["deployments"][0]).ok_or_else(|| status.to_string())
        })
        .await
    }

    /// Asks for a short answer.
    pub(crate) async fn ask(&self, text: &str) -> Answer {
        self.client().post(CHAT, &brief(text)).await
    }
}

/// What the kernel knows of the gateway.
pub(crate) fn process_of(gateway: &Gateway) -> Process {
    Process::new(gateway.pid().expect("it runs").as_raw_nonzero().get()).expect("the gateway's process")
}

/// Open file descriptors of the gateway.
pub(crate) fn descriptors(gateway: &Gateway) -> usize {
    process_of(gateway).fd_count().expect("descriptors")
}

/// Processor time that the gateway has used.
pub(crate) fn processor_time(gateway: &Gateway) -> Duration {
    let stat = process_of(gateway).stat().expect("stat");
    Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second())
}

/// Memory of the gateway that is resident, in MiB.
pub(crate) fn resident(gateway: &Gateway) -> u64 {
    let pages = process_of(gateway).statm().expect("statm").resident;
    (pages * procfs::page_size()) >> 20
}

/// A chat that asks for a short answer.
pub(crate) fn brief(text: &str) -> Value {
    json!({"model": "chat", "max_tokens": 8, "messages": [{"role": "user", "content": text}]})
}

/// A streamed chat of `tokens` tokens.
pub(crate) fn long(text: &str, tokens: u32) -> Value {
    json!({"model": "chat", "stream": true, "max_tokens": tokens, "ignore_eos": true,
           "messages": [{"role": "user", "content": text}]})
}

impl Deref for Fleet {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl DerefMut for Fleet {
    fn deref_mut(&mut self) -> &mut Gateway {
        &mut self.gateway
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The gateway first: it would replace its engines.
        if let Some(pid) = self.gateway.pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
        for engine in self.engines() {
            let _ = kill_process(Pid::from_raw(engine.pid).expect("a pid"), Signal::KILL);
        }
    }
}
