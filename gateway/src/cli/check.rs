//! `tidegate check`: tells every fault of a configuration, or what it would run. `tidegate example`: prints one to
//! begin with.
//!
//! Each fault is one line that editors and grep understand: `file:line: path = value: rule`. On a terminal the line
//! of the file follows, with the place marked. Starts nothing and opens no port. A program that is missing on this
//! machine is a warning only: the file is good, and may be meant for another machine. So is a certificate that has
//! expired.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use tidegate_scaler_core::config::Mode;
use tidegate_shared::problem::Problem;

use crate::clock;
use crate::config::{Config, ConfigError, Deployment, Source};

use super::style::{Style, Tint, clean};
use super::{CliError, doubts, programs};

/// Checks the file at `path`.
pub(super) fn run(path: &Path) -> Result<(), CliError> {
    find(path)?;
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    match Config::load(path) {
        Ok(config) => {
            writeln!(out, "{}", summary(path, &config))?;
            out.write_all(warnings(path, &config, style).as_bytes())?;
        }
        Err(error) => {
            out.write_all(faults(&error, style).as_bytes())?;
            let rest = error.rest().map(|rest| warnings(path, rest, style));
            out.write_all(rest.unwrap_or_default().as_bytes())?;
            out.flush()?;
            return Err(CliError::Faults(error.summary()));
        }
    }
    Ok(out.flush()?)
}

/// Reads the file for a command that needs it whole; its faults are printed to standard error.
pub(super) fn load(path: &Path) -> Result<Config, CliError> {
    find(path)?;
    Config::load(path).map_err(told)
}

/// Where the admin port is by the file, for a command that asks a running gateway; faults as for [`load`].
pub(super) fn admin_of(path: &Path) -> Result<SocketAddr, CliError> {
    find(path)?;
    Config::admin_of(path).map_err(told)
}

/// Prints the faults.
fn told(error: ConfigError) -> CliError {
    let stderr = io::stderr();
    let style = Style::of(&stderr);
    // Nothing is left to tell it to if standard error is closed.
    let _ = stderr.lock().write_all(faults(&error, style).as_bytes());
    CliError::Faults(error.summary())
}

/// Prints the example, which holds every setting and changes none.
pub(super) fn example() -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(Config::EXAMPLE.as_bytes())?;
    Ok(out.flush()?)
}

/// Whoever has no file yet is told how to get one.
fn find(path: &Path) -> Result<(), CliError> {
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CliError::NoFile(path.to_owned())),
        // Other troubles are told by the one who reads it.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What is allowed and will hardly do, a line each.
fn warnings(path: &Path, config: &Config, style: Style) -> String {
    let doubt = config.tls.as_ref().and_then(|tls| tls.doubt(clock::wall()));
    let all = programs::missing(config).into_iter().chain(doubts::all(config)).chain(doubt);
    let (file, warning) = (clean(&path.display().to_string()), style.paint(Tint::Yellow, "warning"));
    all.map(|told| format!("{file}: {warning}: {told}\n")).collect()
}

/// Every fault: one line each, and on a terminal an excerpt below it.
fn faults(error: &ConfigError, style: Style) -> String {
    let mut text = String::new();
    for problem in error.problems() {
        text.push_str(&fault(error, problem, style));
        if style.terminal {
            text.push_str(&excerpt(error, problem, style).unwrap_or_default());
        }
    }
    text
}

fn fault(error: &ConfigError, problem: &Problem, style: Style) -> String {
    let file = error.file().display().to_string();
    let place = if problem.line > 0 { format!("{file}:{}:", problem.line) } else { format!("{file}:") };
    let mut line = style.paint(Tint::Bold, &clean(&place));
    if problem.path != file {
        line.push_str(&format!(" {}", clean(&problem.path)));
        if !problem.value.is_empty() {
            line.push_str(&format!(" = {}", style.paint(Tint::Red, &clean(&problem.value))));
        }
        line.push(':');
    }
    format!("{line} {}\n", clean(&problem.rule))
}

