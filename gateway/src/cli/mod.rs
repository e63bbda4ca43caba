//! The command line: which commands there are, what they print on failure and how they exit.
//!
//! Each command is one file with its arguments and a `run`. Results go to standard output, errors to standard error
//! as `error: …`. Exit codes: 0 done, 1 failed, 2 the command line itself is wrong.

mod admin;
mod check;
mod doubts;
mod drain;
mod explain;
mod grid;
mod launch;
mod programs;
mod quickstart;
mod render;
mod route;
mod scale;
mod serve;
mod status;
mod style;
mod tune;
mod why;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use thiserror::Error;

use crate::app::AppError;
use crate::engine::{EngineArgs, EngineError};
use crate::provide::LAUNCH;
use crate::quickstart::QuickstartError;
use admin::AdminError;
use route::RouteError;
use tune::TuneError;

/// A Rust ingress for fleets of LLM engines: routes OpenAI requests to replicas and sizes the fleet.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true, after_help = START)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const START: &str = "\
Start here:
  tidegate quickstart                 a real model, nothing to configure
  tidegate example > tidegate.toml    a configuration with every setting, to be changed
  tidegate serve                      the gateway, by ./tidegate.toml";

const SERVE: &str = "\
SIGTERM or Ctrl-C: no new request is taken, running ones are finished, replicas are stopped. A second one ends it \
at once. Replicas that a crash leaves behind are taken over by the next start.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a real model at once: no configuration, no GPU, nothing installed but Python 3.
    Quickstart(quickstart::QuickstartArgs),
    /// Print a configuration file with every setting and its default.
    Example,
    /// Check a configuration file and tell all its faults.
    Check(CheckArgs),
    /// Run the gateway.
    #[command(after_help = SERVE)]
    Serve(ConfigArgs),
    /// Show deployments, replicas and scaling decisions of a running gateway.
    Status(status::StatusArgs),
    /// Tell why a deployment is as it is: why it does not grow, does not shrink, or is slow.
    #[command(after_help = why::EXAMPLES)]
    Why(why::WhyArgs),
    /// Tell where a request would go now, without sending it.
    #[command(after_help = route::EXAMPLES)]
    Route(route::RouteArgs),
    /// Change the size of a deployment while it runs, or show it.
    #[command(after_help = scale::SCALE)]
    Scale(scale::ScaleArgs),
    /// Take a replica out without cutting a request, or back in.
    #[command(after_help = drain::DRAIN)]
    Drain(drain::DrainArgs),
    /// Add to the credit over all deployments, or show it.
    Credit(scale::CreditArgs),
    /// Measure a replica: find how many requests it should work on at a time, and keep that as the target.
    #[command(after_help = tune::EXAMPLES)]
    Tune(tune::TuneArgs),
    /// Run the stand-in engine: no model, real time, for tests and demos.
    Engine(EngineArgs),
    /// Become a program in a session of its own; the gateway runs engines by it.
    #[command(name = LAUNCH, hide = true)]
    Launch(launch::LaunchArgs),
}

/// The configuration that is taken where none is named.
const USUAL_FILE: &str = "tidegate.toml";

/// Which configuration a command works with.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "PATH", default_value = USUAL_FILE)]
    config: PathBuf,
}

/// Which configuration is checked.
#[derive(Debug, Args)]
struct CheckArgs {
    /// The same as --config.
    #[arg(value_name = "PATH", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Why a command failed. `Display` is what follows `error: `.
#[derive(Debug, Error)]
enum CliError {
    /// The faults are printed already; this counts them.
    #[error("{0}")]
    Faults(String),
    #[error(
        "there is no {}\nName a configuration with --config PATH, or begin one: tidegate example > tidegate.toml\n\
         (`tidegate quickstart` needs none.)",
        .0.display()
    )]
    NoFile(PathBuf),
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Quickstart(#[from] QuickstartError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error(transparent)]
    AtOdds(#[from] scale::AtOdds),
    #[error("{0}")]
    Launch(io::Error),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Quickstart(args) => quickstart::run(&args),
        Command::Example => check::example(),
        Command::Check(args) => check::run(args.file.as_ref().unwrap_or(&args.config.config)),
        Command::Serve(args) => serve::run(&args.config),
        Command::Status(args) => status::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Credit(args) => scale::credit(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Launch(args) => launch::run(&args).map_err(CliError::Launch),
        Command::Engine(args) => serve::engine(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough of it.
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell it to if standard error is closed.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        let Command::Check(args) = Cli::parse_from(["tidegate", "check", "t.toml"]).command else { panic!() };
        assert_eq!(args.file.as_deref(), Some(std::path::Path::new("t.toml")));
    }
}
