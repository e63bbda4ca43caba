//! Python as a tool: finds the system's interpreter, makes the private virtual environment, runs pip in it, and turns
//! what they say into one cause. Decides nothing about what is fetched. The user's index, proxy and certificate
//! settings apply; the user's site packages and install locations do not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::error::Cause;
use super::lock::Lock;
use super::place::Place;
use super::progress::Step;

/// How often the size of what has arrived is looked at.
const BEAT: Duration = Duration::from_millis(100);

/// Prints the version, then the first missing module of those that a virtual environment takes.
const PROBE: &str = "\
import importlib.util as u, sys
print('%d.%d' % sys.version_info[:2])
print(next((m for m in ('venv', 'ensurepip') if u.find_spec(m) is None), ''))";

/// Oldest Python that the engine's wheels fit.
const OLDEST: (u32, u32) = (3, 10);

/// Runs Pythons for one quickstart.
pub(super) struct Runner<'a> {
    /// Search path and environment of the children.
    pub(super) place: &'a Place,
    /// Held by every child.
    pub(super) lock: &'a Lock,
    /// Where children put their temporary files.
    pub(super) scratch: &'a Path,
    /// Room that the whole quickstart takes, in bytes, for the message about a full disk.
    pub(super) room: u64,
}

/// What a child is for.
pub(super) struct Task<'a> {
    /// As in the message when it fails: "Fetching xllamacpp 1".
    pub(super) doing: &'a str,
    /// The file or folder whose size is the progress.
    pub(super) grows: Option<&'a Path>,
}

/// A virtual environment that is whole.
#[derive(Clone, Debug)]
pub(super) struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// The one in `dir`, whether or not it is there.
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Its interpreter.
    pub(super) fn python(&self) -> PathBuf {
        self.dir.join("bin").join("python")
    }

    fn whole(&self) -> PathBuf {
        self.dir.join("whole")
    }

    /// Makes it with the system's `python3`, unless a whole one is there. What an interrupted run left is removed.
    pub(super) async fn ensure(
        &self,
        runner: &Runner<'_>,
        task: &Task<'_>,
        step: &Step<'_>,
    ) -> Result<(), Cause> {
        if self.whole().exists() && self.python().exists() {
            return Ok(());
        }
        let python = runner.system().await?;
        self.discard()?;
        let arguments = ["-I".as_ref(), "-m".as_ref(), "venv".as_ref(), self.dir.as_os_str()];
        runner.run(&python, &arguments, task, step).await?;
        fs::write(self.whole(), "").map_err(Cause::io("write", &self.whole()))
    }

    /// Removes it.
    pub(super) fn discard(&self) -> Result<(), Cause> {
        clear(&self.dir)
    }
}

