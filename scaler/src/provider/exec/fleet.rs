//! What is known of the replicas of one deployment, and what a new list of them means.
//!
//! Pure: takes facts, returns what is to be done. Runs no command.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;

use super::super::{Instance, InstanceState};
use super::answer::Told;

/// The replicas of one deployment.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    members: BTreeMap<ReplicaId, Member>,
    /// Replicas that are gone, and when they went: a list that is older may still name them.
    departed: BTreeMap<ReplicaId, u64>,
    /// Replicas whose start failed, and when: what a list still names of them has to be stopped.
    doomed: BTreeMap<ReplicaId, u64>,
    /// Counts starts and stops that have ended.
    turn: u64,
}

#[derive(Debug)]
struct Member {
    capacity: Capacity,
    state: InstanceState,
    /// A list that began before this turn says nothing about it.
    settled: u64,
    /// A start is under way.
    starting: bool,
    /// What is shown while it is being stopped.
    stopping: Option<InstanceState>,
    output: Vec<String>,
}

/// What a list asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Replicas that must not be there.
    pub(super) stop: Vec<ReplicaId>,
    /// Replicas that nobody here started.
    pub(super) adopted: Vec<ReplicaId>,
    /// Whether anything differs from what was known.
    pub(super) changed: bool,
}

impl Fleet {
    /// A mark to be taken before a list is asked for.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    /// A start begins.
    pub(super) fn begin(&mut self, id: ReplicaId, capacity: Capacity) {
        let state = InstanceState::Pending { why: "its start command runs".to_owned() };
        let settled = self.turn;
        let (starting, stopping, output) = (true, None, Vec::new());
        self.members.insert(id, Member { capacity, state, settled, starting, stopping, output });
    }

    /// A start has ended well.
    pub(super) fn started(&mut self, told: Told) {
        self.turn += 1;
        let turn = self.turn;
        if let Some(member) = self.members.get_mut(&told.id) {
            (member.starting, member.settled) = (false, turn);
            member.update(told);
        }
    }

    /// A start has failed: whatever there is of it has to go.
    pub(super) fn doom(&mut self, id: ReplicaId) {
        self.remove(id);
        self.doomed.insert(id, self.turn);
    }

    /// Nothing of a replica is left.
    pub(super) fn remove(&mut self, id: ReplicaId) {
        self.turn += 1;
        self.members.remove(&id);
        self.doomed.remove(&id);
        self.departed.insert(id, self.turn);
    }

    /// Takes in a list that was asked for at `turn`. `usual` is the size of replicas that do not tell theirs.
    pub(super) fn take_in(&mut self, listed: Vec<Told>, turn: u64, usual: Capacity) -> Todo {
        let mut todo = Todo::default();
        let before = self.instances(Price::FREE);
        let present: BTreeSet<ReplicaId> = listed.iter().map(|told| told.id).collect();
        for told in listed {
            let id = told.id;
            if self.doomed.contains_key(&id) {
                todo.stop.push(id);
            } else if self.departed.get(&id).is_some_and(|gone| *gone > turn) {
                // An old list.
            } else if let Some(member) = self.members.get_mut(&id) {
                if !member.starting && member.settled <= turn {
                    member.update(told);
                }
            } else {
                self.begin(id, told.capacity.unwrap_or(usual));
                self.started(told);
                todo.adopted.push(id);
            }
        }
        let stays = |id: &ReplicaId, member: &Member| {
            present.contains(id) || member.starting || member.stopping.is_some() || member.settled > turn
        };
        self.members.retain(|id, member| stays(id, member));
        self.departed.retain(|_, gone| *gone > turn);
        self.doomed.retain(|id, since| present.contains(id) || *since > turn);
        todo.changed = before != self.instances(Price::FREE);
        todo
    }

    /// Every replica, in order of id, each of that price.
    pub(super) fn instances(&self, price: Price) -> Vec<Instance> {
        let instance = |(id, member): (&ReplicaId, &Member)| {
            let state = member.stopping.as_ref().unwrap_or(&member.state).clone();
            Instance { id: *id, capacity: member.capacity, price, state }
        };
        self.members.iter().map(instance).collect()
    }

    /// A stop begins; whether the replica had ended by itself. `None` where there is no such replica.
    pub(super) fn stop(&mut self, id: ReplicaId) -> Option<bool> {
        let member = self.members.get_mut(&id)?;
        let shown = member.stopping.get_or_insert_with(|| member.state.clone());
        Some(matches!(shown, InstanceState::Exited { .. }))
    }

    /// A stop was given up: the replica is shown as it is.
    pub(super) fn unstop(&mut self, id: ReplicaId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.stopping = None;
        }
    }

    /// What a list told of the output of a replica.
    pub(super) fn output(&self, id: ReplicaId) -> Vec<String> {
        self.members.get(&id).map(|member| member.output.clone()).unwrap_or_default()
    }

    /// The ids of all replicas.
    pub(super) fn ids(&self) -> Vec<ReplicaId> {
        self.members.keys().copied().collect()
    }

    /// Gives those that ended without a word the last lines that `words` knows of them.
    pub(super) fn complete(&mut self, words: impl Fn(ReplicaId) -> Vec<String>) {
        for (id, member) in &mut self.members {
            if let InstanceState::Exited { output, .. } = &mut member.state
                && output.is_empty()
            {
                *output = words(*id);
            }
        }
    }
}

impl Member {
    fn update(&mut self, told: Told) {
        self.capacity = told.capacity.unwrap_or(self.capacity);
        if !told.output.is_empty() {
            self.output = told.output;
        }
        self.state = match (&self.state, told.state) {
            (InstanceState::Exited { .. }, _) => return,
            (InstanceState::Up { url: old }, InstanceState::Up { url: new }) if *old != new => {
                let how = format!("its address changed from {old} to {new}");
                InstanceState::Exited { how, output: self.output.clone() }
            }
            // It is being ended, whatever else is said of it meanwhile.
            (InstanceState::Ending { why }, InstanceState::Up { .. } | InstanceState::Pending { .. }) => {
                InstanceState::Ending { why: why.clone() }
            }
            // It was up; that it starts anew is for the probe to see.
            (InstanceState::Up { url }, InstanceState::Pending { .. }) => {
                InstanceState::Up { url: url.clone() }
            }
            (_, state) => state,
        };
    }
}
