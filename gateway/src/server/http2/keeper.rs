//! When an HTTP/2 connection of a client's ends though the client does not end it (H6): nothing is asked over it, a head
//! does not come to its end, a ping is not answered, what comes brings nothing, or the gateway stops.
//!
//! Decides by the time and the facts that it is given. Ends no single request: how long a body or an answer may take is
//! for others, and the same as over HTTP/1.1.

use std::time::Duration;

use tidegate_shared::time::Instant;

use super::wire::Tally;
use crate::telemetry::meter::GaveUp;

/// After so long without a byte a client is asked whether it is there, and how long it may take to say so. What TCP
/// finds out by itself (`server::listen`) is that its machine is.
const PING_AFTER: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// How long a client that was told that the connection ends may take to end it; beyond, it is cut.
const GOODBYE: Duration = Duration::from_secs(5);
/// Frames that bring nothing: so many at once, and in the long run so many a second and one for each frame of data that is
/// sent, since some clients measure their way with pings. Resets are among them: to open streams and reset them at
/// once is work for two and costs one nothing (CVE-2023-44487); and heads that are refused. All streams of a connection may
/// be reset at once, eight times over; and every other one, however many there are, where the rest is answered.
const IDLE_FRAMES: u64 = 8 * super::STREAMS as u64;
const IDLE_FRAMES_PER_SECOND: u64 = 100;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until then or until something happens.
    Wait(Instant),
    /// The client is asked whether it is there.
    Ping,
    /// The client is told that the connection ends; what runs is finished. `None`: the gateway stops.
    Leave(Option<GaveUp>),
    /// It ends with all that runs. `None`: an answer was given up for it, and counted.
    Cut(Option<GaveUp>),
    /// It is over.
    Drop,
}

/// How far it is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    Leaving(Instant),
    /// It is over by then.
    Cutting(Instant),
}

#[derive(Clone, Copy, Debug)]
enum Ping {
    /// Asked when nothing has come until then, that is no byte beyond so many.
    Rests(Instant, u64),
    /// To be answered by then.
    Asked(Instant),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Keeper {
    /// For a request to begin, and for its head to come to its end.
    limit: Duration,
    stage: Stage,
    /// Since when nothing is asked and nothing sent, and what had been sent then.
    rests: (Instant, u64),
    /// The block of headers that is open, and when it is late.
    block: Option<(u64, Instant)>,
    ping: Ping,
    flood: Flood,
}

/// How many idle frames count still.
#[derive(Debug)]
struct Flood {
    level: u64,
    since: Instant,
    /// All that had come then, and all frames of data that had been sent.
    came: u64,
    sent: u64,
}

impl Flood {
    /// Whether there are too many.
    fn rises(&mut self, now: Instant, tally: &Tally) -> bool {
        let (came, sent) = (tally.idle_frames.get(), tally.sent_frames.get());
        let millis = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        let timed = millis.saturating_mul(IDLE_FRAMES_PER_SECOND) / 1000;
        // What is not enough for one frame counts at the next look.
        let counted = Duration::from_millis(timed.saturating_mul(1000) / IDLE_FRAMES_PER_SECOND);
        let since = if self.level <= timed { now } else { self.since + counted };
        let level = self.level.saturating_sub(timed).saturating_add(came - self.came);
        let level = level.saturating_sub(sent - self.sent);
        *self = Self { level, since, came, sent };
        level > IDLE_FRAMES
    }
}

impl Keeper {
    /// The connection begins `now`. A request must begin, and its head be whole, within `limit`.
    pub(super) fn new(now: Instant, limit: Duration) -> Self {
        let ping = Ping::Rests(now + PING_AFTER, 0);
        let flood = Flood { level: 0, since: now, came: 0, sent: 0 };
        Self { limit, stage: Stage::Serving, rests: (now, 0), block: None, ping, flood }
    }

    /// The client has answered a ping.
    pub(super) fn ponged(&mut self, now: Instant, tally: &Tally) {
        self.ping = Ping::Rests(now + PING_AFTER, tally.received.get());
    }

