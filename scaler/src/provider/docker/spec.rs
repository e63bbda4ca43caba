//! Turns the settings of a deployment into the container of one replica.
//!
//! Pure: talks to no daemon and looks at no file.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigLogConfig, PortBinding, RestartPolicy,
    RestartPolicyNameEnum,
};
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;

use super::super::fingerprint::Fingerprint;
use super::super::process::{PORT, table::MARKER};
use super::host::DockerHost;
use super::label::Tag;

/// What a container may write to its log before the oldest half goes. Twice this is kept at most.
const LOG_SIZE: &str = "1m";

/// How to run the replicas of one deployment. `Debug` leaves out the values of `env`: they may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct DockerSpec {
    /// Whose replicas they are.
    pub deployment: DeploymentName,
    /// Which daemon runs them.
    pub host: DockerHost,
    /// The image, as the daemon knows it.
    pub image: String,
    /// Arguments for the image's entry point; the image's own where empty. [`PORT`] is replaced anywhere in each.
    pub command: Vec<String>,
    /// Environment of the container; [`PORT`] is replaced anywhere in a value.
    pub env: BTreeMap<String, String>,
    /// `SOURCE:TARGET` or `SOURCE:TARGET:OPTIONS`, as Docker takes them.
    pub volumes: Vec<String>,
    /// How the engine is reached.
    pub network: Network,
    /// Which GPUs each replica gets.
    pub gpus: Gpus,
    /// Most memory in bytes, swap included; no limit if `None`.
    pub memory: Option<u64>,
    /// Most processor time in thousandths of a processor; no limit if `None`.
    pub millicpus: Option<u32>,
    /// Size of `/dev/shm` in bytes; the daemon's default if `None`.
    pub shm_size: Option<u64>,
    /// When the image is pulled.
    pub pull: Pull,
    /// The size of each replica.
    pub capacity: Capacity,
    /// What each replica costs.
    pub price: Price,
    /// How long a replica may take to be ready: for so long its last lines are kept at hand.
    pub start_limit: Duration,
}

impl fmt::Debug for DockerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deployment, host, image, command, env, volumes, network, gpus, .. } = self;
        f.debug_struct("DockerSpec")
            .field("deployment", deployment)
            .field("host", host)
            .field("image", image)
            .field("command", command)
            .field("env", &env.keys())
            .field("volumes", volumes)
            .field("network", network)
            .field("gpus", gpus)
            .finish_non_exhaustive()
    }
}

/// How an engine in a container is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The network of the machine: the engine listens on a port of 127.0.0.1 that Tidegate chooses.
    Host,
    /// A network of Docker's.
    Docker {
        /// Its name; `bridge` is the one that is always there.
        name: String,
        /// The port in the container.
        port: u16,
        /// The address of the machine at which Docker publishes that port, with a port that it chooses.
        publish: IpAddr,
    },
}

/// Which GPUs a replica gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// None.
    None,
    /// All that the daemon has; replicas share them.
    All,
    /// Some of these, and nobody else's.
    Of {
        /// Indices or UUIDs, as Docker takes them.
        ids: Vec<String>,
        /// How many of them a replica gets.
        each: u32,
    },
}

/// When the image of a deployment is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    /// Never: a missing image is an error that says so.
    #[default]
    Never,
    /// At a start that finds it missing.
    Missing,
}

impl DockerSpec {
    /// The same for the same containers, whatever the daemon.
    pub(super) fn fingerprint(&self) -> String {
        let mut recipe = Fingerprint::default();
        recipe.add(&self.image);
        recipe.add_all(&self.command);
        recipe.add_all(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        recipe.add_all(&self.volumes);
        recipe.add(format!("{:?} {:?}", self.network, self.gpus));
        recipe.add(format!("{:?} {:?} {:?}", self.memory, self.millicpus, self.shm_size));
        recipe.finish()
    }

    /// The name of a replica's container: `tidegate-`, a piece of the owner's mark, the deployment, the id.
    pub(super) fn container_name(&self, owner: &str, id: ReplicaId) -> String {
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() || "_.-".contains(letter) { letter } else { '_' }
        };
        let mut name: String = self.deployment.as_str().chars().map(plain).collect();
        if name != self.deployment.as_str() {
            // `a/b` and `a:b` are two deployments.
            let mut whole = Fingerprint::default();
            whole.add(self.deployment.as_str());
            name.push('_');
            name.extend(whole.finish().chars().take(8));
        }
        let owner: String = owner.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        format!("tidegate-{owner}-{name}-{id}")
    }

    /// What the daemon is asked to create for the replica that `tag` tells of; `mark` goes to its environment.
    pub(super) fn container(&self, tag: &Tag, mark: &str, owner: &str) -> ContainerCreateBody {
        let with_port = |text: &str| text.replace(PORT, &tag.port.to_string());
        let command: Vec<String> = self.command.iter().map(|word| with_port(word)).collect();
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", with_port(value)));
        ContainerCreateBody {
            image: Some(self.image.clone()),
            cmd: (!command.is_empty()).then_some(command),
            env: Some(env.chain([format!("{MARKER}={mark}")]).collect()),
            labels: Some(tag.labels(owner, &self.deployment)),
            exposed_ports: match &self.network {
                Network::Host => None,
                Network::Docker { port, .. } => Some(vec![format!("{port}/tcp")]),
            },
            host_config: Some(self.host_config(tag)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, tag: &Tag) -> HostConfig {
        let (network_mode, port_bindings) = match &self.network {
            Network::Host => ("host".to_owned(), None),
            Network::Docker { name, port, publish } => {
                // Without a port of its own choice, Docker chooses one that is free as it starts the container.
                let binding = PortBinding { host_ip: Some(publish.to_string()), host_port: None };
                (name.clone(), Some(HashMap::from([(format!("{port}/tcp"), Some(vec![binding]))])))
            }
        };
        let log = [("max-size", LOG_SIZE), ("max-file", "2")];
        let never = RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None };
        HostConfig {
            binds: (!self.volumes.is_empty()).then(|| self.volumes.clone()),
            network_mode: Some(network_mode),
            port_bindings,
            memory: signed(self.memory),
            // Without this the container gets as much swap again.
            memory_swap: signed(self.memory),
            nano_cpus: self.millicpus.map(|thousandths| i64::from(thousandths) * 1_000_000),
            shm_size: signed(self.shm_size),
            device_requests: self.device_request(tag).map(|request| vec![request]),
            log_config: Some(HostConfigLogConfig {
                typ: Some("local".to_owned()),
                config: Some(log.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            }),
            // A replica that ends is Tidegate's to replace, and Tidegate wants to see why it ended.
            restart_policy: Some(never),
            auto_remove: Some(false),
            // An engine that is the container's first process would ignore SIGTERM unless it handles it.
            init: Some(true),
            ..HostConfig::default()
        }
    }

    fn device_request(&self, tag: &Tag) -> Option<DeviceRequest> {
        let (count, device_ids) = match &self.gpus {
            Gpus::None => return None,
            Gpus::All => (Some(-1), None),
            Gpus::Of { .. } => (None, Some(tag.gpus.clone())),
        };
        let capabilities = Some(vec![vec!["gpu".to_owned()]]);
        Some(DeviceRequest { count, device_ids, capabilities, ..DeviceRequest::default() })
    }
}

fn signed(bytes: Option<u64>) -> Option<i64> {
    bytes.and_then(|bytes| i64::try_from(bytes).ok())
}

#[cfg(test)]
mod tests;
