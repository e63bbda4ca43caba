//! Who is taken out because of how it answers, and who is trusted again; which failures may be tried once more (R5).
//!
//! Each replica's own account says when it should go; here is what the fleet says to that: at most half of those that
//! could serve are out for what they answered or for being slow, and the last one never is. One at which nothing listens
//! is another matter, and may always be out.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Phase;
use tidegate_shared::request::RequestFacts;
use tidegate_shared::time::{Duration, Instant};

use super::{Change, Dispatcher, Ejection, Elsewhere, Lease};
use crate::health::{Cause, Fault, Sign, Trust};
use crate::slow_start::SlowStart;

/// What was decided so far.
#[derive(Debug)]
pub(super) struct Judge {
    /// When the first pause ends; too early after a pardon, which does no harm.
    wakes: Instant,
    /// Not told yet.
    news: Vec<Ejection>,
    count: BTreeMap<Fault, u64>,
}

impl Default for Judge {
    fn default() -> Self {
        Self { wakes: Instant::NEVER, news: Vec::new(), count: BTreeMap::new() }
    }
}

impl Judge {
    /// When somebody's pause ends.
    pub(super) fn wakes(&self) -> Instant {
        self.wakes
    }

    fn ejected(&mut self, now: Instant, replica: ReplicaId, why: Cause, pause: Duration) {
        self.wakes = self.wakes.min(now + pause);
        self.news.push(Ejection { replica, why, pause });
        *self.count.entry(why.fault).or_default() += 1;
    }
}

impl Dispatcher {
    /// The request on trial is being answered well, which is enough; nothing happens for any other.
    pub fn proved(&mut self, now: Instant, lease: &mut Lease) {
        if std::mem::take(&mut lease.trial) {
            self.tried(now, lease.replica, Sign::Well);
            self.pump(now);
        }
    }

    /// A replica that is ready answers its health check too slowly, and no worse. Gives whether it counts as failed now:
    /// not when too few would be left (C-006).
    pub fn too_slow(&mut self, now: Instant, id: ReplicaId) -> bool {
        let slow = self.replicas.iter().filter(|replica| replica.phase == Phase::Failed && replica.slow);
        let (slow, (present, out)) = (slow.count(), self.count());
        let spared = self.replicas.get(id).is_some_and(|known| known.is_present() && !known.health.is_out())
            && (slow + out + 1) * 2 > present + slow;
        if spared {
            return false;
        }
        self.replicas.update(now, id, |replica| replica.slow = true);
        self.change(now, id, Change::Failed);
        true
    }

    /// A replica that is ready says at its health check that it takes no requests now, as an engine does that is about to end:
    /// it gets nothing new, and what it has goes on (C-058). Not when fewer than half of the fleet would be open: such an
    /// answer of many is that of a fleet under load, and one that answers is better than none (C-006). Gives whether it gets
    /// nothing; ask again at each such answer.
    pub fn not_now(&mut self, now: Instant, id: ReplicaId) -> bool {
        let ready = self.replicas.iter().filter(|known| known.phase == Phase::Ready);
        let (all, shut) = ready.fold((0, 0), |(all, shut), known| {
            (all + 1, shut + usize::from(known.id != id && !known.is_open()))
        });
        let Some(known) = self.replicas.get(id).filter(|known| known.phase == Phase::Ready) else {
            return false;
        };
        let aside = (shut + 1) * 2 <= all;
        if known.suspect != aside {
            self.change(now, id, if aside { Change::Suspect } else { Change::Ready });
        }
        aside
    }

    /// Whether a failed request may be sent again, at the cost of a replica's work; if so, it counts.
    pub fn may_retry(&mut self, now: Instant) -> bool {
        self.budget.retry(now)
    }

    /// A replica is too busy for a request, and its answer is at hand: is there room elsewhere now? `tried` are the
    /// replicas that did not serve it.
    pub fn elsewhere(&mut self, now: Instant, facts: &Arc<RequestFacts>, tried: &[ReplicaId]) -> Elsewhere {
        // It stands behind who waits by now: its client has an answer, if none that it likes.
        let stands = self.queue.place(facts.priority, now);
        let ask = self.ask_for(now, facts, tried, stands);
        let bounds = self.bounds();
        let has_room = |id: ReplicaId| {
            !tried.contains(&id) && self.replicas.get(id).is_some_and(|known| bounds.is_under(known, &ask))
        };
        if !self.replicas.ranked().iter().any(|rank| has_room(rank.id)) {
            return Elsewhere::Nobody;
        }
        if !self.budget.retry(now) {
            return Elsewhere::Spent;
        }
        match self.with_own_policy(|this, policy| this.place(now, facts, tried, stands, policy)) {
            Some(choice) => {
                let lease = self.commit(now, facts, tried, choice);
                self.pump_if_moved(now, choice);
                Elsewhere::Forward(lease)
            }
            None => Elsewhere::Nobody,
        }
    }

