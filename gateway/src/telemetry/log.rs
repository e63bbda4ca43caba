//! The log of the gateway itself, for people: to standard error, without secrets and without prompts.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. `level` is one of error, warn, info, debug, trace; `RUST_LOG` wins where it is set.
pub fn start(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A second start, in a test, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .try_init();
}
