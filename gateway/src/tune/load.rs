//! So many requests at a time, for as long as it takes: each place sends its next request when the last one has ended. Counts
//! what comes, and decides nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use memchr::memmem;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate_scaler_core::tune::work::Request;
use tidegate_shared::time::{Duration, Instant};
use tokio::task::AbortHandle;

use super::exchange::Connection;
use super::prompt::Prompts;
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::openai::Usage;
use crate::openai::sse::SseScan;

/// How long a place rests after a request that failed, so that an engine that fails at once is not flooded.
const REST: Duration = Duration::from_millis(500);
/// Largest part of a refusal that is read, in bytes.
const MOST_ERROR: usize = 4 << 10;

/// What came since [`Counts::begin`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Requests that ended well, and when, until somebody takes them. Their tokens are events with a part of an answer.
    pub(super) ended: Vec<(Request, Instant)>,
    pub(super) completed: u32,
    pub(super) failed: u32,
    pub(super) refused: u32,
    pub(super) ttft: Vec<Duration>,
    pub(super) tpot: Vec<Duration>,
    /// What it said to a request that it will not take, whoever sends it.
    pub(super) rejected: Option<String>,
    /// What the last failure was.
    pub(super) trouble: Option<String>,
    /// When an event last came, or the counting began.
    pub(super) last: Instant,
    /// Over the whole run: requests that ended, and what the engine counted of them.
    pub(super) told: Told,
}

/// Sums over requests that ended well and whose usage was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) requests: u64,
    pub(super) prompt: u64,
    pub(super) output: u64,
    pub(super) events: u64,
}

impl Counts {
    /// Counts from zero; what was told stays.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { told: self.told, last: now, ..Self::default() };
    }

    /// Events of an answer that is asked to have so many tokens.
    fn events(&self, tokens: u64) -> u64 {
        let Told { output, events, .. } = self.told;
        tokens.saturating_mul(events).checked_div(output).unwrap_or(tokens)
    }

    fn note(&mut self, ended: Ended) {
        let why = match ended {
            Ended::Well(_) => {
                self.completed += 1;
                return;
            }
            Ended::Refused(why) => {
                self.refused += 1;
                why
            }
            Ended::Rejected(why) => self.rejected.insert(why).clone(),
            Ended::Failed(why) => {
                self.failed += 1;
                why
            }
        };
        self.trouble = Some(why);
    }

    /// Tokens in so many events: as the engine counts, or one in each.
    pub(super) fn tokens(&self, events: u64) -> u64 {
        let Told { output, events: of, .. } = self.told;
        events.saturating_mul(output).checked_div(of).unwrap_or(events)
    }
}

/// What all places share.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) clock: Clock,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) prompts: Mutex<Prompts>,
    pub(super) counts: Mutex<Counts>,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum Ended {
    Well(Usage),
    /// The replica has no room.
    Refused(String),
    /// It is not served: the status is the client's fault.
    Rejected(String),
    Failed(String),
}

/// Who sends one request after the other.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// It has had a token.
    begun: bool,
    /// What it sent last, until that has ended.
    open: Option<Request>,
}

/// The places at work. Dropped, all leave at once.
#[derive(Debug, Default)]
pub(super) struct Crew {
    places: Vec<(AbortHandle, Arc<Mutex<Place>>)>,
}

impl Crew {
    /// From now on there are `count`. Who is too many leaves at once.
    pub(super) fn resize(&mut self, count: u32, field: &Arc<Field>) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for (place, _) in self.places.drain(count.min(self.places.len())..) {
            place.abort();
        }
        while self.places.len() < count {
            let place = Arc::<Mutex<Place>>::default();
            let task = tokio::spawn(work(Arc::clone(field), Arc::clone(&place)));
            self.places.push((task.abort_handle(), place));
        }
    }

    /// Whether each has had a token since it began.
    pub(super) fn is_settled(&self) -> bool {
        self.places.iter().all(|(_, place)| place.lock().begun)
    }

    /// The requests that are under way.
    pub(super) fn open(&self) -> Vec<Request> {
        self.places.iter().filter_map(|(_, place)| place.lock().open).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.places.iter().for_each(|(place, _)| place.abort());
    }
}

async fn work(field: Arc<Field>, place: Arc<Mutex<Place>>) {
    let mut connection = Connection::new(&field.endpoint);
    loop {
        let body = field.prompts.lock().next();
        let ended = exchange(&field, &mut connection, &body, &place).await;
        place.lock().open = None;
        let rests = !matches!(ended, Ended::Well(_));
        field.counts.lock().note(ended);
        if rests {
            tokio::time::sleep(REST).await;
        }
    }
}

