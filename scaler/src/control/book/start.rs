//! The start calls of the book's replicas, and who is only tried: its offer had no room, and whether it is taken only its
//! start tells (M1). Until then it holds a place, and nobody is told of it.

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tidegate_shared::replica::ReplicaFacts;
use tidegate_shared::time::Instant;

use super::{Book, Member, News, Stage};
use crate::fleet::Change;
use crate::provider::{Instance, InstanceState, NoStart};

/// What a start is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum Purpose {
    /// There is room, as far as is known.
    Order,
    /// To ask whether there is room by now.
    Try,
}

impl Book {
    /// Enters a replica whose start on `offer` is about to be called. Where it may have to wait for a machine, it costs from
    /// the moment at which its provider says that it has one.
    pub(in crate::control) fn order(&mut self, id: ReplicaId, offer: &Offer, purpose: Purpose, now: Instant) {
        let new = Member::new(offer.capacity, offer.price, now, Stage::Ordered);
        let tried = purpose == Purpose::Try;
        let member = Member { ordered_here: true, tried, busy: true, in_line: offer.queues, ..new };
        self.members.insert(id, member);
    }

    /// The start call has ended. An error leaves nothing behind.
    pub(in crate::control) fn start_ended(
        &mut self,
        id: ReplicaId,
        result: Result<(), NoStart>,
    ) -> Option<News> {
        let member = self.members.get_mut(&id)?;
        member.busy = false;
        let tried = std::mem::take(&mut member.tried);
        let Err(why) = result else {
            let ordered = Change::Ordered { capacity: member.capacity };
            return (tried && member.end.is_none()).then_some((id, ordered));
        };
        let told = self.members.remove(&id)?.end.is_some_and(|end| end.told);
        let change = match why {
            NoStart::NoRoom(_) if tried => return None,
            NoStart::NoRoom(why) => Change::Gone { why: format!("there is no room for it: {why}") },
            NoStart::Failed(why) => Change::StartFailed { why },
        };
        (!told).then_some((id, change))
    }

    /// How many starts only ask for room.
    pub(in crate::control) fn trying(&self) -> u32 {
        u32::try_from(self.tried().count()).unwrap_or(u32::MAX)
    }

    /// All that hold a place, of which `seen` are no mere tries.
    pub(in crate::control) fn with_tries(&self, seen: &Observation) -> Vec<ReplicaFacts> {
        seen.replicas.iter().cloned().chain(self.tried()).collect()
    }

    fn tried(&self) -> impl Iterator<Item = ReplicaFacts> {
        let tried = self.members.iter().filter(|(_, member)| member.tried);
        tried.map(|(id, member)| ReplicaFacts { in_line: member.in_line, ..member.facts(*id) })
    }

    /// Whether that is news of one that was tried: it is taken.
    pub(super) fn is_taken(&mut self, listed: &Instance) -> bool {
        let member = self.members.get_mut(&listed.id).filter(|member| member.tried);
        let goes_on = matches!(listed.state, InstanceState::Pending { .. });
        member.filter(|_| !goes_on).is_some_and(|member| std::mem::take(&mut member.tried))
    }
}
