//! Comments for a client that waits for a stream and has asked for them (Q3, C-083), so that nothing between it and the
//! gateway takes the silence for an end: `x-tidegate-keepalive: 15` wants one after each 15 seconds without a byte.
//!
//! Only lines that begin with a colon are put in, only between events. The first comment commits the status to 200: what
//! is decided later than that, a refusal as well as an answer that is no stream, becomes one event and the end. So the
//! status stays honest for as long as the client is patient; log and metrics tell the status that would have been.
//! Without the header nothing here runs. Never decides where a request goes or how long it may wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::body::{Response, ResponseBody};
use super::forward::is_event_stream;
use super::headers::only;
use super::respond;
use super::stream::Cut;
use crate::clock::Clock;
use crate::http1::fields::{Fields, Name, Names, text};
use crate::openai::{ApiError, SseScan};
use crate::telemetry::meter;
use crate::telemetry::request_id::RequestId;

/// Seconds between two comments that a client may ask for.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=300;
/// A whole comment.
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");
/// Longest answer that becomes one event: errors are short, and what is not a stream was not asked for.
const WHOLE_MAX: usize = 1 << 20;
const NAME: Name = Name::Keepalive;

/// How long the client wants to hear nothing at most, where it says so and the answer is to be a stream. The header ends
/// here; and what the replica answers must not be compressed, since comments cannot be put into that.
///
/// # Errors
/// 400 for a value that is no number of seconds within the bounds, or a header that is there twice.
pub fn asked(fields: &mut Fields, stream: bool) -> Result<Option<Duration>, ApiError> {
    if !fields.has(NAME) {
        return Ok(None);
    }
    let told = only(fields, NAME).and_then(|told| told.map(seconds).transpose());
    fields.remove(Names::of(&[NAME]));
    if !stream {
        return Ok(None);
    }
    let every = told?;
    fields.remove(Names::of(&[Name::AcceptEncoding]));
    Ok(every)
}

fn seconds(value: &[u8]) -> Result<Duration, ApiError> {
    let told = text(value).and_then(|text| text.trim().parse().ok());
    let told = told.filter(|seconds| SECONDS.contains(seconds)).map(Duration::from_secs);
    told.ok_or_else(|| {
        let (least, most) = SECONDS.into_inner();
        let allowed = format!("a whole number of seconds from {least} to {most}");
        ApiError::bad_header(NAME.as_str(), value, &allowed)
    })
}

/// The answer, if it comes before the first comment is due; else a stream of comments that it will follow.
pub async fn keep(
    answer: impl Future<Output = Response> + 'static,
    every: Duration,
    clock: Clock,
    id: RequestId,
) -> Response {
    // A task of its own: a client that takes no byte would else keep its request from going on, with a place in hand.
    let mut pending = Pending(tokio::task::spawn_local(answer));
    match tokio::time::timeout(every, &mut pending).await.map(|answer| answer.unwrap_or_else(respond::bug)) {
        Ok(response) if is_event_stream(&response) => {
            let Response { status, mut fields, body } = response;
            // Comments are not counted in it.
            fields.remove(Names::of(&[Name::ContentLength]));
            let state = State::Stream(Box::new(body), SseScan::new());
            let body = ResponseBody::Kept(Box::new(Kept::new(state, every, clock)));
            Response { status, fields, body }
        }
        Ok(response) => response,
        Err(_) => {
            let mut kept = Kept::new(State::Waiting(pending), every, clock);
            kept.due = true;
            respond::events(ResponseBody::Kept(Box::new(kept)), &id)
        }
    }
}

/// An answer in the making. Dropped, its request has left.
#[derive(Debug)]
struct Pending<B>(JoinHandle<Response<B>>);

impl<B> Future for Pending<B> {
    /// `None` after a panic.
    type Output = Option<Response<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|ended| {
            if ended.is_err() {
                meter::panicked();
            }
            ended.ok()
        })
    }
}

impl<B> Drop for Pending<B> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum State<B> {
    /// There is no answer yet.
    Waiting(Pending<B>),
    /// It is a stream, on its way.
    Stream(Box<B>, SseScan),
    /// It is something else, to be told as one event.
    Whole(Box<B>, BytesMut),
    /// All was said.
    Over,
}

