//! Lines from the admin port, as they come. Sends one request and holds its connection: when it is dropped, the gateway
//! knows that nobody looks on.

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_shared::time::Duration;

use crate::cli::admin::{AdminError, granted};
use crate::config::BaseUrl;
use crate::upstream::chain;
use crate::upstream::dial::Site;

/// How long the gateway may take to accept the connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line, in bytes.
const LONGEST: usize = 1 << 20;

/// See the module.
pub(super) struct Feed {
    body: Incoming,
    read: BytesMut,
    url: BaseUrl,
}

impl Feed {
    /// Posts `body` to `path`.
    ///
    /// # Errors
    /// Nobody is there, or the gateway says what is wrong.
    pub(super) async fn open(url: &BaseUrl, path: &str, body: String) -> Result<Self, AdminError> {
        let foreign = |error: hyper::Error| AdminError::foreign(url, chain(&error));
        let site = Site::plain(url, PATIENCE);
        let dialled = site.dial().await;
        let (wire, _) =
            dialled.map_err(|none| AdminError::Unreachable { url: url.clone(), why: none.why })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(foreign)?;
        tokio::spawn(connection);
        let request = Request::post(format!("{}{path}", url.prefix()))
            .header(HOST, site.authority().as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| AdminError::foreign(url, error))?;
        let answer = sender.send_request(request).await.map_err(foreign)?;
        if answer.status().is_success() {
            return Ok(Self { body: answer.into_body(), read: BytesMut::new(), url: url.clone() });
        }
        let (head, body) = answer.into_parts();
        let body =
            Limited::new(body, LONGEST).collect().await.map_err(|error| AdminError::foreign(url, error))?;
        let refused = granted(url, &format!("POST {path}"), Response::from_parts(head, body.to_bytes()));
        Err(refused.err().unwrap_or_else(|| AdminError::foreign(url, "no refusal")))
    }

    /// The next line, without its end; `None` after the last.
    ///
    /// # Errors
    /// The connection broke, or what comes are no lines.
    pub(super) async fn line(&mut self) -> Result<Option<Bytes>, AdminError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1).freeze();
                return Ok(Some(line.slice(..end)));
            }
            if self.read.len() > LONGEST {
                return Err(AdminError::foreign(&self.url, "a line has no end"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.read.extend_from_slice(&frame.into_data().unwrap_or_default()),
                // The gateway is gone, which says as much as an end.
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
