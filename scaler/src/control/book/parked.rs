//! Those of the book that sleep, or are about to, or are being woken (C6). Like the rest of it, it calls nobody.

use tidegate_scaler_core::reconcile::Falling;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Phase;
use tidegate_shared::time::{Duration, Instant};

use super::{Book, Member, Stage};

/// How long one that falls asleep is worth waiting for by who needs it: most engines take seconds, a start takes minutes.
const SOON: Duration = Duration::from_secs(10);

/// How a replica sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum Way {
    /// Its engine does, as it was asked to.
    Engine,
    /// Its provider keeps it from running.
    Provider,
}

impl Book {
    /// Replica `id` is about to be put to sleep `now`; the call that does it counts as running from here on. Tells whether that
    /// may be.
    pub(in crate::control) fn park(&mut self, id: ReplicaId, now: Instant) -> bool {
        let member = self.members.get_mut(&id).filter(|member| !member.busy && member.end.is_none());
        let Some(member) = member.filter(|member| member.stage == Stage::Served) else { return false };
        (member.stage, member.busy, member.turned) = (Stage::Parked(Way::Engine), true, now);
        true
    }

    /// That call has ended, and it sleeps that way; or it does not, and has to go. Tells why, where it did not have to
    /// anyway.
    pub(in crate::control) fn park_ended(
        &mut self,
        id: ReplicaId,
        result: Result<Way, String>,
    ) -> Option<String> {
        let member = self.members.get_mut(&id)?;
        member.busy = false;
        match result {
            Ok(way) => {
                member.stage = Stage::Parked(way);
                None
            }
            Err(why) => self.give_up(id, format!("it could not be put to sleep: {why}")),
        }
    }

    /// Who is still falling asleep `now`, in order of id.
    pub(in crate::control) fn falling(&self, now: Instant) -> Falling {
        let falls = |member: &Member| matches!(member.stage, Stage::Parked(_)) && member.busy;
        let falling = self.members.iter().filter(|(_, member)| falls(member) && member.end.is_none());
        let (soon, late): (Vec<_>, Vec<_>) = falling.partition(|(_, member)| now.since(member.turned) < SOON);
        let ids = |those: Vec<(&ReplicaId, &Member)>| those.into_iter().map(|(id, _)| *id).collect();
        Falling { soon: ids(soon), late: ids(late) }
    }

    /// Replica `id` is about to be woken `now`, from how it sleeps; the call that does it counts as running from here on.
    /// `None` where that has to wait: it is falling asleep.
    pub(in crate::control) fn wake(&mut self, id: ReplicaId, now: Instant) -> Option<Way> {
        let member = self.members.get_mut(&id).filter(|member| !member.busy && member.end.is_none())?;
        let Stage::Parked(way) = member.stage else { return None };
        (member.stage, member.busy) = (Stage::Waking(way), true);
        (member.since, member.turned) = (now, now);
        Some(way)
    }

    /// That call has ended `now`: it is awake and may be looked at, unless it has to go meanwhile; or it is not, and has to go.
    ///
    /// # Errors
    /// Why it does not wake up, where it did not have to go anyway.
    pub(in crate::control) fn wake_ended(
        &mut self,
        id: ReplicaId,
        result: Result<(), String>,
        now: Instant,
    ) -> Result<bool, String> {
        let Some(member) = self.members.get_mut(&id) else { return Ok(false) };
        (member.busy, member.turned) = (false, now);
        match result {
            Ok(()) => Ok(member.end.is_none()),
            Err(why) => match self.give_up(id, format!("it could not be woken: {why}")) {
                Some(why) => Err(why),
                None => Ok(false),
            },
        }
    }

    /// Ends those that are awake for `limit` and not ready; `explain` says more about each.
    pub(in crate::control) fn end_sleepers(
        &mut self,
        now: Instant,
        limit: Duration,
        explain: impl Fn(ReplicaId) -> String,
    ) -> Vec<(ReplicaId, String)> {
        let late = self.members.iter().filter(|(_, member)| {
            matches!(member.stage, Stage::Waking(_)) && !member.busy && now.since(member.turned) >= limit
        });
        let late: Vec<_> = late.map(|(id, _)| *id).collect();
        let why = |id| format!("it is awake and not ready within {limit:?}{}", explain(id));
        late.into_iter().filter_map(|id| Some((id, self.give_up(id, why(id))?))).collect()
    }

    /// Notes who was found asleep: an earlier run had parked it.
    pub(in crate::control) fn notice_asleep(&mut self, seen: &Observation) {
        for facts in seen.replicas.iter().filter(|facts| facts.phase == Phase::Parked) {
            if let Some(member) = self.members.get_mut(&facts.id).filter(|member| member.stage.starts()) {
                member.stage = Stage::Parked(Way::Engine);
            }
        }
    }

    /// Those that have to go while a call for them is running.
    pub(in crate::control) fn ending_and_busy(&self) -> Vec<ReplicaId> {
        let both = self.members.iter().filter(|(_, member)| member.busy && member.end.is_some());
        both.map(|(id, _)| *id).collect()
    }

    fn give_up(&mut self, id: ReplicaId, why: String) -> Option<String> {
        let goes_anyway = self.members.get(&id)?.end.is_some();
        self.end(id, &why, false);
        (!goes_anyway).then_some(why)
    }
}
