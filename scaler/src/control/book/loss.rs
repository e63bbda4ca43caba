//! Which replicas fail by an end that they bring about themselves, and which are lost by it. Announces nothing.

use tidegate_shared::id::ReplicaId;

use super::{Book, Member};
use crate::fleet::Change;

impl Member {
    /// The announcement of an end that it brought about itself, unless an earlier run had told it to stop.
    pub(super) fn ended(&self, why: String) -> Change {
        let failed = self.stage.starts() && !self.told_before;
        if failed { Change::StartFailed { why } } else { Change::Gone { why } }
    }
}

impl Book {
    /// Those whose end is no loss: they have to go, or were never seen Ready.
    pub(in crate::control) fn no_loss(&self) -> Vec<ReplicaId> {
        let none = |member: &Member| member.end.is_some() || member.stage.starts();
        self.members.iter().filter(|(_, member)| none(member)).map(|(id, _)| *id).collect()
    }
}
