//! The commands of one deployment, and what each is told.
//!
//! Runs nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tokio::process::Command;

use super::super::process::table::MARKER;
use super::answer::VERSION;

/// How long a command may run unless set.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How often replicas are listed unless set.
pub const LIST_EVERY: Duration = Duration::from_secs(2);

/// How to run the replicas of one deployment. `Debug` leaves out the values of `env`: they may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// Whose replicas they are.
    pub deployment: DeploymentName,
    /// Starts one replica. This and the other commands: a program and its arguments, no shell; `{deployment}` and
    /// `{owner}` are replaced anywhere in an argument, `{id}` and `{name}` where a replica is meant, and `{offer}` where one is started.
    pub start: Vec<String>,
    /// Stops one replica.
    pub stop: Vec<String>,
    /// Lists all replicas.
    pub list: Vec<String>,
    /// Added to the environment of the gateway.
    pub env: BTreeMap<String, String>,
    /// Where the commands run.
    pub dir: PathBuf,
    /// How long one command may run.
    pub time_limit: Duration,
    /// The pause between two lists; after a start or a stop there is one at once.
    pub list_every: Duration,
    /// The size of a replica that does not tell its own.
    pub capacity: Capacity,
    /// What each replica costs.
    pub price: Price,
    /// How long a replica may take to be ready.
    pub start_limit: Duration,
}

impl fmt::Debug for ExecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deployment, start, stop, list, env, dir, .. } = self;
        f.debug_struct("ExecSpec")
            .field("deployment", deployment)
            .field("start", start)
            .field("stop", stop)
            .field("list", list)
            .field("env", &env.keys())
            .field("dir", dir)
            .finish_non_exhaustive()
    }
}

/// What a command is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action<'a> {
    /// Which one, on what offer.
    Start(ReplicaId, &'a str),
    Stop(ReplicaId),
    List,
}

impl Action<'_> {
    /// Its name in the configuration and in the environment.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Start(..) => "start",
            Self::Stop(_) => "stop",
            Self::List => "list",
        }
    }

    const fn replica(self) -> Option<ReplicaId> {
        match self {
            Self::Start(id, _) | Self::Stop(id) => Some(id),
            Self::List => None,
        }
    }
}

impl ExecSpec {
    /// The command for `action`, in a process group of its own, with nothing to read; its output is not set up yet.
    /// The error is for people.
    pub(super) fn command(&self, action: Action<'_>, owner: &str) -> Result<Command, String> {
        let words = match action {
            Action::Start(..) => &self.start,
            Action::Stop(_) => &self.stop,
            Action::List => &self.list,
        };
        let deployment = self.deployment.as_str();
        let replica = action.replica().map(|id| (id.to_string(), replica_name(&self.deployment, id)));
        let filled = |word: &String| {
            let mut word = word.replace("{deployment}", deployment).replace("{owner}", owner);
            if let Some((id, name)) = &replica {
                word = word.replace("{id}", id).replace("{name}", name);
            }
            if let Action::Start(_, offer) = action {
                word = word.replace("{offer}", offer);
            }
            word
        };
        let mut words = words.iter().map(filled);
        let program = words.next().ok_or("the command is empty; it needs at least a program")?;
        let mut command = std::process::Command::new(program);
        command.args(words).envs(&self.env).current_dir(&self.dir).stdin(Stdio::null());
        // What a command starts is the operator's; a mark of another provider must not make it look like ours.
        command.env_remove(MARKER);
        command.env("TIDEGATE_CONTRACT", VERSION.to_string());
        command.env("TIDEGATE_ACTION", action.name());
        command.env("TIDEGATE_OWNER", owner);
        command.env("TIDEGATE_DEPLOYMENT", deployment);
        for name in ["TIDEGATE_ID", "TIDEGATE_NAME", "TIDEGATE_OFFER"] {
            command.env_remove(name);
        }
        if let Some((id, name)) = &replica {
            command.env("TIDEGATE_ID", id).env("TIDEGATE_NAME", name);
        }
        if let Action::Start(_, offer) = action {
            command.env("TIDEGATE_OFFER", offer);
        }
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Command::from(command))
    }
}
