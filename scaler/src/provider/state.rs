//! The state directory: one gateway at a time, and the mark by which it knows its own engines again.
//!
//! Holds no record of any replica itself; each deployment has a folder of its own below it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use thiserror::Error;
use tidegate_shared::id::DeploymentName;

use super::folder::{Folder, write_whole};
use super::process::port::Ports;

/// Longest name of a deployment, in bytes, that can have a folder.
const NAME_LIMIT: usize = 128;

/// How long a lock may outlive the process that took it, before somebody else is taken to have it.
const INHERITED: Duration = Duration::from_secs(1);

/// The file that tells the configuration that the directory was used with last.
const USED_WITH: &str = ".configuration";

/// The file in a deployment's folder that tells the kind of its provider.
const KIND_FILE: &str = "provider";

/// A state directory that this process owns until the value is dropped. Shared by all providers of one gateway.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    nonce: String,
    ports: Ports,
    claimed: Arc<Mutex<BTreeSet<String>>>,
    /// Its lock goes with it. Engines do not inherit it.
    _lock: File,
}

/// Why a state directory cannot be used.
#[derive(Debug, Error)]
pub enum StateDirError {
    /// Another gateway uses it; two would take each other's engines for strays.
    #[error("state directory {} is in use by process {holder}; every gateway needs its own state_dir", path.display())]
    Held {
        /// The directory.
        path: PathBuf,
        /// Who has it, as far as known.
        holder: String,
    },
    /// It cannot be made, read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StateDir {
    /// Takes the directory at `path`, which is made if need be; only the user may look into it. Engines that an
    /// earlier owner of the same directory left are known by the random nonce that is kept there.
    pub fn open(path: &Path) -> Result<Arc<Self>, StateDirError> {
        make_dir(path).map_err(failed("make the state directory", path))?;
        let path = path.canonicalize().map_err(failed("find the state directory", path))?;
        let until = Instant::now() + INHERITED;
        let lock = lock(&path, || {
            std::thread::sleep(Duration::from_millis(5));
            Instant::now() < until
        })?;
        let nonce = nonce(&path.join(".nonce"))?;
        Ok(Arc::new(Self { path, nonce, ports: Ports::default(), claimed: Arc::default(), _lock: lock }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on it is used with `configuration`, an absolute path. Gives the one that it was used with before, if that is another:
    /// two gateways that take turns with one directory go on from each other's sizes and sums.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn used_with(&self, configuration: &Path) -> Result<Option<PathBuf>, StateDirError> {
        let path = self.path.join(USED_WITH);
        let before = fs::read(&path).ok().map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
        if before.as_deref() == Some(configuration) {
            return Ok(None);
        }
        write_whole(&path, configuration.as_os_str().as_bytes()).map_err(failed("write", &path))?;
        Ok(before)
    }

    /// Whether the directory at `path` was used with `configuration`, an absolute path, last. Looks only.
    pub fn is_of(path: &Path, configuration: &Path) -> bool {
        fs::read(path.join(USED_WITH)).is_ok_and(|before| before == configuration.as_os_str().as_bytes())
    }

    /// From now on a provider of this `kind` runs the replicas of `deployment`, which has a folder here.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn runs(&self, deployment: &DeploymentName, kind: &str) -> Result<(), StateDirError> {
        let Some(path) = self.kind_file(deployment) else { return Ok(()) };
        if fs::read(&path).is_ok_and(|before| before == kind.as_bytes()) {
            return Ok(());
        }
        write_whole(&path, kind.as_bytes()).map_err(failed("write", &path))
    }

    /// The kind of the provider that ran the replicas of `deployment` last, where that is known, and the file that tells it.
    pub fn ran(&self, deployment: &DeploymentName) -> Option<(PathBuf, String)> {
        let path = self.kind_file(deployment)?;
        let kind = fs::read_to_string(&path).ok()?;
        Some((path, kind))
    }

    fn kind_file(&self, deployment: &DeploymentName) -> Option<PathBuf> {
        Some(self.path.join(file_name(deployment.as_str())?).join(KIND_FILE))
    }

    /// The random text by which things that this directory's owner started are known to be its own.
    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The folder of a deployment of that name, there or not.
    pub(crate) fn folder_of(&self, deployment: &str) -> PathBuf {
        self.path.join(file_name(deployment).unwrap_or_default())
    }

    /// Every deployment that has a folder here, in order. A file that is no folder is none of ours, whatever its name.
    pub(crate) fn deployments(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.path().is_dir() {
                names.extend(entry.file_name().to_str().and_then(deployment_name));
            }
        }
        Ok(names)
    }

    /// The folder of one deployment, which only one provider at a time may have. The error is for people.
    pub(super) fn claim(&self, deployment: &DeploymentName) -> Result<(Claim, Folder), String> {
        let name = file_name(deployment.as_str()).ok_or_else(|| {
            format!(
                "deployment name {deployment:?} is not 1 to {NAME_LIMIT} letters of A-Z a-z 0-9 . _ : / -"
            )
        })?;
        if !self.claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
            return Err(format!("deployment {deployment} already has a provider"));
        }
        let claim = Claim { claimed: Arc::clone(&self.claimed), name };
        let path = self.path.join(&claim.name);
        make_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok((claim, Folder::new(path)))
    }

    pub(super) fn ports(&self) -> Ports {
        self.ports.clone()
    }
}

