//! Engines in virtual time: what a replica does with its requests, computed instead of measured.
//!
//! Pure: it takes `now` and inputs, returns events and the moment of the next one. It has no clock, no IO, no
//! threads and no randomness, so that a run replays bit for bit. The gateway's stand-in engine drives the
//! same code in real time.

pub mod engine;
