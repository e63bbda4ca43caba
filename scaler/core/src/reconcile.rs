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
    /// Those that wait for a machine and may not have one any more (M1, M3).
    pub withdrawn: Vec<ReplicaId>,
    /// Replicas that may be parked (C6).
    pub parked: u32,
    /// Those of the parked ones that cannot be woken yet.
    pub falling: Falling,
    /// Who leaves first.
    pub leaving: Leaving,
}

/// Parked replicas that are still falling asleep: none of them can be woken before it sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Falling {
    /// Those that are worth waiting for: they should sleep in a moment.
    pub soon: Vec<ReplicaId>,
    /// Those that take long: for growth they are not there.
    pub late: Vec<ReplicaId>,
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
    /// Put it to sleep: it was drained, and nothing runs there (C6).
    Park(ReplicaId),
    /// Wake a parked replica (C6).
    Wake(ReplicaId),
    /// Stop it: nothing runs there, or it may wait no longer.
    Stop(ReplicaId),
}

/// The steps from `replicas` towards `goal`.
///
/// A replica in phase Gone is one whose stop is not finished: nothing more is done about it, but it holds its place,
/// so that never more than the ceiling exist at once, draining and failed ones included (A6).
///
/// - A failed replica is stopped, and one that is withdrawn. So is a draining one that is idle and may not be parked, or
///   that has drained for longer than the limit.
/// - To grow, what is soonest ready comes first: draining replicas are taken back, those with the most conversations before
///   the others; then parked ones are woken, those that sleep soundly before those that soon will, and those parked last
///   first; then new ones are started, also in the place of those that take long to fall asleep.
/// - To shrink, those on their way go first, all at once, then ready ones in the order of [`Leaving`], one in each step
///   however few are wanted (A4, B5); never the last ready one where it has to be kept. One that is being woken is let come: it is ready soon, and can then be parked again.
/// - Parked ones that are too many are stopped, those parked first before the others.
pub fn reconcile(goal: &Goal, replicas: &[ReplicaFacts], now: Instant, sizing: &Sizing) -> Vec<Action> {
    let (existing, ceiling) = (replicas.len(), usize::try_from(sizing.ceiling()).unwrap_or(usize::MAX));
    let mut draining = drained(replicas);
    let mut parked = asleep(replicas);
    let ready = of(replicas, &[Phase::Ready]).len();
    let target = usize::try_from(goal.target).unwrap_or(usize::MAX);
    let current = ready + replicas.iter().filter(|replica| replica.is_on_its_way()).count();

    let failed = of(replicas, &[Phase::Failed]).into_iter().map(|replica| replica.id);
    let mut actions: Vec<_> = failed.chain(goal.withdrawn.iter().copied()).map(Action::Stop).collect();
    if target > current {
        let missing = target - current;
        let back: Vec<_> = draining.drain(..draining.len().min(missing)).collect();
        actions.extend(back.iter().map(|replica| Action::Undrain(replica.id)));
        let missing = missing - back.len();
        let woken: Vec<_> = sleepers(&goal.falling, &parked).into_iter().take(missing).collect();
        parked.retain(|replica| !woken.contains(&replica.id));
        let count = (missing - woken.len()).min(ceiling.saturating_sub(existing));
        actions.extend(woken.into_iter().map(Action::Wake));
        actions.extend(goal.orders.iter().take(count).cloned().map(Action::Start));
    } else {
        let spare = ready.saturating_sub(usize::from(goal.keep_last));
        let leaving = leaving(goal.leaving, replicas);
        let (withdrawn, leaving): (Vec<_>, Vec<_>) =
            leaving.into_iter().partition(|replica| goal.withdrawn.contains(&replica.id));
        actions.extend(shrink((current - target).saturating_sub(withdrawn.len()), spare, &leaving));
    }
    // Where there are more than may be, what serves nobody goes first (A6).
    let over = existing.saturating_sub(ceiling);
    let most = usize::try_from(goal.parked).unwrap_or(usize::MAX);
    let most = if over == 0 { most } else { most.min(parked.len().saturating_sub(over)) };
    actions.extend(rest(draining, &parked, most, now, sizing));
    actions
}

/// Those that come back before anything is started, the first first.
pub fn returning<'a>(falling: &Falling, replicas: &'a [ReplicaFacts]) -> Vec<&'a ReplicaFacts> {
    let (mut all, parked) = (drained(replicas), asleep(replicas));
    let woken = sleepers(falling, &parked);
    all.extend(woken.iter().filter_map(|id| parked.iter().find(|replica| replica.id == *id)));
    all
}

/// Those that drain, the first to be taken back first.
fn drained(replicas: &[ReplicaFacts]) -> Vec<&ReplicaFacts> {
    let mut draining = of(replicas, &[Phase::Draining]);
    draining.sort_by_key(|replica| (Reverse(replica.conversations), Reverse(replica.in_flight), replica.id));
    draining
}

/// Those that are parked, the last that was first.
fn asleep(replicas: &[ReplicaFacts]) -> Vec<&ReplicaFacts> {
    let mut parked = of(replicas, &[Phase::Parked]);
    parked.sort_by_key(|replica| (Reverse(replica.since), replica.id));
    parked
}

/// What becomes of those that drain and stay so, and of those that are parked, in order of parking, the last first.
fn rest(
    mut draining: Vec<&ReplicaFacts>,
    parked: &[&ReplicaFacts],
    most: usize,
    now: Instant,
    sizing: &Sizing,
) -> Vec<Action> {
    let mut actions: Vec<_> = parked.iter().skip(most).map(|replica| Action::Stop(replica.id)).collect();
    let mut room = most.saturating_sub(parked.len());
    draining.sort_by_key(|replica| (replica.price, replica.id));
    for replica in draining {
        match replica.in_flight {
            0 if room > 0 => {
                room -= 1;
                actions.push(Action::Park(replica.id));
            }
            0 => actions.push(Action::Stop(replica.id)),
            _ if now.since(replica.since) >= sizing.drain_limit => actions.push(Action::Stop(replica.id)),
            _ => {}
        }
    }
    actions
}

/// Who of the `parked` may be woken, in order of parking, the last first; those who do not sleep soundly come last.
fn sleepers(falling: &Falling, parked: &[&ReplicaFacts]) -> Vec<ReplicaId> {
    let ids = parked.iter().map(|replica| replica.id).filter(|id| !falling.late.contains(id));
    let (soon, mut sound): (Vec<_>, Vec<_>) = ids.partition(|id| falling.soon.contains(id));
    sound.extend(soon);
    sound
}

fn of<'a>(replicas: &'a [ReplicaFacts], phases: &[Phase]) -> Vec<&'a ReplicaFacts> {
    replicas.iter().filter(|replica| phases.contains(&replica.phase)).collect()
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

/// The first `surplus` of those who leave, but one ready one at most, and only where some are to `spare`. Who is being woken leaves later.
fn shrink(surplus: usize, spare: usize, order: &[&ReplicaFacts]) -> Vec<Action> {
    let (on_the_way, ready): (Vec<&ReplicaFacts>, _) =
        order.iter().copied().partition(|replica| replica.is_on_its_way());
    let cancelled = surplus.min(on_the_way.len());
    let drained = (surplus - cancelled).min(spare).min(1);
    let stops = on_the_way.into_iter().take(cancelled).filter(|replica| replica.phase != Phase::Waking);
    let stops = stops.map(|replica| Action::Stop(replica.id));
    stops.chain(ready.into_iter().take(drained).map(|replica| Action::Drain(replica.id))).collect()
}

#[cfg(test)]
mod tests;
