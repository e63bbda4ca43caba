//! Guards stand between a need and the fleet. Each holds one piece of the past, answers one question about it, and
//! never counts replicas or knows a rule: the planner puts them together.

pub mod carried;
pub mod confirm;
pub mod cool;
pub mod expiry;
pub mod pause;
pub mod room;
pub mod watched;
pub mod window;
