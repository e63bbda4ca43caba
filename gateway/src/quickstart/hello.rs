//! The first chat: a client like any other, over the gateway's own socket, so that a person sees the whole way work.
//! Sends one request; retries nothing.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::TcpStream;

use super::MODEL;

/// What is asked.
pub(super) const QUESTION: &str = "What is a tide? Answer in one sentence.";

/// Largest answer that is read, in bytes; `max_tokens` below keeps it far smaller.
const LARGEST: usize = 1 << 20;

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
        why: io::Error,
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
    let broken = |why: hyper::Error| HelloError::Broken { why: why.to_string() };
    let stream = TcpStream::connect(address).await.map_err(|why| HelloError::Connect { address, why })?;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async {
        let response = client.send_request(question(address)?).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LARGEST).collect().await;
        let body = body.map_err(|why| HelloError::Broken { why: why.to_string() })?.to_bytes();
        read(head.status, &head.headers, &body)
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection may end together with the answer.
        _ = &mut connection => exchange.await,
    }
}

fn question(address: SocketAddr) -> Result<Request<Full<Bytes>>, HelloError> {
    let body = serde_json::json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 64,
        "temperature": 0,
    });
    Request::post("/v1/chat/completions")
        .header("host", address.to_string())
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
