//! Reads the body of a request into memory, within its limits: one body (H4), all bodies (C-072), and time (H6): a
//! silence, and the whole of it by its size.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use tidegate_shared::time::Instant;

use super::space::Space;
use crate::clock::Clock;
use crate::openai::ApiError;

/// How long a client may be silent in the middle of its body; and how long the whole may take, beside what its bytes
/// take at [`SLOWEST`].
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes per second that a client must come to in the long run: a body that drips in holds its memory and its
/// connection for ever.
const SLOWEST: u64 = 16 << 10;
/// After an answer to a request whose body was not read: how many bytes of it are read and thrown away, and how long a
/// client may be silent meanwhile, so that it gets to see the answer before the connection goes and nobody holds a
/// connection by dripping.
const THROWN: u64 = 256 << 20;
const THROWN_SILENCE: Duration = Duration::from_secs(2);
/// How long all of that may take; and, before it, how long the word with which TLS ends may wait for room.
pub const THROWN_WITHIN: Duration = Duration::from_secs(30);

/// Memory that many may take together, over all requests of the process: bodies, and the heads of HTTP/2.
#[derive(Debug)]
pub struct Budget {
    used: AtomicU64,
    max: u64,
}

impl Budget {
    /// At most `max` bytes.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), max })
    }

    /// Bytes that there are.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes so many bytes; `false` where there is no room for all of them: then none are taken.
    pub fn take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.max {
            self.give(bytes);
            return false;
        }
        true
    }

    /// Gives back so many of the bytes that were taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// A body that comes over a connection.
pub trait Source {
    /// Why it does not come to its end.
    type Error: fmt::Display;

    /// Bytes that are still to come, where that was told.
    fn announced(&self) -> Option<u64>;

    /// Adds what comes next to `into`; the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// The client left or broke the protocol.
    fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut Space) -> Poll<Result<usize, Self::Error>>;
}

/// As hyper reads it, on the operator's side.
impl Source for Incoming {
    type Error = hyper::Error;

    fn announced(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut Space) -> Poll<Result<usize, hyper::Error>> {
        while let Some(frame) = ready!(Pin::new(&mut *self).poll_frame(cx)) {
            if let Ok(data) = frame?.into_data()
                && !data.is_empty()
            {
                into.extend(&data);
                return Poll::Ready(Ok(data.len()));
            }
        }
        Poll::Ready(Ok(0))
    }
}

/// Why there is no body.
#[derive(Debug)]
pub enum NoBody<B: Source> {
    /// It is answered with this; what is left of the body must be discarded.
    Refused(ApiError, B),
    /// All bodies together take the memory that they may take.
    NoMemory(B),
    /// The client left, or broke the protocol, in the middle of it (C-136). Whoever is still there is told.
    Gone(B::Error),
}

/// Reads the whole body.
///
/// # Errors
/// See [`NoBody`].
pub async fn whole<B: Source>(
    mut body: B,
    limit: u64,
    budget: &Arc<Budget>,
    clock: Clock,
) -> Result<(Bytes, Share), NoBody<B>> {
    let mut began = None;
    let mut share = Share { budget: Arc::clone(budget), bytes: 0 };
    let announced = body.announced();
    if announced.is_some_and(|announced| announced > limit) {
        return Err(NoBody::Refused(ApiError::too_large(limit, announced), body));
    }
    let Ok(mut whole) = Space::new(announced, limit) else { return Err(NoBody::NoMemory(body)) };
    while announced.is_none_or(|announced| share.bytes < announced) {
        if share.bytes < limit && whole.make_room().is_err() {
            return Err(NoBody::NoMemory(body));
        }
        let may_take = SILENCE + Duration::from_secs(share.bytes / SLOWEST);
        let read = match more(&mut body, &mut whole, clock, &mut began, may_take).await {
            Ok(Ok(0)) => break,
            Ok(Ok(read)) => read as u64,
            Ok(Err(error)) => return Err(NoBody::Gone(error)),
            Err(slow) => return Err(NoBody::Refused(ApiError::request_too_slow(slow), body)),
        };
        if share.bytes + read > limit {
            return Err(NoBody::Refused(ApiError::too_large(limit, announced), body));
        }
        if whole.has_lost() || !budget.take(read) {
            return Err(NoBody::NoMemory(body));
        }
        share.bytes += read;
    }
    Ok((whole.freeze(), share))
}

