//! The one place that reads clocks.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
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

/// How long the machine has been suspended since its boot; rather too little than too much.
fn slept() -> Duration {
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let (all, awake) = (read(ClockId::Boottime), read(ClockId::Monotonic));
    // What passes between the two counts as awake. Less than a moment is none.
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
        self.since_origin(tokio::time::Instant::now())
    }

    fn since_origin(&self, at: tokio::time::Instant) -> Instant {
        let micros = at.duration_since(self.origin).as_micros();
        Instant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// Now, as the first who asked in this turn of a task was told (see [`turn`]); outside of one, [`Clock::now`].
    /// Some microseconds old: cores that compare theirs must expect an earlier one after a later one.
    pub fn in_turn(&self) -> Instant {
        TURN.with(|turn| {
            let told = turn.now.get();
            if told != Instant::ZERO && turn.origin.get() == Some(self.origin) {
                return told;
            }
            let now = self.now();
            if turn.runs.get() {
                turn.origin.set(Some(self.origin));
                turn.now.set(now);
            }
            now
        })
    }

    /// [`wall`], to 10 ms if somebody set it in the meantime; in a turn, as of its beginning.
    pub fn wall_in_turn(&self) -> SystemTime {
        let now = self.in_turn();
        if let Some((origin, at, wall)) = WALL.get()
            && origin == self.origin
            && at <= now
            && now.since(at) < WALL_ANEW
        {
            return wall + now.since(at);
        }
        let wall = wall();
        WALL.set(Some((self.origin, now, wall)));
        wall
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

/// How often something that goes on is told.
const SELDOM: Duration = Duration::from_secs(10);

/// What is told at most once in ten seconds, however often it happens: who causes it shall not fill a log.
#[derive(Debug, Default)]
pub struct Seldom(Cell<Option<Instant>>);

impl Seldom {
    /// Whether it is told at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        let due = self.0.get().is_none_or(|last| now.since(last) >= SELDOM);
        if due {
            self.0.set(Some(now));
        }
        due
    }
}

/// A timer for a limit that moves on again and again and is rarely reached. It is set to a moment before that and looks
/// again then, so that to move the limit on costs no timer operation. No memory before its first use.
#[derive(Debug, Default)]
pub struct Alarm(Option<Set>);

/// A timer that was set.
#[derive(Debug)]
struct Set {
    /// When it rings.
    rings: Instant,
    /// Whom it wakes.
    wakes: Waker,
    timer: Pin<Box<Sleep>>,
}

impl Alarm {
    /// Whether the moment `by` has passed; else the task is woken when it has, or earlier. One that wakes the same task
    /// early enough, and has not rung yet, is not looked at.
    pub fn is_late(&mut self, cx: &mut Context<'_>, clock: Clock, by: Instant) -> bool {
        if let Some(Set { rings, wakes, .. }) = &self.0
            && *rings <= by
            && clock.in_turn() < *rings
            && wakes.will_wake(cx.waker())
        {
            return false;
        }
        let set = self.0.get_or_insert_with(|| Set {
            rings: by,
            wakes: cx.waker().clone(),
            timer: Box::pin(sleep_until(clock.timer(by))),
        });
        set.wakes.clone_from(cx.waker());
        // It may be left from a limit that was further away.
        if set.rings > by {
            set.ring_at(clock, by);
        }
        while set.timer.as_mut().poll(cx).is_ready() {
            if by <= clock.now() {
                return true;
            }
            set.ring_at(clock, by);
        }
        false
    }
}

impl Set {
    fn ring_at(&mut self, clock: Clock, at: Instant) {
        self.timer.as_mut().reset(clock.timer(at));
        self.rings = at;
    }
}

thread_local! {
    static TURN: Turn = const { Turn { runs: Cell::new(false), origin: Cell::new(None), now: Cell::new(Instant::ZERO) } };
    /// The wall clock, and when it was read, by the clock of which origin.
    static WALL: Cell<Option<(tokio::time::Instant, Instant, SystemTime)>> = const { Cell::new(None) };
}

/// How long the wall clock is reckoned on from where it was read.
const WALL_ANEW: Duration = Duration::from_millis(10);

/// What a thread knows of the time.
struct Turn {
    /// A turn is under way.
    runs: Cell<bool>,
    /// What the first who asked in it was told, zero before that; and the origin of whose clock that is by.
    now: Cell<Instant>,
    origin: Cell<Option<tokio::time::Instant>>,
}

/// Ends a turn, also one that ends in a panic.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        TURN.with(|turn| {
            turn.runs.set(false);
            turn.now.set(Instant::ZERO);
        });
    }
}

/// One turn of a task, in which no time passes for those who ask by [`Clock::in_turn`] or [`Clock::wall_in_turn`]. A turn takes
/// some microseconds, and a look at the clock 23 ns, of which a request took fourteen.
pub fn turn<T>(poll: impl FnOnce() -> T) -> T {
    TURN.with(|turn| turn.runs.set(true));
    let _end = End;
    poll()
}

/// The wall clock, for logs and records only (C4).
pub fn wall() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c4_time_stands_still_in_a_turn_and_goes_on_with_the_next() {
        let (clock, second) = (Clock::start(), Duration::from_secs(1));
        let begun = clock.now();
        let mut pass = pin!(tokio::time::advance(second));
        let mut seen = Vec::new();
        poll_fn(|cx| {
            turn(|| {
                let before = clock.in_turn();
                // It moves the clock first and then gives up its turn.
                let passed = pass.as_mut().poll(cx);
                seen.push([before, clock.in_turn(), clock.now()].map(|at| at.since(begun)));
                passed
            })
        })
        .await;
        assert_eq!(seen, [[Duration::ZERO, Duration::ZERO, second], [second; 3]]);
        let after = clock.in_turn();
        tokio::time::advance(second).await;
        assert_eq!(clock.in_turn(), after + second, "outside of a turn it is read each time");
    }

    #[tokio::test(start_paused = true)]
    async fn h6_an_alarm_wakes_whoever_asked_last_wherever_the_limit_has_moved() {
        let (clock, second) = (Clock::start(), Duration::from_secs(1));
        let (begun, mut alarm) = (clock.now(), Alarm::default());
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(!alarm.is_late(&mut nobody, clock, begun + 20 * second), "further away than any below");
        for limit in [3, 5, 9] {
            let by = begun + limit * second;
            assert!(!alarm.is_late(&mut nobody, clock, by), "{limit}");
            let late = poll_fn(|cx| match alarm.is_late(cx, clock, by) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            let woken = tokio::time::timeout(60 * second, late).await;
            assert!(woken.is_ok() && (by..by + second).contains(&clock.now()), "{limit}");
        }
    }

    #[test]
    fn c4_a_turn_that_panics_leaves_no_time_behind() {
        let clock = Clock::start();
        let failed = std::panic::catch_unwind(|| turn(|| panic!("{:?}", clock.in_turn())));
        assert!(failed.is_err());
        TURN.with(|turn| assert_eq!((turn.runs.get(), turn.now.get()), (false, Instant::ZERO)));
    }

    #[test]
    fn c4_the_wall_clock_is_reckoned_on_for_a_moment_only() {
        let begun = Clock::start();
        let clock = Clock { origin: begun.origin - Duration::from_secs(1), ..begun };
        let (before, told, after) = (wall(), turn(|| clock.wall_in_turn()), wall());
        assert!(before <= told && told <= after);
        let (origin, at, _) = WALL.get().expect("it was read");
        WALL.set(Some((origin, at - WALL_ANEW, UNIX_EPOCH)));
        assert!(turn(|| clock.wall_in_turn()) >= after, "read anew");
    }
}
