//! `POST /route`: reads a request as it would be sent and tells where it would go (E3). Takes the same body and headers
//! as the endpoint itself; its path follows `/route`, so that any client can be pointed here by its base URL, and
//! `/route` alone is for chat completions. Sends nothing and changes nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;

use super::ask::ROUTE;
use super::route::RouteAnswer;
use crate::http1::fields::Fields;
use crate::layer::identify::identify;
use crate::layer::read::{self, NoBody, Share};
use crate::openai::{ApiError, Operation};
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
pub(super) async fn answer(gateway: &Arc<Gateway>, request: Request<Incoming>) -> Result<Bytes, ApiError> {
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
    let answer = RouteAnswer::new(&request, &pool.explain(&request.facts), |id| pool.trouble(id));
    Ok(serde_json::to_vec(&answer).unwrap_or_default().into())
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
