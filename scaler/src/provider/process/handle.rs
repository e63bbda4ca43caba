//! A hold on one process that stays true after the process has ended and its pid is another's: the only way in which
//! a process is signalled or waited for here.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::table::Identity;

/// A hold on one process. Lets others keep it only by reference, so what it watches is never exchanged.
#[derive(Debug)]
pub(super) struct Handle(AsyncFd<OwnedFd>);

impl Handle {
    /// Of the process that `identity` names; `None` if it is gone. Needs a runtime with IO.
    pub(super) fn of(identity: Identity) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(identity.pid) else { return Ok(None) };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Checked after the descriptor was taken: if the pid changed hands before, the start time differs; if it
        // changes hands later, the descriptor still means the old process.
        if Identity::of(identity.pid) != Some(identity) {
            return Ok(None);
        }
        Self::watch(process).map(Some)
    }

    #[expect(
        deprecated,
        reason = "the replacement is unsafe for types that could change descriptors; OwnedFd cannot"
    )]
    fn watch(process: OwnedFd) -> io::Result<Self> {
        AsyncFd::with_interest(process, Interest::READABLE).map(Self)
    }

    /// Resolves at once when the process ends. The error says that it cannot be known: the runtime shuts down.
    pub(super) async fn exited(&self) -> io::Result<()> {
        self.0.readable().await.map(|_| ())
    }

    /// Sends a signal; to a process that has ended, none.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.0.get_ref(), signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
