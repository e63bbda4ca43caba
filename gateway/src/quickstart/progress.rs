//! How a person follows a fetch: bars on a terminal, plain lines elsewhere. Everything goes to standard error; what is
//! shown never decides what is done.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where progress is shown.
pub struct Progress {
    /// Bars, or only lines.
    bars: bool,
    line: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("bars", &self.bars).finish_non_exhaustive()
    }
}

impl Progress {
    /// Standard error, with bars if it is a terminal.
    pub fn stderr() -> Self {
        // Nobody may be there any more to read it.
        let line = |line: &str| drop(writeln!(io::stderr(), "{line}"));
        Self { bars: io::stderr().is_terminal(), line: Box::new(line) }
    }

    /// Plain lines to `line`.
    pub fn lines(line: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { bars: false, line: Box::new(line) }
    }

    /// Shows one line.
    pub(super) fn say(&self, line: &str) {
        (self.line)(line);
    }

    /// Begins a step of `total` bytes, or of unknown length.
    pub(super) fn begin(&self, what: &str, total: Option<u64>) -> Step<'_> {
        let bar = if self.bars {
            bar(what, total)
        } else {
            self.say(&match total {
                Some(bytes) => format!("{what} ({} MB) …", megabytes(bytes)),
                None => format!("{what} …"),
            });
            ProgressBar::hidden()
        };
        Step { progress: self, bar, what: what.to_owned() }
    }
}

/// A step under way. Dropped without [`Step::done`], it vanishes from a terminal.
pub(super) struct Step<'a> {
    progress: &'a Progress,
    bar: ProgressBar,
    what: String,
}

impl Step<'_> {
    /// So many bytes are there.
    pub(super) fn at(&self, bytes: u64) {
        self.bar.set_position(bytes.min(self.bar.length().unwrap_or(bytes)));
    }

    /// The step has succeeded.
    pub(super) fn done(self) {
        self.bar.finish_and_clear();
        if self.progress.bars {
            self.progress.say(&format!("{}: done", self.what));
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
    };
    let style = ProgressStyle::with_template(template);
    let bar =
        bar.with_message(what.to_owned()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Whole megabytes (10⁶ bytes), rounded up.
pub(super) fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}
