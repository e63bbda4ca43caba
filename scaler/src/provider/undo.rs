//! What is put right when something under way is given up: its future may be dropped at any moment.

/// Dropped before it is [done](Undo::done), it does what it was made with.
pub(super) struct Undo<F: FnMut()>(Option<F>);

impl<F: FnMut()> Undo<F> {
    pub(super) fn new(undo: F) -> Self {
        Self(Some(undo))
    }

    /// It came to its end.
    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl<F: FnMut()> Drop for Undo<F> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|undo| undo());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_given_up_is_put_right_once_and_what_is_done_is_not() {
        let undone = Cell::new(0);
        let count = || undone.set(undone.get() + 1);
        drop(Undo::new(count));
        assert_eq!(undone.get(), 1);
        Undo::new(count).done();
        assert_eq!(undone.get(), 1);
    }
}
