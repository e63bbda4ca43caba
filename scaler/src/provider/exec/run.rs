//! Runs one command of the operator's: in bounded time, with bounded output.
//!
//! Never interprets what it prints. A command that is in time is never signalled; one that is late is, with its whole
//! process group.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::super::output;

/// Most bytes of an answer.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// Most bytes that are kept of what a command says on standard error.
const COMPLAINT_LIMIT: usize = output::BYTES;
/// How long a late command may take to end after SIGTERM.
const POLITE: Duration = Duration::from_secs(2);

/// Where standard error goes.
pub(super) enum Complaints {
    /// To a file, which processes that outlive the command may go on writing to.
    File(File),
    /// To the one who reads the outcome.
    Kept,
}

/// Why a command gave no answer.
#[derive(Debug, Error)]
pub(super) enum RunError {
    /// It could not be run at all.
    #[error("cannot run {program:?}: {why}")]
    Spawn {
        /// Which program.
        program: String,
        /// What the system said.
        why: String,
    },
    /// It did not end in time, and was ended.
    #[error("no end within {limit:?}{}", said(complaints))]
    Late {
        /// The limit.
        limit: Duration,
        /// What it said on standard error, the last lines.
        complaints: Vec<String>,
    },
    /// It ended and says that it failed.
    #[error("{status}{}", said(complaints))]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it said on standard error, the last lines.
        complaints: Vec<String>,
    },
    /// It printed more than an answer may have.
    #[error("it printed more than {ANSWER_LIMIT} bytes")]
    Long,
    /// It could not be watched.
    #[error("cannot follow it: {0}")]
    Io(#[from] io::Error),
}

impl RunError {
    /// The exit code, where it ended with one.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Failed { status, .. } => status.code(),
            _ => None,
        }
    }
}

fn said(complaints: &[String]) -> String {
    match complaints {
        [] => String::new(),
        lines => format!("; it said:\n{}", lines.join("\n")),
    }
}

/// Runs `command` for at most `limit`; returns what it printed on standard output. It must be in a process group of
/// its own. Dropped, it lets the command go on: a start that is cut off may leave what nobody knows of.
pub(super) async fn run(
    mut command: Command,
    complaints: Complaints,
    limit: Duration,
) -> Result<Vec<u8>, RunError> {
    let stderr = match complaints {
        Complaints::File(file) => Stdio::from(file),
        Complaints::Kept => Stdio::piped(),
    };
    let spawned = command.stdout(Stdio::piped()).stderr(stderr).spawn();
    let mut child = spawned.map_err(|error| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let why = match error.kind() {
            io::ErrorKind::NotFound if !program.contains('/') => {
                "there is no such program on PATH".to_owned()
            }
            _ => error.to_string(),
        };
        RunError::Spawn { program, why }
    })?;
    let mut answer = Stream::new(child.stdout.take().map(Pipe::Out), ANSWER_LIMIT, Keep::Beginning);
    let mut complaint = Stream::new(child.stderr.take().map(Pipe::Err), COMPLAINT_LIMIT, Keep::End);
    let ended = timeout(limit, follow(&mut child, &mut answer, &mut complaint)).await;
    let late = ended.is_err();
    let status = match ended {
        Ok(status) => status?,
        Err(_) => end(&mut child).await?,
    };
    // It has ended, so what it printed is in the pipes. Others may hold them open, hence no wait for their end.
    answer.drain()?;
    complaint.drain()?;
    let complaints = output::shown(&complaint.bytes);
    match (late, status.success()) {
        (true, _) => Err(RunError::Late { limit, complaints }),
        (false, false) => Err(RunError::Failed { status, complaints }),
        (false, true) if answer.overflowed => Err(RunError::Long),
        (false, true) => Ok(answer.bytes),
    }
}

async fn follow(child: &mut Child, answer: &mut Stream, complaint: &mut Stream) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            read = answer.read(), if answer.pipe.is_some() => read?,
            read = complaint.read(), if complaint.pipe.is_some() => read?,
        }
    }
}

/// Ends a command and everything in its process group.
async fn end(child: &mut Child) -> io::Result<ExitStatus> {
    // Nobody has waited for it, so the number is still its own.
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        kill_process_group(group, Signal::TERM).ok();
        if let Ok(status) = timeout(POLITE, child.wait()).await {
            // What of its group it left is asked no more than politely: the number may be another's now.
            return status;
        }
        kill_process_group(group, Signal::KILL).ok();
    }
    child.wait().await
}

/// One end of a pipe.
enum Pipe {
    Out(tokio::process::ChildStdout),
    Err(tokio::process::ChildStderr),
}

impl Pipe {
    fn reader(&mut self) -> &mut (dyn AsyncRead + Send + Unpin) {
        match self {
            Self::Out(pipe) => pipe,
            Self::Err(pipe) => pipe,
        }
    }

    fn into_fd(self) -> io::Result<OwnedFd> {
        match self {
            Self::Out(pipe) => pipe.into_owned_fd(),
            Self::Err(pipe) => pipe.into_owned_fd(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Beginning,
    End,
}

/// What is read of a pipe, within a limit.
struct Stream {
    pipe: Option<Pipe>,
    bytes: Vec<u8>,
    limit: usize,
    keep: Keep,
    overflowed: bool,
}

impl Stream {
    fn new(pipe: Option<Pipe>, limit: usize, keep: Keep) -> Self {
        Self { pipe, bytes: Vec::new(), limit, keep, overflowed: false }
    }

    async fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 8192];
        let Some(pipe) = self.pipe.as_mut() else { return Ok(()) };
        let length = pipe.reader().read(&mut piece).await?;
        if length == 0 {
            self.pipe = None;
        }
        self.take(piece.get(..length).unwrap_or_default());
        Ok(())
    }

    /// Reads what is in the pipe now.
    fn drain(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.take() else { return Ok(()) };
        let mut file = File::from(pipe.into_fd()?);
        loop {
            let ready = rustix::io::ioctl_fionread(&file)?;
            if ready == 0 {
                return Ok(());
            }
            let mut piece = Vec::new();
            file.by_ref().take(ready.min(64 * 1024)).read_to_end(&mut piece)?;
            self.take(&piece);
        }
    }

    fn take(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() > self.limit {
            self.overflowed = true;
            let over = self.bytes.len() - self.limit;
            match self.keep {
                Keep::Beginning => self.bytes.truncate(self.limit),
                Keep::End => drop(self.bytes.drain(..over)),
            }
        }
    }
}
