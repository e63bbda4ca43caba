//! One HTTP request to a service on this machine or near it, over a connection of its own: a Unix socket or TCP in the
//! clear. Bounded in time and size.
//!
//! Says of each failure whether the request may have been carried out. Follows no redirect and retries nothing.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

/// Where a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host and a port, reached in the clear.
    Tcp {
        /// Name or address; an IPv6 address without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
        }
    }
}

/// What bounds a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// From the connection to the last byte of the answer.
    pub(super) time: Duration,
    /// Largest answer, in bytes.
    pub(super) size: usize,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NoAnswer {
    /// Nobody was asked: nothing has been done.
    #[error("{0}")]
    NotAsked(String),
    /// The request may have arrived: whether it was carried out is not known.
    #[error("{0}")]
    Lost(String),
}

/// Sends `request`, whose target is a path, and reads the whole answer.
pub(super) async fn ask(
    site: &Site,
    mut request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let host = match site {
        Site::Unix(_) => HeaderValue::from_static("localhost"),
        Site::Tcp { host, port } => HeaderValue::try_from(format!("{host}:{port}"))
            .map_err(|_| NoAnswer::NotAsked(format!("{host:?} is no host")))?,
    };
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let end = Instant::now() + bounds.time;
    let unreachable = |why: String| NoAnswer::NotAsked(format!("cannot connect to {site}: {why}"));
    let late = |_| unreachable(format!("not within {:?}", bounds.time));
    let answer = match site {
        Site::Unix(path) => {
            let connected = timeout_at(end, UnixStream::connect(path)).await.map_err(late)?;
            let stream = connected.map_err(|error| unreachable(error.to_string()))?;
            timeout_at(end, exchange(stream, request, bounds.size)).await
        }
        Site::Tcp { host, port } => {
            let connected =
                timeout_at(end, TcpStream::connect((host.as_str(), *port))).await.map_err(late)?;
            let stream = connected.map_err(|error| unreachable(error.to_string()))?;
            timeout_at(end, exchange(stream, request, bounds.size)).await
        }
    };
    let lost = |why: String| NoAnswer::Lost(format!("{site} did not answer: {why}"));
    answer.unwrap_or_else(|_| Err(format!("not within {:?}", bounds.time))).map_err(lost)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
    largest: usize,
) -> Result<(StatusCode, Bytes), String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, largest).collect().await.map_err(|error| error.to_string())?;
        Ok((head.status, body.to_bytes()))
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection may end first; the answer is complete then, or never will be.
        _ = &mut connection => answer.await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), size: 8 };

    /// Asks somebody who reads the request, says `said`, and hangs up.
    async fn told(said: &'static str) -> Result<(StatusCode, Bytes), NoAnswer> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(said.as_bytes()).await.unwrap();
            String::from_utf8(seen).unwrap()
        };
        let site = Site::Tcp { host: "127.0.0.1".to_owned(), port };
        let request = Request::get("/x?y=1").body(Full::default()).unwrap();
        let (seen, answer) = tokio::join!(service, ask(&site, request, BOUNDS));
        assert!(seen.starts_with("GET /x?y=1 HTTP/1.1\r\n"), "{seen}");
        answer
    }

    #[tokio::test]
    async fn an_answer_is_read_whole_and_within_its_bound() {
        let answer = told("HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nwho").await;
        assert_eq!(answer, Ok((StatusCode::NOT_FOUND, Bytes::from_static(b"who"))));
        let answer = told("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfar too l").await;
        assert!(matches!(&answer, Err(NoAnswer::Lost(why)) if why.contains("length limit")), "{answer:?}");
    }

    #[tokio::test]
    async fn who_was_not_asked_differs_from_who_did_not_answer() {
        let cut = told("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nw").await;
        assert!(matches!(cut, Err(NoAnswer::Lost(_))), "{cut:?}");
        let site = Site::Unix(PathBuf::from("/nonexistent/service.sock"));
        let none = ask(&site, Request::new(Full::default()), BOUNDS).await.unwrap_err();
        let NoAnswer::NotAsked(why) = none else { panic!("{none:?}") };
        assert!(why.contains("unix:/nonexistent/service.sock: No such file"), "{why}");
    }
}
