//! Reads the table of processes and says which of them belong to a replica.
//!
//! A process belongs to a replica if it carries the replica's marker in its environment, or if its pid and start
//! time are on record for the replica; then also everything in its process group and everything below it. Engines
//! may overwrite their own environment (a changed process title does that), hence the three ways.
//!
//! Never signals anything, and never counts the gateway itself or the process 1 in.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::Arc;

use procfs::process::Process;
use serde::{Deserialize, Serialize};
use tidegate_shared::id::ReplicaId;

/// Name of the environment variable that marks every process of a replica.
pub(in crate::provider) const MARKER: &str = "TIDEGATE_REPLICA";

/// Most bytes of an environment that are searched for the marker.
const ENVIRONMENT_LIMIT: u64 = 2 * 1024 * 1024;

/// One process and no other: the kernel hands out a pid again, but not with the same start time within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::provider) struct Identity {
    /// Its number.
    pub(in crate::provider) pid: i32,
    /// When it started, in clock ticks since boot.
    pub(in crate::provider) start: u64,
}

impl Identity {
    /// The process that has `pid` now; `None` if there is none.
    pub(in crate::provider) fn of(pid: i32) -> Option<Self> {
        let start = Process::new(pid).and_then(|process| process.stat()).ok()?.starttime;
        Some(Self { pid, start })
    }
}

/// What marks the processes of the replicas of one deployment: the nonce of the state directory and the deployment.
#[derive(Clone, Debug)]
pub(in crate::provider) struct Marks {
    nonce: Arc<str>,
    deployment: Arc<str>,
}

impl Marks {
    /// Marks of `deployment` as run by the owner of `nonce`.
    pub(in crate::provider) fn new(nonce: &str, deployment: &str) -> Self {
        Self { nonce: nonce.into(), deployment: deployment.into() }
    }

    /// The value of [`MARKER`] for one replica.
    pub(in crate::provider) fn value(&self, id: ReplicaId) -> String {
        format!("{}/{}/{id}", self.nonce, self.deployment)
    }

    /// The replica whose marker `value` is; `None` for any other text.
    fn replica(&self, value: &str) -> Option<ReplicaId> {
        let (owner, id) = value.rsplit_once('/')?;
        let (nonce, deployment) = owner.split_once('/')?;
        (nonce == &*self.nonce && deployment == &*self.deployment).then(|| id.parse().ok().map(ReplicaId))?
    }
}

/// What the environment of a process says about whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Badge {
    /// It carries this value of the marker.
    Marked(String),
    /// It has an environment without the marker.
    Unmarked,
    /// It has none, has overwritten it, or may not be read.
    Silent,
}

/// One line of the table.
#[derive(Clone, Debug)]
struct Row {
    identity: Identity,
    parent: i32,
    group: i32,
    alive: bool,
    badge: Badge,
}

/// The processes of the machine at one moment.
#[derive(Debug)]
pub(in crate::provider) struct Table {
    rows: BTreeMap<i32, Row>,
    own: i32,
    own_group: i32,
}

impl Table {
    /// Reads the table from `/proc`. Takes some milliseconds: not for a thread that serves requests.
    pub(in crate::provider) fn read() -> io::Result<Self> {
        let own = Process::myself().and_then(|process| process.stat()).map_err(into_io)?;
        let processes = procfs::process::all_processes().map_err(into_io)?;
        let rows =
            processes.filter_map(|process| Row::read(&process.ok()?)).map(|row| (row.identity.pid, row));
        Ok(Self { rows: rows.collect(), own: own.pid, own_group: own.pgrp })
    }

    /// Whether `identity` lives and is a process of replica `id`. The environment has the last word where it speaks.
    pub(super) fn proves(&self, identity: Identity, marks: &Marks, id: ReplicaId) -> bool {
        self.rows.get(&identity.pid).is_some_and(|row| row.alive && self.is_seed(row, marks, id, &[identity]))
    }

