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
/// Places for answers that are kept while there are none.
const KEPT: usize = 64;
/// What is said of a client that was given up.
const STALLED: &str = "the client took nothing of the answer for too long";

/// When a client is given up that has taken nothing `since` then, had been away for so long `before`, and had taken so
/// many bytes.
pub fn slow_by(since: Instant, before: Duration, taken: u64, limit: Duration) -> Instant {
    since + limit.min((limit + Duration::from_secs(taken / SLOWEST)).saturating_sub(before))
}

/// `None` once it is taken away.
type Shared = Rc<RefCell<Option<Exchange>>>;

/// The answers by number; numbers that are free are used again.
#[derive(Debug, Default)]
struct Running {
    answers: Vec<Option<Shared>>,
    free: Vec<usize>,
}

impl Running {
    fn add(&mut self, answer: Shared) -> usize {
        let key = self.free.pop().unwrap_or(self.answers.len());
        match self.answers.get_mut(key) {
            Some(place) => *place = Some(answer),
            None => self.answers.push(Some(answer)),
        }
        key
    }

    fn remove(&mut self, key: usize) {
        if self.answers.get_mut(key).and_then(Option::take).is_some() {
            self.free.push(key);
        }
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
        let exchange = Rc::new(RefCell::new(Some(exchange)));
        let key = self.running.borrow_mut().add(Rc::clone(&exchange));
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
