//! Reads the body of a request into memory, within its limits: one body (H4), all bodies (C-072), and time (H6): a
//! silence, and the whole of it by its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::clock::Clock;
use crate::openai::ApiError;

/// How long a client may be silent in the middle of its body; and how long the whole may take, beside what its bytes
/// take at [`SLOWEST`].
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes per second that a client must come to in the long run: a body that drips in holds its memory and its
/// connection for ever.
const SLOWEST: u64 = 16 << 10;
/// After an answer to a request whose body was not read: how much of it is read and thrown away, and how long a client
/// may be silent meanwhile, so that it gets to see the answer before the connection goes.
const DISCARD: (u64, Duration) = (256 << 20, Duration::from_secs(2));

/// The memory that bodies may take, over all requests of the process.
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

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.max {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
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
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Why there is no body.
#[derive(Debug)]
pub enum NoBody<B = Incoming> {
    /// It is answered with this; what is left of the body must be discarded.
    Refused(ApiError, B),
    /// All bodies together take the memory that they may take.
    NoMemory(B),
    /// The client left, or broke the protocol, in the middle of it (C-136). Nobody is there to answer.
    Gone(hyper::Error),
}

/// Reads the whole body.
///
/// # Errors
/// See [`NoBody`].
pub async fn whole<B>(
    mut body: B,
    limit: u64,
    budget: &Arc<Budget>,
    clock: Clock,
) -> Result<(Bytes, Share), NoBody<B>>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let began = clock.now();
    let mut share = Share { budget: Arc::clone(budget), bytes: 0 };
    let announced = body.size_hint().exact();
    if announced.is_some_and(|announced| announced > limit) {
        return Err(NoBody::Refused(ApiError::too_large(limit), body));
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while !body.is_end_stream() {
        let whole_by = began + SILENCE + Duration::from_secs(share.bytes / SLOWEST);
        let silent_by = clock.now() + SILENCE;
        let end = clock.timer(whole_by.min(silent_by));
        let frame = match tokio::time::timeout_at(end, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(NoBody::Gone(error)),
            Ok(None) => break,
            Err(_) => {
                let slow = if whole_by < silent_by {
                    format!("the body comes at less than {SLOWEST} bytes per second")
                } else {
                    format!("no byte of the body came for {} s", SILENCE.as_secs())
                };
                return Err(NoBody::Refused(ApiError::request_too_slow(slow), body));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if share.bytes + data.len() as u64 > limit {
            return Err(NoBody::Refused(ApiError::too_large(limit), body));
        }
        if !budget.take(data.len() as u64) {
            return Err(NoBody::NoMemory(body));
        }
        share.bytes += data.len() as u64;
        // Most bodies are one frame, which is not copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            let expected = announced.and_then(|announced| usize::try_from(announced).ok()).unwrap_or(0);
            rest.reserve(expected.min(1 << 20).max(first.len() + data.len()));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok((if rest.is_empty() { first } else { rest.freeze() }, share))
}

/// Reads what is left of a refused body and throws it away, within bounds.
pub async fn discard(mut body: Incoming) {
    let (mut left, silence) = DISCARD;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(silence, body.frame()).await {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    /// Reads a body that comes in `pieces` of `bytes` each, `pause` apart, on a clock that jumps from timer to timer.
    async fn read(pieces: usize, bytes: usize, pause: Duration) -> Result<usize, String> {
        let piece = move |index| async move {
            if index == pieces {
                return None;
            }
            tokio::time::sleep(pause).await;
            let frame: Result<_, hyper::Error> = Ok(Frame::data(Bytes::from(vec![b'x'; bytes])));
            Some((frame, index + 1))
        };
        let body = Box::pin(StreamBody::new(stream::unfold(0, piece)));
        match whole(body, 64 << 20, &Budget::new(64 << 20), Clock::start()).await {
            Ok((body, _share)) => Ok(body.len()),
            Err(NoBody::Refused(error, _)) => Err(format!("{}: {}", error.status, error.error.message)),
            Err(other) => Err(format!("{:?}", std::mem::discriminant(&other))),
        }
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