/// The line of the file, with the value or else the key marked below.
fn excerpt(error: &ConfigError, problem: &Problem, style: Style) -> Option<String> {
    let source = clean(error.source_line(problem.line)?);
    let gutter = problem.line.to_string();
    let mut text = style.paint(Tint::Dim, &format!("  {gutter} | {source}"));
    text.push('\n');
    if let Some((before, marked)) = mark(&source, problem) {
        let (space, carets) = (" ".repeat(before.chars().count()), "^".repeat(marked.chars().count()));
        let blank = " ".repeat(gutter.len());
        text.push_str(&format!("  {blank} | {space}{}\n", style.paint(Tint::Red, &carets)));
    }
    Some(text)
}

/// What of `source` is at fault, and what stands before it: the value, else the key, where they can be found.
fn mark<'a>(source: &'a str, problem: &Problem) -> Option<(&'a str, &'a str)> {
    let path = match problem.path.strip_prefix("deployment ").map(|of| of.split_once(": ")) {
        Some(Some((_, path))) => path,
        Some(None) => "deployment",
        None => &problem.path,
    };
    let name = path.rsplit('.').next().unwrap_or_default();
    let key = name.split('[').next().filter(|key| !key.is_empty())?;
    let value = problem.value.trim_end_matches('…');
    let at_key = source.find(key);
    let (at, length) = if value.is_empty() {
        (at_key?, key.len())
    } else {
        let from = at_key.map_or(0, |at| at + key.len());
        (from + source.get(from..)?.find(value)?, value.len())
    };
    Some((source.get(..at)?, source.get(at..at + length)?))
}

/// What would run, in one line.
fn summary(path: &Path, config: &Config) -> String {
    let each: Vec<String> = config.deployments.iter().map(deployment).collect();
    let (file, listen) = (clean(&path.display().to_string()), config.listen);
    let scheme = if config.tls.is_some() { "https://" } else { "" };
    format!("{file} is fine: would serve {} on {scheme}{listen}", each.join(", "))
}

fn deployment(deployment: &Deployment) -> String {
    let Deployment { name, sizing, base_fee, source, .. } = deployment;
    match source {
        Source::Static(replicas) => format!("{name} (static, {})", replicas_word(replicas.len())),
        source if !sizing.autoscale => {
            format!("{name} ({}, held at {})", source.kind(), replicas_word(sizing.min as usize))
        }
        source => {
            let mode = match sizing.mode {
                Mode::Flex => "flex",
                Mode::Active => "active",
            };
            let most = replicas_word(sizing.max as usize);
            let cost =
                sizing.worst_case(*base_fee).map(|cost| format!(", {cost} at most")).unwrap_or_default();
            format!("{name} ({}, {mode}, {} to {most}{cost})", source.kind(), sizing.min)
        }
    }
}

