//! Replicas that their probes find unfit to serve, and what it means for whoever waits when all of them are (Q2, C-028).
//!
//! A start is no cure for either kind: what serves another model does so by its command line, and what cannot be reached is
//! not started from here. What is to be done about a replica is for its operator. Decides nothing about a replica that is
//! ready.

use tidegate_shared::decision::Refusal;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Phase;
use tidegate_shared::time::Instant;

use super::Dispatcher;
use super::replica::Replica;

/// Why a replica that is there cannot serve, as its probe sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its engine is well and lists its models, and the deployment's is none of them.
    OtherModel,
    /// It cannot be connected to. Counts only in a fleet that is not started from here; elsewhere it is what a start
    /// looks like.
    Unreachable,
}

impl Dispatcher {
    /// Why a replica cannot serve, and since when that is known; `None` for one that may.
    pub fn unfit(&self, id: ReplicaId) -> Option<(Unfit, Instant)> {
        self.replicas.get(id)?.unfit
    }

    /// The probe of a replica looked. A reason that stays the same keeps its time.
    pub(super) fn looked(&mut self, now: Instant, id: ReplicaId, found: Option<Unfit>) {
        let counts = |unfit: &Unfit| *unfit != Unfit::Unreachable || !self.startable;
        let found = found.filter(counts);
        let news = |known: &Replica| known.phase != Phase::Ready && known.unfit.map(|(why, _)| why) != found;
        if self.replicas.get(id).is_some_and(news) {
            self.replicas.update(now, id, |replica| replica.unfit = found.map(|why| (why, now)));
        }
    }

    /// Why nobody can be served, and since when: every replica is unfit, and none else is ready or on its way. Those that
    /// are about to leave do not count. A wrong model is told before a lost connection, since only a person can mend it.
    pub(super) fn nobody_fits(&self) -> Option<(Instant, Refusal)> {
        let mut all = None;
        for replica in self.replicas.iter().filter(|replica| replica.phase != Phase::Draining) {
            let (why, since) = replica.unfit?;
            let reason = match why {
                Unfit::OtherModel => Refusal::OtherModel,
                Unfit::Unreachable => Refusal::Unreachable,
            };
            let (latest, worst) = all.unwrap_or((since, reason));
            all = Some((since.max(latest), if worst == Refusal::OtherModel { worst } else { reason }));
        }
        all
    }
}
