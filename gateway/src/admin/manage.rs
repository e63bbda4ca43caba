//! What an operator changes while the gateway runs, and what is told of it: sizes (`/deployments/NAME/sizing`), credit
//! (`/credit`); and the past decisions of a deployment (`/deployments/NAME/decisions`). Checks nothing by itself: a
//! size is checked as the configuration is. Errors have OpenAI's shape.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_scaler::house::Credit;
use tidegate_scaler::store::MOST_DECISIONS;
use tidegate_scaler_core::config::Sizing;
use tidegate_shared::id::{ReplicaId, replica_name};
use tidegate_shared::offer::{Money, Offer, Price};
use tidegate_shared::problem::Problem;
use tidegate_shared::time::{Duration, Instant};
use tokio::time::timeout;

use super::ask::{Ask, DEPLOYMENTS};
use super::status::DecisionStatus;
use super::{Admin, Watched, dollars, explain};
use crate::config::{RESIZABLE, amount};
use crate::openai::ApiError;
use crate::sizing::{Origin, Setting, TARGET, sentence};

/// Largest body of a change, in bytes.
const MOST_BODY: u64 = 64 << 10;
/// How long an answer waits for the disk; after that it says that the change is in force and not saved yet.
const DISK: Duration = Duration::from_secs(3);
/// Decisions that are told unless asked for more.
const USUAL_DECISIONS: u32 = 50;

/// The answer of `/deployments/NAME/sizing`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizingAnswer {
    /// The deployment.
    pub deployment: String,
    /// Each setting that can be changed while the gateway runs; none for a static fleet.
    pub sizing: BTreeMap<String, SizingValue>,
    /// Replicas of a static fleet, whose size is the configuration's; absent for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u32>,
    /// What follows from these values that is hardly meant, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Why this, or an earlier change, is not on disk; it is in force all the same, and is tried again.
    pub unsaved: Option<String>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizingValue {
    /// Its value.
    pub value: Value,
    /// What goes in its place, where something else bounds it: no replica is given more than `concurrency_limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<Value>,
    /// Where it comes from: `set`, `tuned`, `configuration` or `default`.
    pub from: String,
    /// Seconds since it was set or tuned, where it was.
    pub age_s: Option<f64>,
    /// What it would be by the configuration, or by default, where it was set or tuned; null for no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Value>,
    /// Whose that is: `configuration` or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_from: Option<String>,
    /// The kind of replica that it was tuned on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// The answer of `/credit`, in dollars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreditAnswer {
    /// What the configuration gives.
    #[serde(with = "dollars")]
    pub configured: Money,
    /// All that was ever added to it.
    #[serde(with = "dollars")]
    pub added: Money,
    /// What is left.
    #[serde(with = "dollars")]
    pub left: Money,
    /// Why this, or an earlier change, is not on disk; it is in force all the same, and is tried again.
    pub unsaved: Option<String>,
}

/// The answer, as JSON.
///
/// # Errors
/// 400 for a change that cannot be, with all its faults; 404 for an unknown deployment, with those that there are; 409
/// where nothing can be changed; 500 where the records cannot be read.
pub(super) async fn answer(admin: &Admin, ask: Ask, request: Request<Incoming>) -> Result<Bytes, ApiError> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let body = if changes { body(admin, request).await? } else { Bytes::new() };
    let now = admin.gateway.clock.now();
    match ask {
        Ask::Credit => {
            if changes {
                let added = top_up(&body)?;
                admin.house.top_up(added, now).ok_or_else(no_credit)?;
            }
            let unsaved = unsaved(admin).await;
            let Credit { configured, added, left } = admin.house.credit(now).ok_or_else(no_credit)?;
            Ok(json(&CreditAnswer { configured, added, left, unsaved }))
        }
        Ask::Decisions => {
            let watched = find(admin, named_by(&path, "/decisions"))?;
            decisions(admin, watched, &query, admin.house.lasting(now)).await
        }
        _ => {
            let watched = find(admin, named_by(&path, "/sizing"))?;
            let now = admin.house.lasting(now);
            if changes {
                resize(watched, &body, now)?;
            }
            let unsaved = unsaved(admin).await;
            Ok(json(&sizing(watched, unsaved, now)))
        }
    }
}

