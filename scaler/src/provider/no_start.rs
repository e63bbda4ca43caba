//! Why a start came to nothing: there is no room, or it failed. What follows from either is for the control loop.

use tidegate_shared::id::ReplicaId;

use super::ProviderError;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoStart {
    /// There is no room, which is no fault of what was to be started.
    NoRoom(String),
    Failed(String),
}

impl From<String> for NoStart {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<ProviderError> for NoStart {
    fn from(error: ProviderError) -> Self {
        match error {
            ProviderError::NoRoom { why, .. } => Self::NoRoom(why),
            error => Self::Failed(error.reason()),
        }
    }
}

impl NoStart {
    /// The same, of replica `id`.
    pub(super) fn of(self, id: ReplicaId) -> ProviderError {
        match self {
            Self::NoRoom(why) => ProviderError::NoRoom { id, why },
            Self::Failed(why) => ProviderError::Start { id, why },
        }
    }
}
