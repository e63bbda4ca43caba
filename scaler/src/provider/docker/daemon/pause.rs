//! Pauses a container, and lets it go on (C6). Never ends one.

use super::{Daemon, DaemonError, STOP};

impl Daemon {
    /// Stops all processes of a container where they stand. One that is paused already is fine.
    pub(in super::super) async fn pause(&self, container: &str) -> Result<(), DaemonError> {
        let paused = self.call(STOP, async |docker| docker.pause_container(container).await).await;
        self.already(container, paused, true).await
    }

    /// Lets them go on. One that runs already is fine.
    pub(in super::super) async fn unpause(&self, container: &str) -> Result<(), DaemonError> {
        let resumed = self.call(STOP, async |docker| docker.unpause_container(container).await).await;
        self.already(container, resumed, false).await
    }

    /// Docker refuses, with a status that differs from version to version, what is so already.
    async fn already(
        &self,
        container: &str,
        done: Result<(), DaemonError>,
        wanted: bool,
    ) -> Result<(), DaemonError> {
        match done {
            Err(DaemonError::Refused { .. }) if self.how(container).await?.paused == Some(wanted) => Ok(()),
            done => done,
        }
    }
}
