//! What the suites stand on: scripted replicas, the real gateway as a child process, clients that can misbehave, and
//! waits that cannot hang.
//!
//! It proves nothing by itself; the suites beside `src/` do. It never replaces a part of the gateway: the binary under
//! test is the one that users run.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "this crate is test code: a broken expectation must end the test, with a name"
)]

pub mod books;
pub mod certificates;
pub mod client;
pub mod config;
pub mod crowd;
pub mod deadline;
pub mod dockerd;
pub mod frame;
pub mod frames;
pub mod front;
pub mod gateway;
pub mod leftovers;
pub mod listed;
pub mod metrics;
pub mod model;
pub mod openai;
pub mod partly;
pub mod recipe;
pub mod script;
pub mod sdk;
pub mod secure;
pub mod shown;
pub mod slurm;
pub mod stand_in;
pub mod streams;
pub mod stub;
pub mod tap;
pub mod wire;
