//! `tidegate status`: asks a running gateway on its admin port and shows the answer.
//!
//! One short request, bounded in time and size; how it looks is for `render`.

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use http::Request;
use http_body_util::Full;
use tidegate_shared::time::Duration;

use crate::admin::status::Status;
use crate::config::BaseUrl;

use super::CliError;
use super::admin::{AdminArgs, AdminError, exchange, granted, parse, verbatim};
use super::render::render;
use super::style::Style;

/// How long the whole exchange may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of `tidegate status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    gateway: AdminArgs,
}

/// Asks and shows.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    let url = &args.gateway.url()?;
    let answer = ask(url)?;
    let stdout = io::stdout();
    let text = if args.gateway.json {
        verbatim(url, &answer)?
    } else {
        render(&parse::<Status>(url, &answer)?, Style::of(&stdout))
    };
    let mut out = stdout.lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The body of `GET /status`.
pub(super) fn ask(url: &BaseUrl) -> Result<Bytes, AdminError> {
    let request = Request::get("/status").body(Full::default());
    let request = request.map_err(|error| AdminError::foreign(url, error))?;
    granted(url, "GET /status", exchange(url, request, PATIENCE)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::super::admin::admin_url;
    use super::*;

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