/// A body that can get comments: a replica's, or one of the gateway's own.
pub trait Inner: Body<Data = Bytes, Error = Cut> + From<Bytes> + Unpin {
    /// Its client takes it too slowly. Whether this is new.
    fn give_up(&mut self) -> bool;
}

impl Inner for ResponseBody {
    fn give_up(&mut self) -> bool {
        Self::give_up(self)
    }
}

/// See the module.
pub struct Kept<B = ResponseBody> {
    state: State<B>,
    every: Duration,
    clock: Clock,
    timer: Pin<Box<Sleep>>,
    /// A comment is due now.
    due: bool,
}

impl<B> fmt::Debug for Kept<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("every", &self.every).finish_non_exhaustive()
    }
}

impl<B: Inner> Kept<B> {
    fn new(state: State<B>, every: Duration, clock: Clock) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(clock.timer(clock.now() + every)));
        Self { state, every, clock, timer, due: false }
    }

    /// The client takes it too slowly. Whether this is new.
    pub(super) fn give_up(&mut self) -> bool {
        match &mut self.state {
            State::Stream(body, _) => body.give_up(),
            State::Waiting(_) | State::Whole(..) => true,
            State::Over => false,
        }
    }

    /// The silence begins anew.
    fn rest(&mut self) {
        let end = self.clock.timer(self.clock.now() + self.every);
        self.timer.as_mut().reset(end);
    }

    /// There is nothing to be said: a comment if one is due and would break no event.
    fn silent(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        while self.timer.as_mut().poll(cx).is_ready() {
            self.due = true;
            self.rest();
        }
        let between = match &self.state {
            State::Stream(_, scan) => scan.at_boundary(),
            State::Waiting(_) | State::Whole(..) => true,
            State::Over => false,
        };
        if between && std::mem::take(&mut self.due) {
            return Poll::Ready(Some(Ok(Frame::data(COMMENT))));
        }
        Poll::Pending
    }

    /// The last event.
    fn last(&mut self, event: Bytes) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.state = State::Over;
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

impl<B: Inner> Body for Kept<B> {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Waiting(pending) => match Pin::new(pending).poll(cx) {
                    Poll::Ready(Some(response)) => this.state = begun(response),
                    Poll::Ready(None) => return this.last(ApiError::internal().event()),
                    Poll::Pending => return this.silent(cx),
                },
                State::Stream(body, scan) => match Pin::new(&mut **body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        frame.data_ref().into_iter().for_each(|data| scan.push(data));
                        this.due = false;
                        this.rest();
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    // It stays until all was taken.
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(cut) => {
                        this.state = State::Over;
                        return Poll::Ready(cut);
                    }
                    Poll::Pending => return this.silent(cx),
                },
                State::Whole(body, bytes) => match Pin::new(&mut **body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        frame.data_ref().into_iter().for_each(|data| bytes.extend_from_slice(data));
                        if bytes.len() > WHOLE_MAX {
                            return this.last(no_stream().event());
                        }
                    }
                    Poll::Ready(Some(Err(_))) => return this.last(no_stream().event()),
                    Poll::Ready(None) => {
                        let event = as_event(bytes);
                        return this.last(event);
                    }
                    Poll::Pending => return this.silent(cx),
                },
                State::Over => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Over => true,
            State::Stream(body, _) => body.is_end_stream(),
            State::Waiting(_) | State::Whole(..) => false,
        }
    }
}

/// What an answer that comes behind comments is to be.
fn begun<B: Inner>(response: Response<B>) -> State<B> {
    let (is_stream, compressed) = (is_event_stream(&response), respond::is_encoded(&response.fields));
    let body = Box::new(response.body);
    match (is_stream, compressed) {
        (true, _) => State::Stream(body, SseScan::new()),
        (false, false) => State::Whole(body, BytesMut::new()),
        (false, true) => {
            let error = no_stream().body();
            State::Whole(Box::new(B::from(error)), BytesMut::new())
        }
    }
}

fn no_stream() -> ApiError {
    ApiError::bad_replica("the replica's answer is no event stream")
}

/// A text as one event, a field for each of its lines: a client reads the very text, its last line end excepted.
fn as_event(text: &[u8]) -> Bytes {
    let mut event = BytesMut::new();
    let text = text.trim_ascii_end();
    for line in text.split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        event.extend_from_slice(b"\n");
    }
    event.extend_from_slice(b"\n");
    event.freeze()
}

#[cfg(test)]
mod tests;
