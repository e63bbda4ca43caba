//! How commands ask a running gateway on its admin port: one request, bounded in time and size.

use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_shared::time::Duration;

use crate::config::BaseUrl;
use crate::once::{NoAnswer, Place, ask};
use crate::upstream::dial::Site;

use super::style::clean;

/// Which gateway a command asks.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// Where the gateway's admin port is.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081", value_parser = admin_url)]
    pub(super) admin: BaseUrl,
    /// Print the JSON that the gateway gave.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn admin_url(text: &str) -> Result<BaseUrl, &'static str> {
    let url =
        if text.contains("://") { BaseUrl::parse(text) } else { BaseUrl::parse(&format!("http://{text}")) }?;
    if url.is_https() { Err("must be http://host:port: the admin side speaks no TLS") } else { Ok(url) }
}

/// Why there is no answer to show.
#[derive(Debug, Error)]
pub(super) enum AdminError {
    #[error(
        "no gateway answers at {url}: {why}\nIs `tidegate serve` running? Give its admin port with --admin URL."
    )]
    Unreachable { url: BaseUrl, why: String },
    #[error("{url} is not the admin port of a gateway: {why}")]
    Foreign { url: BaseUrl, why: String },
    /// The gateway says what is wrong with what was asked.
    #[error("{0}")]
    Answer(String),
}

impl AdminError {
    /// What answers at `url` is something else.
    pub(super) fn foreign(url: &BaseUrl, why: impl ToString) -> Self {
        Self::Foreign { url: url.clone(), why: why.to_string() }
    }
}

/// Sends `request`, whose target is a path, and gives the whole answer, whatever its status, within `patience`.
pub(super) fn exchange(
    url: &BaseUrl,
    request: Request<Full<Bytes>>,
    patience: Duration,
) -> Result<Response<Bytes>, AdminError> {
    let unreachable = |why: String| AdminError::Unreachable { url: url.clone(), why };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unreachable(error.to_string()))?;
    let site = Site::plain(url, patience);
    let place = Place { site: &site, prefix: url.prefix() };
    runtime.block_on(ask(place, request, patience)).map_err(|no| match no {
        NoAnswer::Broken(why) => AdminError::foreign(url, why),
        NoAnswer::Unreachable(why) => unreachable(why),
        no @ (NoAnswer::Slow(_) | NoAnswer::Late(_) | NoAnswer::Local(_)) => unreachable(no.to_string()),
    })
}

/// How long a change may take, the disk included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for a change, or with GET for what there is, and gives the body of the answer.
pub(super) fn change(url: &BaseUrl, method: Method, path: &str, body: String) -> Result<Bytes, AdminError> {
    let asked = format!("{method} {path}");
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::new(body.into())).map_err(|error| AdminError::foreign(url, error))?;
    granted(url, &asked, exchange(url, request, PATIENCE)?)
}

/// The body of an answer that is a success; else what the gateway says is wrong with `asked`.
pub(super) fn granted(url: &BaseUrl, asked: &str, answer: Response<Bytes>) -> Result<Bytes, AdminError> {
    #[derive(Deserialize)]
    struct Told {
        error: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        message: String,
    }
    if answer.status().is_success() {
        return Ok(answer.into_body());
    }
    Err(match serde_json::from_slice::<Told>(answer.body()) {
        Ok(told) => AdminError::Answer(clean(&told.error.message)),
        Err(_) => AdminError::foreign(url, format!("{asked} gave {}", answer.status())),
    })
}

/// The JSON of an answer.
pub(super) fn parse<T: DeserializeOwned>(url: &BaseUrl, answer: &[u8]) -> Result<T, AdminError> {
    serde_json::from_slice(answer)
        .map_err(|error| AdminError::foreign(url, format!("unexpected answer: {error}")))
}

/// The JSON of an answer as it came, once it is known to be some.
pub(super) fn verbatim(url: &BaseUrl, answer: &[u8]) -> Result<String, AdminError> {
    let _: serde::de::IgnoredAny = parse(url, answer)?;
    let mut text = String::from_utf8_lossy(answer).trim_end().to_owned();
    text.push('\n');
    Ok(text)
}
