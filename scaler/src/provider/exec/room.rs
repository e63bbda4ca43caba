//! Whether a start command has said that there is no room, and until when that is taken for true (M1). It starts nothing.

use std::time::Duration;

use tokio::time::Instant;

/// The exit code of a `start` for which there is no room: `EX_TEMPFAIL` of `sysexits.h`.
pub(super) const NO_ROOM: i32 = 75;
/// How long the first such answer holds.
const SHORTEST: Duration = Duration::from_secs(5);
/// How long one holds at most: who is asked again may have to order a machine for it.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pause: Duration,
    until: Option<Instant>,
}

impl Room {
    /// There is none at `now`. Those that were asked together say it once.
    pub(super) fn none(&mut self, now: Instant) {
        if !self.is_full(now) {
            self.pause = self.pause.saturating_mul(2).clamp(SHORTEST, LONGEST);
            self.until = now.checked_add(self.pause);
        }
    }

    /// A start has found room, or has failed for another reason.
    pub(super) fn some(&mut self) {
        *self = Self::default();
    }

    /// Whether there is none, as far as that is known at `now`.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m1_no_room_holds_for_longer_each_time_and_what_is_started_ends_it() {
        let (mut room, mut now) = (Room::default(), Instant::now());
        let mut held = Vec::new();
        for _ in 0..8 {
            assert!(!room.is_full(now));
            room.none(now);
            let first = room.until.unwrap();
            room.none(now + Duration::from_secs(1));
            assert_eq!(room.until, Some(first), "asked together");
            held.push(first.duration_since(now).as_secs());
            assert!(room.is_full(first - Duration::from_millis(1)));
            now = first;
        }
        assert_eq!(held, [5, 10, 20, 40, 80, 160, 300, 300]);
        room.none(now);
        room.some();
        assert!(!room.is_full(now));
        room.none(now);
        assert_eq!(room.until, Some(now + SHORTEST));
    }
}
