//! Tells the control loop that a list has changed: what came between two lists is told once, and nothing is missed.
//!
//! Knows nothing of what changed.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Counts changes, and remembers which of them the last list has shown.
#[derive(Debug)]
pub(super) struct News {
    version: watch::Sender<u64>,
    listed: AtomicU64,
}

impl Default for News {
    fn default() -> Self {
        Self { version: watch::Sender::new(1), listed: AtomicU64::new(0) }
    }
}

impl News {
    /// Something has changed.
    pub(super) fn tell(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// A list is about to be made. To be called before the look: a change in between is told once more rather than
    /// never.
    pub(super) fn listing(&self) {
        self.listed.store(*self.version.borrow(), Ordering::SeqCst);
    }

    /// Resolves when something has changed since the last list or since this call.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut version = self.version.subscribe();
        let now = *version.borrow_and_update();
        let old = self.listed.load(Ordering::SeqCst) != now;
        async move {
            // The sender outlives every replica; without it there is no news.
            if !old && version.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
