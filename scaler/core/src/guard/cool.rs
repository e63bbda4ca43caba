//! Cooling (B5): one removal must have been right for a whole while, without a break. It never knows what makes it
//! right, and counts watched time only (C3, C4).

use tidegate_shared::time::Duration;

/// Whether one fewer would do, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// It would.
    Yes,
    /// It would not.
    No,
    /// Nobody can tell: what was seen so far stays as it is (C4).
    Unknown,
}

/// How long one fewer would have done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cool {
    /// `None`: it would not have at the last moment that is known.
    low_for: Option<Duration>,
}

impl Cool {
    /// Takes in this moment, `step` after the one before. A spell begins with its first moment.
    pub fn see(&mut self, spare: Spare, step: Duration) {
        self.low_for = match (spare, self.low_for) {
            (Spare::Yes, Some(before)) => Some(before.saturating_add(step)),
            (Spare::Yes, None) => Some(Duration::ZERO),
            (Spare::No, _) => None,
            (Spare::Unknown, before) => before,
        };
    }

    /// For how long it has been so.
    pub fn low_for(&self) -> Duration {
        self.low_for.unwrap_or_default()
    }

    /// Begins anew: after a removal (B5), and when a replica has become ready (C-018).
    pub fn restart(&mut self) {
        self.low_for = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn b5_a_break_begins_it_anew_and_an_unknown_moment_counts_for_nothing() {
        let mut cool = Cool::default();
        (0..=100).for_each(|_| cool.see(Spare::Yes, SECOND));
        assert_eq!(cool.low_for(), SECOND * 100);
        (0..50).for_each(|_| cool.see(Spare::Unknown, SECOND));
        assert_eq!(cool.low_for(), SECOND * 100);
        cool.see(Spare::Yes, SECOND);
        assert_eq!(cool.low_for(), SECOND * 101);
        cool.see(Spare::No, SECOND);
        assert_eq!(cool.low_for(), Duration::ZERO);
        cool.see(Spare::Yes, SECOND);
        assert_eq!(cool.low_for(), Duration::ZERO, "low from this moment on");
    }
}
