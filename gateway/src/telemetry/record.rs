//! What is known about one request, from its head to the last byte of its answer; logged and counted exactly once,
//! when it is dropped, however the request ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method};
use smallvec::SmallVec;
use tidegate_shared::decision::Refusal;
use tidegate_shared::request::{Outcome, Priority, Route};
use tidegate_shared::time::Instant;

use super::access::AccessLog;
use super::json::{Object, key};
use super::meter::DeploymentMeter;
use super::request_id::RequestId;
use crate::clock::Clock;
use crate::openai::{Operation, Usage, error::CLIENT_LEFT};
use crate::pool::Spent;

/// A text that is logged, in UTF-8; most are short.
type Shown = SmallVec<[u8; 32]>;

/// Longest text of a client's that is logged; the rest is cut (C-157).
const TEXT_MAX: usize = 200;

/// Status of a request whose handler panicked: the one that its client gets.
const PANICKED: u16 = 500;

/// Status of a request that was cut before it had an answer, because the gateway stopped.
const STOPPED: u16 = 503;

/// Where records go.
#[derive(Debug)]
pub struct Sink {
    /// The clock that the records' times are of.
    pub clock: Clock,
    /// The access log.
    pub access: Arc<AccessLog>,
    /// Counts requests that belong to no deployment.
    pub nowhere: Arc<DeploymentMeter>,
    /// The gateway stops and cuts what still runs.
    pub cuts: AtomicBool,
}

/// See the module. Moved through every step of a request, so it is one pointer.
#[derive(Debug)]
pub struct Record(Box<Facts>);

/// What a [`Record`] knows.
#[derive(Debug)]
struct Facts {
    sink: Arc<Sink>,
    meter: Arc<DeploymentMeter>,
    arrived: Instant,
    wall: SystemTime,
    client: Option<IpAddr>,
    method: Method,
    path: Shown,
    request_id: RequestId,
    operation: Option<Operation>,
    model: Shown,
    stream: bool,
    priority: Priority,
    status: Option<u16>,
    replica: Option<HeaderValue>,
    route: Option<Route>,
    refusal: Option<Refusal>,
    attempts: u32,
    bytes_in: u64,
    bytes_out: u64,
    queued: Option<Duration>,
    sent: Option<Instant>,
    first_byte: Option<Instant>,
    usage: Option<Usage>,
    outcome: Option<Outcome>,
    trouble: Option<Shown>,
    reason: Option<Shown>,
    relaying: bool,
    quiet: bool,
}

impl Record {
    /// A request's head was read.
    pub fn new(sink: &Arc<Sink>, client: Option<IpAddr>, method: &Method, path: &str, id: RequestId) -> Self {
        let arrived = sink.clock.in_turn();
        Self(Box::new(Facts {
            meter: Arc::clone(&sink.nowhere),
            arrived,
            wall: sink.clock.wall_in_turn(),
            sink: Arc::clone(sink),
            client,
            method: method.clone(),
            path: cut(path),
            request_id: id,
            operation: None,
            model: Shown::new(),
            stream: false,
            priority: Priority::default(),
            status: None,
            replica: None,
            route: None,
            refusal: None,
            attempts: 0,
            bytes_in: 0,
            bytes_out: 0,
            queued: None,
            sent: None,
            first_byte: None,
            usage: None,
            outcome: None,
            trouble: None,
            reason: None,
            relaying: false,
            quiet: false,
        }))
    }

    /// Its id, for the response.
    pub fn request_id(&self) -> &RequestId {
        &self.0.request_id
    }

    /// A health check: counted, not logged.
    pub fn quiet(&mut self) {
        self.0.quiet = true;
    }

    /// Which operation it asks for.
    pub fn operation(&mut self, operation: Operation) {
        self.0.operation = Some(operation);
    }

    /// Its body was read, and has so many bytes.
    pub fn read(&mut self, bytes: usize) {
        self.0.bytes_in = bytes as u64;
    }