/// Sends one request and reads its answer to the end.
pub(super) async fn exchange(
    field: &Field,
    connection: &mut Connection,
    body: &Value,
    place: &Mutex<Place>,
) -> Ended {
    let sent = field.clock.now();
    let asked = body.get("max_tokens").and_then(Value::as_u64).unwrap_or_default();
    let whole = field.counts.lock().events(asked);
    place.lock().open = Some(Request { sent, first: None, tokens: 0, whole });
    let answer = match connection.send(body.to_string().into()).await {
        Ok(answer) => answer,
        Err(why) => return Ended::Failed(why),
    };
    let status = answer.status();
    if status != StatusCode::OK {
        connection.forget();
        let why = format!("{status}: {}", words(answer.into_body()).await);
        return match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Ended::Refused(why),
            _ if status.is_client_error() => Ended::Rejected(why),
            _ => Ended::Failed(why),
        };
    }
    let ended = stream(field, sent, answer.into_body(), place).await;
    if !matches!(ended, Ended::Well(_)) {
        connection.forget();
    }
    ended
}

async fn stream(field: &Field, sent: Instant, mut body: Incoming, place: &Mutex<Place>) -> Ended {
    let mut scan = SseScan::new();
    let (mut first, mut last, mut events) = (None, sent, 0);
    while let Some(frame) = body.frame().await {
        let chunk = match frame.map(http_body::Frame::into_data) {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(_)) => continue,
            Err(error) => return Ended::Failed(format!("its answer broke off: {error}")),
        };
        let before = scan.events();
        scan.push(&chunk);
        let now = field.clock.now();
        field.endpoint.note_bytes(now);
        if first.is_none() && has_text(&chunk) {
            first = Some(now);
            place.lock().begun = true;
            field.counts.lock().ttft.push(now.since(sent));
        }
        if first.is_some() {
            let more = scan.events() - before;
            (events, last) = (events + more, now);
            field.counts.lock().last = now;
            if let Some(open) = &mut place.lock().open {
                (open.first, open.tokens) = (first, events);
            }
        }
    }
    let end = scan.finish();
    if end.failed || end.torn {
        return Ended::Failed("its answer ended in an error".to_owned());
    }
    let usage = end.usage.unwrap_or_default();
    // Told not to end, a small model may go on in tokens that are no text: they took as long as others.
    if first.is_none() && usage.completion.is_none_or(|tokens| tokens == 0) {
        return Ended::Failed("its answer has no text".to_owned());
    }
    let tokens = usage.completion.unwrap_or(events);
    let open = place.lock().open.take();
    let mut counts = field.counts.lock();
    counts.ended.extend(open.map(|request| (request, field.clock.now())));
    if let (Some(prompt), Some(output)) = (usage.prompt, usage.completion) {
        let Told { requests, prompt: all, output: out, events: of } = counts.told;
        counts.told =
            Told { requests: requests + 1, prompt: all + prompt, output: out + output, events: of + events };
    }
    if let (Some(first), Some(gaps)) =
        (first, u32::try_from(tokens).ok().and_then(|tokens| tokens.checked_sub(1)).filter(|gaps| *gaps > 0))
    {
        counts.tpot.push(last.since(first) / gaps);
    }
    Ended::Well(usage)
}

/// Whether a chunk of a stream holds text of an answer; an empty one, which many engines begin with, is none.
fn has_text(chunk: &[u8]) -> bool {
    let names = [&b"content\""[..], b"reasoning\"", b"text\""];
    names.iter().any(|name| {
        memmem::find_iter(chunk, name).any(|at| {
            let value = chunk.get(at + name.len()..).unwrap_or_default().trim_ascii_start();
            let value = value.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
            value.is_some_and(|value| {
                value.first() == Some(&b'"') && value.get(1).is_some_and(|next| *next != b'"')
            })
        })
    })
}

/// What a refusal says, for people.
async fn words(mut body: Incoming) -> String {
    let mut read: Vec<u8> = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let data: Bytes = frame.into_data().unwrap_or_default();
        read.extend_from_slice(&data);
        if read.len() >= MOST_ERROR {
            break;
        }
    }
    let told: Option<Value> = serde_json::from_slice(&read).ok();
    let message = told.as_ref().and_then(|told| told.pointer("/error/message").or(told.get("message")));
    let text = message.and_then(Value::as_str).map(str::to_owned);
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(&read).into_owned());
    text.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a1_the_first_token_is_the_first_text() {
        for (chunk, text) in [
            (r#"data: {"choices":[{"delta":{"role":"assistant","content":null}}]}"#, false),
            (r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#, false),
            (r#"data: {"choices":[{"delta":{"content":"Hi"}}]}"#, true),
            (r#"data: {"choices":[{"delta":{"content": " "}}]}"#, true),
            (r#"data: {"choices":[{"delta":{"reasoning_content":"so"}}]}"#, true),
            (r#"data: {"choices":[{"text":"x"}]}"#, true),
            (r#"data: {"choices":[],"usage":{"prompt_tokens":5}}"#, false),
        ] {
            assert_eq!(has_text(chunk.as_bytes()), text, "{chunk}");
        }
    }

    #[test]
    fn a1_tokens_are_those_that_the_engine_counts() {
        let mut counts = Counts::default();
        assert_eq!((counts.tokens(90), counts.events(90)), (90, 90), "before it told any");
        // Four tokens in each event, and one event that only ends it.
        counts.told = Told { requests: 10, prompt: 100, output: 400, events: 110 };
        assert_eq!((counts.tokens(220), counts.events(800)), (800, 220));
        counts.begin(Instant::ZERO);
        assert_eq!(counts.told.requests, 10, "what was told stays");
    }
}
