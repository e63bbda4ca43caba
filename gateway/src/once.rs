//! One request over a connection of its own, bounded in time and size: for probes, and for commands that ask a
//! running gateway. Follows no redirect and retries nothing.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::config::BaseUrl;
use crate::endpoint::Endpoint;
use crate::local::is_local;
use crate::upstream::chain;

/// Largest answer that is read.
const LARGEST: usize = 16 << 20;

/// Where to ask.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Host name or address.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Path before the API's own, without a trailing slash.
    pub prefix: &'a str,
    /// Host and port as the `host` header says them.
    pub authority: &'a str,
}

impl<'a> From<&'a BaseUrl> for Place<'a> {
    fn from(url: &'a BaseUrl) -> Self {
        let authority = url.authority().as_str();
        Self { host: url.host(), port: url.port(), prefix: url.prefix(), authority }
    }
}

impl<'a> From<&'a Endpoint> for Place<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        endpoint.base().into()
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
    #[error("{path} does not answer within {} s", limit.as_secs_f64())]
    Slow {
        /// What was asked for.
        path: String,
        /// How long.
        limit: Duration,
    },
    /// What came is no answer, or not one that is wanted.
    #[error("{0}")]
    Broken(String),
}

impl From<String> for NoAnswer {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

/// Asks for `path` and reads the whole answer, within `limit`.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn get(place: Place<'_>, path: &str, limit: Duration) -> Result<(StatusCode, Bytes), NoAnswer> {
    let target = format!("{}{path}", place.prefix);
    let request = Request::get(target).header(CONNECTION, HeaderValue::from_static("close"));
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| format!("{path} is no path"))?;
    let slow = |_| NoAnswer::Slow { path: path.to_owned(), limit };
    let response = tokio::time::timeout(limit, exchange(place, request)).await.map_err(slow)?;
    let response = response.map_err(|error| match error {
        NoAnswer::Broken(why) => NoAnswer::Broken(format!("{path}: {why}")),
        other => other,
    })?;
    Ok((response.status(), response.into_body()))
}

/// Sends `request` with its `host` header and reads the whole answer; however long that takes.
///
/// # Errors
/// [`NoAnswer::Unreachable`], [`NoAnswer::Local`] and [`NoAnswer::Broken`].
pub async fn exchange<B>(place: Place<'_>, mut request: Request<B>) -> Result<Response<Bytes>, NoAnswer>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + 'static,
{
    let broken = |error: &dyn std::error::Error| NoAnswer::Broken(chain(error));
    let stream = TcpStream::connect((place.host, place.port)).await;
    let stream = stream.map_err(|error| match is_local(&error) {
        true => NoAnswer::Local(error.to_string()),
        false => NoAnswer::Unreachable(error.to_string()),
    })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let host = HeaderValue::try_from(place.authority);
    request.headers_mut().insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LARGEST).collect().await;
        let body = body.map_err(|error| NoAnswer::Broken(error.to_string()))?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection may end first; the answer is complete then, or never will be.
        _ = &mut connection => answer.await,
    }
}
