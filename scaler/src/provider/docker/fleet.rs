//! What is known of the containers of one deployment, and what a new list of them means.
//!
//! Pure: takes facts, returns what is to be done. Never speaks to a daemon.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tokio::time::Instant;

use super::super::process::port::PortLease;
use super::super::{Instance, InstanceState};
use super::daemon::{End, Seen, Stage};
use super::label::Tag;

/// The replicas of one deployment.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    members: BTreeMap<ReplicaId, Member>,
    /// Replicas that are gone, and when they went: a list that is older may still name them.
    departed: BTreeMap<ReplicaId, u64>,
    /// Counts starts and stops that have ended.
    turn: u64,
    /// Whether what an earlier run left has been looked at.
    adopted: bool,
}

/// One replica.
#[derive(Debug)]
pub(super) struct Member {
    /// Empty until the container is made.
    pub(super) container: String,
    pub(super) port: u16,
    capacity: Capacity,
    state: InstanceState,
    /// When it came in.
    since: Instant,
    /// A list that began before this turn says nothing about it.
    settled: u64,
    /// A start is under way.
    starting: bool,
    /// It is paused.
    paused: bool,
    /// An event said that it has ended. Docker tells that before its list shows it.
    died: bool,
    /// What is shown while it is being stopped.
    stopping: Option<InstanceState>,
    /// Its last lines, as of a moment ago.
    tail: Vec<String>,
    /// Its port, where that is one of the machine's.
    lease: Option<PortLease>,
}

/// What a list asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Containers that are nobody's replica (half made, of another recipe, dead before they were adopted).
    pub(super) strays: Vec<(ReplicaId, String)>,
    /// Replicas that have ended and of which it is not known how.
    pub(super) ended: Vec<(ReplicaId, String)>,
    /// Replicas that were adopted, with their containers.
    pub(super) adopted: Vec<(ReplicaId, String)>,
}

impl Fleet {
    /// A mark to be taken before a list is asked for.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    /// A start begins.
    pub(super) fn begin(&mut self, id: ReplicaId, capacity: Capacity, why: &str) {
        let state = InstanceState::Pending { why: why.to_owned() };
        let settled = self.turn;
        let member = Member {
            container: String::new(),
            port: 0,
            capacity,
            state,
            since: Instant::now(),
            settled,
            starting: true,
            paused: false,
            died: false,
            stopping: None,
            tail: Vec::new(),
            lease: None,
        };
        self.members.insert(id, member);
    }

    /// What a start is at.
    pub(super) fn progress(&mut self, id: ReplicaId, why: &str) {
        if let Some(member) = self.members.get_mut(&id) {
            member.state = InstanceState::Pending { why: why.to_owned() };
        }
    }

    /// The container of a start is made.
    pub(super) fn made(&mut self, id: ReplicaId, container: &str) {
        if let Some(member) = self.members.get_mut(&id) {
            member.container = container.to_owned();
        }
    }

    /// An event says that a container has ended.
    pub(super) fn died(&mut self, container: &str) {
        for member in self.members.values_mut().filter(|member| member.container == container) {
            member.died = true;
        }
    }

