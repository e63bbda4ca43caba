//! One request over a connection of its own, bounded in time and size: for probes, and for commands that ask a running
//! gateway. The connection is made exactly as those of requests are (C-115). Follows no redirect and retries nothing.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;

use crate::endpoint::Endpoint;
use crate::upstream::dial::{Fault, NoConnection, Site};
use crate::upstream::wire::{Protocol, Wire};
use crate::upstream::{chain, protocol_error};

/// Largest answer that is read, in bytes.
const LARGEST: usize = 16 << 20;

/// Where to ask.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Where that is on the network, and how to get there.
    pub site: &'a Site,
    /// Path before the API's own, without a trailing slash.
    pub prefix: &'a str,
}

impl<'a> From<&'a Endpoint> for Place<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        Self { site: endpoint.site(), prefix: endpoint.prefix() }
    }
}

/// Why there is no answer, as a sentence without the address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// Nobody listens there, or nobody can be reached.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// This machine has no descriptor or no port left; nobody was asked.
    #[error("cannot connect from here: {0}")]
    Local(String),
    /// Nothing went wrong but the time: a busy server may answer late.
    #[error("{0}")]
    Slow(String),
    /// No connection was made in time: a busy server may take one late.
    #[error("cannot connect: {0}")]
    Late(String),
    /// It answers that it takes no requests now (503).
    #[error("{0}")]
    NotNow(String),
    /// What came is no answer, or not one that is wanted.
    #[error("{0}")]
    Broken(String),
}

impl From<String> for NoAnswer {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

impl From<NoConnection> for NoAnswer {
    fn from(none: NoConnection) -> Self {
        match none.fault {
            Fault::Local => Self::Local(none.why),
            Fault::Slow => Self::Late(none.why),
            Fault::Refused | Fault::Other => Self::Unreachable(none.why),
        }
    }
}

/// Asks for `path`, after the place's own prefix, and reads the whole answer, within `limit`.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn get(place: Place<'_>, path: &str, limit: Duration) -> Result<(StatusCode, Bytes), NoAnswer> {
    let request = Request::get(path).body(Empty::<Bytes>::new()).map_err(|_| format!("{path} is no path"))?;
    let response = ask(place, request, limit).await?;
    Ok((response.status(), response.into_body()))
}

/// Sends `request`, whose target is a path, after the place's own prefix, and reads the whole answer, within `limit`.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn ask<B>(
    place: Place<'_>,
    mut request: Request<B>,
    limit: Duration,
) -> Result<Response<Bytes>, NoAnswer>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
{
    let path = request.uri().to_string();
    let target = format!("{}{path}", place.prefix).parse();
    *request.uri_mut() = target.map_err(|_| format!("{path} is no path"))?;
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let slow = |_| NoAnswer::Slow(format!("{path} does not answer within {} s", limit.as_secs_f64()));
    let response = tokio::time::timeout(limit, exchange(place.site, request)).await.map_err(slow)?;
    response.map_err(|error| match error {
        NoAnswer::Broken(why) => NoAnswer::Broken(format!("{path}: {why}")),
        other => other,
    })
}

/// Sends `request`, whose target is a path, and reads the whole answer; however long that takes. What names the host is
/// added.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn exchange<B>(site: &Site, mut request: Request<B>) -> Result<Response<Bytes>, NoAnswer>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
{
    let (wire, protocol) = site.dial().await?;
    let answer = match protocol {
        Protocol::Http1 => {
            let host = HeaderValue::from_str(site.authority().as_str());
            request.headers_mut().insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
            over_http1(wire, request).await
        }
        Protocol::Http2 => {
            let target = site.absolute(request.uri().path_and_query());
            *request.uri_mut() = target.ok_or_else(|| format!("{} is no path", request.uri()))?;
            request.headers_mut().remove(CONNECTION);
            over_http2(wire, request).await
        }
    };
    answer.map_err(NoAnswer::Broken)
}

async fn over_http1<B>(wire: Wire, request: Request<B>) -> Result<Response<Bytes>, String>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + 'static,
{
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

async fn over_http2<B>(wire: Wire, request: Request<B>) -> Result<Response<Bytes>, String>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
{
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

async fn whole(response: Response<Incoming>) -> Result<Response<Bytes>, String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| error.to_string())?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
