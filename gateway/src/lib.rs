//! Serves: the gateway in front of a fleet, and the command line around it.
//!
//! What to do with a request is decided in `tidegate-gateway-core`, how many replicas there are in
//! `tidegate-scaler-core`; this crate carries bytes, reads settings and shows what happens.

pub mod config;
pub mod engine;
pub mod openai;
