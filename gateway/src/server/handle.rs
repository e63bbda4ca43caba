//! One request, from its head to its response: which path it is, and the steps for it.

use std::cell::Cell;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tidegate_shared::names::header;

use super::link::{BodyError, ClientBody};
use super::{Core, Stage};
use crate::http1::head::{BadHead, HEAD_MAX};
use crate::http1::write;
use crate::layer::body::ResponseBody;
use crate::layer::read::NoBody;
use crate::layer::{forward, identify, keepalive, models, read, respond};
use crate::openai::{ApiError, Operation};
use crate::telemetry::meter;
use crate::telemetry::record::Record;

type Answer = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>>>>;

/// Longest request id that is taken from a client.
const ID_MAX: usize = 128;

/// Serves the requests of one HTTP/2 connection.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    core: Rc<Core>,
    client: IpAddr,
}

impl Handle {
    pub(super) fn new(core: Rc<Core>, client: IpAddr) -> Self {
        Self { core, client }
    }
}

impl tower::Service<Request<Incoming>> for Handle {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Answer {
        let Self { core, client } = self.clone();
        let request = request.map(ClientBody::http2);
        Box::pin(async move { Ok(handle(&core, client, request).await) })
    }
}

/// Answers 500 for a handler that panicked, counts it, and lets the connection live.
#[derive(Clone, Debug)]
pub(super) struct CatchPanic<S>(S);

impl<S> CatchPanic<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S> tower::Service<Request<Incoming>> for CatchPanic<S>
where
    S: tower::Service<
            Request<Incoming>,
            Response = Response<ResponseBody>,
            Error = Infallible,
            Future = Answer,
        >,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Answer {
        let answer = AssertUnwindSafe(self.0.call(request)).catch_unwind();
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| {
                meter::panicked();
                Ok(respond::bug())
            })
        })
    }
}

/// The answer to what is no request at all: only its bytes came, and they are no head.
pub(super) fn unreadable(core: &Core, client: IpAddr, error: &ApiError) -> Response<ResponseBody> {
    let id = core.ids.of(&HeaderMap::new());
    let method = Method::from_bytes(b"-").unwrap_or_default();
    let record = Record::new(&core.gateway.sink, Some(client), &method, "", &id);
    respond::error(record, error)
}

/// Answers a request.
pub(super) async fn handle(
    core: &Rc<Core>,
    client: IpAddr,
    request: Request<ClientBody>,
) -> Response<ResponseBody> {
    let id = core.ids.of(request.headers());
    let path = request.uri().path();
    let mut record = Record::new(&core.gateway.sink, Some(client), request.method(), path, &id);
    if is_crowded(&request) {
        request.into_body().discard();
        return respond::error(record, &ApiError::bad_head(BadHead::TooLarge));
    }
    if let Some(fault) = malformed(&request) {
        request.into_body().discard();
        return closing(respond::error(record, &ApiError::bad_request(fault)));
    }
    if let Some(operation) = Operation::from_path(path) {
        record.operation(operation);
        if request.method() == Method::POST {
            return complete(core, operation, request, record).await;
        }
        let error = ApiError::method_not_allowed(request.method().as_str(), path, "POST");
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
        return respond::error(record, &ApiError::unknown_path(request.method().as_str(), path));
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let error = ApiError::method_not_allowed(request.method().as_str(), path, "GET, HEAD");
        return respond::method_not_allowed(record, &error, "GET, HEAD");
    }
    if !path.contains("models") {
        record.quiet();
    }
    respond::json(&mut record, status, body)
}

/// Whether a head of HTTP/2 is larger than one of HTTP/1.1 may be, as HTTP/2 counts: its connection allows more, so that
/// the client gets to see why.
fn is_crowded(request: &Request<ClientBody>) -> bool {
    let size = || request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    request.version() == Version::HTTP_2 && size().sum::<usize>() > HEAD_MAX
}

/// What makes a head no HTTP/1.1 though its parser takes it: proxies in front might read another host from it (RFC 9112,
/// 3.2).
fn malformed(request: &Request<ClientBody>) -> Option<&'static str> {
    if request.version() != Version::HTTP_11 {
        return None;
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    if !hosts.next().is_some_and(is_host) || hosts.next().is_some() {
        return Some("HTTP/1.1 needs one host header, and only one, that names a host");
    }
    None
}

/// Whether a value names a host. An empty one does: it is what a client sends for a target without a host.
fn is_host(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    bytes.is_empty() || !bytes.contains(&b'@') && Authority::try_from(bytes).is_ok()
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
    request: Request<ClientBody>,
    mut record: Record,
) -> Response<ResponseBody> {
    let (mut parts, body) = request.into_parts();
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
    let size = body.len();
    match identify::identify(operation, &parts.headers, body, &gateway.directory) {
        Ok(identified) => {
            record.body(size, &identified.model, identified.stream);
            record.priority(identified.facts.priority);
            record.deployment(&identified.deployment.meter);
            match keepalive::asked(&mut parts.headers, identified.stream) {
                Ok(None) => forward::forward(core, parts, identified, share, record).await,
                Ok(Some(every)) => {
                    let (id, clock, core) = (record.request_id().clone(), gateway.clock, Rc::clone(core));
                    let answer =
                        async move { forward::forward(&core, parts, identified, share, record).await };
                    Box::pin(keepalive::keep(answer, every, clock, id)).await
                }
                Err(error) => respond::error(record, &error),
            }
        }
        Err(error) => respond::error(record, &error),
    }
}

fn closing(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Makes ids for requests that bring none: a random prefix per core and a counter.
#[derive(Debug)]
pub(super) struct RequestIds {
    prefix: u64,
    next: Cell<u64>,
}

impl Default for RequestIds {
    fn default() -> Self {
        let prefix = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self { prefix, next: Cell::new(0) }
    }
}

impl RequestIds {
    fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(header::REQUEST_ID);
        if let Some(given) = given.filter(|id| (1..=ID_MAX).contains(&id.len()) && id.to_str().is_ok()) {
            return given.clone();
        }
        let n = self.next.get();
        self.next.set(n.wrapping_add(1));
        let mut id = Vec::with_capacity(37);
        id.extend_from_slice(b"req-");
        write::hex(&mut id, self.prefix, 16);
        id.push(b'-');
        write::hex(&mut id, n, 1);
        HeaderValue::from_maybe_shared(Bytes::from(id)).unwrap_or(HeaderValue::from_static("req"))
    }
}
