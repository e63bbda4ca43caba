//! Which replicas come and go: the steps from the fleet that is there to the number that is wanted. It never decides
//! how many there should be, and it remembers nothing: the next evaluation starts from what is there.

use std::cmp::Reverse;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::Instant;

use crate::config::Sizing;

/// Who leaves first when fewer are wanted. Those on their way always go before ready ones, the youngest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The fewest requests, then the fewest conversations, then the dearest, then the youngest (C-055).
    LeastBusy,
    /// The fewest warm conversations, then the dearest, then the fewest requests, then the youngest (B5).
    LeastWarm,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Replicas, ready or on their way.
    pub target: u32,
    /// Whether the last ready replica stays whatever the target: while there is demand, unless it has to make room.
    pub keep_last: bool,
    /// What new replicas may be started on now, one each; none while nothing may be ordered.
    pub orders: Vec<Offer>,
    /// Who leaves first.
    pub leaving: Leaving,
}

/// One step towards the goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Order a new replica on this offer.
    Start(Offer),
    /// Send it no new request; it is stopped once it is idle (C5).
    Drain(ReplicaId),
    /// Let a draining replica serve again (C5).
    Undrain(ReplicaId),
    /// Stop it: nothing runs there, or it may wait no longer.
    Stop(ReplicaId),
}

/// The steps from `replicas` towards `goal`.
///
/// A replica in phase Gone is one whose stop is not finished: nothing more is done about it, but it holds its place,
/// so that never more than the ceiling exist at once, draining and failed ones included (A6).
///
/// - A failed replica is stopped. So is a draining one that is idle, or that has drained for longer than the limit.
/// - To grow, draining replicas are taken back first, those with the most conversations before the others.
/// - To shrink, those on their way go first, then ready ones in the order of [`Leaving`]; never the last ready one where
///   it has to be kept.
pub fn reconcile(goal: &Goal, replicas: &[ReplicaFacts], now: Instant, sizing: &Sizing) -> Vec<Action> {
    let of = |phases: &[Phase]| -> Vec<&ReplicaFacts> {
        replicas.iter().filter(|replica| phases.contains(&replica.phase)).collect()
    };
    let ready = of(&[Phase::Ready]);
    let mut draining = of(&[Phase::Draining]);
    let target = usize::try_from(goal.target).unwrap_or(usize::MAX);
    let current = ready.len() + of(&[Phase::Provisioning, Phase::Starting]).len();

    let mut actions: Vec<_> = of(&[Phase::Failed]).iter().map(|replica| Action::Stop(replica.id)).collect();
    if target > current {
        draining
            .sort_by_key(|replica| (Reverse(replica.conversations), Reverse(replica.in_flight), replica.id));
        let back: Vec<_> = draining.drain(..draining.len().min(target - current)).collect();
        actions.extend(back.iter().map(|replica| Action::Undrain(replica.id)));
        let existing = replicas.len();
        let room = usize::try_from(sizing.ceiling()).unwrap_or(usize::MAX).saturating_sub(existing);
        let count = (target - current - back.len()).min(room);
        actions.extend(goal.orders.iter().take(count).cloned().map(Action::Start));
    } else {
        let spare = ready.len().saturating_sub(usize::from(goal.keep_last));
        actions.extend(shrink(current - target, spare, &leaving(goal.leaving, replicas)));
    }
    draining.sort_by_key(|replica| replica.id);
    actions.extend(
        draining
            .iter()
            .filter(|replica| replica.in_flight == 0 || now.since(replica.since) >= sizing.drain_limit)
            .map(|replica| Action::Stop(replica.id)),
    );
    actions
}

/// Everything that is ready or on its way, the first to leave first.
pub fn leaving(order: Leaving, replicas: &[ReplicaFacts]) -> Vec<&ReplicaFacts> {
    let mut on_the_way: Vec<_> = replicas.iter().filter(|replica| replica.is_on_its_way()).collect();
    let mut ready: Vec<_> = replicas.iter().filter(|replica| replica.is_ready()).collect();
    on_the_way.sort_by_key(|replica| (replica.phase, Reverse(replica.id)));
    ready.sort_by_key(|replica| {
        let (busy, warm, dear) = (replica.in_flight, replica.conversations, Reverse(replica.price));
        let first = match order {
            Leaving::LeastBusy => (busy, warm, dear, 0),
            Leaving::LeastWarm => (warm, 0, dear, busy),
        };
        // One that is measured is needed for that.
        (replica.hold.is_some(), first, Reverse(replica.id))
    });
    on_the_way.append(&mut ready);
    on_the_way
}

/// The first `surplus` of those who leave, but no more than `spare` ready ones.
fn shrink(surplus: usize, spare: usize, order: &[&ReplicaFacts]) -> Vec<Action> {
    let (on_the_way, ready): (Vec<&ReplicaFacts>, _) =
        order.iter().copied().partition(|replica| replica.is_on_its_way());
    let cancelled = surplus.min(on_the_way.len());
    let drained = (surplus - cancelled).min(spare);
    let stops = on_the_way.into_iter().take(cancelled).map(|replica| Action::Stop(replica.id));
    stops.chain(ready.into_iter().take(drained).map(|replica| Action::Drain(replica.id))).collect()
}

#[cfg(test)]
mod tests;