    /// An event said that a container has ended, and it runs: somebody has started it again.
    pub(super) fn revived(&mut self, id: ReplicaId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.died = false;
        }
    }

    /// A start has ended well.
    pub(super) fn started(&mut self, id: ReplicaId, container: &str, port: u16, lease: Option<PortLease>) {
        self.turn += 1;
        let turn = self.turn;
        if let Some(member) = self.members.get_mut(&id) {
            (member.container, member.port) = (container.to_owned(), port);
            (member.starting, member.settled, member.since) = (false, turn, Instant::now());
            member.lease = lease;
        }
    }

    /// A start came to nothing, or a stop is done.
    pub(super) fn remove(&mut self, id: ReplicaId) {
        self.turn += 1;
        if self.members.remove(&id).is_some() {
            self.departed.insert(id, self.turn);
        }
    }

    /// Takes in a list of containers that was asked for at `turn`. `url` makes the address of one that runs, as far as
    /// the list alone can tell.
    pub(super) fn take_in(
        &mut self,
        seen: Vec<Seen>,
        turn: u64,
        recipe: &str,
        url: impl Fn(&Seen) -> Option<String>,
    ) -> Todo {
        let first = !std::mem::replace(&mut self.adopted, true);
        let mut todo = Todo::default();
        let mut present = BTreeSet::new();
        for one in seen {
            let id = one.tag.replica;
            if self.departed.get(&id).is_some_and(|gone| *gone > turn) || one.stage == Stage::Leaves {
                continue;
            }
            let known = self.members.get(&id);
            if first && known.is_none() && one.stage == Stage::Runs && one.tag.recipe == recipe {
                self.adopt(&one.tag, &one.container);
                todo.adopted.push((id, one.container.clone()));
            }
            match self.members.get_mut(&id) {
                Some(member) if member.starting || member.container == one.container => {
                    present.insert(id);
                    if !member.starting && member.see(&one, &url) {
                        todo.ended.push((id, one.container));
                    }
                }
                _ => todo.strays.push((id, one.container)),
            }
        }
        let stays = |id: &ReplicaId, member: &Member| {
            present.contains(id) || member.starting || member.stopping.is_some() || member.settled > turn
        };
        self.members.retain(|id, member| stays(id, member));
        self.departed.retain(|_, gone| *gone > turn);
        todo
    }

    fn adopt(&mut self, tag: &Tag, container: &str) {
        self.begin(tag.replica, tag.capacity, "adopted; its address is not known yet");
        if let Some(member) = self.members.get_mut(&tag.replica) {
            (member.container, member.port, member.starting) = (container.to_owned(), tag.port, false);
        }
    }

    /// How a replica ended.
    pub(super) fn ended(&mut self, id: ReplicaId, container: &str, end: &End, output: Vec<String>) {
        if let Some(member) = self.members.get_mut(&id).filter(|member| member.container == container) {
            member.tail.clone_from(&output);
            member.state = InstanceState::Exited { how: how(end), output };
        }
    }

    /// The port of an adopted replica is one of the machine's: nobody else of this gateway's gets it.
    pub(super) fn keep_port(&mut self, id: ReplicaId, claim: impl FnOnce(u16) -> Option<PortLease>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.lease = claim(member.port);
        }
    }

    /// The container of a replica that has one.
    pub(super) fn container(&self, id: ReplicaId) -> Option<String> {
        self.members.get(&id).filter(|member| !member.starting).map(|member| member.container.clone())
    }

    /// A replica was paused, or goes on.
    pub(super) fn set_paused(&mut self, id: ReplicaId, paused: bool) {
        if let Some(member) = self.members.get_mut(&id) {
            member.paused = paused;
        }
    }

    /// A replica listens at a port that is proven to be its own.
    pub(super) fn set_up(&mut self, id: ReplicaId, url: String) {
        if let Some(member) = self.members.get_mut(&id)
            && matches!(member.state, InstanceState::Pending { .. })
        {
            member.state = InstanceState::Up { url };
        }
    }

    /// A replica cannot have its port.
    pub(super) fn set_robbed(&mut self, id: ReplicaId, how: String) {
        if let Some(member) = self.members.get_mut(&id) {
            member.state = InstanceState::Exited { how, output: member.tail.clone() };
        }
    }

    /// Containers that run without a proven address, and their ports.
    pub(super) fn unproven(&self) -> Vec<(ReplicaId, u16)> {
        let waits = |member: &Member| {
            !member.starting && member.port > 0 && matches!(member.state, InstanceState::Pending { .. })
        };
        self.members
            .iter()
            .filter(|(_, member)| waits(member))
            .map(|(id, member)| (*id, member.port))
            .collect()
    }

    /// Containers that run and came in after `moment`.
    pub(super) fn younger_than(&self, moment: Option<Instant>) -> Vec<(ReplicaId, String)> {
        let young = |member: &Member| {
            !member.starting
                && moment.is_none_or(|moment| member.since > moment)
                && !matches!(member.state, InstanceState::Exited { .. })
        };
        let young = self.members.iter().filter(|(_, member)| young(member));
        young.map(|(id, member)| (*id, member.container.clone())).collect()
    }

    /// Keeps the last lines of a replica.
    pub(super) fn keep_tail(&mut self, id: ReplicaId, tail: Vec<String>) {
        if let Some(member) = self.members.get_mut(&id).filter(|_| !tail.is_empty()) {
            member.tail = tail;
        }
    }

    /// The last lines of a replica, as of a moment ago.
    pub(super) fn tail(&self, id: ReplicaId) -> Vec<String> {
        self.members.get(&id).map(|member| member.tail.clone()).unwrap_or_default()
    }

    /// How many replicas have not ended.
    pub(super) fn alive(&self) -> u32 {
        let alive =
            self.members.values().filter(|member| !matches!(member.state, InstanceState::Exited { .. }));
        u32::try_from(alive.count()).unwrap_or(u32::MAX)
    }

    /// Every replica, in order of id, each of that price.
    pub(super) fn instances(&self, price: Price) -> Vec<Instance> {
        let instance = |(id, member): (&ReplicaId, &Member)| {
            let state = match member.stopping.as_ref().unwrap_or(&member.state).clone() {
                InstanceState::Up { url } if member.paused => InstanceState::Parked { url },
                state => state,
            };
            Instance { id: *id, capacity: member.capacity, price, state, costs: true }
        };
        self.members.iter().map(instance).collect()
    }

    /// A stop begins: its container, and its last lines if it had ended by itself. `None` where there is no such
    /// replica.
    pub(super) fn stop(&mut self, id: ReplicaId) -> Option<(String, Option<Vec<String>>)> {
        let member = self.members.get_mut(&id)?;
        let shown = member.stopping.get_or_insert_with(|| member.state.clone());
        let had_ended = matches!(shown, InstanceState::Exited { .. });
        Some((member.container.clone(), had_ended.then(|| member.tail.clone())))
    }

    /// A stop was given up: the replica is shown as it is.
    pub(super) fn unstop(&mut self, id: ReplicaId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.stopping = None;
        }
    }
}

