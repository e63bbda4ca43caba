//! The signals that ask the gateway to stop: SIGTERM, SIGINT, and SIGHUP unless it was started to outlive its terminal.
//! What follows from them is not decided here.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the gateway to stop.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal is closed. `None` where the gateway was started to outlive it (`nohup`).
    hangup: Option<Signal>,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn new() -> io::Result<Self> {
        let hangup = if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup })
    }

    /// Resolves at the next one, whichever it is.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = hangup => {}
        }
    }
}

fn hangup_is_ignored() -> bool {
    let bit = 1u64 << (rustix::process::Signal::HUP.as_raw() - 1);
    let status = procfs::process::Process::myself().and_then(|myself| myself.status());
    status.is_ok_and(|status| status.sigign & bit != 0)
}
