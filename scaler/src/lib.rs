//! Changes the fleet: observes it, asks the planner, and starts, drains and stops real replicas through providers.
//!
//! The decisions are made in `tidegate-scaler-core`; this crate only carries them out and reports what happened.

pub mod control;
pub mod fleet;
pub mod house;
pub mod orphans;
pub mod provider;
pub mod store;
