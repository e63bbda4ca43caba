//! Decides about requests: which replica, wait, or no.
//!
//! Pure: it takes `now` and facts and returns verdicts. It has no clock, no IO, no locks, no threads. `dispatch` is
//! the one state machine; the other modules know only their own business and never each other.

pub mod config;
pub mod conversation;
pub mod dispatch;
pub mod drain;
pub mod estimate;
pub mod health;
pub mod inflow;
pub mod lately;
pub mod ledger;
pub mod prefixes;
pub mod promise;
pub mod queue;
pub mod retry;
pub mod route;
pub mod slow_start;
