//! Sorts what an earlier run of the gateway left: replicas to go on with, and strays to end.
//!
//! A record counts only if its process still lives: same boot, same pid, same start time, and an environment that
//! does not contradict. Anything that carries a marker of this deployment without such a record is a stray. Nothing
//! else is touched.

use std::collections::BTreeSet;
use std::io;

use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::Price;
use tracing::{info, warn};

use super::super::state::StateDir;
use super::core::Core;
use super::handle::Handle;
use super::record::{self, Record};
use super::stop::{blocking, terminate};
use super::table::{Identity, Marks, Table};

/// What was found.
#[derive(Debug)]
struct Found {
    /// Replicas that live, each with a hold on its leader.
    living: Vec<(Record, Handle)>,
    /// Replicas that are over or not wanted, with the processes on record for them.
    over: Vec<(ReplicaId, Vec<Identity>)>,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Adopted {
    /// Replicas to go on with, each with a hold on its leader.
    pub(super) living: Vec<(Record, Handle)>,
    /// Replicas that have been ended and forgotten, as far as that went.
    pub(super) over: Vec<ReplicaId>,
}

/// Ends the engines of deployments that no longer have a process provider, and forgets them. Returns the names of those
/// replicas. Call it once at start, with every deployment that has one. What resists for 15 s is logged and left for
/// the next time.
pub async fn clean_up(state: &StateDir, wanted: &[DeploymentName]) -> io::Result<Vec<String>> {
    let nonce = state.nonce().to_owned();
    let mut names = blocking(move || Ok(Table::read()?.deployments(&nonce))).await?;
    names.extend(state.deployments()?);
    let mut ended = Vec::new();
    for name in names.iter().map(|name| DeploymentName::new(name)).filter(|name| !wanted.contains(name)) {
        let (_claim, folder) = state.claim(&name).map_err(io::Error::other)?;
        let next = folder.next_id()?;
        let marks = Marks::new(state.nonce(), name.as_str());
        let core = Core::new(name, folder, marks, next, Price::FREE);
        ended.extend(adopt(&core, None).await?.over.into_iter().map(|id| core.name(id)));
    }
    Ok(ended)
}

/// Looks at what an earlier run left and ends all that is not a living replica made by `recipe`; by no recipe, all.
pub(super) async fn adopt(core: &Core, recipe: Option<String>) -> io::Result<Adopted> {
    let (folder, marks) = (core.folder.clone(), core.marks.clone());
    let found = blocking(move || {
        let (records, torn) = record::load(&folder)?;
        sort(records, torn, &Table::read()?, &marks, &record::boot_id()?, recipe.as_deref())
    })
    .await?;
    let over = found.over.iter().map(|(id, _)| *id).collect();
    futures_util::future::join_all(found.over.into_iter().map(|(id, known)| end(core, id, known))).await;
    Ok(Adopted { living: found.living, over })
}

fn sort(
    records: Vec<Record>,
    torn: Vec<ReplicaId>,
    table: &Table,
    marks: &Marks,
    boot: &str,
    recipe: Option<&str>,
) -> io::Result<Found> {
    let mut over: Vec<(ReplicaId, Vec<Identity>)> = torn.into_iter().map(|id| (id, Vec::new())).collect();
    let mut living = Vec::new();
    for record in records {
        let known = if record.boot == boot { record.known() } else { Vec::new() };
        let lives = record.boot == boot && table.proves(record.leader, marks, record.id);
        let handle = if lives && recipe == Some(&record.recipe) { Handle::of(record.leader)? } else { None };
        match handle {
            Some(handle) => living.push((record, handle)),
            None => over.push((record.id, known)),
        }
    }
    let sorted: BTreeSet<ReplicaId> =
        living.iter().map(|(record, _)| record.id).chain(over.iter().map(|(id, _)| *id)).collect();
    over.extend(table.replicas(marks).difference(&sorted).map(|id| (*id, Vec::new())));
    Ok(Found { living, over })
}

async fn end(core: &Core, id: ReplicaId, known: Vec<Identity>) {
    let (marks, name) = (core.marks.clone(), core.name(id));
    let ended = terminate(move || Ok(Table::read()?.members(&marks, id, &known))).await;
    match ended {
        // The record stays, so that the next run tries again.
        Err(why) => warn!("{name}: cannot end what an earlier run left: {why}"),
        Ok(()) => match core.folder.forget(id, true) {
            Ok(()) => info!("{name}: ended what an earlier run left"),
            Err(error) => warn!("{name}: cannot remove files of an earlier run: {error}"),
        },
    }
}
