//! The log of the gateway itself, for people: to standard error, without secrets and without prompts. It holds up nobody
//! (E4): what standard error does not take at once is lost, and counted.

use std::fmt;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::lines::Lines;
use crate::clock;

/// The library behind HTTP/2 warns of what clients do: each could fill the log. What they are given up for is counted.
const QUIET: &str = "h2=error";

/// Starts the log. `level` is one of error, warn, info, debug, trace; `RUST_LOG` wins where it is set.
pub fn start(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives(level)));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A second start, in a test, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines::new(std::io::stderr()))
        // It would tell on standard error, and panic where that takes nothing.
        .log_internal_errors(false)
        .with_ansi(colour)
        .with_target(false)
        .with_timer(Wall)
        .try_init();
}

fn directives(level: &str) -> String {
    match level {
        "debug" | "trace" => level.to_owned(),
        _ => format!("{level},{QUIET}"),
    }
}

/// The wall clock, to the millisecond.
struct Wall;

impl FormatTime for Wall {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{}", humantime::format_rfc3339_millis(clock::wall()))
    }
}