    /// What is to be done `now`; `stops`: the gateway takes no further request.
    pub(super) fn step(&mut self, now: Instant, tally: &Tally, stops: bool) -> Step {
        if let Stage::Cutting(by) = self.stage {
            return if by <= now { Step::Drop } else { Step::Wait(by) };
        }
        if tally.stuck.get() {
            return if tally.is_forsaken() { Step::Drop } else { self.cut(now, None) };
        }
        if self.flood.rises(now, tally) {
            return self.cut(now, Some(GaveUp::Flood));
        }
        let head = self.head(now, tally);
        if head.is_some_and(|by| by <= now) {
            return self.cut(now, Some(GaveUp::Head));
        }
        let end = match self.end(now, tally, head.is_some(), stops) {
            Ok(by) => by,
            Err(step) => return step,
        };
        match self.ping(now, tally) {
            Ok(by) => Step::Wait([head, end].into_iter().flatten().fold(by, Instant::min)),
            Err(step) => step,
        }
    }

    /// There is no room for what it has sent of heads: it ends, at once where that was said before.
    pub(super) fn crowded(&mut self, now: Instant, tally: &Tally) -> Step {
        if matches!(self.stage, Stage::Cutting(_)) || tally.is_blocked() {
            return Step::Drop;
        }
        self.cut(now, Some(GaveUp::Heads))
    }

    fn cut(&mut self, now: Instant, why: Option<GaveUp>) -> Step {
        self.stage = Stage::Cutting(now + GOODBYE);
        Step::Cut(why)
    }

    /// When the open block of headers is late.
    fn head(&mut self, now: Instant, tally: &Tally) -> Option<Instant> {
        let open = tally.block()?;
        match self.block {
            Some((block, by)) if block == open => Some(by),
            _ => {
                let by = now + self.limit;
                self.block = Some((open, by));
                Some(by)
            }
        }
    }

    /// When the connection has been idle for too long, or for too long after it was to end.
    fn end(
        &mut self,
        now: Instant,
        tally: &Tally,
        begun: bool,
        stops: bool,
    ) -> Result<Option<Instant>, Step> {
        let (since, sent) = self.rests;
        if tally.open.get() > 0 || begun || tally.sent.get() != sent {
            self.rests = (now, tally.sent.get());
        } else if let Some(ended) = tally.ended.get() {
            self.rests.0 = since.max(ended);
        }
        let busy = tally.open.get() > 0 || begun;
        let since = self.rests.0;
        match self.stage {
            Stage::Serving if stops => {
                self.stage = Stage::Leaving(now);
                Err(Step::Leave(None))
            }
            _ if busy => Ok(None),
            Stage::Serving if since + self.limit <= now => {
                self.stage = Stage::Leaving(now);
                Err(Step::Leave(Some(GaveUp::Idle)))
            }
            Stage::Serving => Ok(Some(since + self.limit)),
            Stage::Leaving(told) => match since.max(told) + GOODBYE {
                by if by <= now => Err(Step::Drop),
                by => Ok(Some(by)),
            },
            Stage::Cutting(by) => Ok(Some(by)),
        }
    }

