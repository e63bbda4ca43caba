//! Which replica a request goes to when nothing binds it to one: one policy a file, all behind [`Policy`].

mod least_load;
mod prefix;
mod random;
mod round_robin;
mod two_choices;

#[cfg(test)]
mod contract;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::request::{ConversationKey, Tokens};

pub use least_load::LeastLoad;
pub use prefix::Prefix;
pub use random::Random;
pub use round_robin::RoundRobin;
pub use two_choices::TwoChoices;

/// Start-time fair queueing: each placement moves a replica's turn on by 1/capacity, the smallest turn is next. So
/// placements on an idle fleet, where all loads are equal, follow the capacities (R3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u128);

impl Turn {
    /// The turn after one more placement on a replica of this weight.
    pub fn after(self, weight: u64) -> Self {
        Self(self.0.saturating_add((1u128 << 64) / u128::from(weight.max(1))))
    }

    /// By how many placements on a replica of this weight this turn is ahead of `other`, rounded down.
    pub fn ahead_of(self, other: Self, weight: u64) -> u128 {
        self.0.saturating_sub(other.0) / ((1u128 << 64) / u128::from(weight.max(1))).max(1)
    }
}

/// How full a replica is: load by size, as a fraction of 2^32 per token and unit of size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u128);

impl Share {
    /// `load` on a replica of `weight`.
    pub fn of(load: Tokens, weight: u64) -> Self {
        Self((u128::from(load.0) << 32) / u128::from(weight.max(1)))
    }

    /// In percent of `other`, rounded down; `None` where that is nothing.
    pub fn percent_of(self, other: Self) -> Option<u32> {
        let percent = self.0.saturating_mul(100).checked_div(other.0)?;
        Some(u32::try_from(percent).unwrap_or(u32::MAX))
    }

    /// Whether it is at most `percent` of `other`.
    pub fn within(self, percent: u32, other: Self) -> bool {
        self.0.saturating_mul(100) <= other.0.saturating_mul(u128::from(percent))
    }
}

/// A replica's place in the order: fullness first, its turn among equals, then its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// How full it is.
    pub share: Share,
    /// Its turn.
    pub turn: Turn,
    /// Which one.
    pub id: ReplicaId,
}

/// The replicas that a policy may choose from: those with a free place, in order of [`Rank`], as far as `may` allows.
pub struct Field<'a> {
    ranked: &'a BTreeSet<Rank>,
    may: &'a dyn Fn(ReplicaId) -> bool,
    /// Names what the request shares with others: the beginning of its prompt, or its conversation.
    pub key: Option<ConversationKey>,
    /// How full the open replicas are, all together.
    pub mean: Share,
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Field<'a> {
    /// Those of `ranked` that `may` allows.
    pub fn new(ranked: &'a BTreeSet<Rank>, may: &'a dyn Fn(ReplicaId) -> bool) -> Self {
        Self { ranked, may, key: None, mean: Share::default() }
    }

    /// The least loaded.
    pub fn first(&self) -> Option<Rank> {
        self.iter().next()
    }

    /// All of them, least loaded first. A policy that looks at all costs a step for each.
    pub fn iter(&self) -> impl Iterator<Item = Rank> {
        self.ranked.iter().filter(|rank| (self.may)(rank.id)).copied()
    }
}

/// A placement policy (R3). Contract, held by one suite for all: picks from the field only; picks `None` only from an
/// empty field; the same inputs give the same picks.
pub trait Policy: fmt::Debug + Send {
    /// Which one it is.
    fn name(&self) -> PolicyName;

    /// The same policy in the same state: what it chooses next, this one would have chosen.
    fn twin(&self) -> Box<dyn Policy>;

    /// The replica to take.
    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId>;
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The least loaded by size (R3); shared prefixes are preferred where that keeps the balance (R6).
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
    /// Every policy.
    pub const ALL: [Self; 5] =
        [Self::LeastLoad, Self::TwoChoices, Self::Prefix, Self::RoundRobin, Self::Random];

    /// Its name in settings and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeastLoad => "least-load",
            Self::TwoChoices => "two-choices",
            Self::Prefix => "prefix",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
        }
    }

    /// The policy, fresh; `seed` begins its random numbers, if it takes any.
    pub fn policy(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::LeastLoad => Box::new(LeastLoad),
            Self::TwoChoices => Box::new(TwoChoices::new(seed)),
            Self::Prefix => Box::new(Prefix),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::Random => Box::new(Random::new(seed)),
        }
    }
}
