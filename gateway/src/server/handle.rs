//! One request, from its head to its response: which path it is, and the steps for it.

use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::uri::Authority;
use http::{Method, Version};
use percent_encoding::percent_decode_str;

use super::link::{BodyError, ClientBody};
use super::{Core, Stage};
use crate::http1::fields::{Fields, Name};
use crate::http1::head::{BadHead, HEAD_MAX, HEADERS_MAX, RequestHead};
use crate::layer::body::Response;
use crate::layer::read::NoBody;
use crate::layer::{forward, identify, keepalive, models, read, respond};
use crate::openai::{ApiError, Operation};
use crate::telemetry::record::Record;

/// The answer to what is no request at all: only its bytes came, and they are no head.
pub(super) fn unreadable(core: &Core, client: IpAddr, error: &ApiError) -> Response {
    let id = core.ids.of(&Fields::default());
    let method = Method::from_bytes(b"-").unwrap_or_default();
    let record = Record::new(&core.gateway.sink, Some(client), &method, "", id);
    respond::error(record, error)
}

/// Answers a request.
pub(super) async fn handle(
    core: &Rc<Core>,
    client: IpAddr,
    head: &mut RequestHead,
    body: ClientBody,
) -> Response {
    let id = core.ids.of(&head.fields);
    let path = head.target.path();
    let mut record = Record::new(&core.gateway.sink, Some(client), &head.method, path, id);
    #[cfg(test)]
    super::tests::panics_if_asked(path);
    if is_crowded(head) {
        body.discard();
        return respond::error(record, &ApiError::bad_head(BadHead::TooLarge));
    }
    if let Some(fault) = malformed(head) {
        body.discard();
        return closing(respond::error(record, &ApiError::bad_request(fault)));
    }
    if let Some(operation) = Operation::from_path(path) {
        record.operation(operation);
        if head.method == Method::POST {
            return complete(core, operation, head, body, record).await;
        }
        let error = ApiError::method_not_allowed(head.method.as_str(), path, "POST");
        return respond::method_not_allowed(record, &error, "POST");
    }
    let found = match path {
        "/livez" => Some((200, Bytes::from_static(b"{\"status\":\"ok\"}"))),
        "/readyz" | "/health" | "/healthz" => Some(readiness(core)),
        "/v1/models" | "/models" => Some((200, models::list(&core.gateway.directory, core.gateway.created))),
        _ => match model_name(path) {
            Some(name) => {
                let found = models::one(&core.gateway.directory, &name, core.gateway.created);
                let Some(body) = found else {
                    return respond::error(record, &ApiError::unknown_model(&name));
                };
                Some((200, body))
            }
            None => None,
        },
    };
    let Some((status, body)) = found else {
        return respond::error(record, &ApiError::unknown_path(head.method.as_str(), path));
    };
    if !matches!(head.method, Method::GET | Method::HEAD) {
        let error = ApiError::method_not_allowed(head.method.as_str(), path, "GET, HEAD");
        return respond::method_not_allowed(record, &error, "GET, HEAD");
    }
    if !path.contains("models") {
        record.quiet();
    }
    respond::json(&mut record, status, body)
}

/// Whether a head of HTTP/2 is larger than one of HTTP/1.1 may be, as HTTP/2 counts: its connection allows more, so that
/// the client gets to see why. A target that is longer than any may be never comes here: the library resets its stream.
fn is_crowded(head: &RequestHead) -> bool {
    if head.version != Version::HTTP_2 {
        return false;
    }
    let (target, mut count, mut size) = (&head.target, 0, 0);
    let path = target.path_and_query().map(|path| path.as_str());
    let authority = target.authority().map(Authority::as_str);
    for told in [Some(head.method.as_str()), path, authority].into_iter().flatten() {
        size += told.len() + 32;
    }
    for (name, value) in head.fields.iter() {
        (count, size) = (count + 1, size + name.len() + value.len() + 32);
    }
    size > HEAD_MAX || count > HEADERS_MAX
}

