//! Tells recipes apart: a replica that was started by another recipe is no replica of this deployment any more.
//!
//! Nothing of a recipe can be read from its fingerprint: it may hold secrets.

use sha2::{Digest, Sha256};

/// Collects the parts of a recipe.
#[derive(Debug, Default)]
pub(super) struct Fingerprint(Sha256);

impl Fingerprint {
    /// Adds one part. The same bytes cut into other parts give another fingerprint.
    pub(super) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(part.len().to_le_bytes());
        self.0.update(part);
    }

    /// Adds a list, its length first.
    pub(super) fn add_all<T: AsRef<[u8]>>(
        &mut self,
        parts: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    ) {
        let parts = parts.into_iter();
        self.add(parts.len().to_le_bytes());
        parts.for_each(|part| self.add(part));
    }

    /// 32 hexadecimal digits.
    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}
