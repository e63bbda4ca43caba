//! What every client may rely on, proven from outside: the real binary between scripted replicas and real sockets.
//!
//! Each test starts a gateway of its own, so all run side by side. Tests are named after the rule (`h4_…`) or the
//! reported case (`c_142_…`) that they prove.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod blocked;
#[cfg(test)]
mod drained;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod explain;
#[cfg(test)]
mod front;
#[cfg(test)]
mod goodbye;
#[cfg(test)]
mod growth;
#[cfg(test)]
mod half;
#[cfg(test)]
mod health;
#[cfg(test)]
mod http;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod keepalive;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod lengths;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod manage;
#[cfg(test)]
mod midway;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod priority;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod records;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod room;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod streaming;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tls_certificates;
#[cfg(test)]
mod tune;
#[cfg(test)]
mod unfit;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod upstream_h2;
#[cfg(test)]
mod upstream_idle;
#[cfg(test)]
mod upstream_tls;
#[cfg(test)]
mod weights;
#[cfg(test)]
mod why;

use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::stub::Stub;

/// The path of most tests.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A gateway with the deployment `chat` over these stubs, all defaults.
pub(crate) async fn serve(stubs: &[&Stub]) -> Gateway {
    Gateway::start(Config::of(Deployment::chat(stubs.iter().copied()))).await
}
