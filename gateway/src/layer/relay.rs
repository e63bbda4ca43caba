//! The answers that are on their way on one core, and an end for those whose clients take nothing (H6).
//!
//! An answer is looked at only when its client has room for more: a client that never has would hold a place on a
//! replica, and a connection to it, for ever. So each answer can be taken away from the outside. Never touches one whose
//! client waits for the replica; how long a replica may be silent is for [`super::stream`].

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_shared::time::Instant;

use super::stream::{Cut, Exchange};
use crate::clock::Clock;
use crate::telemetry::meter::{self, GaveUp};

/// How long a client may take nothing of an answer. What it has not read fills the buffers of both machines first, so
/// a person who stops a stream for a while is not meant.
pub const STALL: Duration = Duration::from_secs(60);
/// Bytes per second that a client must come to in the long run while it keeps an answer waiting: one that takes a few
/// bytes a minute holds as much as one that takes none.
const SLOWEST: u64 = 1 << 10;
/// Places for answers that are kept while there are none, with the memory of the last answers in them: as many as often
/// run at a time, so that an answer then costs no allocation.
const KEPT: usize = 64;
/// What is said of a client that was given up.
const STALLED: &str = "the client took nothing of the answer for too long";

/// How long a client has had no room for what waits for it, in one pause or many. `M`: what is remembered of the
/// beginning of a pause.
#[derive(Debug, Default)]
pub struct Pauses<M = ()> {
    /// Since when it has none, and what it had taken then.
    pause: Option<(Instant, u64, M)>,
    /// How long all in all it had none before.
    away: Duration,
}

impl<M> Pauses<M> {
    /// None yet.
    pub fn new() -> Self {
        Self { pause: None, away: Duration::ZERO }
    }

    /// Whether it makes one, as far as was seen.
    pub fn is_pausing(&self) -> bool {
        self.pause.is_some()
    }

    /// What was remembered of the beginning of the present one.
    pub fn mark(&self) -> Option<&M> {
        self.pause.as_ref().map(|(_, _, mark)| mark)
    }

    /// When the client is given up that has `taken` so many bytes, if it takes no more until then; `None` while nothing
    /// `waits` for it. A pause that begins remembers `mark`.
    pub fn until(
        &mut self,
        now: Instant,
        (waits, taken): (bool, u64),
        limit: Duration,
        mark: M,
    ) -> Option<Instant> {
        if let Some((since, before, _)) = self.pause
            && (before < taken || !waits)
        {
            self.away += now.since(since);
            self.pause = None;
        }
        if !waits {
            return None;
        }
        let (since, ..) = self.pause.get_or_insert((now, taken, mark));
        Some(slow_by(*since, self.away, taken, limit))
    }
}

/// When a client is given up that has taken nothing `since` then, had been away for so long `before`, and had taken so
/// many bytes.
pub(super) fn slow_by(since: Instant, before: Duration, taken: u64, limit: Duration) -> Instant {
    since + limit.min((limit + Duration::from_secs(taken / SLOWEST)).saturating_sub(before))
}

/// `None` once it is taken away.
type Shared<T = Exchange> = Rc<RefCell<Option<T>>>;

/// The answers by number; numbers that are free, and memory that stands there, are used again.
#[derive(Debug)]
struct Running<T = Exchange> {
    answers: Vec<Option<Shared<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Running<T> {
    fn default() -> Self {
        Self { answers: Vec::new(), free: Vec::new() }
    }
}

impl<T> Running<T> {
    fn add(&mut self, answer: T) -> (usize, Shared<T>) {
        let key = self.free.pop().unwrap_or(self.answers.len());
        if key == self.answers.len() {
            self.answers.push(None);
        }
        let mut place = self.answers.get_mut(key);
        let kept = place.as_mut().and_then(|place| place.take());
        let shared = kept.filter(|kept| Rc::strong_count(kept) == 1).unwrap_or_default();
        *shared.borrow_mut() = Some(answer);
        if let Some(place) = place {
            *place = Some(Rc::clone(&shared));
        }
        (key, shared)
    }

