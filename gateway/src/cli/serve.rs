//! `tidegate serve` and `tidegate engine`: run until they are stopped.

use std::path::Path;

use super::{CliError, check};
use crate::config::Level;
use crate::engine::{self, EngineArgs};
use crate::{app, telemetry};

/// Runs the gateway by the configuration at `path`.
pub(super) fn run(path: &Path) -> Result<(), CliError> {
    let config = check::load(path)?;
    telemetry::log::start(config.log.level.as_str());
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    app::run(config, move |addresses| {
        tracing::info!("serving on {scheme}://{}; status on http://{}/", addresses.listen, addresses.admin);
    })?;
    Ok(())
}

/// Runs the stand-in engine.
pub(super) fn engine(args: EngineArgs) -> Result<(), CliError> {
    telemetry::log::start(Level::Info.as_str());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(engine::run(args))?)
}
