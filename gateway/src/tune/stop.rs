//! Why measuring has ended without a target. Only the words.

use thiserror::Error;
use tidegate_shared::time::Duration;

/// For so long an engine may send nothing.
pub(super) const SILENT: Duration = Duration::from_secs(60);

/// Why there is no target. `Display` is for operators.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Stop {
    /// Nobody listens any more.
    #[error("the client has left")]
    Left,
    /// Users need the replica.
    #[error("{0}")]
    Needed(String),
    /// The engine does not serve what it is measured with.
    #[error("{replica} does not serve what it would be measured with: {why}")]
    Unusable {
        /// The replica.
        replica: String,
        /// What it said.
        why: String,
    },
    /// The engine sends nothing.
    #[error("{replica} has sent nothing for {} s", SILENT.as_secs())]
    Silent {
        /// The replica.
        replica: String,
    },
    /// It was measured, and there is none.
    #[error("{0}")]
    Nothing(String),
}
