//! Where requests go, proven from outside and in large numbers: the real gateway over stand-in engines with caches,
//! over scripted replicas, and over the model of an engine in virtual time.
//!
//! `conformance` proves that a rule holds; here it is counted how well.

#[cfg(test)]
mod detours;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod gateways;
#[cfg(test)]
mod homes;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod prefixes;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod spread;
#[cfg(test)]
mod virtual_time;

/// The path of most tests.
pub(crate) const CHAT: &str = "/v1/chat/completions";