/// What the settings of `watched` are, and where they come from.
pub(super) fn sizing(watched: &Watched, unsaved: Option<String>, now: Instant) -> SizingAnswer {
    let told = |Setting { key, value, of_file, origin }: Setting| {
        let key = key.to_owned();
        let (from, age, on) = match origin {
            Origin::Set(age) => ("set", Some(age), None),
            Origin::Tuned(age, kind) => ("tuned", Some(age), Some(kind)),
            Origin::Configuration => ("configuration", None, None),
            Origin::Default => ("default", None, None),
        };
        let age_s = age.map(|age| age.as_secs_f64());
        let file = age.map(|_| of_file);
        let given = if watched.resizer.gives(&key) { "configuration" } else { "default" };
        let file_from = age.map(|_| given.to_owned());
        let most = Value::from(watched.resizer.sizing().target());
        let in_force = (key == TARGET && value != most).then_some(most);
        (key, SizingValue { value, in_force, from: from.to_owned(), age_s, file, file_from, on })
    };
    // A fleet that somebody else runs has the size that it has.
    let origins = if watched.provider == "static" { Vec::new() } else { watched.resizer.origins(now) };
    let sizing = origins.into_iter().map(told).collect();
    let count = || u32::try_from(watched.pool.observe().replicas.len()).unwrap_or(u32::MAX);
    let fixed = (watched.provider == "static").then(count);
    let outlook = watched.control.view().outlook;
    let offers = outlook.map(|outlook| outlook.offers).unwrap_or_default();
    let sizing_now = watched.resizer.sizing();
    let warning = none(&sizing_now).filter(|_| fixed.is_none());
    let warning = warning.or_else(|| too_dear(sizing_now.price_cap, &offers)).or_else(|| over(&sizing_now));
    SizingAnswer { deployment: watched.pool.name().to_string(), sizing, fixed, warning, unsaved }
}

/// What follows where nothing may be started.
fn none(sizing: &Sizing) -> Option<String> {
    let why = match (sizing.ceiling(), sizing.autoscale, sizing.floor()) {
        (0, ..) => "max is 0, so nothing runs",
        (_, false, 0) => "scaling is switched off and min is 0, so nothing is started",
        _ => return None,
    };
    Some(format!("{why}: once nothing is there, requests get 503"))
}

/// What follows where more is aimed at than a replica is given.
fn over(sizing: &Sizing) -> Option<String> {
    let (asked, most) = (sizing.target_concurrency, sizing.target());
    (asked > most).then(|| {
        format!("target_concurrency {asked} is over concurrency_limit, so {most} is in force: a replica is given no more")
    })
}

/// What follows where no offer is within the cap.
fn too_dear(cap: Option<Price>, offers: &[Offer]) -> Option<String> {
    let (cap, cheapest) = (cap?, offers.iter().map(|offer| offer.price).min()?);
    (cap < cheapest).then(|| {
        format!("the price cap of {cap} is below the cheapest offer, {cheapest}: no replica is started; what runs is kept")
    })
}

/// The whole body of a change.
pub(super) async fn body(admin: &Admin, request: Request<Incoming>) -> Result<Bytes, ApiError> {
    explain::whole(&admin.gateway, request.into_body(), MOST_BODY).await.map(|(body, _)| body)
}

/// The name that stands in `path` before `ending`, as it is written there.
pub(super) fn named_by<'a>(path: &'a str, ending: &str) -> &'a str {
    path.strip_prefix(DEPLOYMENTS).and_then(|rest| rest.strip_suffix(ending)).unwrap_or(path)
}

