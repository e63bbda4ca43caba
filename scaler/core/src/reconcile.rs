//! Which replicas come and go: the steps from the fleet that is there to the number that is wanted. It never decides
//! how many there should be, and it remembers nothing: the next evaluation starts from what is there.

use std::cmp::Reverse;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::Instant;

use crate::config::Sizing;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Replicas, ready or on their way.
    pub target: u32,
    /// Requests in flight, including the queue.
    pub demand: u32,
    /// Whether new replicas may be ordered now.
    pub may_start: bool,
}

/// One step towards the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Order new replicas.
    Start {
        /// How many, at least 1.
        count: u32,
    },
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
/// - To shrink, those on their way go first, the youngest before the others, as far as ready ones make up the target
///   without them: what a waiter waits for stays. Then the ready ones with the fewest requests, then the
///   fewest conversations, then the youngest; never the last ready one while there is demand.
pub fn reconcile(goal: Goal, replicas: &[ReplicaFacts], now: Instant, sizing: &Sizing) -> Vec<Action> {
    let of = |phases: &[Phase]| -> Vec<&ReplicaFacts> {
        replicas.iter().filter(|replica| phases.contains(&replica.phase)).collect()
    };
    let ready = of(&[Phase::Ready]);
    let on_the_way = of(&[Phase::Provisioning, Phase::Starting]);
    let mut draining = of(&[Phase::Draining]);
    let target = usize::try_from(goal.target).unwrap_or(usize::MAX);
    let current = ready.len() + on_the_way.len();

    let mut actions: Vec<_> = of(&[Phase::Failed]).iter().map(|replica| Action::Stop(replica.id)).collect();
    if target > current {
        draining
            .sort_by_key(|replica| (Reverse(replica.conversations), Reverse(replica.in_flight), replica.id));
        let back: Vec<_> = draining.drain(..draining.len().min(target - current)).collect();
        actions.extend(back.iter().map(|replica| Action::Undrain(replica.id)));
        let existing = replicas.len();
        let room = usize::try_from(sizing.ceiling()).unwrap_or(usize::MAX).saturating_sub(existing);
        let count = (target - current - back.len()).min(room);
        if goal.may_start && count > 0 {
            actions.push(Action::Start { count: u32::try_from(count).unwrap_or(u32::MAX) });
        }
    } else {
        shrink(current - target, goal.demand, ready, on_the_way, &mut actions);
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

fn shrink(
    surplus: usize,
    demand: u32,
    mut ready: Vec<&ReplicaFacts>,
    mut on_the_way: Vec<&ReplicaFacts>,
    actions: &mut Vec<Action>,
) {
    on_the_way.sort_by_key(|replica| (replica.phase, Reverse(replica.id)));
    let cancelled = surplus.min(on_the_way.len());
    actions.extend(on_the_way.iter().take(cancelled).map(|replica| Action::Stop(replica.id)));

    ready.sort_by_key(|replica| (replica.in_flight, replica.conversations, Reverse(replica.id)));
    let spare = ready.len().saturating_sub(usize::from(demand > 0));
    let drained = (surplus - cancelled).min(spare);
    actions.extend(ready.iter().take(drained).map(|replica| Action::Drain(replica.id)));
}

#[cfg(test)]
mod tests;
