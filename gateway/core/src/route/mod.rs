//! Which replica a request goes to when nothing binds it to one: one policy a file, all behind [`Policy`].

mod least_load;
mod order;
mod prefix;
mod random;
mod round_robin;
mod two_choices;

#[cfg(test)]
mod contract;

use std::cmp::Reverse;
use std::fmt;

use tidegate_shared::id::ReplicaId;
pub use tidegate_shared::policy::PolicyName;
use tidegate_shared::request::{ConversationKey, Tokens};
use tidegate_shared::rng::Rng;

pub use least_load::LeastLoad;
pub use order::Order;
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

    /// What of it is beyond `count` times `other`; nothing where that is less.
    pub fn beyond(self, count: u32, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0.saturating_mul(u128::from(count))))
    }

    /// Whether it is at most `percent` of `other`.
    pub fn within(self, percent: u32, other: Self) -> bool {
        self.0.saturating_mul(100) <= other.0.saturating_mul(u128::from(percent))
    }
}

/// A replica's place in the order: fullness first, its turn among equals, then the larger, then its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// How full it is.
    pub share: Share,
    /// Its turn.
    pub turn: Turn,
    /// Its weight.
    pub size: Reverse<u64>,
    /// Which one.
    pub id: ReplicaId,
}

impl Rank {
    /// Of a replica of this weight with this load.
    pub fn of(load: Tokens, weight: u64, turn: Turn, id: ReplicaId) -> Self {
        Self { share: Share::of(load, weight), turn, size: Reverse(weight), id }
    }
}

/// How often a replica is drawn among all before those that may be taken are counted instead: where one in sixteen may
/// be taken, seven of eight requests need no count.
const DRAWS: usize = 32;

/// All replicas of a fleet by their place in the order of their numbers, so that one can be drawn, or the next one found,
/// without looking at each.
pub trait Member: fmt::Debug {
    /// The number of the replica at a place.
    fn id(&self, at: usize) -> Option<ReplicaId>;

    /// Its rank; `None` for one without a free place.
    fn rank(&self, at: usize) -> Option<Rank>;

    /// The weight of the replica at a place, with or without a free place.
    fn size(&self, at: usize) -> u64;
}

/// A number of replicas, places 0 to `count` - 1.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// How many.
    pub count: usize,
    /// Which.
    pub at: &'a dyn Member,
    /// Another number whenever the places are those of other replicas.
    pub version: u64,
}

/// The replicas that a policy may choose from: those with a free place, in order of [`Rank`], as far as `may` allows.
pub struct Field<'a> {
    ranked: &'a Order,
    may: &'a dyn Fn(ReplicaId) -> bool,
    /// Names what the request shares with others: the beginning of its prompt, or its conversation.
    pub key: Option<ConversationKey>,
    /// How full the open replicas are, all together.
    pub mean: Share,
    /// The same replicas, and those without a free place, by number.
    pub members: Option<Members<'a>>,
    /// How full a request like this one makes a replica of mean size.
    pub one: Share,
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Members<'_> {
    /// The first place with a number above `last`, by halving.
    fn first_after(&self, last: Option<ReplicaId>) -> usize {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from.midpoint(to);
            if self.at.id(middle) > last { to = middle } else { from = middle + 1 }
        }
        from
    }
}

impl<'a> Field<'a> {
    /// Those of `ranked` that `may` allows.
    pub fn new(ranked: &'a Order, may: &'a dyn Fn(ReplicaId) -> bool) -> Self {
        Self { ranked, may, key: None, mean: Share::default(), one: Share::default(), members: None }
    }

    /// The least loaded of those with a free place, whether it may be taken or not.
    pub fn emptiest(&self) -> Option<Rank> {
        self.ranked.first().copied()
    }

    /// Whether a replica with a free place may be taken.
    pub fn allows(&self, rank: &Rank) -> bool {
        (self.may)(rank.id)
    }

    /// The least loaded.
    pub fn first(&self) -> Option<Rank> {
        self.iter().next()
    }

    /// One of them but `except`, each as likely as the others. Costs the same for any number of replicas, unless few
    /// may be taken; then a step for each that has a free place.
    pub fn draw(&self, rng: &mut Rng, except: Option<ReplicaId>) -> Option<Rank> {
        let good = |rank: &Rank| Some(rank.id) != except;
        if self.ranked.is_empty() {
            return None;
        }
        if let Some(members) = self.members {
            for _ in 0..DRAWS {
                let rank = members.at.rank(rng.below(members.count));
                if let Some(rank) = rank.filter(good).filter(|rank| (self.may)(rank.id)) {
                    return Some(rank);
                }
            }
        }
        let count = self.iter().filter(good).count();
        self.iter().filter(good).nth(rng.below(count))
    }

    /// The one with the next number after `last`, and after the highest the lowest. Costs a few steps, unless few may be
    /// taken; then a step for each that has a free place.
    pub fn next_after(&self, last: Option<ReplicaId>) -> Option<ReplicaId> {
        if let Some(members) = self.members {
            let first = members.first_after(last);
            let places = (first..members.count).chain(0..first);
            for at in places.take(DRAWS) {
                if let Some(rank) = members.at.rank(at).filter(|rank| (self.may)(rank.id)) {
                    return Some(rank.id);
                }
            }
        }
        let ids = || self.iter().map(|rank| rank.id);
        ids().filter(|id| Some(*id) > last).min().or_else(|| ids().min())
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

/// The policy `name`, fresh; `seed` begins its random numbers, if it takes any.
pub fn policy(name: PolicyName, seed: u64) -> Box<dyn Policy> {
    match name {
        PolicyName::LeastLoad => Box::new(LeastLoad),
        PolicyName::TwoChoices => Box::new(TwoChoices::new(seed)),
        PolicyName::Prefix => Box::new(Prefix::default()),
        PolicyName::RoundRobin => Box::new(RoundRobin::default()),
        PolicyName::Random => Box::new(Random::new(seed)),
    }
}
