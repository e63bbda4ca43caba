//! The vocabulary of Tidegate: what the cores, the drivers and the simulator call things.
//!
//! Nothing here decides and nothing here acts. The rule ids in the docs (A1, H4, R3, …) are those of the
//! specification that ARCHITECTURE.md summarises.

pub mod decision;
pub mod demand;
pub mod explained;
pub mod id;
pub mod keyed;
pub mod names;
pub mod offer;
pub mod policy;
pub mod problem;
pub mod replica;
pub mod request;
pub mod rng;
pub mod span;
pub mod time;