/// The right to run the replicas of one deployment, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claimed: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Whether the process of that number still runs.
fn is_alive(holder: &str) -> bool {
    let pid = holder.trim().parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// The lock on `dir`. One whose owner was killed while it started an engine is held on by that child until it is the
/// engine, which does not inherit it: a matter of milliseconds, which is waited for.
///
/// `wait` is called between two tries, and tells whether to try again.
fn lock(dir: &Path, mut wait: impl FnMut() -> bool) -> Result<File, StateDirError> {
    let path = dir.join(".lock");
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = opened.map_err(failed("open", &path))?;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let mut holder = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut holder)).map_err(failed("read", &path))?;
        if is_alive(&holder) || !wait() {
            let holder = if holder.is_empty() { "unknown".to_owned() } else { holder };
            return Err(StateDirError::Held { path: dir.to_owned(), holder });
        }
    }
    // For the message above only.
    let note =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
    note.map_err(failed("write", &path))?;
    Ok(file)
}

fn nonce(path: &Path) -> Result<String, StateDirError> {
    match fs::read_to_string(path) {
        Ok(nonce) if nonce.len() >= 32 && !nonce.contains(['/', '\n']) => return Ok(nonce),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("read", path)(error)),
        _ => {} // None yet.
    }
    let source = Path::new("/proc/sys/kernel/random/uuid");
    let nonce = fs::read_to_string(source).map_err(failed("read", source))?.trim().to_owned();
    write_whole(path, nonce.as_bytes()).map_err(failed("write", path))?;
    Ok(nonce)
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateDirError {
    move |source| StateDirError::Io { action, path: path.to_owned(), source }
}

/// A file name for a deployment: no two deployments share one, and none begins with a dot, as the directory's own
/// files do. `None` for a name that the configuration does not allow.
fn file_name(deployment: &str) -> Option<String> {
    let letters = deployment.chars().enumerate().map(|(at, letter)| match letter {
        '/' => Some('+'),
        '.' if at == 0 => Some('@'),
        'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | ':' | '-' => Some(letter),
        _ => None,
    });
    let fits = !deployment.is_empty() && deployment.len() <= NAME_LIMIT;
    fits.then(|| letters.collect())?
}

/// The deployment whose folder has this name; `None` if it is no such folder.
fn deployment_name(file: &str) -> Option<String> {
    let name = file.replace('+', "/");
    let name = name.strip_prefix('@').map_or_else(|| name.clone(), |rest| format!(".{rest}"));
    (file_name(&name).as_deref() == Some(file)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c005_one_gateway_per_state_dir() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(dir.path()).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("in use by process") && error.contains(&std::process::id().to_string()),
            "{error}"
        );
        let nonce = first.nonce.clone();
        drop(first);
        assert_eq!(StateDir::open(dir.path()).unwrap().nonce, nonce);
    }

    #[test]
    fn c005_a_lock_that_a_child_of_a_killed_gateway_still_holds_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        drop(StateDir::open(dir.path()).unwrap());
        let inherited = File::options().read(true).write(true).open(dir.path().join(".lock")).unwrap();
        inherited.lock().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        fs::write(dir.path().join(".lock"), ended.id().to_string()).unwrap();
        let refused = lock(dir.path(), || false).unwrap_err().to_string();
        assert!(refused.contains(&format!("in use by process {}", ended.id())), "{refused}");
        let mut inherited = Some(inherited);
        lock(dir.path(), || inherited.take().is_some()).unwrap();
        assert!(inherited.is_none(), "it was waited for");
    }

    #[test]
    fn c005_another_configuration_is_told_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["/one/tidegate.toml", "/two/tidegate.toml"].map(Path::new);
        let used = |with: &Path| StateDir::open(dir.path()).unwrap().used_with(with).unwrap();
        assert_eq!(used(one), None, "the first");
        assert_eq!(used(one), None, "the same");
        assert_eq!(used(two).as_deref(), Some(one));
        assert_eq!(used(two), None, "once");
        assert_eq!(used(one).as_deref(), Some(two));
    }

    #[test]
    fn c005_one_provider_per_deployment() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let claim = state.claim(&DeploymentName::new("chat")).unwrap();
        let error = state.claim(&DeploymentName::new("chat")).unwrap_err();
        assert_eq!(error, "deployment chat already has a provider");
        drop(claim);
        assert!(state.claim(&DeploymentName::new("chat")).is_ok());
        assert!(state.claim(&DeploymentName::new("a\nb")).unwrap_err().contains(r#""a\nb" is not"#));
    }

    #[test]
    fn c005_a_file_in_the_state_directory_is_no_deployment() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let _chat = state.claim(&DeploymentName::new("chat")).unwrap();
        fs::write(dir.path().join("README"), "what this is").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        assert_eq!(state.deployments().unwrap(), BTreeSet::from(["chat".to_owned()]));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let error = StateDir::open(Path::new("/proc/tidegate")).unwrap_err().to_string();
        assert!(error.starts_with("cannot make the state directory /proc/tidegate: "), "{error}");
    }

    #[test]
    fn file_names_are_safe_and_distinct() {
        assert_eq!(file_name("org/Qwen2.5:7b"), Some("org+Qwen2.5:7b".to_owned()));
        assert_eq!(file_name(".."), Some("@.".to_owned()));
        assert_eq!(file_name("../x"), Some("@.+x".to_owned()));
        for name in ["", "a+b", "@x", "a\0b", "ä", &"x".repeat(129)] {
            assert_eq!(file_name(name), None, "{name:?}");
        }
        for name in ["org/Qwen2.5:7b", "..", "../x"] {
            assert_eq!(file_name(name).and_then(|file| deployment_name(&file)), Some(name.to_owned()));
        }
        assert_eq!(deployment_name(".lock"), None);
    }
}
