//! The one place that reads clocks.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_scaler::store::Epoch;
use tidegate_shared::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// A suspension takes longer than this.
const LEAST_SLEEP: Duration = Duration::from_millis(100);
/// Ten years, in microseconds.
const FAR: u64 = 10 * 365 * 86_400 * 1_000_000;

/// A monotonic clock whose origin is the start of the process (C4: the wall clock decides nothing). It stands still while the
/// machine is suspended, and so does everything that goes by it: who waits, windows, limits. That is right for what
/// sleeps too: engines here, connections, timers. Money does not sleep, so accounts add [`Clock::asleep`]. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
    /// What the machine had slept since its boot at the origin.
    slept: Duration,
}

/// How long the machine has been suspended since its boot.
fn slept() -> Duration {
    let [awake, all] = [ClockId::Monotonic, ClockId::Boottime]
        .map(|clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default());
    // They are read one after the other, so less than a moment is none.
    Some(all.saturating_sub(awake)).filter(|slept| *slept >= LEAST_SLEEP).unwrap_or_default()
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now(), slept: slept() }
    }

    /// How long the machine has been suspended since the start of this clock.
    pub fn asleep(&self) -> Duration {
        slept().saturating_sub(self.slept)
    }

    /// Now, in whole microseconds since the start. Never [`Instant::ZERO`], so that zero can mean "never happened".
    pub fn now(&self) -> Instant {
        let micros = tokio::time::Instant::now().duration_since(self.origin).as_micros();
        Instant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// When `at` is, for a timer of tokio's. What is farther away than ten years is that far.
    pub fn timer(&self, at: Instant) -> tokio::time::Instant {
        self.origin + Duration::from_micros(at.as_micros().saturating_sub(1).min(FAR))
    }

    /// When this clock started, told so that a later run understands it.
    pub fn epoch(&self) -> Epoch {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let run = self.now().since(Instant::ZERO).saturating_add(self.asleep());
        let monotonic = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        let wall = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Epoch {
            boot: boot.trim().to_owned(),
            monotonic: monotonic.saturating_sub(run),
            wall: wall.saturating_sub(run),
        }
    }
}

/// A timer for a limit that moves on again and again and is rarely reached. It is set to a moment before that and looks
/// again then, so that to move the limit on costs no timer operation. No memory before its first use.
#[derive(Debug, Default)]
pub struct Alarm(Option<(Instant, Pin<Box<Sleep>>)>);

impl Alarm {
    /// Whether the moment `by` has passed; else the task is woken when it has, or earlier.
    pub fn is_late(&mut self, cx: &mut Context<'_>, clock: Clock, by: Instant) -> bool {
        let (rings, timer) = self.0.get_or_insert_with(|| (by, Box::pin(sleep_until(clock.timer(by)))));
        // It may be left from a limit that was further away.
        if *rings > by {
            timer.as_mut().reset(clock.timer(by));
            *rings = by;
        }
        while timer.as_mut().poll(cx).is_ready() {
            if by <= clock.now() {
                return true;
            }
            timer.as_mut().reset(clock.timer(by));
            *rings = by;
        }
        false
    }
}

/// The wall clock, for logs and records only (C4).
pub fn wall() -> SystemTime {
    SystemTime::now()
}
