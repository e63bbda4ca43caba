//! What a stub answers, step by step, at the level of bytes.
//!
//! A script decides nothing when it runs; the test that wrote it opens the gates.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;

/// One step of a [`Script`].
#[derive(Clone, Debug)]
pub enum Step {
    /// These bytes go out.
    Send(Bytes),
    /// Nothing goes out until the gate lets one pass.
    Wait(Gate),
    /// Nothing more goes out; ends when the peer leaves.
    Stall,
    /// The connection is closed in the usual way.
    Close,
    /// The connection is reset.
    Reset,
}

/// An answer. When its steps are done, the connection takes the next request.
#[derive(Clone, Debug, Default)]
pub struct Script {
    steps: Vec<Step>,
}

impl Script {
    /// No answer yet: steps are to be added.
    pub fn new() -> Self {
        Self::default()
    }

    /// A whole answer with a `Content-Length`. `headers` are lines without their ends.
    pub fn answer(status: u16, headers: &[&str], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n", body.len());
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        Self::new().raw([head.as_bytes(), body].concat())
    }

    /// A whole JSON answer.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::answer(status, &["content-type: application/json"], body.to_string())
    }

    /// The head of a chunked event stream; [`Script::event`] and [`Script::end`] go on.
    pub fn sse() -> Self {
        Self::new()
            .raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    /// Bytes as they are, outside any framing.
    pub fn raw(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    /// One chunk with these bytes in it.
    pub fn chunk(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let size = format!("{:x}\r\n", bytes.len());
        self.raw([size.as_bytes(), bytes, b"\r\n"].concat())
    }

    /// One event with this data, as one chunk.
    pub fn event(self, data: &str) -> Self {
        self.chunk(format!("data: {data}\n\n"))
    }

    /// The last chunk.
    pub fn end(self) -> Self {
        self.raw("0\r\n\r\n")
    }

    /// The event `[DONE]` and the last chunk.
    pub fn done(self) -> Self {
        self.event("[DONE]").end()
    }

    /// Waits for the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    /// Sends nothing more.
    pub fn stall(self) -> Self {
        self.step(Step::Stall)
    }

    /// Closes the connection.
    pub fn close(self) -> Self {
        self.step(Step::Close)
    }

    /// Resets the connection.
    pub fn reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// These steps first, then those of `next`.
    pub fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// A gate between two steps: each pass lets one waiting script, or the next to come, go on.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets one pass.
    pub fn pass(&self) {
        self.0.add_permits(1);
    }

    /// Lets everything pass from now on.
    pub fn open(&self) {
        self.0.close();
    }

    /// Waits to pass.
    pub async fn passed(&self) {
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}
