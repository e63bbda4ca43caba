//! Names of things: deployments and replicas.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a deployment: the model name that clients send. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeploymentName(Arc<str>);

impl DeploymentName {
    /// Takes any text; the configuration checks which names are allowed.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DeploymentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for DeploymentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A replica of one deployment. Numbers start at 1 and are never given twice while the gateway's records live,
/// so that a late message about a replica that is gone cannot hit its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u32);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The public name of a replica, as in `x-tidegate-replica` (H5): `<deployment>-<number>`, never an address.
pub fn replica_name(deployment: &DeploymentName, id: ReplicaId) -> String {
    format!("{deployment}-{id}")
}