    /// Every living process of replica `id`; `known` are processes on record for it. Zombies do not count.
    pub(in crate::provider) fn members(
        &self,
        marks: &Marks,
        id: ReplicaId,
        known: &[Identity],
    ) -> Vec<Identity> {
        let mut pids: BTreeSet<i32> = BTreeSet::new();
        let mut groups: BTreeSet<i32> = BTreeSet::new();
        loop {
            let before = pids.len();
            for row in self.rows.values().filter(|row| !self.is_untouchable(row, marks, id)) {
                let related = pids.contains(&row.parent) || groups.contains(&row.group);
                if related || self.is_seed(row, marks, id, known) {
                    pids.insert(row.identity.pid);
                    if row.group != self.own_group && row.group > 1 {
                        groups.insert(row.group);
                    }
                }
            }
            if pids.len() == before {
                break;
            }
        }
        let rows = pids.iter().filter_map(|pid| self.rows.get(pid));
        rows.filter(|row| row.alive).map(|row| row.identity).collect()
    }

    /// Every replica of `marks` of which a marked process lives.
    pub(super) fn replicas(&self, marks: &Marks) -> BTreeSet<ReplicaId> {
        let marked = self.rows.values().filter(|row| row.alive && row.identity.pid != self.own);
        marked.filter_map(|row| row.badge.value().and_then(|value| marks.replica(value))).collect()
    }

    /// Every deployment of which a process marked with `nonce` lives.
    pub(super) fn deployments(&self, nonce: &str) -> BTreeSet<String> {
        let marked = self.rows.values().filter(|row| row.alive && row.identity.pid != self.own);
        let owners = marked.filter_map(|row| row.badge.value()?.rsplit_once('/'));
        let named = owners.filter_map(|(owner, _)| owner.split_once('/'));
        named.filter(|(owner, _)| *owner == nonce).map(|(_, deployment)| deployment.to_owned()).collect()
    }

    fn is_seed(&self, row: &Row, marks: &Marks, id: ReplicaId, known: &[Identity]) -> bool {
        match &row.badge {
            Badge::Marked(value) => *value == marks.value(id),
            Badge::Unmarked => false,
            Badge::Silent => known.contains(&row.identity),
        }
    }

    /// The gateway, the init process, and what is marked as another's are nobody's members.
    fn is_untouchable(&self, row: &Row, marks: &Marks, id: ReplicaId) -> bool {
        let other = row.badge.value().is_some_and(|value| value != marks.value(id));
        row.identity.pid == self.own || row.identity.pid <= 1 || other
    }
}

impl Row {
    fn read(process: &Process) -> Option<Self> {
        let stat = process.stat().ok()?;
        // A process whose first thread has ended looks like a zombie but lives on in its other threads.
        let alive = !matches!(stat.state, 'Z' | 'X' | 'x') || stat.num_threads > 1;
        Some(Self {
            identity: Identity { pid: stat.pid, start: stat.starttime },
            parent: stat.ppid,
            group: stat.pgrp,
            alive,
            badge: Badge::read(process),
        })
    }
}

impl Badge {
    fn read(process: &Process) -> Self {
        let mut text = Vec::new();
        let read =
            process.open_relative("environ").map(|file| file.take(ENVIRONMENT_LIMIT).read_to_end(&mut text));
        if !matches!(read, Ok(Ok(_))) { Self::Silent } else { Self::parse(&text) }
    }

    fn parse(environment: &[u8]) -> Self {
        let mut speaks = false;
        for entry in environment.split(|byte| *byte == 0) {
            let Some(equals) = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else {
                continue;
            };
            let (name, value) = entry.split_at(equals);
            if name == MARKER.as_bytes() {
                return Self::Marked(
                    String::from_utf8_lossy(value.get(1..).unwrap_or_default()).into_owned(),
                );
            }
            speaks = true;
        }
        if speaks { Self::Unmarked } else { Self::Silent }
    }

