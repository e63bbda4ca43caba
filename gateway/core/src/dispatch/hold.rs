//! Holding a replica while it is measured (A1): which one, and whether the others can do without it meanwhile. What is sent
//! to it then is not this module's, and counts nowhere.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Hold, Phase};
use tidegate_shared::time::Instant;

use super::replica::Replica;
use super::{Change, Dispatcher};

/// Why no replica is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHold {
    /// There is no such replica.
    Unknown,
    /// It is not ready, or not trusted; or none is.
    NotReady,
    /// This one is held already: one of a deployment at a time.
    Held(ReplicaId),
}

impl Dispatcher {
    /// Holds the replica `wanted`, or else the one that is missed least: with the fewest conversations, then the fewest
    /// requests. It is set aside while another one takes requests; the only one goes on serving.
    ///
    /// # Errors
    /// See [`NoHold`].
    pub fn hold(&mut self, now: Instant, wanted: Option<ReplicaId>) -> Result<(ReplicaId, Hold), NoHold> {
        if let Some(held) = self.replicas.iter().find(|replica| replica.hold.is_some()) {
            return Err(NoHold::Held(held.id));
        }
        let id = match wanted {
            Some(id) => {
                let known = self.replicas.get(id).ok_or(NoHold::Unknown)?;
                known.is_open().then_some(id).ok_or(NoHold::NotReady)?
            }
            None => {
                let open = self.replicas.iter().filter(|replica| replica.is_open());
                let missed = |replica: &&Replica| {
                    (self.conversations.at(replica.id), replica.ledger.in_flight(), replica.id)
                };
                open.min_by_key(missed).map(|replica| replica.id).ok_or(NoHold::NotReady)?
            }
        };
        let hold = if self.replicas.ready() > 1 { Hold::Aside } else { Hold::Serving };
        self.sent_before_hold = self.replicas.get(id).map_or(0, |replica| replica.ledger.sent());
        self.change(now, id, Change::Hold(hold));
        Ok((id, hold))
    }

    /// Whether a replica is held and can go on being measured: it is ready, and nobody needs it more. Nobody does while
    /// nobody waits in line, nor is or was sent there where it serves: a request that has ended by now spoils it as well.
    pub fn may_measure(&self, id: ReplicaId) -> bool {
        let Some(replica) = self.replicas.get(id) else { return false };
        let asked = replica.ledger.in_flight() > 0 || replica.ledger.sent() > self.sent_before_hold;
        let free = replica.hold != Some(Hold::Serving) || !asked;
        replica.hold.is_some() && replica.phase == Phase::Ready && free && self.queue.is_empty()
    }
}