    /// Its body was understood.
    pub fn body(&mut self, model: &str, stream: bool) {
        self.model(model);
        self.0.stream = stream;
    }

    /// It asks for this model.
    pub fn model(&mut self, model: &str) {
        self.0.model = cut(model);
    }

    /// It is as urgent as this.
    pub fn priority(&mut self, priority: Priority) {
        self.0.priority = priority;
    }

    /// It belongs to a deployment.
    pub fn deployment(&mut self, meter: &Arc<DeploymentMeter>) {
        self.0.meter = Arc::clone(meter);
    }

    /// It waited in the queue, this long all in all.
    pub fn waited(&mut self, waited: Duration) {
        let waited = self.0.queued.unwrap_or_default() + waited;
        self.0.queued = Some(waited);
    }

    /// It is sent to a replica.
    pub fn sent(&mut self, replica: HeaderValue, route: Route) {
        self.0.attempts += 1;
        self.0.sent = Some(self.0.sink.clock.in_turn());
        if self.0.attempts > 1 {
            self.0.meter.retried();
        }
        self.0.replica = Some(replica);
        self.0.route = Some(route);
        self.0.meter.routed(route);
    }

    /// It was sent to the same replica once more, over another connection, because no byte of an answer came.
    pub fn sent_again(&mut self) {
        self.0.attempts += 1;
        self.0.meter.retried();
    }

    /// It is refused.
    pub fn refused(&mut self, reason: Refusal) {
        self.0.refusal = Some(reason);
        self.0.meter.refused(reason);
    }

    /// The status that the client gets.
    pub fn status(&mut self, status: u16) {
        self.0.status = Some(status);
    }

    /// The answer is a replica's, on its way: whether the client got it is known when it has [`Record::ended`].
    pub fn relaying(&mut self) {
        self.0.relaying = true;
    }

    /// The gateway answers by itself.
    pub fn own(&mut self, status: u16, bytes: usize) {
        self.status(status);
        self.0.bytes_out = bytes as u64;
    }

    /// The first bytes of the answer's body came.
    pub fn first_byte(&mut self, now: Instant) {
        self.0.first_byte = Some(now);
        self.0.meter.first_byte(now.since(self.0.arrived));
    }

    /// So many bytes of the answer's body came, all in all. Told at the end, not with each event: of a thousand streams
    /// none finds its record in a core's cache.
    pub fn answer_bytes(&mut self, bytes: u64) {
        self.0.bytes_out = bytes;
    }

    /// What the answer said of tokens.
    pub fn usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = &usage {
            self.0.meter.usage(usage);
        }
        self.0.usage = usage;
    }

    /// What the replica spent on it, as far as it said. The time to the first byte tells how long prefilling took only
    /// where the answer is a stream.
    pub fn spent(&self, streamed: bool) -> Spent {
        let usage = self.0.usage.as_ref();
        let prefilled = self.0.first_byte.zip(self.0.sent).filter(|_| streamed);
        Spent {
            prompt: usage.and_then(|usage| usage.prompt),
            cached: usage.and_then(|usage| usage.cached),
            output: usage.and_then(|usage| usage.completion),
            first_byte: prefilled.map(|(first, sent)| first.since(sent)),
        }
    }

    /// How the exchange with the replica ended.
    pub fn ended(&mut self, outcome: Outcome) {
        self.0.outcome = Some(outcome);
    }

    /// What went wrong, for operators.
    pub fn trouble(&mut self, what: &str) {
        self.0.trouble = Some(cut(what));
    }

    /// Why it is the client's own fault that it is refused, as the client is told.
    pub fn reason(&mut self, why: &str) {
        self.0.reason = Some(cut(why));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let now = self.0.sink.clock.in_turn();
        let (status, outcome) = self.verdict();
        self.0.outcome = outcome;
        let took = now.since(self.0.arrived);
        self.0.meter.answered(self.0.operation, status, self.0.outcome, took);
        if let Some(queued) = self.0.queued {
            self.0.meter.queued(queued);
        }
        if !self.0.quiet {
            self.0.sink.access.write(|into| self.write_line(into, status, took));
        }
    }
}

