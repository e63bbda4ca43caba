//! What exchanges say of one replica's health: faults in a row or in the majority take it out for a pause that grows,
//! and one request on trial brings it back (R5, C-006, C-036).
//!
//! Knows one replica. How many may be out at a time is for the dispatcher, who therefore has the last word on each
//! ejection; whether the engine answers its health check is for [`crate::health::Probes`]. Load is no fault: a busy answer
//! makes a replica look full for a moment, and nothing more (C-032).

use tidegate_shared::time::{Duration, Instant};

mod probes;

pub use probes::{Judgement, Life, Probes, Unwell};

/// Faults in a row that take a replica out; Envoy's usual number.
pub const IN_A_ROW: u32 = 5;
/// Faults within the last ten to twenty seconds that take it out when they are at least half of what was seen there: for
/// a replica that fails often and not always.
pub const IN_A_WHILE: u32 = 10;
/// Half of that while.
const EPOCH: Duration = Duration::from_secs(10);
/// The first pause, and the longest. Each is twice the one before.
pub const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5 * 60));
/// For how long a busy replica looks full when it does not say, and at most when it does: it is asked again soon, for
/// nobody is told when it has room.
pub const FULL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// What was wrong with an exchange, by the replica's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It could not be connected to.
    Connect,
    /// The connection ended, or what came over it is not HTTP, before an answer began.
    Broken,
    /// No answer began within the limit.
    Silent,
    /// It answered with a status that means its own failure: 5xx, but neither 501 nor 503.
    Status,
    /// Its answer began well and was cut, or ended in an error (C-126).
    Midway,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Connect, Self::Broken, Self::Silent, Self::Status, Self::Midway];

    /// The metric label and log word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Status => "status",
            Self::Midway => "midway",
        }
    }

    /// What became of a request, for people: follows "the last one ".
    const fn told(self) -> &'static str {
        match self {
            Self::Connect => "found nobody to connect to",
            Self::Broken => "was cut off before an answer",
            Self::Silent => "got no answer in time",
            Self::Status => "was answered with a 5xx status",
            Self::Midway => "failed in the middle of the answer",
        }
    }
}

/// How an exchange went, as far as it tells of the replica's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sign {
    /// Nothing: the client erred (C-036) or left, or this machine failed.
    #[default]
    Neutral,
    /// The replica did what it was asked.
    Well,
    /// It is full, and says when to come again if it likes.
    Busy(Option<Duration>),
    /// It failed.
    Fault(Fault),
}

/// Why a replica is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The last fault.
    pub fault: Fault,
    /// Faults that were counted.
    pub faults: u32,
    /// The exchanges among which they were; the same number where they came in a row.
    pub of: u32,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fault, faults, of } = self;
        match (faults, of) {
            (1, 1) => write!(f, "the request on trial {}", fault.told()),
            (faults, of) if faults == of => {
                write!(f, "{faults} requests in a row failed; the last one {}", fault.told())
            }
            _ => write!(f, "{faults} of {of} requests failed; the last one {}", fault.told()),
        }
    }
}

/// What a replica is trusted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// As much as it has room for.
    #[default]
    Whole,
    /// Nothing.
    Out {
        /// Until then.
        until: Instant,
        /// Why.
        why: Cause,
    },
    /// One request at a time, until one went well.
    Trial {
        /// Whether that one runs.
        running: bool,
        /// Why it was out.
        why: Cause,
    },
}

/// Good and bad exchanges of this epoch and the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    since: Instant,
    faults: [u32; 2],
    all: [u32; 2],
}

impl Lately {
    fn note(&mut self, now: Instant, fault: bool) {
        let passed = now.since(self.since);
        if passed >= EPOCH * 2 {
            *self = Self { since: now, ..Self::default() };
        } else if passed >= EPOCH {
            self.since = self.since + EPOCH;
            (self.faults, self.all) = ([0, self.faults[0]], [0, self.all[0]]);
        }
        self.faults[0] += u32::from(fault);
        self.all[0] += 1;
    }

