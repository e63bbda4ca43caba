//! One request at a time over a connection that is kept, made exactly as those of traffic are (C-115). Follows no redirect
//! and repeats nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::endpoint::Endpoint;
use crate::openai::Operation;
use crate::upstream::chain;
use crate::upstream::wire::Protocol;

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A connection to one replica, made when it is first needed.
pub(super) struct Connection {
    endpoint: Arc<Endpoint>,
    sender: Option<Sender>,
}

impl Connection {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Self {
        Self { endpoint: Arc::clone(endpoint), sender: None }
    }

    /// Sends a chat and gives the head of its answer. An answer must be read to its end before the next request, or the
    /// connection forgotten. A connection that has died since the last answer is no failure: engines close theirs.
    ///
    /// # Errors
    /// A sentence.
    pub(super) async fn send(&mut self, body: Bytes) -> Result<Response<Incoming>, String> {
        if let Some(mut kept) = self.sender.take()
            && let Ok(answer) = self.over(&mut kept, body.clone()).await
        {
            self.sender = Some(kept);
            return Ok(answer);
        }
        let mut sender = self.dial().await?;
        let answer = self.over(&mut sender, body).await?;
        self.sender = Some(sender);
        Ok(answer)
    }

    async fn over(&self, sender: &mut Sender, body: Bytes) -> Result<Response<Incoming>, String> {
        let target = self.endpoint.target(Operation::ChatCompletions, None).ok_or("its URL is too long")?;
        let mut request = Request::post(target)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = match sender {
            Sender::Http1(sender) => {
                request.headers_mut().insert(HOST, self.endpoint.host().clone());
                sender.ready().await.map_err(|error| chain(&error))?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                let absolute = self.endpoint.site().absolute(request.uri().path_and_query());
                *request.uri_mut() = absolute.ok_or("its URL is none")?;
                sender.ready().await.map_err(|error| chain(&error))?;
                sender.send_request(request).await
            }
        };
        answer.map_err(|error| chain(&error))
    }

    /// Whatever comes over this connection is not waited for.
    pub(super) fn forget(&mut self) {
        self.sender = None;
    }

    async fn dial(&self) -> Result<Sender, String> {
        let (wire, protocol) =
            self.endpoint.site().dial().await.map_err(|none| format!("cannot connect: {none}"))?;
        let failed = |error: hyper::Error| chain(&error);
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(failed)?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(wire)).await;
                let (sender, connection) = handshake.map_err(failed)?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        })
    }
}
