//! One GET over a connection of its own: for probes, and for the command line that asks the admin side.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::endpoint::Endpoint;
use crate::upstream::chain;

/// Largest answer that is read.
const LARGEST: usize = 8 << 20;

/// Where to ask.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Host name or address.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Path before the API's own, without a trailing slash.
    pub prefix: &'a str,
}

impl<'a> From<&'a Endpoint> for Place<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        let (host, port) = endpoint.address();
        Self { host, port, prefix: endpoint.prefix() }
    }
}

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

/// Asks for `path` and reads the whole answer, within `limit`.
///
/// # Errors
/// See [`NoAnswer`].
pub async fn get(place: Place<'_>, path: &str, limit: Duration) -> Result<(StatusCode, Bytes), NoAnswer> {
    match tokio::time::timeout(limit, ask(place, path)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let why = format!("{path} does not answer within {} s", limit.as_secs_f64());
            Err(NoAnswer { why, slow: true })
        }
    }
}

async fn ask(place: Place<'_>, path: &str) -> Result<(StatusCode, Bytes), String> {
    let failed = |error: &dyn std::error::Error| format!("{path}: {}", chain(error));
    let stream = TcpStream::connect((place.host, place.port))
        .await
        .map_err(|error| format!("cannot connect: {error}"))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() =
        format!("{}{path}", place.prefix).parse().map_err(|_| format!("{path} is no path"))?;
    let host = HeaderValue::try_from(format!("{}:{}", place.host, place.port));
    request.headers_mut().insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| format!("{path}: {error}"))?.to_bytes();
        Ok((status, body))
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection may end first; the answer is complete then, or never will be.
        _ = &mut connection => answer.await,
    }
}
