//! Confirmation (B3): growth that is found needed at one check alone may be a spike. It never looks at load.

/// Checks in a row that must find more needed than there are.
pub const CHECKS: u32 = 2;

/// Checks in a row, so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Confirm {
    seen: u32,
}

impl Confirm {
    /// A check has found more needed, or not. A check that could not tell is not taken in.
    pub fn check(&mut self, more: bool) {
        self.seen = if more { self.seen.saturating_add(1) } else { 0 };
    }

    /// Whether it is so for long enough. It stays so: each further check that finds more needed may add a step.
    pub fn is_confirmed(&self) -> bool {
        self.seen >= CHECKS
    }

    /// Checks in a row, at most [`CHECKS`].
    pub fn seen(&self) -> u32 {
        self.seen.min(CHECKS)
    }
}
