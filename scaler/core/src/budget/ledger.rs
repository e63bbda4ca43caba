//! What one deployment has cost (M2), to the microsecond and in whole numbers: nothing is rounded until it is shown. It
//! reads no clock and stops nothing.

use serde::{Deserialize, Serialize};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::time::{Duration, Instant};

/// Microseconds in an hour.
const HOUR: u128 = 3_600_000_000;

/// The account of one deployment, complete: kept anywhere, it goes on where it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Millionths of a dollar, times the microseconds of an hour.
    exact: u128,
    /// What runs and costs, in order of id.
    running: Vec<(ReplicaId, Price)>,
    /// Of these, how many are ready and cost the base fee too (M3).
    warm: u32,
    /// Whom its provider was told to stop, and who may be there still.
    #[serde(default)]
    stopping: Vec<ReplicaId>,
}

impl Spent {
    /// What the fleet had cost by then, rounded down to a millionth of a dollar.
    pub fn total(&self) -> Money {
        Money(i128::try_from(self.exact / HOUR).unwrap_or(i128::MAX))
    }

    /// Whether the same costs the same here and there, so that one account goes on as the other does.
    pub fn runs_like(&self, other: &Self) -> bool {
        (&self.running, self.warm) == (&other.running, other.warm)
    }

    /// What ran when it was kept and what each cost in an hour, in order of id.
    pub fn running(&self) -> impl Iterator<Item = (ReplicaId, Price)> {
        self.running.iter().copied()
    }

    /// Whom its provider had been told to stop when it was kept, and who was not known to be gone.
    pub fn stopping(&self) -> &[ReplicaId] {
        &self.stopping
    }

    /// Adds what `other` has cost; what of it ran is taken for gone.
    pub fn absorb(&mut self, other: &Self) {
        self.exact = self.exact.saturating_add(other.exact);
    }
}

/// Adds up what replicas cost while they exist.
#[derive(Clone, Debug)]
pub struct Ledger {
    spent: Spent,
    base_fee: Price,
    last: Instant,
    /// Something ran when the account was kept, and nobody has looked yet what of it is still there.
    asleep: bool,
}

impl Ledger {
    /// An account from `spent` on, as of `now`; [`Spent::default`] where nothing was spent before. `base_fee` is what each
    /// ready replica costs beside its price: [`Price::FREE`] in flex mode. If anything ran, the account stands still
    /// until [`Ledger::catch_up`].
    pub fn restore(spent: Spent, base_fee: Price, now: Instant) -> Self {
        let asleep = !spent.running.is_empty();
        Self { spent, base_fee, last: now, asleep }
    }

    /// Nobody looked for `away` until `now`; of what ran, `still` is there and ran all the time. What is not there cannot
    /// be known to have run for longer, and costs nothing. Does nothing the second time: no time is paid for twice.
    pub fn catch_up(&mut self, away: Duration, still: &[ReplicaId], now: Instant) {
        if !std::mem::take(&mut self.asleep) {
            return;
        }
        self.spent.running.retain(|(id, _)| still.contains(id));
        self.spent.warm = self.spent.warm.min(u32::try_from(self.spent.running.len()).unwrap_or(u32::MAX));
        self.charge(away);
        self.last = self.last.max(now);
    }

    /// What each ready replica costs beside its price.
    pub fn fee(&self) -> Price {
        self.base_fee
    }

    /// A new fee for each ready replica, from `now` on: the mode was changed.
    pub fn set_fee(&mut self, base_fee: Price, now: Instant) {
        self.pass(now);
        self.base_fee = base_fee;
    }

    /// What costs has cost until `now`; nothing where nobody has looked yet.
    pub fn pass(&mut self, now: Instant) {
        self.charge(now.since(self.last));
        self.last = self.last.max(now);
    }

    /// Replica `id` is ordered and costs from `now` on. Whether it is there is for the next [`Ledger::see`] to tell.
    pub fn begin(&mut self, id: ReplicaId, price: Price, now: Instant) {
        if !self.asleep {
            self.pass(now);
            self.spent.running.retain(|(known, _)| *known != id);
            self.spent.running.push((id, price));
        }
    }

    /// The provider is about to be told to stop replica `id`, which costs until it is gone.
    pub fn stops(&mut self, id: ReplicaId, now: Instant) {
        if !self.asleep {
            self.pass(now);
            self.spent.stopping.retain(|known| *known != id);
            self.spent.stopping.push(id);
        }
    }

    /// Replica `id` is gone and costs nothing from `now` on. One that was ready was not when it was stopped, so no fee ends.
    pub fn end(&mut self, id: ReplicaId, now: Instant) {
        if !self.asleep {
            self.pass(now);
            self.spent.running.retain(|(known, _)| *known != id);
            self.spent.stopping.retain(|known| *known != id);
        }
    }