    /// When a ping is due, or its answer.
    fn ping(&mut self, now: Instant, tally: &Tally) -> Result<Instant, Step> {
        match self.ping {
            Ping::Rests(at, _) if now < at => Ok(at),
            Ping::Rests(_, received) if received != tally.received.get() => {
                let at = now + PING_AFTER;
                self.ping = Ping::Rests(at, tally.received.get());
                Ok(at)
            }
            Ping::Rests(..) => {
                self.ping = Ping::Asked(now + PONG_WITHIN);
                Err(Step::Ping)
            }
            Ping::Asked(by) if now < by => Ok(by),
            Ping::Asked(_) => Err(self.cut(now, Some(GaveUp::Ping))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(60);

    /// A connection with a request under way, and when it began.
    fn busy() -> (Keeper, Tally, Instant) {
        let (now, tally) = (Instant::ZERO + 3600 * SECOND, Tally::default());
        tally.open.set(1);
        (Keeper::new(now, LIMIT), tally, now)
    }

    #[test]
    fn h6_a_client_that_is_silent_for_long_is_asked_whether_it_is_there() {
        let (mut keeper, tally, start) = busy();
        assert_eq!(keeper.step(start, &tally, false), Step::Wait(start + PING_AFTER));
        // Bytes say so as well.
        tally.received.set(9);
        let later = start + PING_AFTER;
        assert_eq!(keeper.step(later, &tally, false), Step::Wait(later + PING_AFTER));
        let later = later + PING_AFTER;
        assert_eq!(keeper.step(later, &tally, false), Step::Ping);
        assert_eq!(keeper.step(later, &tally, false), Step::Wait(later + PONG_WITHIN));
        keeper.ponged(later + SECOND, &tally);
        let later = later + SECOND + PING_AFTER;
        assert_eq!(keeper.step(later, &tally, false), Step::Ping);
        let late = later + PONG_WITHIN;
        assert_eq!(keeper.step(late, &tally, false), Step::Cut(Some(GaveUp::Ping)));
        assert_eq!(keeper.step(late, &tally, false), Step::Wait(late + GOODBYE));
        assert_eq!(keeper.step(late + GOODBYE, &tally, false), Step::Drop);
    }

    #[test]
    fn h6_a_connection_is_idle_from_its_last_answer_on() {
        let (mut keeper, tally, start) = busy();
        let ended = start + 5 * LIMIT;
        tally.received.set(1);
        keeper.step(start, &tally, false);
        tally.open.set(0);
        tally.ended.set(Some(ended));
        // Bytes of its answer that waited for the socket leave later than it ended.
        tally.sent.set(100);
        let sent = ended + SECOND;
        keeper.ponged(sent, &tally);
        assert_eq!(keeper.step(sent, &tally, false), Step::Wait(sent + PING_AFTER));
        keeper.ponged(sent + LIMIT, &tally);
        assert_eq!(keeper.step(sent + LIMIT, &tally, false), Step::Leave(Some(GaveUp::Idle)));
        assert_eq!(keeper.step(sent + LIMIT, &tally, false), Step::Wait(sent + LIMIT + GOODBYE));
        // What was on its way is served.
        tally.open.set(1);
        let late = sent + 2 * LIMIT;
        keeper.ponged(late, &tally);
        assert_eq!(keeper.step(late, &tally, false), Step::Wait(late + PING_AFTER));
        tally.open.set(0);
        tally.ended.set(Some(late + SECOND));
        assert_eq!(keeper.step(late + SECOND, &tally, false), Step::Wait(late + SECOND + GOODBYE));
        assert_eq!(keeper.step(late + SECOND + GOODBYE, &tally, false), Step::Drop);
    }

    #[test]
    fn h6_a_gateway_that_stops_says_so_once_and_finishes() {
        let (mut keeper, tally, start) = busy();
        assert_eq!(keeper.step(start, &tally, true), Step::Leave(None));
        assert_eq!(keeper.step(start, &tally, true), Step::Wait(start + PING_AFTER));
    }

    #[test]
    fn h6_idle_frames_may_be_many_but_not_for_long() {
        let (mut keeper, tally, start) = busy();
        let (mut now, mut sent) = (start, IDLE_FRAMES);
        tally.idle_frames.set(sent);
        assert!(matches!(keeper.step(now, &tally, false), Step::Wait(_)), "all at once");
        // As fast as they drain, however often it is looked at.
        for _ in 0..100_000 {
            now = now + Duration::from_millis(3);
            keeper.ponged(now, &tally);
            if now.since(start).as_millis() / 10 > u128::from(sent - IDLE_FRAMES) {
                sent += 1;
            }
            tally.idle_frames.set(sent);
            assert!(
                matches!(keeper.step(now, &tally, false), Step::Wait(_)),
                "{sent} after {:?}",
                now.since(start)
            );
        }
        // Each frame of data makes room for one.
        sent += 5000;
        tally.idle_frames.set(sent);
        tally.sent_frames.set(5000);
        assert!(matches!(keeper.step(now, &tally, false), Step::Wait(_)));
        tally.idle_frames.set(sent + 2);
        assert_eq!(keeper.step(now, &tally, false), Step::Cut(Some(GaveUp::Flood)));
    }
}
