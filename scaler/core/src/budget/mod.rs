//! What all deployments share: the credit (M3) and the number of replicas that the gateway may have (A6). It grants room
//! and says who has to make some (C-108); it never chooses a replica and starts nothing.

pub mod ledger;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::{Duration, Instant};

use ledger::{Ledger, Spent};

/// How long a deployment keeps room that another one waits for, counted from the moment at which its last replica came:
/// shorter, and two users who take turns would move models all day.
pub const RESIDENCE: Duration = Duration::from_secs(60);

/// For how long what was seen of a deployment counts when others are asked for room: longer, and one whose provider does
/// not answer would keep all others from being asked, or have them asked for room that it cannot use. More than a slow provider takes to list its replicas.
const LATELY: Duration = Duration::from_secs(15);

/// One moment by the two clocks that a budget goes by, which differ once the machine was suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the clock of replicas, which stands still meanwhile as they do.
    pub now: Instant,
    /// By the clock of money, which goes on.
    pub paid: Instant,
}

/// What the gateway may have, over all deployments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Replicas, in whatever phase; `None`: no bound beside that of each deployment (A6).
    pub replicas: Option<u32>,
    /// Money to spend since the beginning, top-ups included; `None`: not counted (M3).
    pub credit: Option<Money>,
}

/// Room under the gateway's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The cap.
    pub cap: u32,
    /// Replicas that may be added now.
    pub left: u32,
    /// Places that are held by starts that only ask whether there is room.
    pub tried: u32,
    /// Whether more can become free without an operator: some replica leaves, or another deployment may be asked for one.
    pub comes: bool,
}

/// What one deployment may do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Credit that is left; `None` where it is not counted.
    pub credit: Option<Money>,
    /// What each ready replica costs beside its price.
    pub fee: Price,
    /// Room for more replicas; `None` where it is not bounded.
    pub room: Option<Room>,
    /// The most replicas that it may keep, ready or on their way, because another deployment has none and waits; `None`
    /// where nobody asks.
    pub most: Option<u32>,
    /// The most that it may keep parked, because another deployment has no room for what it needs; `None` where nobody
    /// asks (C6).
    pub parked: Option<u32>,
}

impl Grant {
    /// Whether the credit is used up (M3).
    pub fn is_spent(&self) -> bool {
        self.credit.is_some_and(|credit| credit.0 <= 0)
    }

    /// Whether a replica at `price` an hour costs anything.
    pub fn costs(&self, price: Price) -> bool {
        price > Price::FREE || self.fee > Price::FREE
    }
}

#[derive(Clone, Debug)]
struct Account {
    ledger: Ledger,
    /// Replicas that exist, in whatever phase.
    existing: u32,
    /// Of these, those that are ready, and those that are going.
    serving: u32,
    leaving: u32,
    parked: u32,
    /// Of those that exist, starts that only ask whether there is room.
    tries: u32,
    /// It needs more than the cap has room for, and nothing else keeps it from having that.
    capped: bool,
    /// It has none, and requests wait there.
    wants: bool,
    floor: u32,
    /// When its fleet was last seen.
    seen: Instant,
    /// When the last of its replicas became ready.
    newest: Instant,
    /// Since when it has none and wants one that only the cap keeps from it.
    starved: Option<Instant>,
    /// The most that it may keep, from the moment at which it is asked to give one until that one is gone.
    most: Option<u32>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    bounds: Bounds,
    accounts: BTreeMap<DeploymentName, Account>,
}

