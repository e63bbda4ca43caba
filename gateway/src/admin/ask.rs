//! What somebody asks of the operator's side: which of its pages, or a refusal that says what there is.
//!
//! The admin port has no password and listens on loopback only, so a browser is the one stranger that can reach it.
//! A page of another site may have its own name point at this address (DNS rebinding) and would then be allowed to
//! read the answers; such a request carries that name as its host and is refused. Reads only heads, never a body.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};

use super::why;

/// Something that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The status, for people.
    Page,
    /// The status, for programs.
    Status,
    /// Prometheus metrics.
    Metrics,
    /// Whether the gateway lives.
    Alive,
    /// Why a deployment is as it is (E2); its name is in the path.
    Why,
    /// Where a request would go (E3); the request is in the body.
    Route,
}

impl Ask {
    /// The methods that it takes, as in `Allow`.
    const fn methods(self) -> &'static str {
        match self {
            Self::Page | Self::Status | Self::Metrics | Self::Alive | Self::Why => "GET, HEAD",
            Self::Route => "POST",
        }
    }
}

/// What stands before the path of a request that is asked about.
pub(super) const ROUTE: &str = "/route";

/// Longest path that is repeated in an answer, in characters.
const QUOTED: usize = 100;

/// Why something is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    /// For people.
    text: String,
    /// The methods that are allowed, where the method is what is wrong.
    allow: Option<&'static str>,
}

impl Refusal {
    /// The answer that refuses.
    pub(super) fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.extend(self.allow.map(|methods| (ALLOW, HeaderValue::from_static(methods))));
        response
    }
}

/// What `request` asks for.
///
/// # Errors
/// 421 for a host that is not this machine, 404 for an unknown path, 405 for a method that the path does not take.
pub(super) fn ask<B>(request: &Request<B>) -> Result<Ask, Refusal> {
    if let Some(host) = strange_host(request) {
        let text = format!("host {host:?} is not this gateway's; ask by its IP address or as localhost\n");
        return Err(Refusal { status: StatusCode::MISDIRECTED_REQUEST, text, allow: None });
    }
    let path = request.uri().path();
    let asked = match path {
        "/" => Ask::Page,
        "/status" => Ask::Status,
        "/metrics" => Ask::Metrics,
        "/livez" => Ask::Alive,
        _ if path.strip_prefix(ROUTE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) => {
            Ask::Route
        }
        _ if why::asked_about(path).is_some() => Ask::Why,
        _ => {
            let path: String = path.chars().take(QUOTED).collect();
            let text = format!(
                "{path} is not here; there are\n\
                 /         the status, for people\n\
                 /status   the same as JSON\n\
                 /metrics  for Prometheus\n\
                 /livez    whether the gateway lives\n\
                 /deployments/NAME/why  why it is as it is\n\
                 /route    where a request would go: POST its body here, or to /route and its path\n\
                 Requests for a model go to the other port, `listen` in the configuration.\n"
            );
            return Err(Refusal { status: StatusCode::NOT_FOUND, text, allow: None });
        }
    };
    let methods = asked.methods();
    if !methods.split(", ").any(|method| request.method() == method) {
        let path: String = path.chars().take(QUOTED).collect();
        let text = format!("{path} takes {}\n", methods.replace(", ", " and "));
        return Err(Refusal { status: StatusCode::METHOD_NOT_ALLOWED, text, allow: Some(methods) });
    }
    Ok(asked)
}

/// A host named by the request that is neither an IP address nor this machine's own name for itself. Browsers always
/// name one; whoever names none is not a browser.
fn strange_host<B>(request: &Request<B>) -> Option<String> {
    let target = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let named = request.headers().get_all(HOST).iter();
    let named = named.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    target.into_iter().chain(named).find(|host| !is_own(host))
}

fn is_own(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn request(method: Method, target: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).expect("a request")
    }

    #[test]
    fn each_page_is_there_for_get_and_head() {
        for method in [Method::GET, Method::HEAD] {
            for (path, asked) in [
                ("/", Ask::Page),
                ("/?x=1", Ask::Page),
                ("/status", Ask::Status),
                ("/metrics", Ask::Metrics),
                ("/livez", Ask::Alive),
            ] {
                let answer = ask(&request(method.clone(), path, &["127.0.0.1:8081"]));
                assert_eq!(answer.expect(path), asked);
            }
        }
    }

    #[test]
    fn an_unknown_path_is_told_what_there_is() {
        for path in ["/v1/chat/completions", "/Status", "//", "/status/"] {
            let refused = ask(&request(Method::POST, path, &["localhost"])).expect_err(path);
            assert_eq!(refused.status, StatusCode::NOT_FOUND);
            let text = &refused.text;
            for part in [path, "/status", "/metrics", "/livez", "/route", "listen"] {
                assert!(text.contains(part), "{text}");
            }
        }
        let long = format!("/{}", "x".repeat(5000));
        let refused = ask(&request(Method::GET, &long, &[])).expect_err("unknown");
        assert!(refused.text.len() < 500);
    }

    #[test]
    fn another_method_is_told_the_allowed_ones() {
        for method in [Method::POST, Method::DELETE, Method::OPTIONS] {
            let refused = ask(&request(method, "/status", &["localhost"])).expect_err("a refusal");
            assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(refused.response().headers()[ALLOW], "GET, HEAD");
        }
        let refused = ask(&request(Method::GET, "/route/v1/embeddings", &[])).expect_err("a refusal");
        assert_eq!((&*refused.text, refused.allow), ("/route/v1/embeddings takes POST\n", Some("POST")));
    }

    #[test]
    fn e3_a_request_is_asked_about_at_route_and_below() {
        for path in ["/route", "/route/v1/chat/completions", "/route/", "/route?x"] {
            assert_eq!(ask(&request(Method::POST, path, &["localhost"])), Ok(Ask::Route), "{path}");
        }
        assert!(ask(&request(Method::POST, "/routes", &[])).is_err());
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for host in ["127.0.0.1", "127.0.0.1:8081", "[::1]:8081", "localhost:80", "LOCALHOST", "10.1.2.3"] {
            assert!(ask(&request(Method::GET, "/status", &[host])).is_ok(), "{host}");
        }
        assert!(ask(&request(Method::GET, "/status", &[])).is_ok(), "no browser leaves the host out");
        for host in
            ["rebound.example", "rebound.example:8081", "localhost.evil.example", "127.0.0.1.evil", "", "a b"]
        {
            let refused = ask(&request(Method::GET, "/status", &[host])).expect_err(host);
            assert_eq!(refused.status, StatusCode::MISDIRECTED_REQUEST, "{host}");
        }
        let two = request(Method::GET, "/status", &["localhost", "rebound.example"]);
        assert!(ask(&two).is_err(), "every host counts");
        let absolute = request(Method::GET, "http://rebound.example/status", &["localhost"]);
        assert!(ask(&absolute).is_err(), "the target counts too");
    }
}
