//! What happens to replicas, applied to what the dispatcher knows of them.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Capacity, Phase};
use tidegate_shared::time::Instant;

use super::replica::Replica;
use super::{Change, Dispatcher};

impl Dispatcher {
    /// Another concurrency limit, and whether a replica can be started now: an operator changed the size (Q1, Q3). Who is
    /// over the new limit finishes.
    pub fn resize(&mut self, now: Instant, concurrency: u32, startable: bool) {
        self.limits.concurrency = concurrency;
        self.startable = startable;
        self.replicas.set_mean(now, concurrency);
        self.pump(now);
        self.on_deadline(now);
    }

    pub(super) fn apply(&mut self, now: Instant, id: ReplicaId, change: Change) {
        match change {
            Change::Ordered(capacity) => self.insert(now, id, Phase::Provisioning, capacity),
            Change::Starting(capacity) => {
                self.insert(now, id, Phase::Starting, capacity);
                self.enter(now, id, Phase::Starting);
                self.replicas.update(now, id, |replica| replica.capacity = capacity);
            }
            Change::Ready => {
                self.replicas.update(now, id, |replica| {
                    (replica.down, replica.slow, replica.loaded) = (false, false, true);
                });
                self.ready(now, id, |phase| phase != Phase::Draining);
            }
            Change::CacheLost => self.prefixes.forget(id),
            Change::OwnOnly => self.replicas.update(now, id, |replica| replica.own_only = true),
            Change::Undrain => self.undrain(now, id),
            Change::Draining | Change::Parked | Change::Asleep | Change::Waking => self.rest(now, id, change),
            Change::Failed => {
                self.replicas.update(now, id, |replica| {
                    replica.down = true;
                    replica.ledger.forget();
                });
                if self.replicas.get(id).is_some_and(|known| known.phase == Phase::Ready) {
                    self.enter(now, id, Phase::Failed);
                }
            }
            Change::Looked(found) => self.looked(now, id, found),
            Change::Suspect => self.replicas.update(now, id, |replica| replica.suspect = true),
            Change::Refused => {
                self.replicas.update(now, id, |replica| (replica.suspect, replica.refused) = (true, true));
            }
            Change::Capacity(capacity) => {
                self.replicas.update(now, id, |replica| replica.capacity = capacity)
            }
            Change::Hold(hold) => self.replicas.update(now, id, |replica| replica.hold = Some(hold)),
            Change::Release => {
                let turn = self.turn;
                self.replicas.update(now, id, |replica| {
                    (replica.hold, replica.turn) = (None, replica.turn.max(turn));
                });
            }
            Change::StartFailed => {
                self.replicas.remove(now, id);
                self.start_failures = self.start_failures.saturating_add(1);
            }
            Change::Gone => {
                self.replicas.remove(now, id);
            }
        }
    }

    /// It takes everybody's requests again, as far as it may.
    fn undrain(&mut self, now: Instant, id: ReplicaId) {
        let turn = self.turn;
        self.replicas.update(now, id, |replica| {
            replica.out = false;
            if std::mem::take(&mut replica.own_only) {
                replica.turn = replica.turn.max(turn);
            }
        });
        let Some(known) = self.replicas.get(id).filter(|known| known.phase == Phase::Draining) else {
            return;
        };
        if known.down {
            // Its probe gave up on it while it drained.
            self.enter(now, id, Phase::Failed);
        } else if known.loaded {
            self.ready(now, id, |phase| phase == Phase::Draining);
        } else {
            // It was taken out before its probe found it ready.
            self.enter(now, id, Phase::Starting);
        }
    }

    /// What concerns replicas that go, or sleep (C5, C6).
    fn rest(&mut self, now: Instant, id: ReplicaId, change: Change) {
        let phase = self.replicas.get(id).map(|known| known.phase);
        match (change, phase) {
            (Change::Draining, _) => {
                self.replicas.update(now, id, |replica| replica.out = true);
                // Nothing runs where somebody sleeps, and it stays known as a sleeper until it is awake.
                if phase != Some(Phase::Parked) {
                    self.enter(now, id, Phase::Draining);
                }
            }
            (Change::Parked, _) => {
                self.replicas.update(now, id, |replica| replica.out = false);
                self.park(now, id);
            }
            (Change::Asleep, Some(Phase::Starting)) => {
                self.prefixes.forget(id);
                self.park(now, id);
            }
            (Change::Waking, _) => {
                self.replicas.update(now, id, |replica| replica.ordered = now);
                self.enter(now, id, Phase::Waking);
            }
            _ => {}
        }
    }

    fn ready(&mut self, now: Instant, id: ReplicaId, from: impl Fn(Phase) -> bool) {
        let Some(replica) = self.replicas.get(id).filter(|replica| from(replica.phase)) else { return };
        let took = Some(now.since(replica.ordered));
        match replica.phase {
            Phase::Waking => self.wake_took = took,
            Phase::Provisioning | Phase::Starting => self.start_took = took,
            _ => {}
        }
        self.start_failures = 0;
        let next = if replica.out { Phase::Draining } else { Phase::Ready };
        // Who was not there joins the others, and is trusted like them.
        let joins = replica.phase != Phase::Ready && replica.phase != Phase::Draining;
        let (turn, slow_start) = (self.turn, self.slow_start(now, id));
        self.replicas.update(now, id, |replica| {
            if joins {
                replica.slow_start = slow_start;
                replica.health.pardon(now);
            }
            replica.turn = replica.turn.max(turn);
            (replica.suspect, replica.refused, replica.unfit) = (false, false, None);
        });
        self.enter(now, id, next);
    }

    /// It begins anew when it is woken: what its engine said counts no more, and neither does what its probe saw.
    fn park(&mut self, now: Instant, id: ReplicaId) {
        self.replicas.update(now, id, |replica| {
            (replica.loaded, replica.down, replica.slow) = (false, false, false);
            (replica.suspect, replica.refused, replica.unfit) = (false, false, None);
            replica.own_only = false;
            replica.ledger.forget();
        });
        self.enter(now, id, Phase::Parked);
    }

    fn insert(&mut self, now: Instant, id: ReplicaId, phase: Phase, capacity: Capacity) {
        self.replicas.insert(now, Replica::new(now, id, phase, capacity, self.turn));
    }

    fn enter(&mut self, now: Instant, id: ReplicaId, phase: Phase) {
        self.replicas.update(now, id, |replica| {
            if replica.phase != phase {
                replica.phase = phase;
                replica.since = now;
            }
        });
    }
}
