//! `tidegate launch`: becomes the program that it is given, in a session of its own. The gateway starts those engines by it
//! that it may stop where they stand (C6): of stopped processes in its own session, the kernel would end all when it ends.
//! Waits for nothing.

use std::io;
use std::os::unix::process::CommandExt;

use clap::Args;

/// Becomes a program in a session of its own.
#[derive(Args, Debug)]
pub(super) struct LaunchArgs {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Returns only where that fails.
///
/// # Errors
/// The program cannot be run.
pub(super) fn run(args: &LaunchArgs) -> Result<(), io::Error> {
    let Some((program, rest)) = args.command.split_first() else { return Ok(()) };
    // Fails only where it leads a session already.
    let _ = rustix::process::setsid();
    let error = std::process::Command::new(program).args(rest).exec();
    Err(io::Error::new(error.kind(), format!("cannot run {program:?}: {error}")))
}
