//! Whose jobs those of a deployment are, as its access to slurmrestd tells. Never talks to Slurm.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use super::super::rest::Site;
use super::reply::Job;
use super::spec::SlurmAccess;
use super::token::Token;

/// Whose jobs are ours: a comment alone proves nothing, since anybody may copy it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Whose {
    /// Those of the user of this name.
    Name(String),
    /// Those of the user of this number.
    Id(u32),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "user {name}"),
            Self::Id(id) => write!(f, "uid {id}"),
        }
    }
}

impl Whose {
    /// The one as whom `access` acts. The error is for people.
    pub(super) fn of(access: &SlurmAccess) -> Result<Self, String> {
        if let Some(name) = &access.user {
            return Ok(Self::Name(name.clone()));
        }
        if let Some(path) = &access.token {
            let token = Token::read(path)?;
            let user = token.user().map(str::to_owned);
            let none = || format!("the token in {} names no user; set `user`", path.display());
            return Ok(Self::Name(user.ok_or_else(none)?));
        }
        match &access.site {
            // Over its socket slurmrestd acts as itself; as root, as whoever connects.
            Site::Unix(path) => {
                let data = std::fs::metadata(path)
                    .map_err(|error| format!("cannot look at the socket {}: {error}", path.display()))?;
                let own = rustix::process::geteuid().as_raw();
                Ok(Self::Id(if data.uid() == 0 { own } else { data.uid() }))
            }
            Site::Tcp { .. } => Err("neither a user nor a token is set".to_owned()),
        }
    }

    pub(super) fn owns(&self, job: &Job) -> bool {
        match self {
            Self::Name(name) => job.user_name == *name,
            Self::Id(id) => job.user_id == Some(u64::from(*id)),
        }
    }
}
