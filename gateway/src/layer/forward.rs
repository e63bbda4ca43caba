//! Sends a request to a replica and hands back its answer: admission, the wait, the attempt, and, while no byte of an
//! answer was seen, the next attempt (R5): elsewhere, or once more where there is no elsewhere.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Uri};
use tidegate_gateway_core::retry::{Failure, Tries};
use tidegate_shared::decision::Refusal;
use tidegate_shared::time::Instant;

use super::body::{Response, ResponseBody};
use super::headers;
use super::identify::Identified;
use super::read::Share;
use super::respond;
use super::stream::{Exchange, Kind};
use crate::endpoint::Endpoint;
use crate::http1::fields::{Fields, Name};
use crate::http1::head::{RequestHead, ResponseHead};
use crate::openai::ApiError;
use crate::pool::{Admission, Change, Fault, Held, Pool, Rejection, Second, Sign};
use crate::probe::{self, NotWell};
use crate::server::Core;
use crate::telemetry::record::Record;
use crate::upstream::{Answer, Outgoing, UpstreamError};

/// What is said where this machine has no room for a connection.
const NO_SOCKET: Rejection = Rejection { reason: Refusal::NoSocket, retry_after: Duration::from_secs(1) };
/// What is said where each replica that was asked is loading its model.
const LOADING: Rejection = Rejection { reason: Refusal::NoReplica, retry_after: Duration::from_secs(1) };
/// What is said where a failed request is not sent again because too many were.
const SPENT: &str = "no replica sent an answer, and too many requests of this model were sent twice lately";

/// Serves an identified request. `share` is the body's share of the memory, given back once no attempt can follow.
pub async fn forward(
    core: &Core,
    head: &mut RequestHead,
    request: &Identified,
    share: Share,
    mut record: Record,
) -> Response {
    headers::for_replica(&mut head.fields);
    head.fields.set(Name::RequestId, record.request_id());
    let (mut tries, arrived) = (Tries::default(), core.gateway.clock.in_turn());
    let mut admission = request.deployment.pool.arrive(&request.facts);
    loop {
        let mut held = match place(core, admission, &mut record).await {
            Ok(held) => held,
            Err(rejection) => return refuse(record, request, rejection),
        };
        if !tries.may_send_to(held.replica()) {
            return answered_for(&held, respond::error(record, &in_vain()));
        }
        let Some(target) = held.endpoint().target(request.operation, head.target.query()) else {
            return respond::error(record, &ApiError::bad_request("the URL is too long"));
        };
        record.sent(held.endpoint().header(), held.route());
        let mut sends = 0;
        let outgoing = outgoing(head, request, &target, held.endpoint());
        let had_it = tries.sends_to(held.replica()) > 0;
        let first_byte = core.gateway.limits.first_byte;
        let answer = core.upstream.send(held.endpoint(), first_byte, had_it, outgoing, &mut sends).await;
        (1..sends).for_each(|_| record.sent_again());
        let mut attempt = Attempt { core, request, record: &mut record, tries: &mut tries, arrived, sends };
        let next = match &answer {
            Ok((head, _)) => attempt.answered(&mut held, head).await,
            // Boxed: rare, and large.
            Err(error) => Box::pin(attempt.failed(&mut held, error)).await,
        };
        match (next, answer) {
            (Next::Attempt(next), _) => admission = next,
            (Next::Refuse(rejection), _) => return refuse(record, request, rejection),
            (Next::Fail(error), _) => return answered_for(&held, respond::error(record, &error)),
            (Next::Relay, Ok((head, answer))) => {
                drop(share);
                return relay(core, head, (held, answer), record);
            }
            (Next::Relay, Err(_)) => return answered_for(&held, respond::error(record, &in_vain())),
        }
    }
}

/// What follows an attempt.
enum Next {
    /// The answer goes to the client.
    Relay,
    /// Another attempt.
    Attempt(Admission),
    /// 503.
    Refuse(Rejection),
    /// An error of the gateway's own.
    Fail(ApiError),
}

/// An attempt that came to something, and what it belongs to.
struct Attempt<'a> {
    core: &'a Core,
    request: &'a Identified,
    record: &'a mut Record,
    tries: &'a mut Tries,
    /// When the request was admitted.
    arrived: Instant,
    /// How often the request was sent.
    sends: usize,
}

