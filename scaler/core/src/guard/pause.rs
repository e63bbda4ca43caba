//! Pauses between starts that fail in a row, or that come to life and die soon after (C1): 1 s, doubling to 5 min. It
//! never says what to start.

use tidegate_shared::time::{Duration, Instant};

/// The pause after the first failed start.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// The longest pause.
pub const LONGEST: Duration = Duration::from_secs(5 * 60);
/// How long a replica must have been ready before it counts as well: one that dies sooner is a failed start, and the
/// pauses before it are forgotten only then.
pub const STEADY: Duration = Duration::from_secs(5 * 60);

/// Whether a new start may be tried.
#[derive(Clone, Debug, Default)]
pub struct Pause {
    failures: u32,
    length: Duration,
    until: Instant,
    last: Instant,
    /// Deaths until then cost no pause.
    spared: Instant,
    /// The row has deaths in it of what had been ready.
    dies: bool,
}

impl Pause {
    /// A start has failed. Failures within a pause belong to the same round: replicas ordered together and broken in
    /// the same way make the pause longer once.
    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last = now;
        if now >= self.until {
            self.length = self.length.saturating_mul(2).clamp(SHORTEST, LONGEST);
            self.until = now + self.length;
        }
    }

    /// A replica that served has died before it counted as well. The first is replaced at once (C1), and so is what dies
    /// along with it; from then on a death is a failed start, else what dies of its first request would be started again
    /// and again.
    pub fn died(&mut self, now: Instant) {
        self.dies = true;
        if self.failures == 0 {
            self.spared = now + SHORTEST;
        }
        if now >= self.spared {
            return self.failed(now);
        }
        (self.failures, self.last) = (self.failures + 1, now);
    }

    /// A replica is ready: the next may be tried at once. Whether it stays is not known yet, so that the next failure
    /// is one more in the row; and where others have been ready and died, it says nothing, and the pause goes on.
    pub fn ready(&mut self) {
        if !self.dies {
            self.until = Instant::ZERO;
        }
    }

    /// A replica has been ready since `since`: if it came after the last failure and has stayed, the row is over.
    pub fn stays(&mut self, since: Instant, now: Instant) {
        if self.failures > 0 && since >= self.last && now.since(since) >= STEADY {
            *self = Self::default();
        }
    }

    /// Failed starts in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// No start may be tried before; a moment of the past where it may be tried now.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// How long the next start has to wait; `None` when it may be tried now.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        (now < self.until).then(|| self.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_pauses_double_to_five_minutes_and_a_replica_that_stays_ends_them() {
        let mut pause = Pause::default();
        let mut now = Instant::from_micros(77);
        assert_eq!(pause.left(now), None);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            pause.failed(now);
            assert_eq!(pause.left(now), Some(Duration::from_secs(seconds)));
            now = now + Duration::from_secs(seconds);
            assert_eq!(pause.left(now), None);
        }
        assert_eq!(pause.failures(), 11);
        pause.stays(Instant::ZERO, now + STEADY);
        assert_eq!(pause.failures(), 11, "it was there before the last failure");
        pause.stays(now, now + STEADY - SHORTEST);
        assert_eq!(pause.failures(), 11, "it has not stayed yet");
        pause.stays(now, now + STEADY);
        assert_eq!(pause.failures(), 0);
        pause.failed(now);
        assert_eq!(pause.left(now), Some(SHORTEST));
    }

    #[test]
    fn c1_one_that_is_ready_lets_the_next_be_tried_and_its_death_is_one_more() {
        let mut pause = Pause::default();
        pause.failed(Instant::ZERO);
        pause.failed(Instant::ZERO + SHORTEST);
        pause.ready();
        assert_eq!(pause.left(Instant::ZERO + SHORTEST), None);
        pause.failed(Instant::ZERO + SHORTEST * 2);
        assert_eq!(pause.left(Instant::ZERO + SHORTEST * 2), Some(SHORTEST * 4));
    }

    #[test]
    fn c1_the_first_death_costs_no_pause_and_the_next_ones_do() {
        let mut pause = Pause::default();
        pause.died(Instant::ZERO);
        assert_eq!((pause.failures(), pause.left(Instant::ZERO)), (1, None));
        let along = Instant::ZERO + SHORTEST / 2;
        pause.died(along);
        assert_eq!((pause.failures(), pause.left(along)), (2, None), "it died along with the first");
        pause.died(Instant::ZERO + SHORTEST);
        assert_eq!(pause.left(Instant::ZERO + SHORTEST), Some(SHORTEST));
    }

    #[test]
    fn c1_replicas_that_die_in_turns_are_started_less_and_less_though_one_is_always_ready() {
        let (mut pause, mut starts, tick) = (Pause::default(), 0, Duration::from_millis(100));
        // Two are wanted; each is ready after 0.7 s and dies 0.3 s later.
        let (minute, mut ends) = (Instant::ZERO + Duration::from_secs(60), vec![]);
        let mut now = Instant::ZERO;
        while now < minute {
            ends.retain(|end| {
                if *end - tick * 3 == now {
                    pause.ready();
                }
                if *end == now {
                    pause.died(now);
                }
                *end > now
            });
            if ends.len() < 2 && pause.left(now).is_none() {
                (starts, ends) = (starts + 1, [ends, vec![now + tick * 10]].concat());
            }
            now = now + tick;
        }
        assert!(starts <= 16, "{starts} starts in a minute");
    }

    #[test]
    fn c1_failures_of_one_round_lengthen_the_pause_once() {
        let mut pause = Pause::default();
        (0..4).for_each(|_| pause.failed(Instant::ZERO));
        assert_eq!(pause.failures(), 4);
        assert_eq!(pause.left(Instant::ZERO), Some(SHORTEST));
    }
}
