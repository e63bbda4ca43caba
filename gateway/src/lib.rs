//! Serves: the gateway in front of a fleet, and the command line around it.
//!
//! What to do with a request is decided in `tidegate-gateway-core`, how many replicas there are in
//! `tidegate-scaler-core`; this crate carries bytes, reads settings and shows what happens.

pub mod admin;
mod alpn;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod deployment;
pub mod endpoint;
pub mod engine;
pub mod http1;
pub mod layer;
pub mod local;
pub mod once;
pub mod openai;
mod pem;
mod pinned;
pub mod pool;
pub mod probe;
mod provide;
pub mod quickstart;
pub mod server;
mod signals;
pub mod sizing;
pub mod telemetry;
pub mod tune;
pub mod upstream;