    /// Retries refused since the beginning because too many requests were sent twice.
    pub fn retries_refused(&self) -> u64 {
        self.budget.refused()
    }

    /// Replicas taken out since the last call.
    pub fn take_ejections(&mut self) -> Vec<Ejection> {
        std::mem::take(&mut self.judge.news)
    }

    /// How often replicas were taken out since the beginning, by the last fault.
    pub fn ejections(&self) -> &BTreeMap<Fault, u64> {
        &self.judge.count
    }

    /// What a replica is trusted with; with everything where it is not known.
    pub fn trust(&self, id: ReplicaId) -> Trust {
        self.replicas.get(id).map_or(Trust::Whole, |known| known.health.trust())
    }

    /// Draws the consequence of an exchange that ended: `why` is what the replica's account says against it.
    pub(super) fn judge(&mut self, now: Instant, lease: &Lease, why: Option<Cause>) {
        if lease.trial {
            self.tried(now, lease.replica, lease.sign);
        }
        let Some(why) = why else { return };
        let known = self.replicas.get(lease.replica);
        let Some(known) = known.filter(|known| known.phase == Phase::Ready && !known.refused) else { return };
        let (present, out) = self.count();
        // One that could not be connected to is suspected by now, and counts like the others.
        let present = present + usize::from(!known.is_present());
        if (out + 1) * 2 <= present {
            let mut pause = Duration::ZERO;
            self.replicas.update(now, lease.replica, |known| pause = known.health.eject(now, why));
            self.judge.ejected(now, lease.replica, why, pause);
        }
    }

    fn tried(&mut self, now: Instant, id: ReplicaId, sign: Sign) {
        let slow_start = self.slow_start(now, id);
        let mut again = None;
        self.replicas.update(now, id, |known| {
            again = known.health.tried(now, sign);
            if !known.health.is_out() {
                known.slow_start = slow_start;
            }
        });
        if let Some((why, pause)) = again {
            self.judge.ejected(now, id, why, pause);
        }
        self.keep_enough(now);
    }

    /// Pardons those that are over half of the fleet, first whose pause ends first: a bad replica is better than none.
    pub(super) fn keep_enough(&mut self, now: Instant) {
        loop {
            let (present, out) = self.count();
            let outside = self.replicas.iter().filter(|known| known.is_present() && known.health.is_out());
            let next = outside.min_by_key(|known| known.health.until()).map(|known| known.id);
            let Some(next) = next.filter(|_| out * 2 > present) else { return };
            self.replicas.update(now, next, |known| known.health.pardon(now));
        }
    }

    /// Lets those whose pause is over take one request.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.judge.wakes > now {
            return;
        }
        let over = |until: Instant| until <= now;
        let due = self.replicas.iter().filter(|known| known.health.until().is_some_and(over));
        let due: Vec<_> = due.map(|known| known.id).collect();
        let turn = self.turn;
        for id in &due {
            self.replicas.update(now, *id, |known| {
                known.health.wake(now);
                known.turn = known.turn.max(turn);
            });
        }
        let left = self.replicas.iter().filter_map(|known| known.health.until()).min();
        self.judge.wakes = left.unwrap_or(Instant::NEVER);
    }

    /// How a replica begins that joins the others, if they are at work (C-040).
    pub(super) fn slow_start(&self, now: Instant, id: ReplicaId) -> Option<SlowStart> {
        let mut others = self.replicas.iter().filter(|known| known.id != id && known.is_open());
        others.any(|known| known.ledger.in_flight() > 0).then(|| SlowStart::begin(now, self.sent))
    }

    /// Replicas that could serve, and those of them that are out for what they answered.
    fn count(&self) -> (usize, usize) {
        let present = self.replicas.iter().filter(|known| known.is_present());
        present.fold((0, 0), |(all, out), known| (all + 1, out + usize::from(known.health.is_out())))
    }
}
