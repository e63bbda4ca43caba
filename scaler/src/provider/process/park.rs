//! Stops all processes of a replica where they stand, and lets them go on (C6): they keep their memory, and take no time
//! of any processor.
//!
//! What is on record comes first on the way in and last on the way out, so that one which was cut off in between is taken
//! for parked, and parked again, by the next run of the gateway.

use std::io;
use std::time::Duration;

use procfs::process::{ProcState, Process};
use rustix::process::Signal;
use tidegate_shared::id::ReplicaId;
use tokio::time::sleep;

use super::core::Core;
use super::handle::Handle;
use super::stop::blocking;
use super::table::{Identity, Table, into_io};

/// The pause between two looks at whether all of them stand still.
const LOOK: Duration = Duration::from_millis(5);
/// Looks at most: a process that waits for a disk stops when that is over.
const LOOKS: u32 = 1000;

impl Core {
    /// Stops every process of a replica. The error is for people.
    pub(super) async fn park(&self, id: ReplicaId) -> Result<(), String> {
        let leader = self.leader(id).ok_or("it is gone")?;
        if shares_session(leader).map_err(|error| format!("cannot read /proc: {error}"))? {
            return Err(
                "it was started before `parked` was set, in the gateway's own session: there, what is \
                        stopped would be ended with the gateway"
                    .to_owned(),
            );
        }
        self.set_parked(id, true)?;
        for _ in 0..LOOKS {
            // Each look finds those that were begun since.
            let moving = self.signal(id, Signal::STOP, true).await?;
            if moving == 0 {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        Err("its processes do not stand still".to_owned())
    }

    /// Lets every process of a replica go on. The error is for people.
    pub(super) async fn unpark(&self, id: ReplicaId) -> Result<(), String> {
        self.signal(id, Signal::CONT, false).await?;
        self.set_parked(id, false)
    }

    /// Signals the processes of a replica, or those only that are `moving`; tells how many that were.
    async fn signal(&self, id: ReplicaId, signal: Signal, moving: bool) -> Result<usize, String> {
        let (marks, known) = (self.marks.clone(), self.known(id));
        let members = blocking(move || {
            let members = Table::read()?.members(&marks, id, &known);
            Ok(members.into_iter().filter(|member| !moving || moves(*member)).collect::<Vec<_>>())
        });
        let members = members.await.map_err(|error| format!("cannot read /proc: {error}"))?;
        for member in &members {
            let told =
                Handle::of(*member).and_then(|process| process.map_or(Ok(()), |one| one.signal(signal)));
            told.map_err(|error| format!("cannot signal process {}: {error}", member.pid))?;
        }
        Ok(members.len())
    }
}

/// Whether a process lives and is not stopped.
fn moves(process: Identity) -> bool {
    let state = Process::new(process.pid).and_then(|process| process.stat()?.state());
    state.is_ok_and(|state| !matches!(state, ProcState::Stopped | ProcState::Zombie | ProcState::Dead))
}

/// Whether the end of this process would end `process` if it is stopped: the kernel hangs up on groups of stopped processes
/// that nobody in their session is left to let go on.
fn shares_session(process: Identity) -> io::Result<bool> {
    let own = Process::myself().and_then(|process| process.stat()).map_err(into_io)?;
    let stat = Process::new(process.pid).and_then(|process| process.stat()).map_err(into_io)?;
    Ok(stat.ppid == own.pid && stat.session == own.session)
}
