//! Stand-in engines that belong to the test and not to the gateway: real processes, which a test can kill, and which
//! nobody starts again.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::Client;
use crate::deadline::within;
use crate::gateway::binary;
use crate::metrics::Metrics;

/// Arguments of an engine that has loaded at once and costs next to no time.
pub const INSTANT: &[&str] = &[
    "--model",
    "chat",
    "--load-time",
    "0s",
    "--step-us",
    "200",
    "--step-sequence-us",
    "0",
    "--step-kv-ns",
    "0",
    "--prefill-rate",
    "100000000",
];

/// A running engine. Dropped, it is killed.
#[derive(Debug)]
pub struct StandIn {
    child: Child,
    address: SocketAddr,
}

impl StandIn {
    /// Starts one with these arguments, on a port that the kernel chooses, and waits until it listens.
    pub async fn start(arguments: &[&str]) -> Self {
        let program = tokio::task::spawn_blocking(binary).await.expect("the binary");
        let mut command = Command::new(program);
        command.args(["engine", "--port", "0"]).args(arguments);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("start an engine");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let address = within("the engine says where it listens", async {
            loop {
                let line = lines.next_line().await.expect("stderr").expect("the engine lives");
                if let Some((_, rest)) = line.split_once("http://") {
                    let end = rest.find(';').unwrap_or(rest.len());
                    return rest[..end].parse().expect("an address");
                }
            }
        })
        .await;
        // Whatever else it says must have somewhere to go.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, address }
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub async fn kill(&mut self) {
        within("the engine is gone", self.child.kill()).await.expect("kill");
    }

    /// A figure of its metrics page, summed over the series of that name.
    pub async fn figure(&self, name: &str) -> f64 {
        let page = Client::h1(self.address).get("/metrics").await;
        let metrics = Metrics::parse(&String::from_utf8_lossy(&page.body));
        metrics.sum(name, &[]).expect("a figure of the engine")
    }
}
