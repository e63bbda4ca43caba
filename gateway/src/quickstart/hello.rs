//! The first chat: a client like any other, over the gateway's own socket, so that a person sees the whole way work.
//! Sends one request; retries nothing.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use thiserror::Error;

use super::MODEL;
use crate::config::BaseUrl;
use crate::once::{NoAnswer, exchange};
use crate::upstream::dial::Site;

/// What is asked.
pub(super) const QUESTION: &str = "What is a tide? Answer in one sentence.";

/// How long the connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was asked.
    pub question: &'static str,
    /// The model's words.
    pub text: String,
    /// `x-tidegate-replica`, empty if it is not there (H5).
    pub replica: String,
    /// `x-tidegate-route`, empty if it is not there (H5).
    pub route: String,
}

/// Why there was no answer.
#[derive(Debug, Error)]
pub enum HelloError {
    /// The gateway does not listen there.
    #[error("the first chat cannot reach {address}: {why}")]
    Connect {
        /// The gateway.
        address: SocketAddr,
        /// The system's answer.
        why: String,
    },
    /// The request or its answer broke off.
    #[error("the first chat broke off: {why}")]
    Broken {
        /// What the connection said.
        why: String,
    },
    /// An answer other than a chat completion.
    #[error("the first chat was answered {status}: {body}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The body, as it came.
        body: String,
    },
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: String,
}

/// Asks the model one question through the gateway at `address` and waits for the whole answer, a cold start included;
/// the gateway's own limits bound that. At most 64 tokens come back.
///
/// # Errors
/// [`HelloError`]: no connection, a connection that broke, or another answer than a chat completion.
pub async fn hello(address: SocketAddr) -> Result<Answer, HelloError> {
    let url = BaseUrl::parse(&format!("http://{address}"));
    let url = url.map_err(|rule| HelloError::Connect { address, why: format!("its URL {rule}") })?;
    let response = exchange(&Site::plain(&url, CONNECT), question()?).await.map_err(|no| match no {
        NoAnswer::Unreachable(why) => HelloError::Connect { address, why },
        no => HelloError::Broken { why: no.to_string() },
    })?;
    read(response.status(), response.headers(), response.body())
}

fn question() -> Result<Request<Full<Bytes>>, HelloError> {
    let body = serde_json::json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 64,
        "temperature": 0,
    });
    Request::post("/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|why| HelloError::Broken { why: why.to_string() })
}

fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<Answer, HelloError> {
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let content = serde_json::from_slice::<Completion>(body)
        .ok()
        .filter(|_| status.is_success())
        .and_then(|completion| Some(completion.choices.into_iter().next()?.message.content));
    match content {
        Some(text) => Ok(Answer {
            question: QUESTION,
            text: text.trim().to_owned(),
            replica: header("x-tidegate-replica"),
            route: header("x-tidegate-route"),
        }),
        None => Err(HelloError::Refused { status, body: String::from_utf8_lossy(body).into_owned() }),
    }
}
