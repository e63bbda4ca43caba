//! Decides about replicas: how many there should be, and which action brings the fleet closer.
//!
//! Pure: it takes what was observed and returns a plan. It has no clock, no IO, no locks, no threads.

pub mod budget;
pub mod config;
pub mod guard;
pub mod offer;
pub mod planner;
pub mod reconcile;
pub mod rule;
pub mod tune;
