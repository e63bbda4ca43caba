//! `tidegate status`: asks a running gateway on its admin port and shows the answer.
//!
//! One short request, bounded in time and size; how it looks is for `render`.

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;
use tidegate_shared::time::Duration;

use crate::admin::status::Status;
use crate::config::BaseUrl;
use crate::once::{NoAnswer, Place, get};
use crate::upstream::dial::Site;

use super::CliError;
use super::render::render;
use super::style::Style;

/// How long the whole exchange may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of `tidegate status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Where the gateway's admin port is.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081", value_parser = admin_url)]
    admin: BaseUrl,
    /// Print the JSON that the gateway gave.
    #[arg(long)]
    json: bool,
}

fn admin_url(text: &str) -> Result<BaseUrl, &'static str> {
    let url =
        if text.contains("://") { BaseUrl::parse(text) } else { BaseUrl::parse(&format!("http://{text}")) }?;
    if url.is_https() { Err("must be http://host:port: the admin side speaks no TLS") } else { Ok(url) }
}

/// Why there is no status to show.
#[derive(Debug, Error)]
pub(super) enum StatusError {
    #[error(
        "no gateway answers at {url}: {why}\nIs `tidegate serve` running? Give its admin port with --admin URL."
    )]
    Unreachable { url: BaseUrl, why: String },
    #[error("{url} is not the admin port of a gateway: {why}")]
    Foreign { url: BaseUrl, why: String },
}

/// Asks and shows.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    let url = &args.admin;
    let answer = ask(url)?;
    let stdout = io::stdout();
    let text = if args.json {
        let _: IgnoredAny = parse(url, &answer)?;
        let mut text = String::from_utf8_lossy(&answer).trim_end().to_owned();
        text.push('\n');
        text
    } else {
        render(&parse::<Status>(url, &answer)?, Style::of(&stdout))
    };
    let mut out = stdout.lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn parse<T: DeserializeOwned>(url: &BaseUrl, answer: &[u8]) -> Result<T, StatusError> {
    serde_json::from_slice(answer).map_err(|error| StatusError::Foreign {
        url: url.clone(),
        why: format!("unexpected answer: {error}"),
    })
}

/// The body of `GET /status`.
fn ask(url: &BaseUrl) -> Result<Bytes, StatusError> {
    let unreachable = |why: String| StatusError::Unreachable { url: url.clone(), why };
    let foreign = |why: String| StatusError::Foreign { url: url.clone(), why };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unreachable(error.to_string()))?;
    let site = Site::plain(url, PATIENCE);
    let place = Place { site: &site, prefix: url.prefix() };
    match runtime.block_on(get(place, "/status", PATIENCE)) {
        Ok((status, body)) if status.is_success() => Ok(body),
        Ok((status, _)) => Err(foreign(format!("GET /status gave {status}"))),
        Err(NoAnswer::Broken(why)) => Err(foreign(why)),
        Err(NoAnswer::Unreachable(why)) => Err(unreachable(why)),
        Err(no @ (NoAnswer::Slow(_) | NoAnswer::Local(_))) => Err(unreachable(no.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// A server that answers one connection with `answer`.
    fn server(answer: &'static str) -> (BaseUrl, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let url = admin_url(&listener.local_addr().expect("address").to_string()).expect("URL");
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("read") == 1 {
                head.extend(byte);
            }
            stream.write_all(answer.as_bytes()).expect("write");
            String::from_utf8(head).expect("head")
        });
        (url, served)
    }

    #[test]
    fn the_answer_of_the_admin_port_is_taken() {
        let (url, served) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        assert_eq!(ask(&url).expect("answer"), "{}");
        let head = served.join().expect("served");
        assert!(head.starts_with("GET /status HTTP/1.1\r\n"), "{head}");
        assert!(head.to_lowercase().contains(&format!("host: {}\r\n", url.authority())), "{head}");
    }

    #[test]
    fn an_answer_that_ends_with_the_connection_is_taken_too() {
        let (url, _) = server("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"a\":1}");
        assert_eq!(ask(&url).expect("answer"), "{\"a\":1}");
    }

    #[test]
    fn whoever_is_no_gateway_is_told_apart() {
        for (answer, part) in [
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "GET /status gave 404 Not Found"),
            ("SSH-2.0-OpenSSH_9.2\r\n", "is not the admin port of a gateway"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut", "is not the admin port of a gateway"),
        ] {
            let (url, _) = server(answer);
            let error = ask(&url).expect_err("no status").to_string();
            assert!(error.contains(part), "{error}");
        }
        let url = admin_url("127.0.0.1:1").expect("URL");
        let error = parse::<Status>(&url, b"<html>").expect_err("no status").to_string();
        assert!(
            error.starts_with("http://127.0.0.1:1 is not the admin port of a gateway: unexpected answer: ")
        );
    }

    #[test]
    fn nobody_there_is_said_with_what_to_do() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let url = admin_url(&listener.local_addr().expect("address").to_string()).expect("URL");
        drop(listener);
        let error = ask(&url).expect_err("nobody").to_string();
        assert!(error.starts_with(&format!("no gateway answers at {url}: Connection refused")), "{error}");
        assert!(error.ends_with("--admin URL."), "{error}");
    }
}
