//! Sends a request to a replica and hands back its answer: admission, the wait, the attempt, and, while no byte of an
//! answer was seen, the next attempt (R5): elsewhere, or once more where there is no elsewhere.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use smallvec::SmallVec;
use tidegate_shared::decision::Refusal;
use tidegate_shared::id::ReplicaId;

use super::body::{RequestBody, ResponseBody};
use super::headers;
use super::identify::Identified;
use super::read::Share;
use super::respond::{self, REPLICA, REQUEST_ID, ROUTE};
use super::stream::{Exchange, Kind};
use crate::endpoint::Endpoint;
use crate::openai::ApiError;
use crate::pool::{Admission, Change, Held, Pool, Rejection};
use crate::server::Core;
use crate::telemetry::record::Record;
use crate::upstream::{Carrier, UpstreamError};

/// Attempts at one request, the first included.
const ATTEMPTS: usize = 4;
/// Times that one replica gets the same request: it may have worked on it each time.
const SENDS: usize = 2;
/// What is said where this machine has no room for a connection.
const NO_SOCKET: Rejection = Rejection { reason: Refusal::NoSocket, retry_after: Duration::from_secs(1) };
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Serves an identified request. `share` is the body's share of the memory, given back once no attempt can follow.
pub async fn forward(
    core: &Core,
    mut parts: Parts,
    request: Identified,
    share: Share,
    mut record: Record,
) -> Response<ResponseBody> {
    headers::for_replica(&mut parts.headers);
    parts.headers.insert(REQUEST_ID, record.request_id().clone());
    let pool = &request.deployment.pool;
    let (mut tries, arrived) = (Tries::default(), core.gateway.clock.now());
    let mut admission = pool.arrive(&request.facts);
    loop {
        let held = match place(core, admission, &mut record).await {
            Ok(held) => held,
            Err(rejection) => return refuse(record, &request, rejection),
        };
        if tries.sends_to(held.replica()) >= SENDS {
            return answered_for(&held, respond::error(record, &in_vain()));
        }
        let Some(target) = held.endpoint().target(request.operation.path(), parts.uri.query()) else {
            return respond::error(record, &ApiError::bad_request("the URL is too long"));
        };
        record.sent(held.endpoint().header(), held.route());
        let mut sends = 0;
        let make = || {
            sends += 1;
            outgoing(&parts, &request, &target, held.endpoint())
        };
        let had_it = tries.sends_to(held.replica()) > 0;
        let answer = core.upstream.send(held.endpoint(), core.gateway.limits.first_byte, had_it, make).await;
        (1..sends).for_each(|_| record.sent_again());
        match answer {
            Ok((response, carrier)) => {
                drop(share);
                return relay(core, response, (held, carrier), record);
            }
            Err(UpstreamError::Local(why)) => {
                record.trouble(&why);
                return refuse(record, &request, NO_SOCKET);
            }
            Err(error) => {
                blame(&held, &error);
                record.trouble(&error.to_string());
                if let Some(answer) = verdict(&error) {
                    return answered_for(&held, respond::error(record, &answer));
                }
                tries.failed(held.replica(), sends);
                if let UpstreamError::Connect { refused, .. } = error {
                    suspect(pool, &held, refused);
                }
                if tries.tried.len() >= ATTEMPTS {
                    return answered_for(&held, respond::error(record, &in_vain()));
                }
                drop(held);
                admission = pool.retry(&request.facts, &tries.tried, arrived);
            }
        }
    }
}

/// The failed attempts at one request.
#[derive(Debug, Default)]
struct Tries {
    /// The replica of each.
    tried: SmallVec<[ReplicaId; ATTEMPTS]>,
    /// Who got the request, once for each time that it was sent.
    sent: SmallVec<[ReplicaId; ATTEMPTS * SENDS]>,
}

impl Tries {
    /// An attempt at `replica` failed, in which it was sent the request so often: not at all where nobody listens.
    fn failed(&mut self, replica: ReplicaId, sends: usize) {
        self.tried.push(replica);
        self.sent.extend(std::iter::repeat_n(replica, sends));
    }

    /// How often `replica` was sent the request.
    fn sends_to(&self, replica: ReplicaId) -> usize {
        self.sent.iter().filter(|sent| **sent == replica).count()
    }
}

/// The answer after which no attempt follows: the replica has the request and may work on it still, or has begun to
/// answer.
fn verdict(error: &UpstreamError) -> Option<ApiError> {
    match error {
        UpstreamError::Silent(limit) => {
            let text = format!("the replica sent no answer within {} s", limit.as_secs());
            Some(ApiError::replica_timeout(text))
        }
        UpstreamError::Broken { begun: true, .. } => {
            Some(ApiError::bad_replica("the replica broke the protocol, or off, in the head of its answer"))
        }
        UpstreamError::Broken { begun: false, .. }
        | UpstreamError::Connect { .. }
        | UpstreamError::Local(_) => None,
    }
}