impl Budget {
    /// Nobody has anything yet.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, accounts: BTreeMap::new() }
    }

    /// What may be had now, top-ups included.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Opens the account of a deployment, which goes on from `spent` (see [`Ledger::restore`]), by the clock of money. Its
    /// `floor` is never taken to make room for others.
    pub fn open(&mut self, name: DeploymentName, spent: Spent, base_fee: Price, floor: u32, now: Instant) {
        let ledger = Ledger::restore(spent, base_fee, now);
        let (existing, serving, leaving, parked, tries) = (0, 0, 0, 0, 0);
        let (capped, wants, starved, most) = (false, false, None, None);
        let (seen, newest) = (Instant::ZERO, Instant::ZERO);
        let account = Account {
            ledger,
            existing,
            serving,
            leaving,
            parked,
            tries,
            capped,
            wants,
            floor,
            seen,
            newest,
            starved,
            most,
        };
        self.accounts.insert(name, account);
    }

    /// More credit, or less; nothing where it is not counted.
    pub fn top_up(&mut self, amount: Money) {
        if let Some(credit) = &mut self.bounds.credit {
            credit.0 = credit.0.saturating_add(amount.0);
        }
    }

    /// The account of `name`, to be charged; `None` where it was not opened.
    pub fn account(&mut self, name: &DeploymentName) -> Option<&mut Ledger> {
        self.accounts.get_mut(name).map(|account| &mut account.ledger)
    }

    /// `name` has another floor and another fee from `now` on, by the clock of money.
    pub fn change(&mut self, name: &DeploymentName, base_fee: Price, floor: u32, now: Instant) {
        if let Some(account) = self.accounts.get_mut(name) {
            account.floor = floor;
            account.ledger.set_fee(base_fee, now);
        }
    }

    /// The account of `name` goes on after `away`, with what is `still` there (see [`Ledger::catch_up`]).
    pub fn catch_up(&mut self, name: &DeploymentName, away: Duration, still: &[ReplicaId], now: Instant) {
        if let Some(account) = self.accounts.get_mut(name) {
            account.ledger.catch_up(away, still, now);
        }
    }

    /// The fleet of `name` as of a moment, and what it may do. `wants`: requests wait there and nothing is ready.
    pub fn see(
        &mut self,
        name: &DeploymentName,
        replicas: &[ReplicaFacts],
        wants: bool,
        at: Moment,
    ) -> Grant {
        if let Some(account) = self.accounts.get_mut(name) {
            account.see(replicas, wants, at);
        }
        let most = self.most(name, at.now);
        let parked = if most.is_some() { Some(0) } else { self.parked(name, at.now) };
        Grant { most, parked, ..self.grant(name, at) }
    }

    /// What `name` may add, as far as that is known while nobody sees its fleet.
    pub fn grant(&self, name: &DeploymentName, at: Moment) -> Grant {
        let room = self.bounds.replicas.map(|cap| self.room(name, cap, at.now));
        let fee = self.ledger(name).map_or(Price::FREE, Ledger::fee);
        Grant { credit: self.credit(at.paid), fee, room, most: None, parked: None }
    }

    /// `count` replicas were ordered for `name` just now: they hold their room at once, before any fleet shows them.
    pub fn ordered(&mut self, name: &DeploymentName, count: u32) {
        if let Some(account) = self.accounts.get_mut(name) {
            account.existing = account.existing.saturating_add(count);
        }
    }

    /// So many of those that hold room for `name` are starts that only ask whether there is some.
    pub fn tries(&mut self, name: &DeploymentName, count: u32) {
        if let Some(account) = self.accounts.get_mut(name) {
            account.tries = count;
        }
    }

    /// Whether `name`, as it was last seen, would start some, were there room under the cap: nobody is asked for room that
    /// it cannot use.
    pub fn capped(&mut self, name: &DeploymentName, capped: bool) {
        if let Some(account) = self.accounts.get_mut(name) {
            account.capped = capped;
            let since = account.starved.unwrap_or(account.seen);
            account.starved = (capped && account.wants).then_some(since);
        }
    }

    /// Credit that is left `now` by the clock of money, below zero once what runs has outrun it; `None` where it is not counted.
    pub fn credit(&self, now: Instant) -> Option<Money> {
        let spent = self.accounts.values().map(|account| account.ledger.total(now).0);
        let spent = spent.fold(0i128, i128::saturating_add);
        self.bounds.credit.map(|credit| Money(credit.0.saturating_sub(spent)))
    }

    /// What `name` has spent, and costs now.
    pub fn ledger(&self, name: &DeploymentName) -> Option<&Ledger> {
        self.accounts.get(name).map(|account| &account.ledger)
    }

    fn existing(&self) -> u32 {
        self.accounts.values().fold(0, |sum, account| sum.saturating_add(account.existing))
    }

    /// What may be added for `name`: free room, less what is kept for those who came before and have nothing.
    fn room(&self, name: &DeploymentName, cap: u32, now: Instant) -> Room {
        let own = self.accounts.get(name).and_then(|account| account.starved);
        let earlier = |other: &Instant| own.is_none_or(|own| *other < own);
        let others = self.accounts.iter().filter(|(other, _)| *other != name);
        let kept = others.filter_map(|(_, account)| account.starves(now)).filter(earlier).count();
        let kept = u32::try_from(kept).unwrap_or(u32::MAX);
        let left = cap.saturating_sub(self.existing()).saturating_sub(kept);
        let tried = self.accounts.values().fold(0, |sum: u32, account| sum.saturating_add(account.tries));
        Room { cap, left, tried, comes: !self.is_full() || tried > 0 || self.comes(name, now) }
    }

    /// Whether room for `name` can come by itself. Who was not seen lately gives none.
    fn comes(&self, name: &DeploymentName, now: Instant) -> bool {
        let gives = |account: &Account| account.parked > 0 || account.existing > account.floor;
        self.current(now).any(|(other, account)| account.leaving > 0 || (other != name && gives(account)))
    }

    /// The most that `name` may keep, where it has to give one away.
    fn most(&mut self, name: &DeploymentName, now: Instant) -> Option<u32> {
        let wanted =
            self.accounts.iter().any(|(other, account)| other != name && account.starves(now).is_some());
        let asked = wanted && self.is_asked(name, now);
        let account = self.accounts.get_mut(name)?;
        let given = account.most.is_some_and(|most| account.existing <= most);
        if !wanted || given {
            account.most = None;
        } else if asked && account.most.is_none() {
            account.most = Some(account.serving.saturating_sub(1));
        }
        account.most
    }

    /// The most that `name` may keep parked, where another one needs the room: none more than now, and one fewer where it
    /// is the first by name of those that have any. What serves nobody makes room before what serves.
    fn parked(&self, name: &DeploymentName, now: Instant) -> Option<u32> {
        let needs = |account: &Account| account.is_current(now) && account.capped;
        let needed = self.accounts.iter().any(|(other, account)| other != name && needs(account));
        if !needed || !self.is_full() {
            return None;
        }
        let mut givers = self.current(now).filter(|(_, account)| account.parked > 0);
        let gives = givers.next().is_some_and(|(first, _)| first == name) && !self.anybody_leaves(now);
        let own = self.accounts.get(name).map_or(0, |account| account.parked);
        Some(own.saturating_sub(u32::from(gives)))
    }

    fn is_full(&self) -> bool {
        self.bounds.replicas.is_some_and(|cap| self.existing() >= cap)
    }

    /// Those of which it is known how they are.
    fn current(&self, now: Instant) -> impl Iterator<Item = (&DeploymentName, &Account)> {
        self.accounts.iter().filter(move |(_, account)| account.is_current(now))
    }

    fn anybody_leaves(&self, now: Instant) -> bool {
        self.current(now).any(|(_, account)| account.leaving > 0)
    }

    /// Whether `name` is the next to give: there is no room, nobody is leaving already or has one parked, and of those who
    /// may give one it has kept its own the longest. Who was not seen lately can give nothing.
    fn is_asked(&self, name: &DeploymentName, now: Instant) -> bool {
        let parked = self.current(now).any(|(_, account)| account.parked > 0);
        if !self.is_full() || self.anybody_leaves(now) || parked {
            return false;
        }
        let gives =
            |account: &Account| account.serving > account.floor && now.since(account.newest) >= RESIDENCE;
        let givers = self.current(now).filter(|(_, account)| gives(account));
        givers.min_by_key(|(giver, account)| (account.newest, *giver)).is_some_and(|(giver, _)| giver == name)
    }
}

