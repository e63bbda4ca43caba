//! How commands ask a running gateway on its admin port: one request, bounded in time and size.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_shared::names::header;
use tidegate_shared::time::Duration;

use crate::config::{BaseUrl, Config};
use crate::once::{NoAnswer, Place, ask};
use crate::upstream::dial::Site;

use super::style::clean;
use super::{CliError, USUAL_FILE, check};

/// Which gateway a command asks.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// Where the gateway's admin port is; unless given, where the configuration says.
    #[arg(long, value_name = "URL", value_parser = admin_url)]
    admin: Option<BaseUrl>,
    /// The gateway's configuration file [default: tidegate.toml, where there is one].
    #[arg(short, long, value_name = "PATH", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// Print the JSON that the gateway gave.
    #[arg(long)]
    pub(super) json: bool,
}

impl AdminArgs {
    /// Where the admin port is: as given, else by the configuration, else the usual place.
    pub(super) fn url(&self) -> Result<BaseUrl, CliError> {
        if let Some(url) = &self.admin {
            return Ok(url.clone());
        }
        let usual = Path::new(USUAL_FILE);
        let path = self.config.as_deref().or_else(|| usual.exists().then_some(usual));
        let address = path.map_or(Ok(Config::USUAL_ADMIN), check::admin_of)?;
        if address.port() == 0 {
            let file = path.unwrap_or(usual).display().to_string();
            return Err(AdminError::AnyPort { file: clean(&file), address }.into());
        }
        Ok(admin_url(&address.to_string()).map_err(|rule| AdminError::Answer(format!("{address} {rule}")))?)
    }
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
        "no gateway answers at {url}: {why}\nIs `tidegate serve` running? Give its configuration with --config PATH, or \
         its admin port with --admin URL."
    )]
    Unreachable { url: BaseUrl, why: String },
    #[error("{url} is not the admin port of a gateway: {why}")]
    Foreign { url: BaseUrl, why: String },
    /// Requests are served there, and nothing of what was asked.
    #[error(
        "{url} is where a gateway takes requests, and not its admin port\nThat one is `admin` in its configuration, {} \
         unless set: give the file with --config PATH, or the port with --admin URL.",
        Config::USUAL_ADMIN
    )]
    RequestPort { url: BaseUrl },
    #[error(
        "`admin` in {file} is {address}, so the gateway chose a port\nIts first line of log names it: give it with \
         --admin URL."
    )]
    AnyPort { file: String, address: SocketAddr },
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
        NoAnswer::Broken(why) | NoAnswer::NotNow(why) => AdminError::foreign(url, why),
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
    // Only what serves requests gives them ids.
    if answer.headers().contains_key(header::REQUEST_ID) {
        return Err(AdminError::RequestPort { url: url.clone() });
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