/// The deployment of that name or alias, as it is written in a path.
///
/// # Errors
/// 404 with those that there are.
pub(super) fn find<'a>(admin: &'a Admin, name: &str) -> Result<&'a Watched, ApiError> {
    let name = percent_decode_str(name).decode_utf8_lossy();
    let known = admin.gateway.directory.find(&name);
    let found = known.and_then(|known| admin.watched.iter().find(|one| *one.pool.name() == known.name));
    found.ok_or_else(|| explain::name_models(ApiError::unknown_model(&name), &admin.gateway))
}

/// The replica of `watched` of that public name, or with that number.
///
/// # Errors
/// 404 with those that there are.
pub(super) fn find_replica(watched: &Watched, asked: &str) -> Result<ReplicaId, ApiError> {
    let pool = &watched.pool;
    let all: Vec<_> = pool.observe().replicas.iter().map(|facts| facts.id).collect();
    let is = |id: &ReplicaId| replica_name(pool.name(), *id) == asked || id.0.to_string() == asked;
    all.iter().copied().find(is).ok_or_else(|| {
        let there: Vec<_> = all.iter().map(|id| format!("`{}`", replica_name(pool.name(), *id))).collect();
        let there = match there.as_slice() {
            [] => "there is none".to_owned(),
            [one] => format!("there is {one}"),
            many => format!("there are {}", many.join(", ")),
        };
        let shown: String = asked.chars().take(100).collect();
        let mut error = ApiError::bad_request(format!("the replica `{shown}` does not exist; {there}"));
        (error.status, error.error.code) = (404, Some("replica_not_found"));
        error.error.param = Some("replica");
        error
    })
}

/// 409 where nobody sizes the fleet.
pub(super) fn fixed(watched: &Watched) -> Result<(), ApiError> {
    if watched.provider == "static" {
        let name = watched.pool.name();
        return Err(conflict(format!("the replicas of `{name}` are fixed by the configuration")));
    }
    Ok(())
}

/// Changes the size of a fleet.
fn resize(watched: &Watched, body: &[u8], now: Instant) -> Result<(), ApiError> {
    fixed(watched)?;
    let given: BTreeMap<String, Value> = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the body must be a JSON object with some of {}, such as {{\"min\": 1}}: {}",
            RESIZABLE.join(", "),
            plain(&error)
        ))
    })?;
    let (mut changes, mut faults) = (BTreeMap::new(), Vec::new());
    for (key, value) in given {
        match RESIZABLE.into_iter().find(|known| **known == *key) {
            Some(known) => drop(changes.insert(known, (!value.is_null()).then_some(value))),
            None => faults.push(Problem {
                path: key.chars().take(100).collect(),
                value: String::new(),
                rule: format!("cannot be set while the gateway runs; there are {}", RESIZABLE.join(", ")),
                line: 0,
            }),
        }
    }
    let checked = watched.resizer.check(&changes, now);
    faults.extend(checked.err().unwrap_or_default());
    if faults.is_empty() {
        faults.extend(watched.resizer.set(changes, now).err().unwrap_or_default());
    }
    if faults.is_empty() { Ok(()) } else { Err(refused(&faults)) }
}

/// 400 with every fault.
pub(super) fn refused(faults: &[Problem]) -> ApiError {
    let mut error = ApiError::bad_request(sentence(faults));
    let first = faults.first().map(|fault| fault.path.clone()).unwrap_or_default();
    error.error.param = RESIZABLE.into_iter().find(|key| *key == first);
    error
}

/// What is wrong with a body, without the place in it: bodies of changes are short.
pub(super) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split_once(" at line ").map_or_else(|| text.clone(), |(what, _)| what.to_owned())
}

