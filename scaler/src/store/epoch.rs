//! When something was, told so that a later run of the gateway understands it: each run counts from its own start, and
//! says when that was. Reads no clock.

use tidegate_shared::time::{Duration, Instant};

/// The longest time that is believed to have passed between two boots of the machine. Only the wall clock tells that
/// time, and one that jumped must not cost years (C-153).
const MOST_AWAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The start of one run: what the clocks of the machine showed at [`Instant::ZERO`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The kernel's name for the time since it was booted; empty where it is not known.
    pub boot: String,
    /// The monotonic clock that goes on while the machine is suspended, and that all processes share until the next boot.
    pub monotonic: Duration,
    /// The wall clock, since 1970.
    pub wall: Duration,
}

/// A moment of some run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run.
    pub epoch: Epoch,
    /// The moment, on the clock of that run that goes on while the machine sleeps ([`crate::house::House::lasting`]).
    pub at: Instant,
}

impl Epoch {
    /// How long ago `then` was at `now` of this run, by the same clock as [`Stamp::at`]; zero if the clocks say that it is yet to come. Exact while the
    /// machine was not booted in between; else by the wall clock, and 30 days at most.
    pub fn since(&self, then: &Stamp, now: Instant) -> Duration {
        let after = |epoch: Duration, at: Instant| epoch.saturating_add(at.since(Instant::ZERO));
        if !self.boot.is_empty() && self.boot == then.epoch.boot {
            after(self.monotonic, now).saturating_sub(after(then.epoch.monotonic, then.at))
        } else {
            after(self.wall, now).saturating_sub(after(then.epoch.wall, then.at)).min(MOST_AWAY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(boot: &str, monotonic: u64, wall: u64) -> Epoch {
        Epoch {
            boot: boot.to_owned(),
            monotonic: Duration::from_secs(monotonic),
            wall: Duration::from_secs(wall),
        }
    }

    #[test]
    fn c_153_between_two_runs_of_one_boot_the_wall_clock_does_not_count() {
        let then = Stamp { epoch: epoch("a", 100, 5_000), at: Instant::from_micros(7_500_000) };
        for wall in [0, 5_000, 9_000_000] {
            let now = epoch("a", 200, wall);
            assert_eq!(now.since(&then, Instant::from_micros(1_000_000)), Duration::from_millis(93_500));
        }
    }

    #[test]
    fn c_153_between_two_boots_the_wall_clock_counts_within_bounds() {
        let then = Stamp { epoch: epoch("a", 100, 5_000), at: Instant::ZERO };
        let since = |wall| epoch("b", 3, wall).since(&then, Instant::ZERO);
        assert_eq!(since(5_060), Duration::from_secs(60));
        assert_eq!(since(0), Duration::ZERO, "it went back");
        assert_eq!(since(9_000_000_000), MOST_AWAY);
        let unknown = Stamp { epoch: epoch("", 100, 5_000), at: Instant::ZERO };
        assert_eq!(epoch("", 3, 5_060).since(&unknown, Instant::ZERO), Duration::from_secs(60));
    }
}
