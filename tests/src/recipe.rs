//! A reported case on its ways in: HTTP/1.1 in the clear and HTTP/2 inside TLS, each endpoint, whole and as a stream; and
//! what must be so when it is over, whatever the case: nothing in flight, nothing in line, no panic, no process left over,
//! descriptors and memory as before.
//!
//! It proves nothing by itself and never says what a request comes to: that is the case's.

use std::collections::BTreeSet;
use std::fmt;

use hyper::Method;
use procfs::process::{FDTarget, Process};
use serde_json::{Value, json};

use crate::certificates::Issuer;
use crate::client::{Answer, Client, Stream};
use crate::config::Config;
use crate::deadline::eventually;
use crate::front::Front;
use crate::gateway::Gateway;

/// The endpoints of cases.
pub const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

/// One way to ask for the model `chat`.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Who asks.
    pub client: Client,
    /// The endpoint.
    pub path: &'static str,
    /// Whether the answer is to be a stream.
    pub stream: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.stream { "streamed" } else { "whole" };
        write!(f, "{:?} {}, {how}", self.client.version(), self.path)
    }
}

impl Way {
    /// Every way to ask with this client.
    pub fn all(client: Client) -> [Self; 5] {
        [(CHAT, false), (CHAT, true), (COMPLETIONS, false), (COMPLETIONS, true), (EMBEDDINGS, false)]
            .map(|(path, stream)| Self { client, path, stream })
    }

    /// Those of them whose answer is a stream.
    pub fn streams(client: Client) -> [Self; 2] {
        [CHAT, COMPLETIONS].map(|path| Self { client, path, stream: true })
    }

    /// The body of a request with this text.
    pub fn body(&self, text: &str) -> Value {
        match self.path {
            CHAT => {
                json!({"model": "chat", "stream": self.stream, "messages": [{"role": "user", "content": text}]})
            }
            COMPLETIONS => json!({"model": "chat", "stream": self.stream, "prompt": text}),
            _ => json!({"model": "chat", "input": text}),
        }
    }

    /// Asks, and returns as soon as the head of the answer is there.
    pub async fn open(&self, text: &str, headers: &[(&str, &str)]) -> Stream {
        self.client.open(Method::POST, self.path, headers, self.body(text).to_string()).await
    }

    /// Asks, and reads the whole answer.
    pub async fn ask(&self, text: &str) -> Answer {
        self.open(text, &[]).await.whole().await
    }
}

/// One configuration behind both of its doors: a gateway in the clear, whose clients speak HTTP/1.1, and one inside TLS,
/// whose clients speak HTTP/2.
pub struct Doors {
    /// In the clear first.
    pub gateways: [Gateway; 2],
    _shown: Front,
}

impl Doors {
    /// Starts both, and waits until every static replica is ready behind both.
    pub async fn start(config: Config) -> Self {
        let replicas = config.static_replicas();
        let doors = Self::launch(config).await;
        for gateway in &doors.gateways {
            gateway.ready_replicas(replicas).await;
        }
        doors
    }

    /// Starts both, whatever the replicas do.
    pub async fn launch(config: Config) -> Self {
        let shown = Front::of(&Issuer::new("doors"));
        let secured = config.clone().secured(&shown);
        let gateways = [Gateway::launch(config).await, Gateway::launch(secured).await];
        Self { gateways, _shown: shown }
    }

    /// Each with the client that comes in there.
    pub fn each(&self) -> [(&Gateway, Client); 2] {
        let [clear, secured] = &self.gateways;
        [(clear, clear.client()), (secured, secured.h2())]
    }

    /// Ends both, which must leave nothing behind.
    pub async fn leave_nothing(self) {
        for gateway in self.gateways {
            gateway.assert_idle().await;
            gateway.leaves_nothing().await;
        }
    }
}

/// What a gateway holds of the machine while nobody asks for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Open descriptors, but for connections to replicas, which are kept for the next request.
    descriptors: usize,
    /// Pages of memory.
    pages: u64,
}

impl Base {
    /// Waits until nothing is in flight and nothing in line, and looks. What is made once is to be there already.
    pub async fn of(gateway: &Gateway) -> Self {
        gateway.assert_idle().await;
        Self::now(gateway)
    }

    fn now(gateway: &Gateway) -> Self {
        let process =
            Process::new(gateway.pid().expect("it runs").as_raw_nonzero().get()).expect("its process");
        let all: Vec<_> = process.fd().expect("its descriptors").flatten().map(|open| open.target).collect();
        let sockets = all.iter().filter_map(|target| match target {
            FDTarget::Socket(inode) => Some(*inode),
            _ => None,
        });
        let sockets: BTreeSet<u64> = sockets.collect();
        let doors = [gateway.address.port(), gateway.admin.port()];
        let table = process.tcp().expect("the table of connections");
        let to_replicas = table
            .iter()
            .filter(|entry| sockets.contains(&entry.inode) && !doors.contains(&entry.local_address.port()));
        let descriptors = all.len() - to_replicas.count();
        Self { descriptors, pages: process.statm().expect("its memory").resident }
    }

    /// Waits until the gateway has closed what it has opened since then, to within 5 %.
    pub async fn closed(self, gateway: &Gateway) {
        self.until(gateway, "descriptors are as before", |now| {
            fits(now.descriptors as u64, self.descriptors as u64)
        })
        .await;
    }

    /// Waits until the gateway holds no more than that again, to within 5 %.
    pub async fn restored(self, gateway: &Gateway) {
        self.closed(gateway).await;
        self.until(gateway, "memory is as before", |now| fits(now.pages, self.pages)).await;
    }

    async fn until(self, gateway: &Gateway, what: &str, fits: impl Fn(Self) -> bool) {
        gateway.assert_idle().await;
        eventually(what, async || {
            let now = Self::now(gateway);
            if fits(now) { Ok(()) } else { Err(format!("{now:?} after {self:?}")) }
        })
        .await;
    }
}

/// Whether that is no more than 5 % above what was before.
fn fits(now: u64, before: u64) -> bool {
    now * 20 <= before * 21
}

/// Runs a case for each way in, twice: what is made once is made the first time, and the second time leaves nothing.
pub async fn everywhere(config: Config, case: impl AsyncFn(&Gateway, Way)) {
    let doors = Doors::start(config).await;
    for (gateway, client) in doors.each() {
        for way in Way::all(client) {
            case(gateway, way).await;
        }
        let base = Base::of(gateway).await;
        for way in Way::all(client) {
            case(gateway, way).await;
        }
        base.restored(gateway).await;
    }
    doors.leave_nothing().await;
}