    fn sums(&self) -> (u32, u32) {
        (self.faults[0] + self.faults[1], self.all[0] + self.all[1])
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Health {
    trust: Trust,
    in_a_row: u32,
    lately: Lately,
    /// Ejections that are not forgiven yet; the next pause follows from them.
    strikes: u32,
    /// Since when it is trusted again, or one more strike was forgiven.
    since: Instant,
    full_until: Instant,
}

impl Health {
    /// What it is trusted with.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Whether it takes no request, or one at a time.
    pub fn is_out(&self) -> bool {
        self.trust != Trust::Whole
    }

    /// Whether it takes a request on trial now.
    pub fn is_on_trial(&self) -> bool {
        matches!(self.trust, Trust::Trial { .. })
    }

    /// Whether it may take a request at all now, its places aside.
    pub fn admits(&self) -> bool {
        matches!(self.trust, Trust::Whole | Trust::Trial { running: false, .. })
    }

    /// Whether it said a moment ago that it has no room.
    pub fn is_full(&self, now: Instant) -> bool {
        now < self.full_until
    }

    /// How long it is, or would be, out at a time; zero for one that never was.
    pub fn pause(&self) -> Duration {
        let doublings = self.strikes.saturating_sub(1).min(16);
        if self.strikes == 0 { Duration::ZERO } else { (PAUSE.0 * (1 << doublings)).min(PAUSE.1) }
    }

    /// An exchange ended that was not on trial. Gives the reason for which the replica should be taken out, if there is
    /// one: it is out after [`Health::eject`] only. What ends on one that is out was begun before and says nothing new.
    pub fn note(&mut self, now: Instant, sign: Sign) -> Option<Cause> {
        self.note_room(now, sign);
        if self.is_out() {
            return None;
        }
        match sign {
            Sign::Neutral | Sign::Busy(_) => None,
            Sign::Well => {
                self.in_a_row = 0;
                self.lately.note(now, false);
                if self.strikes > 0 && now.since(self.since) >= self.pause() {
                    (self.strikes, self.since) = (self.strikes - 1, now);
                }
                None
            }
            Sign::Fault(fault) => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                self.lately.note(now, true);
                let (faults, of) = self.lately.sums();
                if self.in_a_row >= IN_A_ROW {
                    return Some(Cause { fault, faults: self.in_a_row, of: self.in_a_row });
                }
                let often = faults >= IN_A_WHILE && u64::from(faults) * 2 >= u64::from(of);
                often.then_some(Cause { fault, faults, of })
            }
        }
    }

    fn note_room(&mut self, now: Instant, sign: Sign) {
        match sign {
            Sign::Busy(again) => self.full_until = now + again.unwrap_or(FULL.0).min(FULL.1),
            Sign::Well => self.full_until = Instant::ZERO,
            Sign::Neutral | Sign::Fault(_) => {}
        }
    }

    /// It is out from now on, for the pause that is given.
    pub fn eject(&mut self, now: Instant, why: Cause) -> Duration {
        self.strikes = self.strikes.saturating_add(1);
        (self.in_a_row, self.lately) = (0, Lately::default());
        let pause = self.pause();
        self.trust = Trust::Out { until: now + pause, why };
        pause
    }

    /// When its pause ends; `None` for one that is not out.
    pub fn until(&self) -> Option<Instant> {
        match self.trust {
            Trust::Out { until, .. } => Some(until),
            Trust::Whole | Trust::Trial { .. } => None,
        }
    }

    /// Time passed: after its pause it takes one request. Gives whether that is so now.
    pub fn wake(&mut self, now: Instant) -> bool {
        match self.trust {
            Trust::Out { until, why } if until <= now => {
                self.trust = Trust::Trial { running: false, why };
                true
            }
            _ => false,
        }
    }

    /// A request is sent to it. Gives whether that is the one on trial; if so, [`Health::tried`] must follow.
    pub fn send(&mut self) -> bool {
        match &mut self.trust {
            Trust::Trial { running, .. } => !std::mem::replace(running, true),
            Trust::Whole | Trust::Out { .. } => false,
        }
    }

    /// The request on trial has shown what it can show. Gives why and for how long the replica is out again, where it
    /// failed; what says nothing lets the next one try.
    pub fn tried(&mut self, now: Instant, sign: Sign) -> Option<(Cause, Duration)> {
        self.note_room(now, sign);
        let Trust::Trial { running, .. } = &mut self.trust else { return None };
        match sign {
            Sign::Well => {
                self.pardon(now);
                None
            }
            Sign::Fault(fault) => {
                let why = Cause { fault, faults: 1, of: 1 };
                Some((why, self.eject(now, why)))
            }
            Sign::Neutral | Sign::Busy(_) => {
                *running = false;
                None
            }
        }
    }

    /// It is trusted again, for its own sake or because too few are left. The strikes stay until it has served well.
    pub fn pardon(&mut self, now: Instant) {
        (self.trust, self.since) = (Trust::Whole, now);
        (self.in_a_row, self.lately) = (0, Lately::default());
    }
}

#[cfg(test)]
mod tests;
