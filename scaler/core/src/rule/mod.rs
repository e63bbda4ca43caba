//! Rules turn what was observed into a need: how many replicas the load alone asks for. They know no bounds, no
//! windows and no past; those are the guards' part.

use tidegate_shared::decision::ScaleReason;

pub mod concurrency;

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Replicas, before any guard.
    pub replicas: u32,
    /// Why so many, for the case that they are more than there are.
    pub cause: ScaleReason,
}