/// The amount in `{"amount": 25.50}`, exactly as it is written.
fn top_up(body: &[u8]) -> Result<Money, ApiError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TopUp<'a> {
        #[serde(borrow)]
        amount: &'a RawValue,
    }
    let mut error = ApiError::bad_request("");
    error.error.param = Some("amount");
    let read = serde_json::from_slice::<TopUp<'_>>(body).map_err(|error| {
        format!("the body must be a JSON object such as {{\"amount\": 25.50}}: {}", plain(&error))
    });
    read.and_then(|read| {
        amount(read.amount.get()).map_err(|rule| {
            let shown: String = read.amount.get().chars().take(60).collect();
            format!("amount is {shown}, but {rule}")
        })
    })
    .map_err(|message| {
        error.error.message = message;
        error
    })
}

/// `/deployments/NAME/decisions?limit=N`.
async fn decisions(admin: &Admin, watched: &Watched, query: &str, now: Instant) -> Result<Bytes, ApiError> {
    let mut limit = USUAL_DECISIONS;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let value = pair.strip_prefix("limit=").and_then(|value| value.parse().ok());
        limit = value.filter(|limit| (1..=MOST_DECISIONS).contains(limit)).ok_or_else(|| {
            let pair: String = pair.chars().take(100).collect();
            ApiError::bad_request(format!(
                "the query is `{pair}`, but must be limit=N with N from 1 to {MOST_DECISIONS}"
            ))
        })?;
    }
    let name = watched.pool.name();
    let past = match &admin.store {
        Some(store) => {
            let read = timeout(DISK, store.decisions(name, limit, now)).await;
            let read = read.unwrap_or_else(|_| Err(format!("the disk does not answer within {DISK:?}")));
            read.map_err(|why| {
                tracing::warn!("past decisions of {name} cannot be read: {why}");
                let mut error = ApiError::internal();
                error.error.message = format!("the records cannot be read: {why}");
                error
            })?
        }
        None => Vec::new(),
    };
    let told = past.iter().map(|past| DecisionStatus::new(&past.decision, past.decision.at + past.age));
    Ok(json(&Past { deployment: name.as_str(), decisions: told.collect() }))
}

#[derive(Serialize)]
struct Past<'a> {
    deployment: &'a str,
    /// Newest first.
    decisions: Vec<DecisionStatus>,
}

/// Why what was changed until now is not on disk. Also asked by who only looks: somebody else may have changed it just now.
pub(super) async fn unsaved(admin: &Admin) -> Option<String> {
    let store = admin.store.as_ref()?;
    match timeout(DISK, store.flush()).await {
        Ok(written) => written.err(),
        Err(_) => Some(format!("the disk does not answer within {DISK:?}")),
    }
}

fn no_credit() -> ApiError {
    conflict("no credit is counted: give budget.credit in the configuration".to_owned())
}

/// 409: it cannot be changed at all, as things are.
pub(super) fn conflict(message: String) -> ApiError {
    let mut error = ApiError::bad_request(message);
    (error.status, error.error.code) = (409, Some("conflict"));
    error
}

/// The body of an answer.
pub(super) fn json(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_shared::replica::Capacity;

    #[test]
    fn a1_a_target_over_the_limit_is_warned_of_with_what_is_in_force() {
        let sizing = |limit| Sizing { target_concurrency: 50, limit, ..Sizing::default() };
        let warned =
            "target_concurrency 50 is over concurrency_limit, so 1 is in force: a replica is given no more";
        assert_eq!(over(&sizing(1)).as_deref(), Some(warned));
        assert_eq!(over(&sizing(50)), None);
    }

    #[test]
    fn c2_a_cap_below_every_price_is_warned_of() {
        let offers = [135, 90].map(|cents| Offer::new("L4", Capacity::ONE, Price(cents * 10_000)));
        let warned = too_dear(Some(Price(500_000)), &offers).expect("a warning");
        assert!(
            warned.starts_with("the price cap of $0.50/h is below the cheapest offer, $0.90/h: no replica"),
            "{warned}"
        );
        assert_eq!(too_dear(Some(Price(900_000)), &offers), None, "the cheapest is within it");
        assert_eq!(too_dear(None, &offers), None);
        assert_eq!(too_dear(Some(Price(1)), &[]), None, "nobody knows yet");
    }
}
