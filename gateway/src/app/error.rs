//! Why the gateway does not start, or did not end well.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_scaler::provider::ProviderError;
use tidegate_scaler::provider::state::StateDirError;
use tidegate_scaler::store::{StoreError, Waiting};

/// Why the gateway did not start.
#[derive(Debug, Error)]
pub enum AppError {
    /// A port is taken, or not this user's to take.
    #[error("cannot listen on {address} (`{key}`): {error}{hint}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Its key in the configuration.
        key: &'static str,
        /// What the system said.
        error: io::Error,
        /// What may help.
        hint: &'static str,
    },
    /// The folder for records cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// What must survive restarts cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The replicas of an earlier run cannot be taken over.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The access log cannot be written.
    #[error("cannot write the access log {path}: {error}")]
    AccessLog {
        /// Where.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// It served, and at its end not everything is on the disk.
    #[error("{} does not hold everything: {why}; lost with this process: {lost}", path.display())]
    Unsaved {
        /// The records.
        path: PathBuf,
        /// Why the last write failed.
        why: String,
        /// What was still in memory.
        lost: Waiting,
    },
    /// Something else of the machine's.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        error: String,
    },
}
