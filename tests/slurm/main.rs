//! Replicas as jobs of a real Slurm that each test has for itself, with stand-in engines.
//!
//! What a machine lacks for it (root, Slurm's packages) is said by name; with `CI=true` it fails.

#[cfg(test)]
mod fleet;
#[cfg(test)]
mod tide;
#[cfg(test)]
mod trouble;