    /// The fleet as of `now`. What was there until now has cost until now; what is not there any more costs nothing from
    /// now on, and what is there does, in whatever phase: a machine that loads, drains or resists its end is paid for. Only
    /// what its provider has no machine for costs nothing. Who was to be stopped and is ready runs on: nothing came of it.
    pub fn see(&mut self, replicas: &[ReplicaFacts], now: Instant) {
        self.catch_up(Duration::ZERO, &[], now);
        self.pass(now);
        self.spent.running = replicas
            .iter()
            .filter(|replica| !replica.in_line)
            .map(|replica| (replica.id, replica.price))
            .collect();
        let goes = |id: &ReplicaId| replicas.iter().any(|one| one.id == *id && !one.is_ready());
        self.spent.stopping.retain(goes);
        self.spent.warm =
            u32::try_from(replicas.iter().filter(|replica| replica.is_ready()).count()).unwrap_or(u32::MAX);
    }

    /// What was spent until `now`, rounded down to a millionth of a dollar.
    pub fn total(&self, now: Instant) -> Money {
        let exact = self.spent.exact.saturating_add(self.cost(now.since(self.last)));
        Money(i128::try_from(exact / HOUR).unwrap_or(i128::MAX))
    }

    /// What the fleet costs now.
    pub fn rate(&self) -> Price {
        if self.asleep {
            return Price::FREE;
        }
        let prices = self.spent.running.iter().map(|(_, price)| price.0);
        Price(prices.fold(self.base_fee.times(self.spent.warm).0, u64::saturating_add))
    }

    /// All that is needed to go on later; `None` while what was kept before still has to be caught up with, since
    /// keeping it anew would lose the time between.
    pub fn state(&self) -> Option<&Spent> {
        (!self.asleep).then_some(&self.spent)
    }

    fn charge(&mut self, time: Duration) {
        self.spent.exact = self.spent.exact.saturating_add(self.cost(time));
    }