fn in_vain() -> ApiError {
    ApiError::bad_replica("each attempt failed before a replica sent an answer")
}

/// Waits for a place, if need be.
async fn place(core: &Core, admission: Admission, record: &mut Record) -> Result<Held, Rejection> {
    let waiting = match admission {
        Admission::Now(held) => return Ok(held),
        Admission::No(rejection) => return Err(rejection),
        Admission::Later(waiting) => waiting,
    };
    let since = core.gateway.clock.now();
    let verdict = waiting.await;
    record.waited(core.gateway.clock.now().since(since));
    verdict
}

/// It could not even be connected to.
fn suspect(pool: &Arc<Pool>, held: &Held, refused: bool) {
    pool.change(held.replica(), if refused { Change::Refused } else { Change::Suspect });
    held.endpoint().suspect();
}

fn blame(held: &Held, error: &UpstreamError) {
    let endpoint = held.endpoint();
    endpoint.count_error();
    endpoint.note_trouble(&error.to_string());
}

fn refuse(mut record: Record, request: &Identified, rejection: Rejection) -> Response<ResponseBody> {
    record.refused(rejection.reason);
    let name = &request.deployment.name;
    let text = match rejection.reason {
        Refusal::QueueFull | Refusal::QueueBytes => format!("the queue of model `{name}` is full"),
        Refusal::WouldWaitTooLong | Refusal::WaitedTooLong => {
            format!("every replica of model `{name}` is busy")
        }
        Refusal::PushedOut => {
            format!("the queue of model `{name}` is full, and more urgent requests came")
        }
        Refusal::WouldMissDeadline | Refusal::MissedDeadline => {
            format!("no replica of model `{name}` is free before the deadline of the request")
        }
        Refusal::ColdStartTooLong => format!("model `{name}` did not start in time"),
        Refusal::StartFailed => {
            format!("model `{name}` cannot be started; its operator can see why in the status")
        }
        Refusal::NoReplica => format!("no replica of model `{name}` answers"),
        Refusal::NoSocket => "the gateway has as many connections as it may have".to_owned(),
    };
    let text = format!("{text}; try again in {} s", rejection.retry_after.as_secs_f64().ceil());
    respond::refusal(record, &ApiError::refused(rejection.reason, text), rejection.retry_after)
}

fn outgoing(
    parts: &Parts,
    identified: &Identified,
    target: &Uri,
    endpoint: &Endpoint,
) -> Request<RequestBody> {
    let mut request = Request::new(identified.body.clone());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = target.clone();
    *request.headers_mut() = parts.headers.clone();
    request.headers_mut().insert(HOST, endpoint.host());
    request
}

fn relay(
    core: &Core,
    response: Response<Incoming>,
    (held, carrier): (Held, Carrier),
    mut record: Record,
) -> Response<ResponseBody> {
    let (mut parts, body) = response.into_parts();
    headers::for_client(&mut parts.headers);
    parts.headers.insert(REQUEST_ID, record.request_id().clone());
    parts.version = http::Version::HTTP_11;
    let kind = kind(&parts.headers);
    if kind == Kind::Events {
        // A proxy in front of this one must not collect events either (C-011).
        parts.headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        parts.headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    }
    parts.extensions.clear();
    record.status(parts.status.as_u16());
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        record.trouble("the replica wants to switch protocols");
        return answered_for(
            &held,
            respond::error(record, &ApiError::bad_replica("the replica broke the protocol")),
        );
    }
    held.endpoint().well();
    let (replica, route) = (held.endpoint().header(), HeaderValue::from_static(held.route().as_str()));
    parts.headers.insert(REPLICA, replica);
    parts.headers.insert(ROUTE, route);
    let limit = core.gateway.limits.between_bytes;
    let exchange = Exchange::new(body, kind, (held, carrier), record, core.gateway.clock, limit);
    Response::from_parts(parts, ResponseBody::Relay(core.relays.add(exchange)))
}

/// An answer of the gateway's own that a replica is the reason for.
fn answered_for(held: &Held, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(REPLICA, held.endpoint().header());
    response.headers_mut().insert(ROUTE, HeaderValue::from_static(held.route().as_str()));
    response
}

fn kind(headers: &HeaderMap) -> Kind {
    if headers.contains_key(CONTENT_ENCODING) {
        return Kind::Opaque;
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match content_type.split(';').next().map(str::trim) {
        Some(kind) if kind.eq_ignore_ascii_case("text/event-stream") => Kind::Events,
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Kind::Json,
        _ => Kind::Opaque,
    }
}
