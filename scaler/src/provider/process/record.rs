//! What is kept about each process so that the next run of the gateway knows it again.
//!
//! Never decides what a record is worth; one that makes no sense is as good as none.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Capacity;

use super::super::folder::{Folder, Records};
use super::table::Identity;

/// One replica on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Which one.
    pub(super) id: ReplicaId,
    /// The process that was started.
    pub(super) leader: Identity,
    /// The processes that it had when its port was proven; helps where they overwrite their environment.
    #[serde(default)]
    pub(super) members: Vec<Identity>,
    /// The boot in which pids and start times mean something.
    pub(super) boot: String,
    /// It is parked: its processes are stopped where they stand, or about to be.
    #[serde(default)]
    pub(super) parked: bool,
    /// Its port on 127.0.0.1.
    pub(super) port: u16,
    /// Its size.
    pub(super) capacity: Capacity,
    /// Which command line it runs; see `Recipe`.
    pub(super) recipe: String,
}

impl Record {
    /// Every process on record.
    pub(super) fn known(&self) -> Vec<Identity> {
        self.members.iter().copied().chain([self.leader]).collect()
    }
}

/// The boot in which the machine runs now.
pub(super) fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// Keeps a record, in place of the earlier one of that replica.
pub(super) fn save(folder: &Folder, record: &Record) -> io::Result<()> {
    folder.save(record.id, record)
}

/// Every record that makes sense, in order of id, and the ids of those that do not.
pub(super) fn load(folder: &Folder) -> io::Result<(Vec<Record>, Vec<ReplicaId>)> {
    let Records { good, mut torn } = folder.load::<Record>()?;
    let (good, strange): (Vec<_>, Vec<_>) = good.into_iter().partition(|(id, record)| record.id == *id);
    torn.extend(strange.into_iter().map(|(id, _)| id));
    torn.sort_unstable();
    Ok((good.into_iter().map(|(_, record)| record).collect(), torn))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32) -> Record {
        let leader = Identity { pid: 4711, start: 42 };
        let (boot, recipe) = ("boot".to_owned(), "recipe".to_owned());
        Record {
            id: ReplicaId(id),
            leader,
            members: vec![leader],
            boot,
            parked: false,
            port: 9000,
            capacity: Capacity::ONE,
            recipe,
        }
    }

    #[test]
    fn c005_records_come_back_in_order_and_torn_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        for id in [10, 2] {
            save(&folder, &record(id)).unwrap();
        }
        fs::write(dir.path().join("3.json"), b"{\"id\":3,").unwrap();
        fs::write(dir.path().join("4.json"), serde_json::to_vec(&record(5)).unwrap()).unwrap();
        assert_eq!(load(&folder).unwrap(), (vec![record(2), record(10)], vec![ReplicaId(3), ReplicaId(4)]));
    }
}
