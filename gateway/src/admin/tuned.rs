//! `/deployments/NAME/tuned`: what tuning found for a deployment (A1), and its way in. With PUT it becomes the target, in
//! place of one that was set by hand. Measures nothing, and does not read the curve: it is kept for those who ask.

use bytes::Bytes;
use http::{Method, Request};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_scaler::store::Tuned;
use tidegate_shared::time::Instant;

use super::manage::{body, find, fixed, json, named_by, plain, refused, unsaved};
use super::{Admin, Watched};
use crate::openai::ApiError;
use crate::sizing::TunedView;

/// Longest name of a kind of replica, in characters.
const MOST_KIND: usize = 200;

/// The body of the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedChange {
    /// Requests for each replica to aim at.
    pub target: u32,
    /// The model that was measured; the one that is served unless given.
    #[serde(default)]
    pub model: Option<String>,
    /// The kind of replica that was measured, for people.
    pub kind: String,
    /// What was measured, a point each.
    pub curve: Vec<Value>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedAnswer {
    /// The deployment.
    pub deployment: String,
    /// What was found last; absent where nothing was.
    pub tuned: Option<TunedFound>,
    /// Why this, or an earlier change, is not on disk; it is in force all the same, and is tried again.
    pub unsaved: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedFound {
    /// Requests for each replica to aim at.
    pub target: u32,
    /// The model that was measured.
    pub model: String,
    /// The kind of replica that was measured.
    pub kind: String,
    /// Seconds since then.
    pub age_s: f64,
    /// It is the target in force.
    pub in_force: bool,
    /// What was measured.
    pub curve: Value,
}

/// Takes in what was found, or tells it; the answer, as JSON.
///
/// # Errors
/// 400 for a body that is none or a target that cannot be; 404 for an unknown deployment; 409 for a fixed fleet.
pub(super) async fn answer(admin: &Admin, request: Request<Incoming>) -> Result<Bytes, ApiError> {
    let (changes, path) = (request.method() == Method::PUT, request.uri().path().to_owned());
    let body = if changes { body(admin, request).await? } else { Bytes::new() };
    let watched = find(admin, named_by(&path, "/tuned"))?;
    let now = admin.house.lasting(admin.gateway.clock.now());
    if changes {
        fixed(watched)?;
        change(watched, &body, now)?;
    }
    let waits = unsaved(admin).await;
    let tuned = watched.resizer.tuned(now).map(found);
    Ok(json(&TunedAnswer { deployment: watched.pool.name().to_string(), tuned, unsaved: waits }))
}

fn change(watched: &Watched, body: &[u8], now: Instant) -> Result<(), ApiError> {
    let change: TunedChange = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the body must be a JSON object such as {{\"target\": 24, \"kind\": \"L4\", \"curve\": []}}: {}",
            plain(&error)
        ))
    })?;
    let TunedChange { target, model, kind, curve } = change;
    let length = kind.chars().count();
    if !(1..=MOST_KIND).contains(&length) {
        let text = format!("kind has {length} characters, but must have 1 to {MOST_KIND}");
        return Err(ApiError::bad_request(text));
    }
    let model = model.unwrap_or_else(|| watched.resizer.settings().model);
    let curve = Value::from(curve).to_string();
    let done = watched.resizer.tune(Tuned { target, model, kind, curve }, now);
    done.map_err(|faults| refused(&faults))
}

fn found(view: TunedView) -> TunedFound {
    let TunedView { tuned: Tuned { target, model, kind, curve }, age, in_force } = view;
    let curve = serde_json::from_str(&curve).unwrap_or_default();
    TunedFound { target, model, kind, age_s: age.as_secs_f64(), in_force, curve }
}