/// More of a body, which `may_take` so long since the first wait for it, which `began` is. What is there already costs
/// no look at the clock and no timer.
///
/// # Errors
/// What is too slow about it.
async fn more<B: Source>(
    body: &mut B,
    into: &mut Space,
    clock: Clock,
    began: &mut Option<Instant>,
    may_take: Duration,
) -> Result<Result<usize, B::Error>, String> {
    let at_once = poll_fn(|cx| match body.poll_more(cx, into) {
        Poll::Ready(more) => Poll::Ready(Some(more)),
        Poll::Pending => Poll::Ready(None),
    });
    if let Some(more) = at_once.await {
        return Ok(more);
    }
    let now = clock.now();
    let (silent_by, whole_by) = (now + SILENCE, *began.get_or_insert(now) + may_take);
    let later = poll_fn(|cx| body.poll_more(cx, into));
    let later = Box::pin(tokio::time::timeout_at(clock.timer(whole_by.min(silent_by)), later));
    later.await.map_err(|_| {
        if whole_by < silent_by {
            format!("the body comes at less than {SLOWEST} bytes per second")
        } else {
            format!("no byte of the body came for {} s", SILENCE.as_secs())
        }
    })
}

/// Reads what is left of a refused body and throws it away, within bounds.
pub async fn discard<B: Source>(mut body: B) {
    let mut thrown = Space::scrap();
    throw_away(|cx| {
        thrown.clear();
        body.poll_more(cx, &mut thrown)
    })
    .await;
}

/// Lets `more` throw away what it reads, within the same bounds, until it reads nothing or fails.
pub async fn throw_away<E>(mut more: impl FnMut(&mut Context<'_>) -> Poll<Result<usize, E>>) {
    let all = async {
        let mut left = THROWN;
        loop {
            match tokio::time::timeout(THROWN_SILENCE, poll_fn(&mut more)).await {
                Ok(Ok(read @ 1..)) if read as u64 <= left => left -= read as u64,
                _ => return,
            }
        }
    };
    // Whether it came to its end is the same: the connection goes.
    let _ = tokio::time::timeout(THROWN_WITHIN, all).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::Future;

    use tokio::time::{Sleep, sleep};

    use super::*;

    /// A body that comes in pieces, with a pause before each.
    struct Dripping {
        pieces: usize,
        bytes: usize,
        pause: Duration,
        timer: Pin<Box<Sleep>>,
    }

    impl Source for Dripping {
        type Error = Infallible;

        fn announced(&self) -> Option<u64> {
            None
        }

        fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut Space) -> Poll<Result<usize, Infallible>> {
            if self.pieces == 0 {
                return Poll::Ready(Ok(0));
            }
            std::task::ready!(self.timer.as_mut().poll(cx));
            self.timer.set(sleep(self.pause));
            self.pieces -= 1;
            into.extend(&vec![b'x'; self.bytes]);
            Poll::Ready(Ok(self.bytes))
        }
    }

    /// Reads a body that comes in `pieces` of `bytes` each, `pause` apart, on a clock that jumps from timer to timer.
    async fn read(pieces: usize, bytes: usize, pause: Duration) -> Result<usize, String> {
        let body = Dripping { pieces, bytes, pause, timer: Box::pin(sleep(pause)) };
        match whole(body, 64 << 20, &Budget::new(64 << 20), Clock::start()).await {
            Ok((body, _share)) => Ok(body.len()),
            Err(NoBody::Refused(error, _)) => Err(format!("{}: {}", error.status, error.error.message)),
            Err(NoBody::NoMemory(_)) => Err("no memory".to_owned()),
            Err(NoBody::Gone(never)) => match never {},
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h6_what_is_thrown_away_holds_no_connection_for_ever() {
        let pause = Duration::from_secs(1);
        let (pieces, bytes) = (100_000, 1);
        let mut body = Dripping { pieces, bytes, pause, timer: Box::pin(sleep(pause)) };
        let mut thrown = Space::scrap();
        throw_away(|cx| body.poll_more(cx, &mut thrown)).await;
        assert!((1..pieces - 1).contains(&body.pieces), "some of it was read, and not all: {}", body.pieces);
    }

    #[tokio::test(start_paused = true)]
    async fn h6_a_body_may_be_slow_but_must_come_to_an_end() {
        let second = Duration::from_secs(1);
        let dripping = read(1_000_000, 1, 50 * second).await.expect_err("it would take 1.6 years");
        assert_eq!(dripping, "408: the body comes at less than 16384 bytes per second");
        let silent = read(1, 10, 61 * second).await.expect_err("nothing comes");
        assert_eq!(silent, "408: no byte of the body came for 60 s");
        assert_eq!(read(59, 10, second).await, Ok(590), "a small body within a minute");
        assert_eq!(read(512, 32 << 10, 2 * second).await, Ok(16 << 20), "17 minutes for 16 MiB");
    }
}