    fn cost(&self, time: Duration) -> u128 {
        u128::from(self.rate().0).saturating_mul(time.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::replica::{Capacity, Phase};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn replica(id: u32, phase: Phase, price: u64) -> ReplicaFacts {
        let bare = ReplicaFacts::new(ReplicaId(id), phase, Instant::ZERO, Capacity::ONE);
        ReplicaFacts { price: Price(price), ..bare }
    }

    fn fresh(base_fee: u64) -> Ledger {
        Ledger::restore(Spent::default(), Price(base_fee), Instant::ZERO)
    }

    #[test]
    fn m2_to_the_second_and_nothing_is_lost_by_looking_often() {
        let (mut often, mut seldom) = (fresh(0), fresh(0));
        let fleet = [replica(1, Phase::Ready, 1_000_001), replica(2, Phase::Starting, 999_998)];
        often.see(&fleet, Instant::ZERO);
        seldom.see(&fleet, Instant::ZERO);
        for second in 1..=3600 {
            often.see(&fleet, Instant::ZERO + SECOND * second);
        }
        let hour = Instant::ZERO + SECOND * 3600;
        assert_eq!((often.total(hour), seldom.total(hour)), (Money(1_999_999), Money(1_999_999)));
        assert_eq!(seldom.total(Instant::ZERO + SECOND), Money(555), "1,999,999 / 3600, rounded down");
    }

    #[test]
    fn m2_a_removed_replica_stops_costing_at_once_and_a_draining_one_does_not() {
        let mut ledger = fresh(0);
        let at = |second| Instant::ZERO + SECOND * second;
        ledger.see(&[replica(1, Phase::Ready, 3_600_000), replica(2, Phase::Draining, 3_600_000)], at(0));
        ledger.see(&[replica(1, Phase::Ready, 3_600_000)], at(10));
        assert_eq!((ledger.total(at(10)), ledger.rate()), (Money(20_000), Price(3_600_000)));
        ledger.see(&[], at(25));
        assert_eq!(ledger.total(at(9_999)), Money(35_000));
    }

    #[test]
    fn c_005_who_is_told_to_stop_is_known_until_gone_or_ready_again_over_a_restart_too() {
        let mut ledger = fresh(0);
        let fleet = |third| [replica(2, Phase::Gone, 0), replica(3, third, 0), replica(4, Phase::Gone, 0)];
        ledger.see(&fleet(Phase::Gone), Instant::ZERO);
        (1..=4).for_each(|id| ledger.stops(ReplicaId(id), Instant::ZERO));
        ledger.end(ReplicaId(4), Instant::ZERO);
        ledger.see(&fleet(Phase::Starting), Instant::ZERO);
        let kept = ledger.state().unwrap().clone();
        assert_eq!(kept.stopping(), [2, 3].map(ReplicaId), "1 is there no more");
        let mut after = Ledger::restore(kept, Price::FREE, Instant::ZERO);
        after.see(&fleet(Phase::Ready), Instant::ZERO);
        assert_eq!(after.state().unwrap().stopping(), [ReplicaId(2)]);
    }

    #[test]
    fn m2_what_waits_for_a_machine_costs_nothing_until_it_has_one() {
        let mut ledger = fresh(0);
        let at = |second| Instant::ZERO + SECOND * second;
        let ready = replica(1, Phase::Ready, 3_600_000);
        let ordered = replica(2, Phase::Provisioning, 3_600_000);
        ledger.see(&[ready.clone(), ReplicaFacts { in_line: true, ..ordered.clone() }], at(0));
        assert_eq!(ledger.rate(), Price(3_600_000));
        ledger.see(&[ready.clone(), ordered.clone()], at(10));
        assert_eq!((ledger.total(at(10)), ledger.rate()), (Money(10_000), Price(7_200_000)));
        ledger.see(&[ready, ReplicaFacts { in_line: true, ..ordered }], at(20));
        assert_eq!(ledger.total(at(30)), Money(40_000), "and it is back in line");
    }

    #[test]
    fn m3_the_base_fee_is_for_each_warm_replica() {
        let mut ledger = fresh(360_000);
        let fleet =
            [replica(1, Phase::Ready, 0), replica(2, Phase::Ready, 0), replica(3, Phase::Starting, 0)];
        ledger.see(&fleet, Instant::ZERO);
        assert_eq!(ledger.rate(), Price(720_000));
        assert_eq!(ledger.total(Instant::ZERO + SECOND * 10), Money(2000));
    }

    #[test]
    fn c6_m2_who_sleeps_costs_its_price_and_no_fee() {
        let mut ledger = fresh(360_000);
        ledger.see(&[replica(1, Phase::Parked, 720_000), replica(2, Phase::Waking, 720_000)], Instant::ZERO);
        assert_eq!(ledger.rate(), Price(1_440_000));
    }

    #[test]
    fn m3_a_new_fee_counts_from_then_on_and_the_old_one_until_then() {
        let (mut ledger, at) = (fresh(3_600_000), |second| Instant::ZERO + SECOND * second);
        ledger.see(&[replica(1, Phase::Ready, 7_200_000)], at(0));
        ledger.set_fee(Price::FREE, at(10));
        assert_eq!((ledger.rate(), ledger.total(at(10))), (Price(7_200_000), Money(30_000)));
        ledger.set_fee(Price(3_600_000), at(15));
        assert_eq!(ledger.total(at(25)), Money(30_000 + 10_000 + 30_000));
        let mut asleep = Ledger::restore(ledger.state().unwrap().clone(), Price::FREE, at(0));
        asleep.set_fee(Price(3_600_000), at(50));
        assert_eq!((asleep.total(at(60)), asleep.state()), (Money(40_000), None), "nobody has looked yet");
        asleep.catch_up(SECOND * 10, &[ReplicaId(1)], at(60));
        assert_eq!(asleep.total(at(60)), Money(70_000), "what was away is paid once, by the fee of now");
    }

    #[test]
    fn m2_an_account_goes_on_where_it_was_and_pays_for_the_time_between() {
        let mut before = fresh(0);
        before
            .see(&[replica(1, Phase::Ready, 3_600_000), replica(2, Phase::Ready, 7_200_000)], Instant::ZERO);
        before.see(
            &[replica(1, Phase::Ready, 3_600_000), replica(2, Phase::Ready, 7_200_000)],
            Instant::ZERO + SECOND * 5,
        );
        let kept = before.state().unwrap().clone();
        let mut after = Ledger::restore(kept, Price::FREE, Instant::ZERO);
        let (before, now) = (Instant::ZERO + SECOND * 20, Instant::ZERO + SECOND * 30);
        assert_eq!(
            (after.rate(), after.total(before)),
            (Price::FREE, Money(15_000)),
            "nobody has looked yet"
        );
        assert_eq!(after.state(), None, "the time between is not lost by a second restart");
        for _ in 0..2 {
            after.catch_up(SECOND * 100, &[ReplicaId(1)], now);
            assert_eq!(after.total(now), Money(15_000 + 100_000));
        }
        assert_eq!(after.rate(), Price(3_600_000));
        assert_eq!(after.total(now + SECOND), Money(15_000 + 101_000));
    }

    #[test]
    fn c4_a_clock_that_goes_back_costs_nothing_and_no_price_overflows() {
        let mut ledger = fresh(0);
        let fleet = [replica(1, Phase::Ready, u64::MAX), replica(2, Phase::Ready, u64::MAX)];
        ledger.see(&fleet, Instant::ZERO + SECOND * 10);
        ledger.see(&fleet, Instant::ZERO + SECOND * 5);
        assert_eq!(ledger.total(Instant::ZERO + SECOND * 7), Money(0));
        assert!(ledger.total(Instant::NEVER) > Money(0));
    }
}