impl Record {
    /// The status that is logged and counted, what the client got or why it got nothing, and how the exchange ended (H4).
    fn verdict(&self) -> (u16, Option<Outcome>) {
        let outcome = self.0.outcome;
        match self.0.status {
            _ if std::thread::panicking() => (PANICKED, outcome),
            Some(status) if !self.0.relaying || outcome.is_some() => (status, outcome),
            Some(CLIENT_LEFT) => (CLIENT_LEFT, None),
            told if self.0.sink.cuts.load(Ordering::Relaxed) => {
                (told.unwrap_or(STOPPED), Some(Outcome::Stopped))
            }
            _ => (CLIENT_LEFT, None),
        }
    }

    /// A line of the access log. No text of a prompt or an answer, no header but the request's id and one that the request
    /// is refused for.
    fn write_line(&self, into: &mut Vec<u8>, status: u16, took: Duration) {
        let mut line = Object::begin(into);
        line.moment(key!("time"), self.0.wall);
        line.text(key!("request_id"), &self.0.request_id);
        if let Some(client) = self.0.client {
            line.address(key!("client"), client);
        }
        // A token, as a replica's name is one word: neither has anything to escape.
        line.word(key!("method"), shown(self.0.method.as_str()));
        line.text(key!("path"), &self.0.path);
        if !self.0.model.is_empty() {
            line.text(key!("model"), &self.0.model);
        }
        let deployment = self.0.meter.name();
        if !deployment.is_empty() && deployment.as_bytes() != &*self.0.model {
            line.text(key!("deployment"), shown(deployment));
        }
        line.truth(key!("stream"), self.0.stream);
        if self.0.priority != Priority::default() {
            line.word(key!("priority"), self.0.priority.as_str());
        }
        line.number(key!("status"), status.into());
        if let Some(replica) = &self.0.replica {
            line.word(key!("replica"), replica);
        }
        if let Some(route) = self.0.route {
            line.word(key!("route"), route.as_str());
        }
        if let Some(refusal) = self.0.refusal {
            line.word(key!("refusal"), refusal.as_str());
        }
        line.number(key!("attempts"), self.0.attempts.into());
        line.number(key!("bytes_in"), self.0.bytes_in);
        line.number(key!("bytes_out"), self.0.bytes_out);
        self.write_times(&mut line, took);
        if let Some(outcome) = self.0.outcome {
            line.word(key!("outcome"), outcome.as_str());
        }
        if let Some(trouble) = &self.0.trouble {
            line.text(key!("trouble"), trouble);
        }
        if let Some(reason) = &self.0.reason {
            line.text(key!("reason"), reason);
        }
        line.end();
    }

    fn write_times(&self, line: &mut Object<'_>, took: Duration) {
        if let Some(queued) = self.0.queued {
            line.millis(key!("queued_ms"), queued);
        }
        if let Some(first) = self.0.first_byte {
            line.millis(key!("first_byte_ms"), first.since(self.0.arrived));
        }
        line.millis(key!("total_ms"), took);
        let usage = self.0.usage.unwrap_or_default();
        let tokens = [
            (key!("prompt_tokens"), usage.prompt),
            (key!("cached_tokens"), usage.cached),
            (key!("completion_tokens"), usage.completion),
        ];
        for (name, count) in tokens {
            if let Some(count) = count {
                line.number(name, count);
            }
        }
    }
}

/// At most [`TEXT_MAX`] bytes of `text`, cut between characters.
fn shown(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}

/// [`shown`], to keep.
fn cut(text: &str) -> Shown {
    SmallVec::from_slice(shown(text).as_bytes())
}

#[cfg(test)]
mod tests;
