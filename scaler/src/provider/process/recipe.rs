//! Turns the command line of a deployment into the process of one replica.
//!
//! Never waits for the engine and never looks at what it does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use tidegate_shared::id::DeploymentName;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tokio::process::{Child, Command};

use super::super::fingerprint::Fingerprint;
use super::table::MARKER;

/// What stands for the port in arguments and in values of the environment.
pub const PORT: &str = "{port}";

/// How to run the replicas of one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Whose replicas they are.
    pub deployment: DeploymentName,
    /// The program and its arguments, at least the program; [`PORT`] is replaced anywhere in each. No shell is involved.
    pub command: Vec<String>,
    /// Added to the environment of the gateway; [`PORT`] is replaced anywhere in a value.
    pub env: BTreeMap<String, String>,
    /// Where the program runs; the gateway's own working directory if `None`.
    pub dir: Option<PathBuf>,
    /// The size of each replica.
    pub capacity: Capacity,
    /// What each replica costs.
    pub price: Price,
    /// What runs a program, given with its arguments, in a session of its own, in place of itself; needed by replicas that
    /// are to be parked (C6). Empty: they run in the gateway's session.
    pub launcher: Vec<String>,
}

impl ProcessSpec {
    /// A short text that is the same for the same command, environment and directory, and from which none of them can
    /// be told: a replica that was started by another recipe is no replica of this deployment any more.
    pub(super) fn fingerprint(&self) -> String {
        let mut recipe = Fingerprint::default();
        recipe.add_all(&self.command);
        self.env.iter().for_each(|(name, value)| [name, value].into_iter().for_each(|part| recipe.add(part)));
        recipe.add(self.dir.as_ref().map_or(&b""[..], |dir| dir.as_os_str().as_encoded_bytes()));
        recipe.finish()
    }

    /// Starts the process: in a group of its own, with nothing to read, writing to `log`, carrying `marker`.
    /// The error says, for people, what was tried and what the system said.
    pub(super) fn spawn(&self, port: u16, marker: &str, log: File) -> Result<Child, String> {
        let with_port = |text: &str| text.replace(PORT, &port.to_string());
        let program = self.command.first().map(|word| with_port(word));
        let program = program.ok_or("the command is empty; it needs at least a program")?;
        if !self.launcher.is_empty() {
            self.find(&program)?;
        }
        let mut words = self.launcher.iter().cloned().chain(self.command.iter().map(|word| with_port(word)));
        let mut command = std::process::Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .envs(self.env.iter().map(|(name, value)| (name, with_port(value))))
            .env(MARKER, marker);
        if let Some(dir) = &self.dir {
            check_dir(dir).map_err(|error| format!("cannot work in dir {}: {error}", dir.display()))?;
            command.current_dir(dir);
        }
        let twin = log.try_clone().map_err(|error| format!("cannot share the log file: {error}"))?;
        command.stdin(Stdio::null()).stdout(log).stderr(twin);
        if self.launcher.is_empty() {
            command.process_group(0);
        }
        Command::from(command).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(&program, error),
            _ => format!("cannot run {program:?}: {error}"),
        })
    }

    /// A launcher is there, so that whether its program is has to be looked at; what it cannot run shows when it ends.
    fn find(&self, program: &str) -> Result<(), String> {
        let there = if program.contains('/') {
            // Absolute, or from where it runs.
            self.dir.clone().unwrap_or_default().join(program).is_file()
        } else {
            let path = self.env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
            std::env::split_paths(&path.unwrap_or_default()).any(|folder| folder.join(program).is_file())
        };
        if there { Ok(()) } else { Err(missing(program, io::ErrorKind::NotFound.into())) }
    }
}

fn missing(program: &str, error: io::Error) -> String {
    match program.contains('/') {
        true => format!("cannot run {program:?}: {error}; install it, or mend process.command"),
        false => format!(
            "cannot run {program:?}: there is no such program on PATH; install it, or mend process.command"
        ),
    }
}

fn check_dir(dir: &PathBuf) -> io::Result<()> {
    if std::fs::metadata(dir)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_tells_recipes_apart_and_hides_them() {
        let spec = |words: &[&str], env: &[(&str, &str)], dir: Option<&str>| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let command = words.iter().map(|word| (*word).to_owned()).collect();
            let deployment = DeploymentName::new("chat");
            let (dir, capacity, price) = (dir.map(PathBuf::from), Capacity::ONE, Price::FREE);
            let launcher = Vec::new();
            ProcessSpec { deployment, command, env, dir, capacity, price, launcher }.fingerprint()
        };
        let all = [
            spec(&["a", "b"], &[], None),
            spec(&["ab"], &[], None),
            spec(&["a", "b", "c"], &[], None),
            spec(&["a"], &[("b", "c")], None),
            spec(&["a", "b"], &[], Some("/")),
        ];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(one.len(), 32);
            assert_eq!(all.iter().position(|other| other == one), Some(at));
        }
    }
}
