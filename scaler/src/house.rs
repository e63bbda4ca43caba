//! The budget that all control loops of one gateway share, under one lock that is held for one evaluation and never
//! across a wait: what one loop orders, the next one knows (A6, M3, C-108). It decides nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_scaler_core::budget::{Bounds, Budget};

/// A handle on the shared budget; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct House(Arc<Mutex<Budget>>);

impl House {
    /// A budget within `bounds`.
    pub fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Mutex::new(Budget::new(bounds))))
    }

    /// The budget itself.
    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
