//! What the operator says about a fleet on Slurm, and what of it makes a job a job of this fleet.
//!
//! Never talks to Slurm.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::Value;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tidegate_shared::time::Duration;

use super::super::fingerprint::Fingerprint;
use super::super::rest::Site;

/// How to reach slurmrestd, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmAccess {
    /// Where slurmrestd is.
    pub site: Site,
    /// A file with a JWT; without one the socket itself says who asks.
    pub token: Option<PathBuf>,
    /// Whose jobs they are; without it whom the token names, or else the user who owns the socket.
    pub user: Option<String>,
    /// The version of the API, such as 38 for `v0.0.38`; without it slurmrestd is asked.
    pub api: Option<u32>,
}

/// What a replica can be started on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmOffer {
    /// What it is called: letters, digits and `. _ : / -`, unique within the deployment.
    pub name: String,
    /// The partition; Slurm's default one if `None`.
    pub partition: Option<String>,
    /// Generic resources, such as `gpu:a100:1`.
    pub gres: Option<String>,
    /// The size of a replica on it.
    pub capacity: Capacity,
    /// What a replica on it costs.
    pub price: Price,
    /// Memory of its GPUs in bytes, where known.
    pub memory: Option<u64>,
    /// Its nodes have the model's weights already.
    pub cached: bool,
}

/// How to run the replicas of one deployment.
#[derive(Clone, PartialEq, Eq)]
pub struct SlurmSpec {
    /// Whose replicas they are.
    pub deployment: DeploymentName,
    /// The program and its arguments, at least the program; `{port}` is replaced anywhere in each.
    pub command: Vec<String>,
    /// The environment of the job beside what Slurm sets; `{port}` is replaced anywhere in a value.
    pub env: BTreeMap<String, String>,
    /// Where the program runs, on the node.
    pub dir: PathBuf,
    /// Where the output of jobs goes, on the node; read from here where that is the same folder.
    pub logs: PathBuf,
    /// The ports that an engine may be given, on the node.
    pub ports: RangeInclusive<u16>,
    /// The account that is charged.
    pub account: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// How many minutes a job may run; the partition's own limit if `None`.
    pub time_limit: Option<u32>,
    /// Further fields of a job as the API names them.
    pub options: BTreeMap<String, Value>,
    /// What a replica can be started on, at least one.
    pub offers: Vec<SlurmOffer>,
    /// How slurmrestd is reached.
    pub access: SlurmAccess,
    /// How long a start may take until the model is loaded; for the control loop.
    pub start_limit: Duration,
}

/// Leaves out the values of the environment: they may be secrets.
impl fmt::Debug for SlurmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlurmSpec")
            .field("deployment", &self.deployment)
            .field("command", &self.command)
            .field("env", &self.env.keys())
            .field("offers", &self.offers)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl SlurmSpec {
    /// A short text that is the same for the same job on the same offer, and from which nothing of it can be told: a job
    /// of another recipe runs no replica of this deployment any more. Account, time limit and price change nothing in that.
    pub(super) fn fingerprint(&self, offer: &SlurmOffer) -> String {
        let SlurmOffer { name: _, partition, gres, capacity, price: _, memory: _, cached: _ } = offer;
        let options: BTreeMap<&str, String> =
            self.options.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect();
        let mut recipe = Fingerprint::default();
        recipe.add_all(&self.command);
        recipe.add_all(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        recipe.add(self.dir.as_os_str().as_encoded_bytes());
        recipe.add_all(options.iter().map(|(name, value)| format!("{name}={value}")));
        recipe.add(format!("{partition:?} {gres:?} {}", capacity.units()));
        recipe.finish()
    }

    /// Where the output of a replica goes; `%j` stands for the number of its job.
    pub(super) fn log(&self, id: ReplicaId) -> PathBuf {
        let deployment = self.deployment.as_str().replace('/', "+");
        self.logs.join(format!("tidegate-{deployment}-{id}.%j.log"))
    }

    /// The same file once the number is known.
    pub(super) fn log_of(&self, id: ReplicaId, job: u32) -> PathBuf {
        let deployment = self.deployment.as_str().replace('/', "+");
        self.logs.join(format!("tidegate-{deployment}-{id}.{job}.log"))
    }

    /// The offer of that name.
    pub(super) fn offer(&self, name: &str) -> Option<&SlurmOffer> {
        self.offers.iter().find(|offer| offer.name == name)
    }
}
