//! Rules turn what was observed into a need: how many replicas the load alone asks for. They know no bounds, no
//! cooling and no confirmation; those are the guards' part. In whole numbers throughout, so that no rounding decides.

use tidegate_shared::decision::ScaleReason;

pub mod concurrency;
pub mod jobs;
pub mod places;
pub mod queue;
pub mod samples;
pub mod token_load;

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Replicas, before any guard.
    pub replicas: u32,
    /// Why so many, for the case that they are more than there are.
    pub cause: ScaleReason,
}

/// A mean that is not divided out: `sum` over `count` samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mean {
    /// Of all samples.
    pub sum: u128,
    /// How many, at least 1.
    pub count: u32,
}
