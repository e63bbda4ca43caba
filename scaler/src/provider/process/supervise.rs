//! Follows one engine from its start to its end: proves its port, bounds its log, notices its exit.
//!
//! Never stops a healthy engine; one that cannot have its port is stopped, and so is what a dead one leaves behind.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::id::ReplicaId;
use tokio::process::Child;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::super::{InstanceState, output};
use super::core::Core;
use super::handle::Handle;
use super::port::Owner;
use super::stop::blocking;

/// How often a port is looked at while its engine starts.
const LOOK: Duration = Duration::from_millis(25);
/// How often the size of a log is looked at.
const TRIM: Duration = Duration::from_secs(1);
/// How many looks in a row must find a stranger at the port: an engine that just replaces its own process may for an
/// instant not be recognised.
const STRANGE_LOOKS: u32 = 3;

/// The first process of a replica.
#[derive(Debug)]
pub(super) enum Leader {
    /// Started by this run of the gateway.
    Child(Child),
    /// Started by an earlier one.
    Adopted(Handle),
}

impl Leader {
    /// Resolves at once when it ends, with how it ended, for people.
    async fn exited(&mut self) -> String {
        match self {
            Self::Child(child) => match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => format!("ended, but how is unknown: {error}"),
            },
            Self::Adopted(process) => match process.exited().await {
                Ok(()) => "how is unknown, since an earlier run of the gateway had started it".to_owned(),
                Err(error) => format!("cannot be watched any longer: {error}"),
            },
        }
    }
}

/// Follows replica `id` until its leader has ended and nothing of it is left.
pub(super) async fn supervise(core: Arc<Core>, id: ReplicaId, mut leader: Leader) {
    let how = tokio::select! {
        biased;
        how = leader.exited() => how,
        refusal = accompany(&core, id) => {
            core.terminate(id).await.err().map_or(refusal.clone(), |left| format!("{refusal}; {left}"))
        }
    };
    trim(&core, id).await;
    let log = core.folder.log(id);
    let output = blocking(move || Ok(output::last_lines(&log))).await.unwrap_or_default();
    debug!("{}: its engine ended: {how}", core.name(id));
    core.set_state(id, InstanceState::Exited { how, output });
    if let Err(why) = core.terminate(id).await {
        warn!("{} left something behind: {why}", core.name(id));
    }
    if let Leader::Child(child) = &mut leader {
        child.wait().await.ok(); // Reaps it, where it was stopped above.
    }
}

/// Waits for the port, then bounds the log for ever. Resolves only if the engine cannot have its port; says why.
async fn accompany(core: &Arc<Core>, id: ReplicaId) -> String {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trimmed = tokio::time::Instant::now();
    let mut strange = 0;
    while !core.is_up(id) {
        look.tick().await;
        match core.look(id).await {
            Ok(Owner::Replica) => {
                trim(core, id).await;
                core.set_up(id);
            }
            Ok(Owner::Nobody) => strange = 0,
            Ok(Owner::Other(who) | Owner::Hidden(who)) => {
                strange += 1;
                if strange >= STRANGE_LOOKS {
                    return format!("port {} was taken by {who}", core.port(id).unwrap_or_default());
                }
            }
            Err(error) => warn!("{}: cannot tell who listens at its port: {error}", core.name(id)),
        }
        if trimmed.elapsed() >= TRIM {
            trim(core, id).await;
            trimmed = tokio::time::Instant::now();
        }
    }
    let mut tick = interval(TRIM);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        trim(core, id).await;
    }
}

async fn trim(core: &Core, id: ReplicaId) {
    let log = core.folder.log(id);
    if output::is_long(&log)
        && let Err(error) = blocking(move || output::trim(&log)).await
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("{}: cannot cut its log back: {error}", core.name(id));
    }
}
