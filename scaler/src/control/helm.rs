//! What an operator tells a control loop while it runs: another size. It lies here until the loop looks, which is at
//! once. Checks nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_scaler_core::config::Sizing;
use tidegate_shared::offer::Price;
use tokio::sync::Notify;

/// A handle for whoever steers one control loop; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Helm(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    size: Mutex<Option<(Sizing, Price)>>,
    changed: Notify,
}

impl Helm {
    /// The fleet is sized by `sizing` from now on, and each ready replica costs `base_fee` beside its price.
    pub fn resize(&self, sizing: Sizing, base_fee: Price) {
        *self.lock() = Some((sizing, base_fee));
        self.0.changed.notify_one();
    }

    /// Takes the new size, where there is one.
    pub(super) fn take(&self) -> Option<(Sizing, Price)> {
        self.lock().take()
    }

    /// Resolves when there is something new.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Sizing, Price)>> {
        self.0.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
