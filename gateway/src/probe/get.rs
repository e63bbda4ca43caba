//! One GET over a connection of its own, made exactly as those of requests are (C-115).
//!
//! Reads a whole answer of bounded size; what it means is for the caller.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;

use crate::endpoint::Endpoint;
use crate::upstream::dial::NoConnection;
use crate::upstream::wire::{Protocol, Wire};
use crate::upstream::{chain, protocol_error};

/// Largest answer that is read, in bytes.
const LARGEST: usize = 8 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, Error)]
#[error("{why}")]
pub struct NoAnswer {
    /// A sentence on what went wrong, without the address.
    pub why: String,
    /// Nothing went wrong but the time: a busy server may answer late.
    pub slow: bool,
}

impl From<String> for NoAnswer {
    fn from(why: String) -> Self {
        Self { why, slow: false }
    }
}

impl From<NoConnection> for NoAnswer {
    fn from(none: NoConnection) -> Self {
        Self { why: format!("cannot connect: {none}"), slow: none.slow }
    }
}

/// Asks for `path`, after the replica's own prefix, and reads the whole answer, within `limit`.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn get(endpoint: &Endpoint, path: &str, limit: Duration) -> Result<(StatusCode, Bytes), NoAnswer> {
    tokio::time::timeout(limit, ask(endpoint, path)).await.unwrap_or_else(|_| {
        let why = format!("{path} does not answer within {} s", limit.as_secs_f64());
        Err(NoAnswer { why, slow: true })
    })
}

async fn ask(endpoint: &Endpoint, path: &str) -> Result<(StatusCode, Bytes), NoAnswer> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = endpoint.target(path, None).ok_or_else(|| format!("{path} is no path"))?;
    let (wire, protocol) = endpoint.site().dial().await?;
    let answer = match protocol {
        Protocol::Http1 => {
            request.headers_mut().insert(HOST, endpoint.host());
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            over_http1(wire, request).await
        }
        Protocol::Http2 => {
            let target = endpoint.site().absolute(request.uri().path_and_query());
            *request.uri_mut() = target.ok_or_else(|| format!("{path} is no path"))?;
            over_http2(wire, request).await
        }
    };
    answer.map_err(|why| format!("{path}: {why}").into())
}

async fn over_http1(wire: Wire, request: Request<Empty<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let failed = |error| chain(&error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(failed)?;
    let answer = async { whole(sender.send_request(request).await.map_err(failed)?).await };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection may end first; the answer is complete then, or never will be.
        _ = &mut connection => answer.await,
    }
}

async fn over_http2(wire: Wire, request: Request<Empty<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let failed = |error: hyper::Error| protocol_error(&chain(&error));
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(wire)).await;
    let (mut sender, connection) = handshake.map_err(failed)?;
    let answer = async { whole(sender.send_request(request).await.map_err(failed)?).await };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    }
}

async fn whole(response: Response<Incoming>) -> Result<(StatusCode, Bytes), String> {
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
}