impl Attempt<'_> {
    /// An answer began. Busy is load and no fault: where another replica has room, the request goes there (C-032). What
    /// an engine says that loads its model is not shown (C-028). Anything else is the client's, an error too: it may
    /// come of the request, which would fail, or kill, everywhere.
    async fn answered(&mut self, held: &mut Held, response: &ResponseHead) -> Next {
        let status = response.status;
        if !matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
                held.blame(Fault::Status, &format!("it answers {status}"));
            }
            return Next::Relay;
        }
        let clock = self.core.gateway.clock;
        // Boxed: rare, and large.
        let look = async || Box::pin(probe::look(clock, held.endpoint())).await;
        if status == StatusCode::SERVICE_UNAVAILABLE
            && let Some(not_well) = look().await
        {
            held.endpoint().note_trouble("it is loading its model");
            suspect(&self.request.deployment.pool, held, not_well == NotWell::Gone);
            return self.again(held, Failure::Loading);
        }
        held.note(Sign::Busy(headers::retry_after(&response.fields)));
        let mut tries = self.tries.clone();
        tries.failed(held.replica(), Failure::Busy, self.sends);
        if !tries.may_go_on() {
            return Next::Relay;
        }
        match self.request.deployment.pool.elsewhere(&self.request.facts, tries.tried()) {
            Second::Now(held) => {
                *self.tries = tries;
                Next::Attempt(Admission::Now(held))
            }
            Second::Nobody => Next::Relay,
            Second::Spent => {
                self.record.trouble(SPENT);
                Next::Relay
            }
        }
    }

    /// No answer came.
    async fn failed(&mut self, held: &mut Held, error: &UpstreamError) -> Next {
        let (fault, mut failure) = match error {
            UpstreamError::Local(why) => {
                self.record.trouble(why);
                return Next::Refuse(NO_SOCKET);
            }
            UpstreamError::Connect { .. } => (Fault::Connect, Failure::Connect),
            UpstreamError::Broken { .. } | UpstreamError::Head(_) => (Fault::Broken, Failure::Broken),
            UpstreamError::Silent(_) => (Fault::Silent, Failure::Broken),
        };
        held.blame(fault, &error.to_string());
        self.record.trouble(&error.to_string());
        if let UpstreamError::Connect { refused, .. } = error {
            suspect(&self.request.deployment.pool, held, *refused);
        }
        if let UpstreamError::Broken { begun: false, .. } = error
            && let Some(not_well) = probe::look(self.core.gateway.clock, held.endpoint()).await
        {
            failure = Failure::Died;
            // All that it worked on ends at once: its probe says when it is back, and that is all there is to say.
            held.note(Sign::Neutral);
            suspect(&self.request.deployment.pool, held, not_well == NotWell::Gone);
        }
        match verdict(error) {
            Some(answer) => Next::Fail(answer),
            None => self.again(held, failure),
        }
    }

    /// Another attempt, where one is left and the budget allows it.
    fn again(&mut self, held: &mut Held, failure: Failure) -> Next {
        let Identified { deployment, facts, .. } = self.request;
        self.tries.failed(held.replica(), failure, self.sends);
        if !self.tries.may_go_on() {
            return if failure == Failure::Loading { Next::Refuse(LOADING) } else { Next::Fail(in_vain()) };
        }
        if failure.costs() && !deployment.pool.may_retry() {
            return Next::Fail(ApiError::bad_replica(SPENT));
        }
        held.release();
        Next::Attempt(deployment.pool.retry(facts, self.tries.tried(), self.arrived))
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
        UpstreamError::Head(bad) => Some(ApiError::bad_replica(format!(
            "the replica broke the protocol in the head of its answer: {bad}"
        ))),
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

/// It could not even be connected to, or loads its model: it takes nothing until its probe has looked.
fn suspect(pool: &Arc<Pool>, held: &Held, refused: bool) {
    pool.change(held.replica(), if refused { Change::Refused } else { Change::Suspect });
    held.endpoint().suspect();
}

fn refuse(mut record: Record, request: &Identified, rejection: Rejection) -> Response {
    record.refused(rejection.reason);
    let name = &request.deployment.name;
    let text = match rejection.reason {
        Refusal::QueueFull | Refusal::QueueBytes => format!("the queue of model `{name}` is full"),
        Refusal::WouldWaitTooLong | Refusal::WaitedTooLong => {
            format!("every replica of model `{name}` is busy")
        }
        Refusal::PushedOut => format!("the queue of model `{name}` is full, and more urgent requests came"),
        Refusal::WouldMissDeadline | Refusal::MissedDeadline => {
            format!("no replica of model `{name}` is free before the deadline of the request")
        }
        Refusal::ColdStartTooLong => format!("model `{name}` did not start in time"),
        Refusal::StartFailed => {
            format!("model `{name}` cannot be started; its operator can see why in the status")
        }
        Refusal::OtherModel => format!(
            "no replica serves model `{name}`: the engines that run for it list other models; its operator can see which \
             in the status"
        ),
        Refusal::Unreachable => format!(
            "no replica of model `{name}` can be reached: connections to all of them fail; its operator can see why in \
             the status"
        ),
        Refusal::NoReplica => format!("no replica of model `{name}` is ready"),
        Refusal::CannotStart => format!(
            "no replica of model `{name}` runs, and none can be started; its operator can see why in the status"
        ),
        Refusal::Drained => format!("every replica of model `{name}` is being drained"),
        Refusal::NoSocket => "the gateway has as many connections as it may have".to_owned(),
    };
    let text = format!("{text}; try again in {} s", rejection.retry_after.as_secs_f64().ceil());
    respond::refusal(record, &ApiError::refused(rejection.reason, text), rejection.retry_after)
}

fn outgoing<'a>(
    head: &'a RequestHead,
    identified: &'a Identified,
    target: &'a Uri,
    endpoint: &'a Endpoint,
) -> Outgoing<'a> {
    let (method, fields) = (&head.method, &head.fields);
    Outgoing { method, target, host: endpoint.host(), fields, body: &identified.body }
}

