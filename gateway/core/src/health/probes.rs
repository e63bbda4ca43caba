//! What the answers of one replica's health check mean (C-006): when it is down, and when it is only busy.
//!
//! Told by the probe what came; asks nothing itself. Once a replica is down, another kind of question begins, which is
//! not decided here.

use tidegate_shared::time::{Duration, Instant};

/// Health checks in a row that must fail before a replica is down.
const FAILURES: u32 = 3;
/// The same while it works on requests and is only slow to answer: an engine in a long prefill may be.
const FAILURES_BUSY: u32 = 12;
/// A replica that delivered bytes within this time is alive, whatever its health check says.
const ALIVE: Duration = Duration::from_secs(10);
/// For how long one that is only slow is spared when too few would be left: a hiccup of the network must not take the
/// whole fleet, and an engine that hangs is not spared for ever.
const SPARED: Duration = Duration::from_secs(5 * 60);

/// What was wrong with a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwell {
    /// Nothing but the time.
    Slow,
    /// The answer, or the connection.
    Wrong,
}

/// Other signs of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When bytes of an answer last came.
    pub last_bytes: Option<Instant>,
    /// Whether it works on requests.
    pub busy: bool,
}

/// What a failed health check means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing: bytes flow.
    Alive,
    /// It may be down; look again.
    Doubt,
    /// It is slow for so long that it counts as down, if enough others are left; else look again.
    Slow,
    /// It is down.
    Down,
}

/// The health checks of one replica that is well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probes {
    failures: u32,
    since: Instant,
}

impl Probes {
    /// It answered well.
    pub fn well(&mut self) {
        self.failures = 0;
    }

    /// It did not.
    pub fn unwell(&mut self, now: Instant, how: Unwell, life: Life) -> Judgement {
        if life.last_bytes.is_some_and(|last| now.since(last) < ALIVE) {
            self.failures = 0;
            return Judgement::Alive;
        }
        if self.failures == 0 {
            self.since = now;
        }
        self.failures = self.failures.saturating_add(1);
        match how {
            Unwell::Slow if self.failures < if life.busy { FAILURES_BUSY } else { FAILURES } => {
                Judgement::Doubt
            }
            Unwell::Wrong if self.failures < FAILURES => Judgement::Doubt,
            Unwell::Slow if now.since(self.since) < SPARED => Judgement::Slow,
            Unwell::Slow | Unwell::Wrong => Judgement::Down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    /// What so many failures in a row, six seconds apart, come to.
    fn after(count: u64, how: Unwell, life: Life) -> Judgement {
        let mut probes = Probes::default();
        (1..=count).map(|n| probes.unwell(s(100 + n * 6), how, life)).last().expect("one")
    }

    #[test]
    fn c_006_who_delivers_bytes_is_alive_whatever_the_health_check_says() {
        let mut probes = Probes::default();
        for n in 0..1000 {
            let life = Life { last_bytes: Some(s(n)), busy: true };
            for how in [Unwell::Slow, Unwell::Wrong] {
                assert_eq!(probes.unwell(s(n + 9), how, life), Judgement::Alive);
            }
        }
        let silent = Life { last_bytes: Some(s(0)), busy: true };
        let late = |n| probes.clone().unwell(s(n), Unwell::Wrong, silent);
        assert_eq!((late(9), late(10)), (Judgement::Alive, Judgement::Doubt));
    }

    #[test]
    fn c_006_control_no_bytes_and_a_failing_health_check_is_down() {
        let (idle, busy) = (Life::default(), Life { busy: true, ..Life::default() });
        for life in [idle, busy] {
            assert_eq!(after(2, Unwell::Wrong, life), Judgement::Doubt);
            assert_eq!(after(3, Unwell::Wrong, life), Judgement::Down);
        }
        assert_eq!(after(2, Unwell::Slow, idle), Judgement::Doubt);
        assert_eq!(after(3, Unwell::Slow, idle), Judgement::Slow);
        assert_eq!(after(11, Unwell::Slow, busy), Judgement::Doubt, "it may be in a long prefill");
        assert_eq!(after(12, Unwell::Slow, busy), Judgement::Slow);
        assert_eq!(after(60, Unwell::Slow, busy), Judgement::Down, "nobody is spared for ever");
    }

    #[test]
    fn a_good_answer_begins_the_count_anew() {
        let mut probes = Probes::default();
        for n in 0..100 {
            assert_eq!(probes.unwell(s(n), Unwell::Wrong, Life::default()), Judgement::Doubt);
            assert_eq!(probes.unwell(s(n), Unwell::Wrong, Life::default()), Judgement::Doubt);
            probes.well();
        }
    }
}
