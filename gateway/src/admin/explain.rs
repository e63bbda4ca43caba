//! `POST /route`: reads a request as it would be sent and tells where it would go (E3). Takes the same body and headers
//! as the endpoint itself; its path follows `/route`, so that any client can be pointed here by its base URL, and
//! `/route` alone is for chat completions. Sends nothing and changes nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use tidegate_shared::decision::Refusal;
use tidegate_shared::demand::Observation;
use tidegate_shared::explained::RouteVerdict;
use tidegate_shared::replica::Starts;

use super::ask::ROUTE;
use super::route::RouteAnswer;
use super::{Admin, why};
use crate::http1::fields::Fields;
use crate::layer::identify::identify;
use crate::layer::read::{self, NoBody, Share};
use crate::openai::{ApiError, Operation};
use crate::pool::{NOTHING_STARTS, Pool};
use crate::server::Gateway;

/// Names that are listed where a model is unknown.
const MOST_NAMES: usize = 20;

/// The whole body of what is asked, of at most `limit` bytes, and its share of the memory for bodies.
///
/// # Errors
/// What is wrong with it; what is left of it is thrown away.
pub(super) async fn whole(gateway: &Gateway, body: Incoming, limit: u64) -> Result<(Bytes, Share), ApiError> {
    let read = read::whole(body, limit, &gateway.budget, gateway.clock).await;
    read.map_err(|no| match no {
        NoBody::Refused(error, rest) => {
            tokio::spawn(read::discard(rest));
            error
        }
        NoBody::NoMemory(rest) => {
            tokio::spawn(read::discard(rest));
            ApiError::no_memory()
        }
        NoBody::Gone(_) => ApiError::bad_request("the request body ended early"),
    })
}

/// The answer, as JSON.
///
/// # Errors
/// What the endpoint itself would say of a request that cannot be understood: 400, 404, 408, 413.
pub(super) async fn answer(admin: &Admin, request: Request<Incoming>) -> Result<Bytes, ApiError> {
    let gateway = &admin.gateway;
    let (parts, body) = request.into_parts();
    let operation = match operation(parts.uri.path()) {
        Ok(operation) => operation,
        Err(error) => {
            tokio::spawn(read::discard(body));
            return Err(error);
        }
    };
    let (body, _share) = whole(gateway, body, gateway.limits.body).await?;
    let request = identify(operation, &Fields::from(&parts.headers), body, &gateway.directory);
    let request = request.map_err(|error| name_models(error, gateway))?;
    let pool = &request.deployment.pool;
    let mut decision = pool.explain(&request.facts);
    let why = unstartable(admin, pool).filter(|_| matches!(decision.verdict, RouteVerdict::Wait { .. }));
    if why.is_some() {
        let (reason, retry_after) = (Refusal::CannotStart, NOTHING_STARTS);
        decision.verdict = RouteVerdict::Refuse { reason, retry_after };
    }
    let mut answer = RouteAnswer::new(&request, &decision, |id| pool.trouble(id));
    why.into_iter().for_each(|why| answer.text.push_str(&format!(": {why}")));
    Ok(serde_json::to_vec(&answer).unwrap_or_default().into())
}

/// Why the request would be refused by the evaluation that it asks for by coming (C2): nothing runs, and nothing can be
/// started before somebody changes something.
fn unstartable(admin: &Admin, pool: &Arc<Pool>) -> Option<String> {
    let watched = admin.watched.iter().find(|one| Arc::ptr_eq(&one.pool, pool))?;
    let (seen, ..) = pool.inspect();
    let one_more = Observation { queued: seen.queued.saturating_add(1), ..seen };
    let starts = watched.control.starts_for(&one_more);
    if starts != Some(Starts::Blocked) || !why::is_bare(&one_more.replicas) {
        return None;
    }
    let (view, spending) = (watched.control.view_of(&one_more), admin.spending(watched, one_more.at));
    let why = why::startless(&watched.resizer.sizing(), &view, spending.credit);
    Some(why.map(|startless| startless.why).unwrap_or_else(|| "growth is blocked".to_owned()))
}

fn operation(path: &str) -> Result<Operation, ApiError> {
    let rest = path.strip_prefix(ROUTE).unwrap_or(path).trim_end_matches('/');
    if rest.is_empty() {
        return Ok(Operation::ChatCompletions);
    }
    Operation::from_path(rest).ok_or_else(|| {
        let mut error = ApiError::unknown_path("POST", rest);
        let known: Vec<_> = Operation::ALL.iter().map(|operation| operation.path()).collect();
        error.error.message.push_str(&format!("; there are {}", known.join(", ")));
        error
    })
}

/// An operator may know the names that there are.
pub(super) fn name_models(mut error: ApiError, gateway: &Gateway) -> ApiError {
    if error.error.code == Some("model_not_found") {
        let deployments = gateway.directory.iter();
        let names =
            deployments.flat_map(|deployment| std::iter::once(&deployment.name).chain(&deployment.aliases));
        let mut listed: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        if listed.len() > MOST_NAMES {
            let more = listed.len() - MOST_NAMES;
            listed.truncate(MOST_NAMES);
            listed.push(format!("{more} more"));
        }
        let text = &mut error.error.message;
        text.truncate(text.rfind("; GET ").unwrap_or(text.len()));
        let are = if listed.len() == 1 { "is" } else { "are" };
        text.push_str(&format!("; there {are} {}", listed.join(", ")));
    }
    error
}
