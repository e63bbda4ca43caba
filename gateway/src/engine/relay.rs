//! An answer on its way to the client: streamed event by event, or awaited as a whole.
//!
//! Decides where the faults of the request strike. Never buffers: it holds how far the client has been told,
//! and the text follows from that. Dropping it takes the request out of the engine.

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tidegate_sim::engine::Finish;

use super::driver::{End, Ticket};
use super::faults::Misdeed;
use super::openai::Generation;
use super::reply::{self, Body, Cut, Envelope, Failure};

/// Tokens that one frame carries at most, so that a client who comes back late gets its backlog in pieces.
const FRAME_TOKENS: u32 = 64;

/// Waits for the end of a request. Faults strike before the head.
///
/// # Errors
/// The inner one is to be answered, the outer one cuts the connection.
pub(super) async fn whole(
    mut ticket: Ticket,
    misdeed: Option<(u32, Misdeed)>,
) -> Result<Result<End, Failure>, Cut> {
    if let Some((after, misdeed)) = misdeed {
        let reached = match after.checked_sub(1) {
            Some(before) => ticket.beyond(before).await.is_some_and(|progress| progress.tokens >= after),
            None => true,
        };
        match misdeed {
            _ if !reached => {}
            Misdeed::Stall => return std::future::pending().await,
            Misdeed::Die(_) => return Err(Cut),
            Misdeed::Fail => return Ok(Err(commanded())),
        }
    }
    Ok(ticket.end().await.ok_or_else(stopped))
}

fn commanded() -> Failure {
    Failure::broken("Failed by the fault \"error_after_tokens\"")
}

fn stopped() -> Failure {
    Failure::broken("The engine has stopped")
}

/// An answer being streamed.
#[derive(Debug)]
struct Relay {
    ask: Box<Generation>,
    envelope: Envelope,
    /// What stands in each event before and after the text of the token.
    around: (String, String),
    ticket: Ticket,
    misdeed: Option<(u32, Misdeed)>,
    sent: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    Going,
    /// The next frame is the last: cut here.
    Cutting,
    Done,
}

/// Streams an answer. Its head goes out with the first token, so that until then an error has a status.
///
/// # Errors
/// The inner one is to be answered, the outer one cuts the connection.
pub(super) async fn streamed(
    ask: Box<Generation>,
    model: &str,
    mut ticket: Ticket,
    misdeed: Option<(u32, Misdeed)>,
) -> Result<Result<Response<Body>, Failure>, Cut> {
    match misdeed {
        Some((0, Misdeed::Stall)) => {
            let _held = ticket;
            return std::future::pending().await;
        }
        Some((0, Misdeed::Die(_))) => return Err(Cut),
        _ => {}
    }
    if ticket.beyond(0).await.is_none() {
        return Ok(Err(stopped()));
    }
    let envelope = Envelope::new(&ask, ticket.id(), model);
    let around = around(&ask, &envelope);
    let relay = Relay { ask, envelope, around, ticket, misdeed, sent: 0, state: State::Opening };
    let frames =
        stream::unfold(relay, |mut relay| async move { relay.next().await.map(|frame| (frame, relay)) });
    let body = StreamBody::new(frames).boxed();
    Ok(Ok(reply::with_body(StatusCode::OK, "text/event-stream; charset=utf-8", body)))
}

/// Splits the event of a token around its text.
fn around(ask: &Generation, envelope: &Envelope) -> (String, String) {
    // No JSON text holds a control character, so this one marks the place and nothing else.
    const MARK: &str = "\\u0000";
    let token = "\0";
    let choice = if ask.chat {
        json!({"index": 0, "delta": {"content": token}, "logprobs": null, "finish_reason": null})
    } else {
        json!({"index": 0, "text": token, "logprobs": null, "finish_reason": null})
    };
    let event = event(&chunk(ask, envelope, &json!([choice])));
    let (before, after) = event.split_once(MARK).unwrap_or((&event, ""));
    (before.to_owned(), after.to_owned())
}

/// A chunk that carries no figures; where the client asked for usage, it says `null`, as OpenAI does.
fn chunk(ask: &Generation, envelope: &Envelope, choices: &Value) -> Value {
    envelope.object(choices, ask.include_usage.then_some(&Value::Null))
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

impl Relay {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, Cut>> {
        match self.state {
            State::Done => return None,
            State::Cutting => return self.cut().await,
            State::Opening | State::Going => {}
        }
        let misdeed = self.misdeed.filter(|(after, _)| *after <= self.sent);
        if let Some((_, misdeed)) = misdeed {
            return self.misbehave(misdeed).await;
        }
        let Some(progress) = self.ticket.beyond(self.sent).await else {
            self.state = State::Done;
            return Some(Err(Cut));
        };
        let mut out = String::new();
        if self.state == State::Opening {
            self.open(&mut out);
        }
        let strikes = self.misdeed.map_or(u32::MAX, |(after, _)| after);
        let until = progress.tokens.min(self.sent.saturating_add(FRAME_TOKENS)).min(strikes);
        while self.sent < until {
            self.sent += 1;
            self.token(&mut out, self.sent);
        }
        if let Some(finish) = progress.finish.filter(|_| self.sent == progress.tokens && self.sent < strikes)
        {
            self.close(&mut out, finish, progress.cached_tokens);
            self.state = State::Done;
        }
        Some(Ok(Frame::data(Bytes::from(out))))
    }

    fn open(&mut self, out: &mut String) {
        self.state = State::Going;
        if self.ask.chat {
            let delta = json!({"role": "assistant", "content": "", "refusal": null});
            let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]);
            out.push_str(&event(&chunk(&self.ask, &self.envelope, &choice)));
        }
    }

    fn token(&self, out: &mut String, n: u32) {
        out.push_str(&self.around.0);
        out.push_str(self.ask.answer.token(n));
        out.push_str(&self.around.1);
    }

    fn close(&self, out: &mut String, finish: Finish, cached_tokens: u32) {
        let reason = reply::finish_reason(finish);
        let choice = if self.ask.chat {
            json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": reason}])
        } else {
            json!([{"index": 0, "text": "", "logprobs": null, "finish_reason": reason}])
        };
        out.push_str(&event(&chunk(&self.ask, &self.envelope, &choice)));
        if self.ask.include_usage {
            let usage = reply::usage(self.ask.request.prompt_tokens, self.sent, cached_tokens);
            out.push_str(&event(&self.envelope.object(&json!([]), Some(&usage))));
        }
        out.push_str("data: [DONE]\n\n");
    }

    async fn misbehave(&mut self, misdeed: Misdeed) -> Option<Result<Frame<Bytes>, Cut>> {
        match misdeed {
            Misdeed::Stall => std::future::pending().await,
            Misdeed::Die(false) => self.cut().await,
            Misdeed::Die(true) => {
                self.state = State::Cutting;
                Some(Ok(Frame::data(Bytes::from(self.around.0.clone()))))
            }
            Misdeed::Fail => {
                self.state = State::Done;
                Some(Ok(Frame::data(Bytes::from(event(&commanded().json())))))
            }
        }
    }

    /// Cuts the connection, after what was sent has had its chance to leave.
    async fn cut(&mut self) -> Option<Result<Frame<Bytes>, Cut>> {
        self.state = State::Done;
        tokio::task::yield_now().await;
        Some(Err(Cut))
    }
}
