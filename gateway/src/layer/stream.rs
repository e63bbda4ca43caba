//! The answer of a replica on its way to the client: frame by frame, byte for byte, never buffered (H3).
//!
//! Holds the place on the replica until the last byte (C-044), watches for the first byte, the usage and the end, and
//! ends a broken stream visibly: with an error event where the client's parser can read one, else by cutting the
//! transfer (C-087).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tidegate_shared::request::Outcome;
use tidegate_shared::time::Instant;

use super::relay::slow_by;
use crate::clock::{Alarm, Clock};
use crate::openai::error::CLIENT_LEFT;
use crate::openai::{ApiError, SseScan, usage::Tail};
use crate::pool::{Fault, Held, Sign};
use crate::telemetry::record::Record;
use crate::upstream::{Answer, chain};

/// What an answer did whose transfer ended well and whose last event did not.
const TORN: &str = "it ended in the middle of an event";

/// The transfer to the client is cut: the replica's was, or the client took nothing of it.
#[derive(Debug, Error)]
#[error("the answer is cut: {0}")]
pub struct Cut(pub(super) String);

/// Tokens by which the account of an answer grows at a time, so that the dispatcher is not asked for each.
const GROWTH: u64 = 64;

/// What an answer is watched for.
#[derive(Debug)]
enum Watch {
    /// Not boxed, although the largest: it is looked at for each event.
    Events(SseScan),
    Json(Tail),
    Opaque,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Dropped before the connection to the replica, which sees its end when the place is free.
    held: Option<Held>,
    inner: Answer,
    watch: Watch,
    /// The status says that the replica did what it was asked.
    good: bool,
    record: Record,
    /// Bytes of the body so far.
    bytes: u64,
    /// When the last of them came, or the head.
    heard: Instant,
    clock: Clock,
    between: Duration,
    silence: Alarm,
    /// Events after which the account of the answer's length is brought up to date.
    accounted: u64,
    /// The client asked for a frame and the replica has none yet.
    asking: bool,
    /// It was cut, which is to be told.
    cut: Option<Cut>,
    /// How long all in all the client did not ask.
    away: Duration,
}

/// Kinds of answers, by their content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `text/event-stream`.
    Events,
    /// JSON, whose end tells the usage.
    Json,
    /// Anything else: audio, images, compressed answers.
    Opaque,
}

impl Exchange {
    /// Relays `inner`, whose place is `held`; it is a `good` answer by its status. `between` bounds the silence between
    /// two frames.
    pub(super) fn new(
        inner: Answer,
        (kind, good): (Kind, bool),
        held: Held,
        mut record: Record,
        clock: Clock,
        between: Duration,
    ) -> Self {
        let watch = match kind {
            Kind::Events => Watch::Events(SseScan::new()),
            Kind::Json => Watch::Json(Tail::default()),
            Kind::Opaque => Watch::Opaque,
        };
        let accounted = held.reserved();
        record.relaying();
        let mut exchange = Self {
            inner,
            watch,
            held: Some(held),
            good,
            record,
            bytes: 0,
            heard: clock.in_turn(),
            clock,
            between,
            silence: Alarm::default(),
            accounted,
            asking: false,
            cut: None,
            away: Duration::ZERO,
        };
        if exchange.inner.is_end_stream() {
            exchange.complete(&[]);
        }
        exchange
    }

    /// Whether the client is away for too long: it has not asked since the last frame, so that nobody looks at the
    /// replica either.
    pub(super) fn is_stalled(&self, now: Instant, limit: Duration) -> bool {
        !self.is_over() && !self.asking && slow_by(self.heard, self.away, self.bytes, limit) <= now
    }

    /// The client is given up and does not get all of the answer, whatever the replica did; what is held is given back when this is dropped.
    pub(super) fn give_up(mut self, why: &str) {
        self.record.status(CLIENT_LEFT);
        self.record.trouble(why);
        self.held = None;
    }

    fn is_over(&self) -> bool {
        self.held.is_none()
    }

    /// Looks at `data`, which came `now`.
    fn see(&mut self, now: Instant, data: &Bytes) {
        if let Some(held) = &self.held {
            held.endpoint().note_bytes(now);
        }
        if self.bytes == 0 && !data.is_empty() {
            self.record.first_byte(now);
        }
        self.bytes += data.len() as u64;
        self.heard = now;
        match &mut self.watch {
            Watch::Events(scan) => {
                scan.push(data);
                // An event is a token, near enough.
                if let Some(held) = self.held.as_mut().filter(|_| scan.events() > self.accounted) {
                    held.grow(GROWTH);
                    self.accounted += GROWTH;
                }
            }
            // The end is looked at where it lies.
            Watch::Json(_) if self.inner.is_end_stream() => {}
            Watch::Json(tail) => tail.push(data),
            Watch::Opaque => {}
        }
        let failed = || matches!(&self.watch, Watch::Events(scan) if scan.finish().failed);
        if let Some(held) = self.held.as_mut().filter(|held| self.good && held.is_on_trial() && !failed()) {
            held.proves();
        }
        if self.inner.is_end_stream() {
            self.complete(data);
        }
    }