/// What makes a head malformed though its parser takes it: proxies in front might read another host from it (RFC 9112, 3.2,
/// and RFC 9113, 8.3.1).
fn malformed(head: &RequestHead) -> Option<&'static str> {
    let mut hosts = head.fields.all(Name::Host);
    let (host, second) = (hosts.next(), hosts.next());
    if head.version == Version::HTTP_2 {
        let authority = head.target.authority().map(|authority| authority.as_str().as_bytes());
        let named = authority.or(host).filter(|named| !named.is_empty() && is_host(named));
        let differs = host.zip(named).is_some_and(|(host, named)| !host.eq_ignore_ascii_case(named));
        let rule = "HTTP/2 needs one :authority that names a host, or one host header, and the same where it has both";
        return (named.is_none() || differs || second.is_some()).then_some(rule);
    }
    if head.version == Version::HTTP_11 && (second.is_some() || !host.is_some_and(is_host)) {
        return Some("HTTP/1.1 needs one host header, and only one, that names a host");
    }
    None
}

/// Whether a value names a host. An empty one does: it is what a client sends for a target without a host.
fn is_host(value: &[u8]) -> bool {
    is_plain_host(value) || !value.contains(&b'@') && Authority::try_from(value).is_ok()
}

/// Whether it is a name or an IPv4 address, with a port or without, as nearly all are; or empty.
fn is_plain_host(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b':');
    let (host, port) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    parts.next().is_none()
        && host.iter().all(word)
        && port.len() < 5
        && port.iter().all(u8::is_ascii_digit)
        && (port.is_empty() || !host.is_empty())
}

fn readiness(core: &Core) -> (u16, Bytes) {
    if *core.gateway.stage.borrow() != Stage::Serving {
        return (503, Bytes::from_static(b"{\"status\":\"stopping\"}"));
    }
    (200, Bytes::from_static(b"{\"status\":\"ok\"}"))
}

/// The model that `/v1/models/{id}` asks for; its name may hold slashes.
fn model_name(path: &str) -> Option<String> {
    let name = path.strip_prefix("/v1").unwrap_or(path).strip_prefix("/models/")?;
    let name = percent_decode_str(name).decode_utf8_lossy();
    (!name.is_empty()).then(|| name.into_owned())
}

/// A request that a replica serves.
async fn complete(
    core: &Rc<Core>,
    operation: Operation,
    head: &mut RequestHead,
    body: ClientBody,
    mut record: Record,
) -> Response {
    let gateway = &core.gateway;
    let (body, share) = match read::whole(body, gateway.limits.body, &gateway.budget, gateway.clock).await {
        Ok(read) => read,
        Err(NoBody::Refused(error, rest)) => {
            rest.discard();
            return closing(respond::error(record, &error));
        }
        Err(NoBody::NoMemory(rest)) => {
            rest.discard();
            return closing(respond::no_memory(record));
        }
        Err(NoBody::Gone(error)) => {
            record.trouble(&error.to_string());
            let text = match error {
                BodyError::Chunk(bad) => bad.to_string(),
                BodyError::Io(_) | BodyError::Ended | BodyError::Http2(_) => {
                    "the request body ended early".to_owned()
                }
            };
            return closing(respond::error(record, &ApiError::bad_request(text)));
        }
    };
    record.read(body.len());
    let identified = match identify::identify(operation, &head.fields, body, &gateway.directory) {
        Ok(identified) => identified,
        Err(error) => return respond::error(record, &error),
    };
    record.body(&identified.model, identified.stream);
    record.priority(identified.facts.priority);
    record.deployment(&identified.deployment.meter);
    let every = match keepalive::asked(&mut head.fields, identified.stream) {
        Ok(every) => every,
        Err(error) => return respond::error(record, &error),
    };
    let Some(every) = every else {
        return forward::forward(core, head, &identified, share, record).await;
    };
    let (id, clock, core) = (record.request_id().clone(), gateway.clock, Rc::clone(core));
    let mut head = std::mem::take(head);
    let answer = async move { forward::forward(&core, &mut head, &identified, share, record).await };
    Box::pin(keepalive::keep(answer, every, clock, id)).await
}

fn closing(mut response: Response) -> Response {
    response.fields.set(Name::Connection, "close");
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn h6_what_is_a_plain_host_is_a_host(value in "[a-z0-9.:@\\[-]{0,8}") {
            let is_authority = value.is_empty() || Authority::try_from(value.as_bytes()).is_ok();
            prop_assert!(!is_plain_host(value.as_bytes()) || (is_authority && !value.contains('@')), "{}", value);
        }
    }
}