fn replicas_word(count: usize) -> String {
    if count == 1 { "1 replica".to_owned() } else { format!("{count} replicas") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTY: &str =
        "listen = 8080\ncolour = \"\\u0041\"\n[[deployment]]\nname = \"chat\"\nmax = 99 # many\n";

    fn error(text: &str) -> ConfigError {
        Config::parse(text, Path::new("t.toml")).expect_err("faults")
    }

    #[test]
    fn a_pipe_gets_one_line_for_each_fault() {
        let expected = "\
t.toml:1: listen = 8080: must be an IP address and a port in quotes, such as \"127.0.0.1:8080\"
t.toml:2: colour: is not a setting; there are listen, admin, tls, state_dir, limits, log, budget, deployment
t.toml:3: deployment chat: must have a process (a command to start), docker (an image), exec (commands of your own), slurm (jobs of a cluster) or replica (its URL)
t.toml:5: deployment chat: max = 99: must be a whole number from 0 to 32
";
        assert_eq!(faults(&error(FAULTY), Style::PLAIN), expected);
    }

    #[test]
    fn a_terminal_gets_the_line_of_the_file_too() {
        let expected = "\
t.toml:1: listen = 8080: must be an IP address and a port in quotes, such as \"127.0.0.1:8080\"
  1 | listen = 8080
    |          ^^^^
t.toml:2: colour: is not a setting; there are listen, admin, tls, state_dir, limits, log, budget, deployment
  2 | colour = \"\\u0041\"
    | ^^^^^^
t.toml:3: deployment chat: must have a process (a command to start), docker (an image), exec (commands of your own), slurm (jobs of a cluster) or replica (its URL)
  3 | [[deployment]]
    |   ^^^^^^^^^^
t.toml:5: deployment chat: max = 99: must be a whole number from 0 to 32
  5 | max = 99 # many
    |       ^^
";
        let style = Style { terminal: true, ..Style::PLAIN };
        assert_eq!(faults(&error(FAULTY), style), expected);
    }

    #[test]
    fn the_mark_is_under_the_value_of_its_key() {
        let error = error("limits = { body = \"1MiB\", connect = 1 }\ndeployment = 3\n");
        let text = faults(&error, Style { terminal: true, ..Style::PLAIN });
        let expected =
            "  1 | limits = { body = \"1MiB\", connect = 1 }\n    |                                     ^\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_fault_of_the_whole_file_names_it_once() {
        let missing = Config::load(Path::new("/nowhere/t.toml")).expect_err("no file");
        let expected = "/nowhere/t.toml: cannot be read: No such file or directory (os error 2)\n";
        assert_eq!(faults(&missing, Style::PLAIN), expected);
        assert!(faults(&error("a = = 1"), Style::PLAIN).starts_with("t.toml:1: not TOML: "));
    }

    #[test]
    fn a_fault_hides_no_warning() {
        let text = "[budget]\nreplicas = 1\n[[deployment]]\nname = \"a\"\nmin = 2\nmax = 99\n\
            process = { command = [\"sh\", \"{port}\"] }\n[[deployment]]\nname = \"b\"\n\
            parked = 9\nprocess = { command = [\"sh\", \"{port}\"], dir = \"/nowhere\" }\n";
        let error = error(text);
        assert_eq!(error.problems().len(), 1, "{error}");
        let expected = "\
t.toml: warning: deployment b: process.dir: there is no folder /nowhere; no replica can start here
t.toml: warning: budget.replicas is 1, but min asks for 2 over all deployments: 1 of them are not started
t.toml: warning: deployment b: parked is 9, but max is 4, and those that sleep count under it
";
        assert_eq!(
            error.rest().map(|rest| warnings(Path::new("t.toml"), rest, Style::PLAIN)).as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn an_access_log_that_cannot_be_written_is_a_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |path: &str| {
            let text = format!(
                "log = {{ access = \"{path}\" }}\n[[deployment]]\nname = \"a\"\nreplica = [{{ url = \"http://a\" }}]\n"
            );
            Config::parse(&text, &folder.path().join("t.toml")).map(drop)
        };
        let told = |path| faults(&of(path).expect_err(path), Style::PLAIN);
        assert!(of("a.log").is_ok());
        assert!(!folder.path().join("a.log").exists(), "nothing is made");
        std::fs::write(folder.path().join("a.log"), "a line").expect("a file");
        assert!(of("a.log").is_ok());
        let rule = "log.access = \"gone/a.log\": cannot be written: No such file or directory";
        assert!(told("gone/a.log").contains(&format!("t.toml:1: {rule}")), "{}", told("gone/a.log"));
        assert!(told(".").contains("log.access = \".\": cannot be written: is a directory"), "{}", told("."));
    }

    #[test]
    fn a_good_file_is_summed_up_in_one_line() {
        let text = "[[deployment]]\nname = \"chat\"\nprocess = { command = [\"e\", \"{port}\"] }\n\
            [[deployment]]\nname = \"held\"\nmin = 1\nautoscale = false\nprocess = { command = [\"e\", \"{port}\"] }\n\
            [[deployment]]\nname = \"dear\"\nmode = \"active\"\nprice_cap = 2.5\nbase_fee = 1\nprocess = { command = [\"e\", \"{port}\"] }\n\
            [[deployment]]\nname = \"embed\"\nreplica = [{ url = \"http://a\" }, { url = \"http://b\" }]\n";
        let config = Config::parse(text, Path::new("t.toml")).expect("good");
        let expected = "t.toml is fine: would serve chat (process, flex, 0 to 4 replicas), \
            held (process, held at 1 replica), dear (process, active, 1 to 4 replicas, $14.00/h at most), embed (static, 2 replicas) on 127.0.0.1:8080";
        assert_eq!(summary(Path::new("t.toml"), &config), expected);
    }
}
