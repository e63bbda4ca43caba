//! What somebody asks of the operator's side: which of its pages, or a refusal that says what there is.
//!
//! The admin port has no password and listens on loopback only, so a browser is the one stranger that can reach it.
//! A page of another site may have its own name point at this address (DNS rebinding) and would then be allowed to
//! read the answers; such a request carries that name as its host and is refused. Reads only heads, never a body.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};

use super::{drain, why};

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
    /// The size of a deployment, which can be changed.
    Sizing,
    /// Measuring a replica of a deployment (A1).
    Tune,
    /// What tuning found for a deployment, and its way in.
    Tuned,
    /// Taking a replica out, and back in.
    Drain,
    /// The past decisions of a deployment.
    Decisions,
    /// The credit, which can be topped up.
    Credit,
}

impl Ask {
    /// The methods that it takes, as in `Allow`.
    const fn methods(self) -> &'static str {
        match self {
            Self::Page | Self::Status | Self::Metrics | Self::Alive | Self::Why | Self::Decisions => {
                "GET, HEAD"
            }
            Self::Sizing | Self::Tuned => "GET, HEAD, PUT",
            Self::Drain => "POST, DELETE",
            Self::Credit => "GET, HEAD, POST",
            Self::Route | Self::Tune => "POST",
        }
    }
}

/// What stands before the path of a request that is asked about.
pub(super) const ROUTE: &str = "/route";
/// What stands before the name of a deployment; what is asked of it follows the name.
pub(super) const DEPLOYMENTS: &str = "/deployments/";

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
    /// 503: as many requests as may be are being answered.
    pub(super) fn busy(most: usize) -> Self {
        let text = format!("{most} requests are being answered on the admin port; try again in 1 s\n");
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text, allow: None }
    }

    /// 500: the handler panicked.
    pub(super) fn bug() -> Self {
        let text = "the gateway failed to handle this request; this is a bug of the gateway\n".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, text, allow: None }
    }

    /// The answer that refuses.
    pub(super) fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.extend(self.allow.map(|methods| (ALLOW, HeaderValue::from_static(methods))));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
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
        "/credit" => Ask::Credit,
        _ if of_deployment(path, "/sizing") => Ask::Sizing,
        _ if of_deployment(path, "/tune") => Ask::Tune,
        _ if of_deployment(path, "/tuned") => Ask::Tuned,
        _ if of_deployment(path, "/decisions") => Ask::Decisions,
        _ if drain::asked_about(path).is_some() => Ask::Drain,
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
                 /credit   the credit; POST {{\"amount\": 25}} tops it up\n\
                 /deployments/NAME/sizing     its size; PUT changes it\n\
                 /deployments/NAME/tune       POST measures a replica and finds its target\n\
                 /deployments/NAME/decisions  its past decisions\n\
                 /deployments/NAME/tuned      what tuning found for it\n\
                 /deployments/NAME/drain/REPLICA  POST takes a replica out, DELETE back in\n\
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
    if !matches!(*request.method(), Method::GET | Method::HEAD) && asked != Ask::Route && is_foreign(request)
    {
        let text = "this was sent by a page of another site, which may change nothing here\n".to_owned();
        return Err(Refusal { status: StatusCode::FORBIDDEN, text, allow: None });
    }
    Ok(asked)
}

/// Whether `path` asks `what` of some deployment.
fn of_deployment(path: &str, what: &str) -> bool {
    let name = path.strip_prefix(DEPLOYMENTS).and_then(|rest| rest.strip_suffix(what));
    name.is_some_and(|name| !name.is_empty())
}

/// Whether a page of another site makes a browser send this. Browsers then name that site, and cannot be kept from
/// sending what looks like a form; whoever is no browser names none.
fn is_foreign<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(HOST).map(|host| [b"http://", host.as_bytes()].concat());
    let origins = request.headers().get_all(ORIGIN).iter();
    let site = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
    origins.into_iter().any(|origin| Some(origin.as_bytes()) != host.as_deref())
        || site.is_some_and(|site| site != b"same-origin" && site != b"none")
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
    fn a_page_of_another_site_changes_nothing() {
        let sent = |headers: &[(&str, &str)]| {
            let mut request = request(Method::POST, "/credit", &["127.0.0.1:8081"]);
            for (name, value) in headers {
                let name: http::HeaderName = name.parse().expect("a name");
                request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
            }
            ask(&request).map_err(|refused| refused.status.as_u16())
        };
        assert_eq!(sent(&[]), Ok(Ask::Credit), "no browser");
        assert_eq!(
            sent(&[("origin", "http://127.0.0.1:8081"), ("sec-fetch-site", "same-origin")]),
            Ok(Ask::Credit)
        );
        for origin in ["https://elsewhere.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8081"]
        {
            assert_eq!(sent(&[("origin", origin)]), Err(403), "{origin}");
        }
        assert_eq!(sent(&[("sec-fetch-site", "cross-site")]), Err(403));
    }

    #[test]
    fn a_name_may_hold_slashes_and_the_method_must_fit() {
        for (method, path, asked) in [
            (Method::PUT, "/deployments/org/model/sizing", Ask::Sizing),
            (Method::GET, "/deployments/chat/sizing", Ask::Sizing),
            (Method::GET, "/deployments/chat/decisions?limit=3", Ask::Decisions),
        ] {
            assert_eq!(ask(&request(method, path, &["localhost"])).expect(path), asked);
        }
        let refused =
            ask(&request(Method::POST, "/deployments/chat/sizing", &["localhost"])).expect_err("POST");
        assert_eq!((refused.status.as_u16(), refused.allow), (405, Some("GET, HEAD, PUT")));
        let refused =
            ask(&request(Method::PUT, "/deployments//sizing", &["localhost"])).expect_err("no name");
        assert_eq!(refused.status.as_u16(), 404);
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
        assert!(refused.text.len() < 1000);
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
