//! What a provider knows about its replicas, shared with those that follow each engine.
//!
//! Never starts a process. Its one lock is held for a few lines and never across a wait.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tracing::warn;

use super::super::folder::Folder;
use super::super::ids::Ids;
use super::super::news::News;
use super::super::{Instance, InstanceState};
use super::port::{self, Owner, PortLease};
use super::record::{self, Record};
use super::stop::{blocking, terminate};
use super::table::{Identity, Marks, Table};

/// The replicas of one deployment.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) deployment: DeploymentName,
    pub(super) folder: Folder,
    pub(super) marks: Marks,
    pub(super) ids: Ids,
    pub(super) news: News,
    price: Price,
    fleet: Mutex<BTreeMap<ReplicaId, Replica>>,
}

#[derive(Debug)]
struct Replica {
    record: Record,
    state: InstanceState,
    /// What is shown while it is being stopped: its end is then nobody's news.
    stopping: Option<InstanceState>,
    /// `None` once the provider is gone, whose followers may outlive it for a moment.
    port: Option<PortLease>,
}

impl Core {
    pub(super) fn new(
        deployment: DeploymentName,
        folder: Folder,
        marks: Marks,
        next: ReplicaId,
        price: Price,
    ) -> Self {
        let ids = Ids::new(folder.clone(), next);
        Self { deployment, folder, marks, ids, news: News::default(), price, fleet: Mutex::default() }
    }

    fn fleet(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, Replica>> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The public name of a replica.
    pub(super) fn name(&self, id: ReplicaId) -> String {
        replica_name(&self.deployment, id)
    }

    /// Takes a replica in, as pending.
    pub(super) fn insert(&self, record: Record, why: &str, port: PortLease) {
        let state = InstanceState::Pending { why: why.to_owned() };
        self.fleet().insert(record.id, Replica { record, state, stopping: None, port: Some(port) });
        self.news.tell();
    }

    /// Whoever comes next may have the ports.
    pub(super) fn let_ports_go(&self) {
        self.fleet().values_mut().for_each(|replica| replica.port = None);
    }

    /// Every replica, in order of id. What `news` tells is what comes after this.
    pub(super) fn list(&self) -> Vec<Instance> {
        self.news.listing();
        let fleet = self.fleet();
        let shown = |replica: &Replica| match replica.stopping.as_ref().unwrap_or(&replica.state).clone() {
            InstanceState::Up { url } if replica.record.parked => InstanceState::Parked { url },
            state => state,
        };
        let instance = |(id, replica): (&ReplicaId, &Replica)| {
            let capacity: Capacity = replica.record.capacity;
            Instance { id: *id, capacity, price: self.price, state: shown(replica), costs: true }
        };
        fleet.iter().map(instance).collect()
    }

    pub(super) fn set_state(&self, id: ReplicaId, state: InstanceState) {
        if let Some(replica) = self.fleet().get_mut(&id) {
            replica.state = state;
        }
        self.news.tell();
    }

    /// The port of a replica is proven; what belongs to it was put on record.
    pub(super) fn set_up(&self, id: ReplicaId) {
        if let Some(port) = self.port(id) {
            self.set_state(id, InstanceState::Up { url: format!("http://127.0.0.1:{port}") });
        }
    }

    pub(super) fn is_up(&self, id: ReplicaId) -> bool {
        let fleet = self.fleet();
        fleet.get(&id).is_some_and(|replica| matches!(replica.state, InstanceState::Up { .. }))
    }

    pub(super) fn port(&self, id: ReplicaId) -> Option<u16> {
        self.fleet().get(&id).map(|replica| replica.record.port)
    }

    pub(super) fn is_parked(&self, id: ReplicaId) -> bool {
        self.fleet().get(&id).is_some_and(|replica| replica.record.parked)
    }

    /// Keeps whether a replica is parked, on record too. The error is for people.
    pub(super) fn set_parked(&self, id: ReplicaId, parked: bool) -> Result<(), String> {
        let mut fleet = self.fleet();
        let replica = fleet.get_mut(&id).ok_or("it is gone")?;
        let record = Record { parked, ..replica.record.clone() };
        record::save(&self.folder, &record).map_err(|error| format!("cannot update its record: {error}"))?;
        replica.record = record;
        drop(fleet);
        self.news.tell();
        Ok(())
    }

    pub(super) fn leader(&self, id: ReplicaId) -> Option<Identity> {
        self.fleet().get(&id).map(|replica| replica.record.leader)
    }

    pub(super) fn known(&self, id: ReplicaId) -> Vec<Identity> {
        self.fleet().get(&id).map(|replica| replica.record.known()).unwrap_or_default()
    }

    /// Who listens at the port of replica `id`. If it does, its processes are put on record.
    pub(super) async fn look(&self, id: ReplicaId) -> io::Result<Owner> {
        let Some(port) = self.port(id) else { return Ok(Owner::Nobody) };
        let (marks, known) = (self.marks.clone(), self.known(id));
        let (owner, members) = blocking(move || {
            let mut members = Vec::new();
            let owner = port::owner(port, || {
                members = Table::read()?.members(&marks, id, &known);
                Ok(members.clone())
            })?;
            Ok((owner, members))
        })
        .await?;
        if owner == Owner::Replica {
            self.keep_members(id, members);
        }
        Ok(owner)
    }

    fn keep_members(&self, id: ReplicaId, members: Vec<Identity>) {
        let mut fleet = self.fleet();
        let Some(replica) = fleet.get_mut(&id) else { return };
        replica.record.members = members;
        if let Err(error) = record::save(&self.folder, &replica.record) {
            warn!("{}: cannot update its record: {error}", self.name(id));
        }
    }

    /// Ends every process of a replica. The error is for people.
    pub(super) async fn terminate(&self, id: ReplicaId) -> Result<(), String> {
        let (marks, known) = (self.marks.clone(), self.known(id));
        terminate(move || Ok(Table::read()?.members(&marks, id, &known))).await
    }

    /// Ends a replica and forgets it. The error is for people.
    pub(super) async fn stop(&self, id: ReplicaId) -> Result<(), String> {
        let Some(stopping) = Stopping::begin(self, id) else { return Ok(()) };
        self.terminate(id).await?;
        self.folder
            .forget(id, stopping.had_ended)
            .map_err(|error| format!("cannot remove its files: {error}"))?;
        self.fleet().remove(&id);
        self.news.tell();
        Ok(())
    }
}

/// While it lives, the list shows the replica as it was before; a stop that is given up shows it as it is.
struct Stopping<'a> {
    core: &'a Core,
    id: ReplicaId,
    had_ended: bool,
}

impl<'a> Stopping<'a> {
    fn begin(core: &'a Core, id: ReplicaId) -> Option<Self> {
        let mut fleet = core.fleet();
        let replica = fleet.get_mut(&id)?;
        let shown = replica.stopping.get_or_insert_with(|| replica.state.clone());
        let had_ended = matches!(shown, InstanceState::Exited { .. });
        Some(Self { core, id, had_ended })
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if let Some(replica) = self.core.fleet().get_mut(&self.id) {
            replica.stopping = None;
        }
    }
}
