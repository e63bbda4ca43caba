//! What the log says of one fleet: a line for each event, for people, with the public names of replicas. Only words;
//! nothing here decides or remembers.

use std::fmt::Display;

use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::span::ahead;
use tidegate_shared::time::Duration;
use tracing::{debug, info, warn};

use super::book::{Came, Newcomer};
use crate::fleet::Change;
use crate::provider::ProviderError;

/// Speaks of one deployment.
#[derive(Clone, Debug)]
pub(super) struct Log {
    name: DeploymentName,
}

impl Log {
    pub(super) fn new(name: DeploymentName) -> Self {
        Self { name }
    }

    /// The public name of a replica.
    pub(super) fn replica(&self, id: ReplicaId) -> String {
        replica_name(&self.name, id)
    }

    /// A decision that changed the target or the kind of reason.
    pub(super) fn decided(&self, decision: &ScaleDecision) {
        let (name, target, current) = (&self.name, decision.target, decision.current);
        let replicas = if target == 1 { "replica" } else { "replicas" };
        if target == current {
            debug!("{name} stays at {target} {replicas}: {decision}");
        } else {
            info!("{name} wants {target} {replicas} and has {current}: {decision}");
        }
    }

    /// The provider does not answer; a `retry_in` of zero: it is being asked.
    pub(super) fn held(&self, error: &ProviderError, retry_in: Duration) {
        let next = match retry_in.is_zero() {
            true => "it is being asked now".to_owned(),
            false => format!("next try in {}", ahead(retry_in)),
        };
        warn!("{} is held as it is, {next}: {error}", self.name);
    }

    /// A replica became ready.
    pub(super) fn ready(&self, new: &Newcomer) {
        let name = self.replica(new.id);
        let after = new.after.as_secs_f64();
        match new.how {
            Came::Ordered => info!("{name} is ready, {after:.1} s after its order"),
            Came::Woken => info!("{name} is ready, {after:.1} s after it was to be woken"),
            Came::Found => info!("{name} is ready"),
        }
    }

    /// Something is announced to the gateway; a replica that is gone is stopped.
    pub(super) fn announced(&self, id: ReplicaId, change: &Change) {
        let name = self.replica(id);
        match change {
            Change::Ordered { .. } => info!("{name} is being started"),
            Change::Up { url, .. } => info!("{name} listens at {url}; it is ready once its model is loaded"),
            Change::Drain => info!("{name} drains: no new request goes there"),
            Change::Undrain => info!("{name} takes requests again"),
            Change::Parked => info!("{name} is parked: it sleeps until it is needed"),
            Change::Waking => info!("{name} is being woken"),
            Change::Woken => debug!("{name} is awake; it is ready once it is found well"),
            Change::StartFailed { why } => warn!("{name} did not start: {}", indented(why)),
            Change::Gone { why } => info!("{name} is stopped: {}", indented(why)),
        }
    }

    /// The provider tells of a replica. One that is gone was not stopped. One that is up and was not `ordered` here was
    /// there before: in a `fixed` fleet by the operator's word alone, else adopted, and its provider has told of it.
    pub(super) fn heard(&self, id: ReplicaId, change: &Change, ordered: bool, fixed: bool) {
        let name = self.replica(id);
        match change {
            Change::Gone { why } => warn!("{name} is lost: {}", indented(why)),
            Change::Up { url, .. } if fixed => info!("{name} is looked for at {url}"),
            Change::Up { url, .. } if !ordered => debug!("{name} listens at {url}"),
            change => self.announced(id, change),
        }
    }

    /// A replica has to go.
    pub(super) fn stopping(&self, id: ReplicaId, why: &str) {
        debug!("{} is being stopped: {why}", self.replica(id));
    }

    /// One that was to sleep, or to wake up, does not, and is stopped.
    pub(super) fn not_kept(&self, id: ReplicaId, why: &str) {
        warn!("{} is stopped: {}", self.replica(id), indented(why));
    }

    /// A stop failed and will be tried again.
    pub(super) fn stop_failed(&self, id: ReplicaId, why: &str, retry_in: Duration) {
        warn!(
            "{} could not be stopped, next try in {}: {}",
            self.replica(id),
            ahead(retry_in),
            indented(why)
        );
    }

    /// The end came before everything was stopped.
    pub(super) fn left(&self, ids: &[ReplicaId], within: Duration) {
        let names: Vec<String> = ids.iter().map(|id| self.replica(*id)).collect();
        warn!("not stopped within {}: {}", ahead(within), names.join(", "));
    }

    /// The end came while the provider was still busy.
    pub(super) fn left_busy(&self, limit: Duration) {
        warn!("{}: starts and stops that took over {} are left to themselves", self.name, ahead(limit));
    }
}

/// Text of an engine as part of a line: its further lines are set in, so that none can pass for a line of the log,
/// and nothing of it steers a terminal.
fn indented(text: &str) -> impl Display {
    let clean = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    text.trim_end().chars().map(clean).collect::<String>().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_an_engine_passes_for_one_of_the_log() {
        let said = indented("it ended:\nERROR all is lost\x1b[2J\r\n").to_string();
        assert_eq!(said, "it ended:\n    ERROR all is lost [2J");
    }
}
