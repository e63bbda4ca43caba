//! What the outside sees of the gateway at work: metrics, the access log, the log.

pub mod access;
mod file;
pub mod json;
mod lines;
pub mod log;
pub mod meter;
pub mod record;
pub mod request_id;
pub mod tally;
