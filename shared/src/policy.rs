//! The placement policies by name. What each does is in the gateway's core.

use serde::{Deserialize, Serialize};

/// Where a request goes that nothing binds to a replica (R3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The least loaded by size.
    #[default]
    LeastLoad,
    /// The less loaded of two drawn at random.
    TwoChoices,
    /// By a hash of the beginning of the prompt, the same on every gateway, as long as that keeps the balance.
    Prefix,
    /// One after the other.
    RoundRobin,
    /// Any.
    Random,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::LeastLoad, Self::TwoChoices, Self::Prefix, Self::RoundRobin, Self::Random];

    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeastLoad => "least-load",
            Self::TwoChoices => "two-choices",
            Self::Prefix => "prefix",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
        }
    }
}