impl Account {
    fn is_current(&self, now: Instant) -> bool {
        now.since(self.seen) < LATELY
    }

    /// Since when it has none and wants one that only the cap keeps from it. Of one that was not seen lately nobody knows whether it still does, and its
    /// provider could start none (C2).
    fn starves(&self, now: Instant) -> Option<Instant> {
        self.starved.filter(|_| self.is_current(now))
    }

    fn see(&mut self, replicas: &[ReplicaFacts], wants: bool, at: Moment) {
        self.seen = at.now;
        self.ledger.see(replicas, at.paid);
        let count = |phases: &[Phase]| {
            let those = replicas.iter().filter(|replica| phases.contains(&replica.phase));
            u32::try_from(those.count()).unwrap_or(u32::MAX)
        };
        self.existing = u32::try_from(replicas.len()).unwrap_or(u32::MAX);
        self.serving = count(&[Phase::Ready]);
        self.leaving = count(&[Phase::Draining, Phase::Failed, Phase::Gone]);
        self.parked = count(&[Phase::Parked]);
        let ready = replicas.iter().filter(|replica| replica.is_ready());
        self.newest = ready.map(|replica| replica.since).max().unwrap_or(self.newest);
        self.wants = wants && replicas.is_empty();
        self.starved = self.starved.filter(|_| self.wants);
    }
}

#[cfg(test)]
mod tests;