fn relay(
    core: &Core,
    head: ResponseHead,
    (mut held, answer): (Held, Answer),
    mut record: Record,
) -> Response {
    let ResponseHead { status, mut fields } = head;
    headers::for_client(&mut fields);
    fields.set(Name::RequestId, record.request_id());
    let kind = kind(&fields);
    if kind == Kind::Events {
        respond::unbuffered(&mut fields);
    }
    record.status(status.as_u16());
    if status == StatusCode::SWITCHING_PROTOCOLS {
        record.trouble("the replica wants to switch protocols");
        held.blame(Fault::Broken, "it wants to switch protocols");
        return answered_for(
            &held,
            respond::error(record, &ApiError::bad_replica("the replica broke the protocol")),
        );
    }
    if !held.is_blamed() {
        held.endpoint().well();
    }
    name_replica(&mut fields, &held);
    let limit = core.gateway.limits.between_bytes;
    let kind = (kind, status.is_success());
    let exchange = Exchange::new(answer, kind, held, record, core.gateway.clock, limit);
    Response { status, fields, body: ResponseBody::Relay(core.relays.add(exchange)) }
}

/// An answer of the gateway's own that a replica is the reason for.
fn answered_for(held: &Held, mut response: Response) -> Response {
    name_replica(&mut response.fields, held);
    response
}

/// Says which replica it was, and how the request came to it (H5).
fn name_replica(fields: &mut Fields, held: &Held) {
    fields.set(Name::Replica, held.endpoint().name());
    fields.set(Name::Route, held.route().as_str());
}

/// Whether an answer is an event stream that can be read here.
pub(super) fn is_event_stream<B>(response: &Response<B>) -> bool {
    response.status == StatusCode::OK && kind(&response.fields) == Kind::Events
}

fn kind(fields: &Fields) -> Kind {
    if respond::is_encoded(fields) {
        return Kind::Opaque;
    }
    let content_type = fields.get(Name::ContentType).unwrap_or_default();
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if kind.eq_ignore_ascii_case(b"application/json") {
        Kind::Json
    } else if kind.eq_ignore_ascii_case(b"text/event-stream") {
        Kind::Events
    } else {
        Kind::Opaque
    }
}
