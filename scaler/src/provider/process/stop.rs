//! Ends all processes of a replica: politely first, then by force, until none is left.
//!
//! Signals only through handles whose process was proven to be meant; a pid that changed hands is never signalled.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, timeout_at};

use super::handle::Handle;
use super::table::Identity;

/// How long a replica may take to end by itself after SIGTERM.
pub(super) const POLITE: Duration = Duration::from_secs(10);
/// How long the kernel may take to end it after SIGKILL; only a process stuck in a device takes longer than an instant.
pub(super) const FORCED: Duration = Duration::from_secs(5);

/// Ends every process that `find` names, asking again until it names none. The error says, for people, what stayed.
pub(super) async fn terminate<F>(find: F) -> Result<(), String>
where
    F: Fn() -> io::Result<Vec<Identity>> + Clone + Send + 'static,
{
    let polite_until = Instant::now() + POLITE;
    let forced_until = polite_until + FORCED;
    let mut told: BTreeMap<Identity, Told> = BTreeMap::new();
    loop {
        let members = blocking(find.clone()).await.map_err(|error| format!("cannot read /proc: {error}"))?;
        if members.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        if now >= forced_until {
            let pids: Vec<String> = members.iter().map(|member| member.pid.to_string()).collect();
            return Err(format!("process {} lives on after SIGKILL", pids.join(", ")));
        }
        let force = now >= polite_until;
        told.retain(|identity, _| members.contains(identity));
        for member in members {
            tell(&mut told, member, force)
                .map_err(|error| format!("cannot signal process {}: {error}", member.pid))?;
        }
        let ended = async {
            for told in told.values() {
                // Fails only when the runtime shuts down, and nobody waits then.
                told.process.exited().await.ok();
            }
        };
        // Late or not, the next round looks again.
        timeout_at(if force { forced_until } else { polite_until }, ended).await.ok();
    }
}

/// A process that has been asked to end.
struct Told {
    process: Handle,
    forced: bool,
}

fn tell(told: &mut BTreeMap<Identity, Told>, member: Identity, force: bool) -> io::Result<()> {
    if let Some(known) = told.get_mut(&member) {
        if force && !known.forced {
            known.forced = true;
            known.process.signal(Signal::KILL)?;
        }
        return Ok(());
    }
    let Some(process) = Handle::of(member)? else { return Ok(()) };
    if force {
        process.signal(Signal::KILL)?;
    } else {
        process.signal(Signal::TERM)?;
        // A stopped process would not see the signal before it goes on.
        process.signal(Signal::CONT)?;
    }
    told.insert(member, Told { process, forced: force });
    Ok(())
}

/// Runs `work` where it may block.
pub(super) async fn blocking<T, F>(work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