impl Runner<'_> {
    /// The system's interpreter, checked to be able to make a virtual environment.
    async fn system(&self) -> Result<PathBuf, Cause> {
        let python = self.place.program("python3").ok_or(Cause::NoPython)?;
        let output = self.command(&python)?.args(["-I", "-c", PROBE]).output().await;
        let output = output.map_err(Cause::io("run", &python))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = said.lines().map(str::trim);
        let (version, missing) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let number = version
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match number {
            None => Err(Cause::BrokenPython { words: last_words(&output), python }),
            Some(number) if number < OLDEST => Err(Cause::OldPython { python, found: version.to_owned() }),
            Some(_) if missing.is_empty() => Ok(python),
            Some(_) => Err(Cause::NoVenv { python, version: version.to_owned(), module: missing.to_owned() }),
        }
    }

    /// Runs `python -I -m pip …` in the environment. What pip unpacks and downloads on the way goes to the scratch
    /// folder, and nothing stays in pip's own cache.
    pub(super) async fn pip(
        &self,
        venv: &Venv,
        arguments: &[&str],
        task: &Task<'_>,
        step: &Step<'_>,
    ) -> Result<(), Cause> {
        let (verb, rest) = arguments.split_first().unwrap_or((&"help", &[]));
        let mut all =
            vec!["-I", "-m", "pip", verb, "--disable-pip-version-check", "--no-input", "--no-cache-dir"];
        all.extend(["--progress-bar", "off", "--no-deps", "--only-binary=:all:", "--require-hashes"]);
        all.extend(rest);
        let all: Vec<&std::ffi::OsStr> = all.into_iter().map(AsRef::as_ref).collect();
        self.run(&venv.python(), &all, task, step).await.map(drop)
    }

    /// Runs `program` to its end; an exit code other than 0 is an error.
    pub(super) async fn run(
        &self,
        program: &Path,
        arguments: &[&std::ffi::OsStr],
        task: &Task<'_>,
        step: &Step<'_>,
    ) -> Result<Output, Cause> {
        let child = self.command(program)?.args(arguments).spawn().map_err(Cause::io("run", program))?;
        let output = watch(child.wait_with_output(), || step.at(task.grows.map_or(0, size))).await;
        let output = output.map_err(Cause::io("run", program))?;
        if output.status.success() { Ok(output) } else { Err(self.explain(task, &output)) }
    }

    fn command(&self, program: &Path) -> Result<Command, Cause> {
        let stdin = self.lock.as_stdin().map_err(Cause::io("share the lock of", &self.place.cache))?;
        let mut command = Command::new(program);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.env("PATH", &self.place.search).env("TMPDIR", self.scratch).env("LC_ALL", "C");
        // Settings that would send packages elsewhere than to the private environment.
        command.env("PIP_USER", "0").env_remove("PIP_TARGET").env_remove("PIP_PREFIX").env_remove("PIP_ROOT");
        command.env_remove("PIP_PYTHON").env_remove("PIP_CONSTRAINT").env_remove("PIP_QUIET");
        if std::env::var_os("PIP_RETRIES").is_none() {
            // Without a network a person should know after seconds.
            command.env("PIP_RETRIES", "2");
        }
        command.envs(self.place.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    fn explain(&self, task: &Task<'_>, output: &Output) -> Cause {
        let said = String::from_utf8_lossy(&output.stderr);
        let what = || task.doing.to_owned();
        let after = |mark: &str| {
            let rest = said.lines().find_map(|line| line.trim().strip_prefix(mark));
            rest.map(|rest| rest.trim().trim_start_matches("or").trim().to_owned())
        };
        if said.contains("No space left on device") {
            return Cause::Full { what: what(), dir: self.place.cache.clone(), bytes: self.room };
        }
        if said.contains("DO NOT MATCH THE HASHES") {
            let expected = after("Expected sha256").unwrap_or_else(|| "the pinned hash".into());
            return Cause::Mismatch {
                what: what(),
                expected,
                got: after("Got").unwrap_or_else(|| "another".into()),
            };
        }
        match said.lines().rev().find_map(broken_connection) {
            Some(words) => Cause::Network { what: what(), words },
            None => Cause::Step { doing: what(), words: last_words(output) },
        }
    }
}

/// Removes a file or folder, whole or in pieces; nothing there is fine.
pub(super) fn clear(path: &Path) -> Result<(), Cause> {
    let gone = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(why) => Err(why),
    };
    match gone {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(Cause::io("remove", path)(why)),
        _ => Ok(()),
    }
}

/// The reason in a line of pip's about a connection that failed.
fn broken_connection(line: &str) -> Option<String> {
    let (_, reason) = line.split_once("connection broken by ")?;
    // `'NewConnectionError('<…>: Failed to establish …')': /path` → the part that people understand.
    let reason = reason.rsplit_once("': /").map_or(reason, |(reason, _)| reason);
    let reason = reason.rsplit_once(">: ").map_or(reason, |(_, reason)| reason);
    Some(reason.trim_matches(['\'', '"', ')', '(']).to_owned())
}

/// The last line that tells something, errors first.
fn last_words(output: &Output) -> String {
    let said = [String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout)].join("\n");
    let lines = || said.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let errors = lines().find_map(|line| line.strip_prefix("ERROR: "));
    errors.or_else(|| lines().next()).map_or_else(|| format!("nothing ({})", output.status), str::to_owned)
}

/// Waits for `end`, calling `beat` meanwhile.
async fn watch<T>(end: impl Future<Output = T>, beat: impl Fn()) -> T {
    let mut beats = tokio::time::interval(BEAT);
    tokio::pin!(end);
    loop {
        tokio::select! {
            end = &mut end => return end,
            _ = beats.tick() => beat(),
        }
    }
}

/// Bytes in a small tree. What vanishes meanwhile counts as nothing.
fn size(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path())).sum()
}