    /// Frees the place of an answer that is gone from it.
    fn remove(&mut self, key: usize) {
        if self.free.len() >= KEPT
            && let Some(place) = self.answers.get_mut(key)
        {
            *place = None;
        }
        self.free.push(key);
        // What a crowd has left is not kept.
        if self.free.len() == self.answers.len() && self.answers.len() > KEPT {
            (self.answers, self.free) = (Vec::new(), Vec::new());
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Relays {
    clock: Clock,
    limit: Duration,
    running: RefCell<Running>,
}

impl Relays {
    /// None yet. A client that takes nothing for `limit` loses its answer at the next sweep.
    pub fn new(clock: Clock, limit: Duration) -> Rc<Self> {
        Rc::new(Self { clock, limit, running: RefCell::default() })
    }

    pub(super) fn add(self: &Rc<Self>, exchange: Exchange) -> Relay {
        let (key, exchange) = self.running.borrow_mut().add(exchange);
        Relay { key, exchange, relays: Rc::clone(self) }
    }

    /// Takes away the answers of clients that take nothing; for ever.
    pub async fn sweep(self: Rc<Self>) {
        let mut tick = tokio::time::interval((self.limit / 8).max(Duration::from_millis(1)));
        loop {
            tick.tick().await;
            let now = self.clock.now();
            let stalled = |shared: &Shared| {
                shared.borrow().as_ref().is_some_and(|exchange| exchange.is_stalled(now, self.limit))
            };
            let running = self.running.borrow();
            let answers = running.answers.iter().flatten();
            let stalled: Vec<Shared> = answers.filter(|shared| stalled(shared)).cloned().collect();
            drop(running);
            for shared in stalled {
                let taken = shared.borrow_mut().take();
                if let Some(exchange) = taken {
                    meter::gave_up(GaveUp::Answer);
                    exchange.give_up(STALLED);
                }
            }
        }
    }
}

/// The body of an answer of a replica's.
#[derive(Debug)]
pub struct Relay {
    key: usize,
    exchange: Shared,
    relays: Rc<Relays>,
}

impl Relay {
    /// The client is too slow. Whether this is new.
    pub(super) fn give_up(&mut self) -> bool {
        let taken = self.exchange.borrow_mut().take();
        taken.map(|exchange| exchange.give_up(STALLED)).is_some()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Where it lies: it is large.
        *self.exchange.borrow_mut() = None;
        self.relays.running.borrow_mut().remove(self.key);
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.exchange.borrow_mut().as_mut() {
            Some(exchange) => Pin::new(exchange).poll_frame(cx),
            None => Poll::Ready(Some(Err(Cut(STALLED.to_owned())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.borrow().as_ref().is_some_and(|exchange| exchange.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.borrow().as_ref().map(|exchange| exchange.size_hint()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_072_an_answer_lies_where_the_last_one_lay_and_a_crowd_leaves_nothing() {
        let mut running = Running::default();
        let at = |shared: &Shared<u32>| Rc::as_ptr(shared);
        let (key, first) = running.add(1);
        let (place, _) = (at(&first), first.take());
        running.remove(key);
        let (again, second) = running.add(2);
        assert_eq!((again, second.borrow().as_ref()), (key, Some(&2)));
        assert_ne!(at(&second), place, "somebody has the first still");
        let (place, _) = (at(&second), drop(second));
        running.remove(key);
        let (_, third) = running.add(3);
        assert_eq!((at(&third), third.take()), (place, Some(3)));
        running.remove(key);
        let crowd: Vec<_> = (0..=KEPT).map(|_| running.add(4).0).collect();
        crowd.iter().for_each(|key| running.remove(*key));
        assert!(running.answers.is_empty() && running.free.is_empty());
    }

    #[test]
    fn h6_pauses_add_up_and_one_ends_when_something_is_taken_or_nothing_waits() {
        let (limit, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let at = |seconds: u32| Instant::ZERO + seconds * second;
        let mut pauses = Pauses::new();
        assert_eq!(pauses.until(at(1), (false, 0), limit, 'a'), None);
        assert!(!pauses.is_pausing());
        assert_eq!(pauses.until(at(10), (true, 0), limit, 'b'), Some(at(70)));
        assert_eq!(pauses.until(at(20), (true, 0), limit, 'c'), Some(at(70)), "it goes on");
        assert_eq!(pauses.mark(), Some(&'b'));
        // Something was taken, and the rest waits: another pause.
        assert_eq!(pauses.until(at(30), (true, 1), limit, 'd'), Some(at(30 + 60 - 20)));
        assert_eq!(pauses.mark(), Some(&'d'));
        assert_eq!(pauses.until(at(40), (false, 1), limit, 'e'), None);
        assert_eq!(pauses.mark(), None);
        assert_eq!(pauses.until(at(100), (true, 1), limit, 'f'), Some(at(100 + 60 - 30)));
        assert!(pauses.is_pausing());
    }

    #[test]
    fn h6_a_client_may_pause_and_may_be_slow_but_not_for_ever() {
        let [half, limit, hour] = [30, 60, 3600].map(Duration::from_secs);
        let since = Instant::ZERO + hour;
        let slow_after = |before, taken| slow_by(since, before, taken, limit).since(since);
        assert_eq!(slow_after(Duration::ZERO, 0), limit, "a pause");
        assert_eq!(slow_after(half, 0), half, "it was away before");
        assert_eq!(slow_after(Duration::ZERO, 1 << 30), limit, "away, whatever it took before");
        assert_eq!(slow_after(hour, 6000), Duration::ZERO, "a frame of 100 bytes a minute");
        assert_eq!(slow_after(hour, 4 << 20), limit, "slow, but it comes to an end");
    }
}