impl Member {
    /// Takes in how its container is; whether it has ended and nobody knows how.
    fn see(&mut self, one: &Seen, url: impl Fn(&Seen) -> Option<String>) -> bool {
        let stage = if self.died { Stage::Ended } else { one.stage };
        self.paused = one.paused;
        match (&self.state, stage) {
            (InstanceState::Exited { .. }, _) => false,
            (_, Stage::Ended) => true,
            (InstanceState::Pending { .. } | InstanceState::Queued { .. }, Stage::Runs) => {
                if let Some(url) = url(one) {
                    self.state = InstanceState::Up { url };
                }
                false
            }
            (InstanceState::Up { url: old } | InstanceState::Parked { url: old }, Stage::Runs) => {
                // Docker gave it another port, as when somebody restarts it by hand.
                if let Some(new) = url(one).filter(|new| new != old) {
                    let how = format!("its address changed from {old} to {new}");
                    self.state = InstanceState::Exited { how, output: self.tail.clone() };
                }
                false
            }
            // No container is held.
            (InstanceState::Ending { .. } | InstanceState::Held { .. }, Stage::Runs)
            | (_, Stage::Created | Stage::Leaves) => false,
        }
    }
}

/// How a container ended, for people.
fn how(end: &End) -> String {
    let code = match (end.out_of_memory, end.code) {
        (true, code) => format!("exit code {code}: out of memory, at the container's limit"),
        (false, code @ 129..=159) => format!("exit code {code}: signal {}", code - 128),
        (false, code) => format!("exit code {code}"),
    };
    if end.error.is_empty() { code } else { format!("{code}: {}", end.error) }
}

#[cfg(test)]
mod tests;