    /// Whether the transfer ended well in the middle of an event: all that can be seen of an engine that dies while
    /// its answer is delimited by the end of the connection.
    fn is_torn(&self) -> bool {
        matches!(&self.watch, Watch::Events(scan) if scan.finish().torn)
    }

    /// The last byte was read, with `last` before it: the place and the connection are free, though the client may still
    /// be reading.
    fn complete(&mut self, last: &[u8]) {
        self.settle(last);
        self.inner.give_back();
    }

    /// All was said, with `last` at its end: how the answer was is known, and the place is free.
    fn settle(&mut self, last: &[u8]) {
        let (usage, failure) = match &mut self.watch {
            Watch::Events(scan) => {
                let end = scan.finish();
                let reported = end.failed.then_some("the replica reported an error inside its stream");
                // Of the length that it announced, so that nothing can be cut.
                (end.usage, reported.or(end.torn.then_some(TORN)))
            }
            Watch::Json(tail) => (tail.usage_with(last), None),
            Watch::Opaque => (None, None),
        };
        self.record.usage(usage);
        match (failure, &mut self.held) {
            (Some(failure), _) => self.blame(failure),
            (None, Some(held)) if self.good => held.note(Sign::Well),
            (None, _) => {}
        }
        self.end(if failure.is_some() { Outcome::FailedMidway } else { Outcome::Complete });
    }

    /// Whether the client may leave, as nothing is missing but the end of the transfer: it was told the last event, or an error.
    fn is_told(&self) -> bool {
        match &self.watch {
            Watch::Events(scan) => scan.done() || scan.finish().failed,
            Watch::Json(_) | Watch::Opaque => false,
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.record.ended(outcome);
        self.silence = Alarm::default();
        if let Some(held) = self.held.take() {
            held.end(&self.record.spent(matches!(self.watch, Watch::Events(_))));
        }
    }

    fn blame(&mut self, what: &str) {
        if let Some(held) = &mut self.held {
            held.blame(Fault::Midway, what);
        }
        self.record.trouble(what);
    }

    /// The replica broke off. A cut is told a turn later, when what came before it has left: over HTTP/2 it would take that
    /// along.
    fn broke(&mut self, cx: &Context<'_>, why: String) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let done = matches!(&self.watch, Watch::Events(scan) if scan.done());
        let readable = matches!(&self.watch, Watch::Events(scan) if scan.at_boundary());
        if done {
            // All was said; only the end of the transfer is missing.
            self.complete(&[]);
            return Poll::Ready(None);
        }
        self.blame(&why);
        self.end(Outcome::FailedMidway);
        let event = ApiError::bad_replica("the replica broke off its answer").event();
        // Of a length that was told, only what is left: half of an error would look like the rest of the answer.
        let fits = self.inner.size_hint().exact().is_none_or(|left| event.len() as u64 <= left);
        self.inner.close();
        if readable && fits {
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        self.cut = Some(Cut(why));
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether nothing came for too long.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = self.heard + self.between;
        self.silence.is_late(cx, self.clock, limit)
    }
}

impl Drop for Exchange {
    /// The client closes, or the gateway stops. SDKs close at the last event, before the end of the transfer has come (H4).
    fn drop(&mut self) {
        self.record.answer_bytes(self.bytes);
        if !self.is_over() && self.is_told() {
            self.settle(&[]);
        }
    }
}

impl Body for Exchange {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        if let Some(cut) = this.cut.take() {
            return Poll::Ready(Some(Err(cut)));
        }
        if this.is_over() {
            return Poll::Ready(None);
        }
        let mut asked = None;
        if !std::mem::take(&mut this.asking) {
            let now = this.clock.in_turn();
            this.away += now.since(this.heard);
            asked = Some(now);
        }
        loop {
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers belong to one hop.
                    let Ok(data) = frame.into_data() else { continue };
                    this.see(asked.unwrap_or_else(|| this.clock.in_turn()), &data);
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(error))) => return this.broke(cx, chain(&error)),
                Poll::Ready(None) if this.is_torn() => {
                    return this.broke(cx, TORN.to_owned());
                }
                Poll::Ready(None) => {
                    this.complete(&[]);
                    return Poll::Ready(None);
                }
                Poll::Pending if this.is_silent(cx) => {
                    let why = format!("no byte within {:?}", this.between);
                    return this.broke(cx, why);
                }
                Poll::Pending => {
                    this.asking = true;
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over() && self.cut.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
