//! Replicas in containers, with a real Docker daemon that each test has for itself, and stand-in engines in an image
//! made from nothing.
//!
//! What a machine lacks for it (root, `dockerd`) is said by name; with `CI=true` it fails.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod parked;
#[cfg(test)]
mod tide;
