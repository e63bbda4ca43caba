//! `tidegate route`: asks a running gateway where a request would go, in one line, or with `--explain` why. Sends the
//! request to the admin port only, never to a replica.

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use thiserror::Error;
use tidegate_shared::time::Duration;

use crate::admin::route::RouteAnswer;
use crate::config::BaseUrl;
use crate::openai::operation::PromptShape;
use crate::openai::{BodyKind, Operation};

use super::CliError;
use super::admin::{AdminArgs, exchange, granted, parse, verbatim};
use super::explain;
use super::style::Style;

/// How long the whole exchange may take; a body may be large.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate route --model chat \"What is a tide?\"
  tidegate route --explain request.json
  tidegate route --explain -H 'x-session-id: 7' - < request.json
  tidegate route --path /v1/embeddings --model embed \"some text\"";

/// Arguments of `tidegate route`.
#[derive(Debug, Args)]
pub(super) struct RouteArgs {
    /// Tell why, with every replica that comes into question.
    #[arg(long)]
    explain: bool,
    /// Ask about a small request for this model, made of TEXT.
    #[arg(short, long, value_name = "NAME")]
    model: Option<String>,
    /// The path that the request would be sent to.
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    path: String,
    /// A header that it would be sent with; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    #[command(flatten)]
    gateway: AdminArgs,
    /// The file with the request's body, `-` for standard input; with --model, the text to ask about.
    #[arg(value_name = "FILE|TEXT")]
    request: Option<PathBuf>,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    const RULE: &str = "must be a name and a value, such as 'x-session-id: 7'";
    let (name, value) = text.split_once(':').ok_or(RULE)?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| RULE)?;
    let value = HeaderValue::try_from(value.trim()).map_err(|_| RULE)?;
    Ok((name, value))
}

/// Why nothing can be told.
#[derive(Debug, Error)]
pub(super) enum RouteError {
    #[error("cannot read {}: {error}{hint}", .path.display())]
    Input { path: PathBuf, error: io::Error, hint: &'static str },
    #[error("{} is empty, and no request is", .0.display())]
    Empty(PathBuf),
    #[error("there is no request: give a file with its body, or --model NAME and a text")]
    Nothing,
    #[error("--path {0} is none that takes a text; give the body in a file")]
    NoText(String),
    #[error("--path {0}: must be a path, such as /v1/chat/completions")]
    NoPath(String),
}

/// Asks and shows.
pub(super) fn run(args: &RouteArgs) -> Result<(), CliError> {
    let url = &args.gateway.url()?;
    let answer = ask(url, args)?;
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let text = match (args.gateway.json, args.explain) {
        (true, _) => verbatim(url, &answer)?,
        (false, true) => explain::table(&parse::<RouteAnswer>(url, &answer)?, style),
        (false, false) => explain::line(&parse::<RouteAnswer>(url, &answer)?, style),
    };
    let mut out = stdout.lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The body of the answer to `POST /route`.
fn ask(url: &BaseUrl, args: &RouteArgs) -> Result<Bytes, CliError> {
    let body = body(args)?;
    let no_path = || RouteError::NoPath(args.path.clone());
    if !args.path.starts_with('/') {
        return Err(no_path().into());
    }
    let mut request =
        Request::post(format!("/route{}", args.path)).body(Full::new(body)).map_err(|_| no_path())?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().extend(args.headers.iter().cloned());
    Ok(granted(url, "POST /route", exchange(url, request, PATIENCE)?)?)
}

/// The body of the request that is asked about.
fn body(args: &RouteArgs) -> Result<Bytes, RouteError> {
    let stdin = io::stdin();
    let bytes = match (&args.request, &args.model) {
        (None, _) if stdin.is_terminal() => return Err(RouteError::Nothing),
        (Some(given), Some(_)) if given.as_os_str() != "-" => given.as_os_str().as_encoded_bytes().to_vec(),
        (Some(path), None) if path.as_os_str() != "-" => std::fs::read(path).map_err(|error| {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let hint = if missing { "\nA text to ask about needs --model NAME." } else { "" };
            RouteError::Input { path: path.clone(), error, hint }
        })?,
        (None | Some(_), _) => {
            let mut bytes = Vec::new();
            let read = stdin.lock().read_to_end(&mut bytes);
            let path = PathBuf::from("standard input");
            read.map_err(|error| RouteError::Input { path, error, hint: "" })?;
            bytes
        }
    };
    if bytes.is_empty() {
        return Err(match &args.request {
            Some(path) if args.model.is_none() && path.as_os_str() != "-" => RouteError::Empty(path.clone()),
            _ => RouteError::Nothing,
        });
    }
    let Some(model) = &args.model else { return Ok(bytes.into()) };
    let text = String::from_utf8_lossy(&bytes);
    let operation =
        Operation::from_path(&args.path).filter(|operation| operation.body() != BodyKind::Multipart);
    let operation = operation.ok_or_else(|| RouteError::NoText(args.path.clone()))?;
    Ok(small(operation, model, &text).to_string().into())
}

/// A small request for `model`.
fn small(operation: Operation, model: &str, text: &str) -> Value {
    let turns = operation.prompt_shape() == PromptShape::Turns && operation != Operation::Responses;
    let prompt = if turns { json!([{"role": "user", "content": text}]) } else { Value::from(text) };
    json!({ "model": model, operation.prompt_field(): prompt })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_curl_does() {
        let (name, value) = header("X-Session-Id:  7 ").expect("a header");
        assert_eq!((name.as_str(), value.to_str().expect("text")), ("x-session-id", "7"));
        for wrong in ["x-session-id", ": 7", "a b: 7", "x: a\nb"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_is_none_is_named_with_the_cause() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: RouteArgs,
        }
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("empty"), "").expect("a file");
        let told = |request: &str| {
            let line = <Line as clap::Parser>::parse_from(["route", request]);
            body(&line.args).expect_err(request).to_string()
        };
        let missing = path("missing");
        assert_eq!(
            told(&missing),
            format!(
                "cannot read {missing}: No such file or directory (os error 2)\nA text to ask about needs --model NAME."
            )
        );
        let folder = dir.path().display().to_string();
        assert_eq!(told(&folder), format!("cannot read {folder}: Is a directory (os error 21)"));
        assert_eq!(told(&path("empty")), format!("{} is empty, and no request is", path("empty")));
    }

    #[test]
    fn a_text_becomes_a_request_of_the_endpoint() {
        for (operation, expected) in [
            (
                Operation::ChatCompletions,
                json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
            ),
            (Operation::Responses, json!({"model": "m", "input": "hi"})),
            (Operation::Completions, json!({"model": "m", "prompt": "hi"})),
            (Operation::Embeddings, json!({"model": "m", "input": "hi"})),
        ] {
            let body = small(operation, "m", "hi");
            assert_eq!(body, expected);
            let bytes = body.to_string();
            assert!(crate::openai::scan(operation, bytes.as_bytes()).is_ok(), "{operation}");
        }
    }
}
