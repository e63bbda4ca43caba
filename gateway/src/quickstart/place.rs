//! Where quickstart works: the cache folder, the search path, the environment of its children. Reads the environment
//! once; creates nothing.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::Cause;

/// The surroundings of one quickstart.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder that everything fetched goes to. Deleting it is always fine while nothing runs.
    pub cache: PathBuf,
    /// Where to look for programs, as in `PATH`; children see it too.
    pub search: OsString,
    /// Variables set for children on top of the inherited ones.
    pub env: Vec<(OsString, OsString)>,
}

impl Place {
    /// The user's own: `$XDG_CACHE_HOME/tidegate`, else `~/.cache/tidegate`, and `PATH`.
    ///
    /// # Errors
    /// [`Cause::NoCache`] if neither variable holds an absolute path.
    pub fn of_user() -> Result<Self, Cause> {
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .ok_or(Cause::NoCache)?;
        let search = env::var_os("PATH").unwrap_or_default();
        Ok(Self { cache: base.join("tidegate"), search, env: Vec::new() })
    }

    /// The first executable file called `name` on the search path.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        env::split_paths(&self.search)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(name))
            .find(|path| executable(path))
    }
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