    fn value(&self) -> Option<&str> {
        match self {
            Self::Marked(value) => Some(value),
            Self::Unmarked | Self::Silent => None,
        }
    }
}

/// What the process behind `pid` calls itself, for people; empty if it is gone.
pub(super) fn name(pid: i32) -> String {
    Process::new(pid).and_then(|process| process.stat()).map(|stat| stat.comm).unwrap_or_default()
}

/// An error of the process table as an error of input and output.
pub(super) fn into_io(error: procfs::ProcError) -> io::Error {
    match error {
        procfs::ProcError::Io(error, _) => error,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, parent: i32, group: i32, badge: Badge) -> (i32, Row) {
        (pid, Row { identity: Identity { pid, start: 7 }, parent, group, alive: true, badge })
    }

    fn marked(value: &str) -> Badge {
        Badge::Marked(value.to_owned())
    }

    fn pids(members: &[Identity]) -> Vec<i32> {
        members.iter().map(|identity| identity.pid).collect()
    }

    #[test]
    fn c005_members_are_marked_or_below_or_beside_a_marked_one() {
        let rows = [
            row(10, 1, 10, Badge::Unmarked),     // the gateway
            row(20, 10, 20, marked("n/chat/1")), // the engine
            row(21, 20, 20, Badge::Unmarked),    // its child
            row(22, 21, 22, Badge::Unmarked),    // a grandchild that left the group
            row(23, 1, 23, marked("n/chat/1")),  // a daemon that left the tree
            row(24, 1, 23, Badge::Silent),       // beside it
            row(30, 10, 30, marked("n/chat/2")), // another replica
            row(31, 1, 31, marked("m/chat/1")),  // another gateway's
            row(40, 1, 40, Badge::Unmarked),     // a stranger
        ];
        let table = Table { rows: rows.into_iter().collect(), own: 10, own_group: 10 };
        let marks = Marks::new("n", "chat");
        assert_eq!(pids(&table.members(&marks, ReplicaId(1), &[])), [20, 21, 22, 23, 24]);
        assert_eq!(table.replicas(&marks), [ReplicaId(1), ReplicaId(2)].into());
        assert_eq!(table.deployments("n"), ["chat".to_owned()].into());
    }

    #[test]
    fn c005_a_known_process_counts_only_while_its_environment_does_not_contradict() {
        let rows = [
            row(20, 1, 20, Badge::Silent),
            row(21, 1, 21, Badge::Unmarked),
            row(22, 1, 22, marked("n/chat/9")),
        ];
        let table = Table { rows: rows.into_iter().collect(), own: 10, own_group: 10 };
        let marks = Marks::new("n", "chat");
        let known = |pid| Identity { pid, start: 7 };
        assert!(table.proves(known(20), &marks, ReplicaId(1)));
        assert!(!table.proves(known(21), &marks, ReplicaId(1)));
        assert!(!table.proves(known(22), &marks, ReplicaId(1)));
        assert!(!table.proves(Identity { pid: 20, start: 8 }, &marks, ReplicaId(1)));
        assert_eq!(pids(&table.members(&marks, ReplicaId(1), &[known(20), known(21), known(22)])), [20]);
    }

    #[test]
    fn an_overwritten_environment_is_silent() {
        assert_eq!(Badge::parse(b""), Badge::Silent);
        assert_eq!(Badge::parse(b"VLLM::EngineCore\0\0\0"), Badge::Silent);
        assert_eq!(Badge::parse(b"HOME=/root\0"), Badge::Unmarked);
        assert_eq!(Badge::parse(b"HOME=/root\0TIDEGATE_REPLICA=n/a/b/3\0"), marked("n/a/b/3"));
        assert_eq!(Marks::new("n", "a/b").replica("n/a/b/3"), Some(ReplicaId(3)));
    }
}
