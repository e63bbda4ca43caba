//! `/deployments/NAME/drain/REPLICA`: takes one replica out, and back in with DELETE (C5). What runs there ends by
//! itself; then its provider stops it, or, where nobody can, it stays out until that is undone. One that nobody stops may
//! keep its conversations until they end, and gets no others (C-129). Decides nothing about who takes its place: the
//! control loop does.

use bytes::Bytes;
use http::{Method, Request};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tidegate_scaler::control::Drained;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{ReplicaId, replica_name};
use tidegate_shared::replica::{Capacity, Phase, ReplicaFacts};
use tidegate_shared::span::whole;
use tidegate_shared::time::Instant;

use super::ask::DEPLOYMENTS;
use super::manage::{body, conflict, find, find_replica, json, plain, unsaved};
use super::{Admin, Watched};
use crate::openai::ApiError;
use crate::pool::Change;
use crate::sizing::startable;

/// What stands between the names of the deployment and of the replica.
const DRAIN: &str = "/drain/";

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainAnswer {
    /// The deployment.
    pub deployment: String,
    /// The replica, by its public name.
    pub replica: String,
    /// What it does now.
    pub state: DrainState,
    /// Requests that run there.
    pub in_flight: u32,
    /// What follows from it, for people.
    pub follows: String,
    /// Why a restart would forget the change; it is in force all the same.
    pub unsaved: Option<String>,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    /// It is not taken out.
    In,
    /// It takes no new request, and requests run there.
    Draining,
    /// It takes no new request, nothing runs there, and nobody stops it.
    Drained,
    /// Nothing runs there, and its provider stops it.
    Stopping,
    /// It takes the requests of conversations that are at home there, and no others.
    OwnOnly,
}

impl DrainState {
    /// Of a replica that is taken out, in a `fixed` fleet or in one that somebody sizes.
    fn of(drained: Option<&Drained>, facts: &ReplicaFacts, fixed: bool) -> Self {
        match (drained, facts.in_flight) {
            (None, _) if facts.own_only => Self::OwnOnly,
            // The fleet shrinks, or it was just let go.
            (None, 1..) if facts.phase == Phase::Draining => Self::Draining,
            (None, _) if matches!(facts.phase, Phase::Draining | Phase::Gone) => Self::Stopping,
            (None, _) => Self::In,
            (Some(drained), _) if drained.ends => Self::Stopping,
            (Some(_), 1..) => Self::Draining,
            (Some(_), 0) if fixed => Self::Drained,
            (Some(_), 0) => Self::Stopping,
        }
    }
}

/// The two names in `path`, as they are written there.
pub(super) fn asked_about(path: &str) -> Option<(&str, &str)> {
    let names = path.strip_prefix(DEPLOYMENTS)?.rsplit_once(DRAIN)?;
    (!names.0.is_empty() && !names.1.is_empty()).then_some(names)
}

/// Takes a replica out or back in; the answer, as JSON.
///
/// # Errors
/// 400 for a body that says something else than what may be said; 404 for an unknown deployment or replica, with those
/// that there are; 409 for one that is being stopped already and is to come back, and for conversations that cannot stay.
pub(super) async fn answer(admin: &Admin, request: Request<Incoming>) -> Result<Bytes, ApiError> {
    let (undo, path) = (request.method() == Method::DELETE, request.uri().path().to_owned());
    let said = body(admin, request).await?;
    let (name, replica) = asked_about(&path).unwrap_or_default();
    let watched = find(admin, name)?;
    let id = find_replica(watched, &percent_decode_str(replica).decode_utf8_lossy())?;
    let now = admin.gateway.clock.now();
    match (undo, stay(&said)?) {
        (true, _) => put_back(watched, id)?,
        (false, true) => leave_its_own(watched, id)?,
        (false, false) => take_out(watched, id, now),
    }
    if let Some(store) = &admin.store {
        let url = (!undo).then(|| url_of(watched, id));
        store.drained(watched.pool.name(), id, url, admin.house.lasting(now));
    }
    let unsaved = match admin.store {
        Some(_) => unsaved(admin).await,
        None => Some("nothing is kept where every replica is given by the configuration".to_owned()),
    };
    Ok(json(&told(watched, id, unsaved)))
}

/// Whether its conversations are to stay: `{"conversations": "stay"}`, or `"move"`, as without a body.
fn stay(body: &[u8]) -> Result<bool, ApiError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Conversations {
        Move,
        Stay,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Said {
        conversations: Conversations,
    }
    if body.is_empty() {
        return Ok(false);
    }
    let said = serde_json::from_slice::<Said>(body).map_err(|error| {
        let mut refused = ApiError::bad_request(format!(
            "the body must be empty, or {{\"conversations\": \"stay\"}}, or {{\"conversations\": \"move\"}}: {}",
            plain(&error)
        ));
        refused.error.param = Some("conversations");
        refused
    })?;
    Ok(matches!(said.conversations, Conversations::Stay))
}

/// It goes on for its conversations, and gets no others. Not where its provider would stop it meanwhile.
fn leave_its_own(watched: &Watched, id: ReplicaId) -> Result<(), ApiError> {
    let name = replica_name(watched.pool.name(), id);
    if watched.provider != "static" {
        return Err(conflict(format!(
            "{name} is stopped as soon as nothing runs there, so its conversations cannot stay: only those can whose \
             replica has its URL in the configuration"
        )));
    }
    if watched.helm.drained().contains_key(&id) {
        return Err(conflict(format!(
            "{name} is taken out already: its conversations move; undo that first"
        )));
    }
    watched.pool.change(id, Change::OwnOnly);
    Ok(())
}

/// The loop first: else it could take for its own drain what is an operator's, and undo it.
fn take_out(watched: &Watched, id: ReplicaId, now: Instant) {
    watched.helm.drain(id, now);
    // The loop announces it too, but may wait for its provider just now.
    watched.pool.change(id, Change::Draining);
}

fn put_back(watched: &Watched, id: ReplicaId) -> Result<(), ApiError> {
    let own_only = watched.pool.observe().replicas.iter().any(|facts| facts.id == id && facts.own_only);
    let was_out = watched.helm.drained().contains_key(&id) || own_only;
    if !watched.helm.undrain(id) {
        let name = replica_name(watched.pool.name(), id);
        return Err(conflict(format!("{name} is being stopped already: nothing runs there any more")));
    }
    if was_out {
        watched.pool.change(id, Change::Undrain);
    }
    Ok(())
}

/// What tells a fixed replica from one that takes its number later; the number alone does of the others.
fn url_of(watched: &Watched, id: ReplicaId) -> String {
    if watched.provider != "static" {
        return String::new();
    }
    watched.pool.url(id).unwrap_or_default()
}

fn told(watched: &Watched, id: ReplicaId, unsaved: Option<String>) -> DrainAnswer {
    let (seen, fixed) = (watched.pool.observe(), watched.provider == "static");
    let known = seen.replicas.iter().find(|facts| facts.id == id);
    let gone = || ReplicaFacts::new(id, Phase::Gone, seen.at, Capacity::ONE);
    let facts = known.cloned().unwrap_or_else(gone);
    let state = DrainState::of(watched.helm.drained().get(&id), &facts, fixed);
    let in_flight = facts.in_flight;
    let replica = replica_name(watched.pool.name(), id);
    let follows = match state {
        DrainState::In if facts.is_ready() => "it takes requests".to_owned(),
        DrainState::In => "it takes requests as soon as it is ready".to_owned(),
        _ => format!("{}; {}", own_way(state, &facts), others(watched, &seen)),
    };
    DrainAnswer { deployment: watched.pool.name().to_string(), replica, state, in_flight, follows, unsaved }
}

/// What becomes of the replica itself.
fn own_way(state: DrainState, facts: &ReplicaFacts) -> String {
    let ReplicaFacts { in_flight, conversations, .. } = *facts;
    let requests =
        if in_flight == 1 { "1 request that runs there ends" } else { "requests that run there end" };
    match state {
        DrainState::Draining if in_flight == 1 => {
            format!("it takes no new request, and the {requests} by itself")
        }
        DrainState::Draining => {
            format!("it takes no new request, and the {in_flight} {requests} by themselves")
        }
        DrainState::Stopping => "nothing runs there, and it is stopped".to_owned(),
        DrainState::OwnOnly => {
            let own = match conversations {
                1 => "the 1 conversation that is at home there stays until it ends".to_owned(),
                n => format!("the {n} conversations that are at home there stay until they end"),
            };
            format!("it takes no new conversation, and {own}")
        }
        DrainState::Drained | DrainState::In => {
            "nothing runs there, and it takes no request until the drain is undone".to_owned()
        }
    }
}

/// Who serves without it.
fn others(watched: &Watched, seen: &Observation) -> String {
    let ready = seen.replicas.iter().filter(|facts| facts.is_ready() && !facts.own_only).count();
    let settings = watched.resizer.settings();
    match ready {
        1 => "1 other replica takes requests".to_owned(),
        2.. => format!("{ready} other replicas take requests"),
        0 if !startable(&settings) => {
            "no other replica takes requests: they are refused with 503 until one does".to_owned()
        }
        0 => {
            let coming = seen.replicas.iter().filter(|facts| facts.is_on_its_way()).count();
            let there = u32::try_from(seen.replicas.len()).unwrap_or(u32::MAX);
            let (most, floor) = (settings.sizing.ceiling(), settings.sizing.floor());
            format!("no other replica takes requests: {}", meanwhile(coming, there < most, most, floor))
        }
    }
}

/// Who waits for what, while nobody takes requests: so many replicas are on their way, and there is `room` for one more or
/// not, under a ceiling of `most` and over a floor of `floor`.
fn meanwhile(coming: usize, room: bool, most: u32, floor: u32) -> String {
    match (coming, room, floor) {
        (1, ..) => "they wait for the one that is on its way".to_owned(),
        (2.., ..) => format!("they wait for the first of {coming} that are on their way"),
        (0, false, _) => {
            format!("they wait until this one is stopped, since max is {most}, and then for a new one")
        }
        (0, true, 0) => "the next one waits for a new replica, which is started for it".to_owned(),
        (0, true, _) => {
            format!("they wait for a new one, which is started now, since at least {floor} must be there")
        }
    }
}

/// How far the drain of a replica is that an operator took out.
pub(super) fn state(drained: Option<&Drained>, facts: &ReplicaFacts, fixed: bool) -> Option<DrainState> {
    drained.map(|drained| DrainState::of(Some(drained), facts, fixed))
}

/// How it stands with a replica that is taken out, for the status.
pub(super) fn sentence(
    drained: Option<&Drained>,
    facts: &ReplicaFacts,
    fixed: bool,
    now: Instant,
) -> Option<String> {
    let state = DrainState::of(drained, facts, fixed);
    let Some(drained) = drained else {
        return facts.own_only.then(|| format!("as an operator said: {}", own_way(state, facts)));
    };
    let age = whole(drained.age(now));
    Some(format!("an operator drained it {age} ago: {}", own_way(state, facts)))
}

#[cfg(test)]
mod tests {
    use tidegate_shared::id::ReplicaId;
    use tidegate_shared::replica::{Capacity, Phase, ReplicaFacts};
    use tidegate_shared::time::Instant;

    use super::{DrainState, meanwhile};

    #[test]
    fn c5_one_that_leaves_by_itself_is_not_said_to_be_in() {
        let state = |phase, in_flight| {
            let facts = ReplicaFacts::new(ReplicaId(6), phase, Instant::ZERO, Capacity::ONE);
            DrainState::of(None, &ReplicaFacts { in_flight, ..facts }, false)
        };
        assert_eq!(state(Phase::Draining, 3), DrainState::Draining);
        assert_eq!([Phase::Draining, Phase::Gone].map(|phase| state(phase, 0)), [DrainState::Stopping; 2]);
        assert_eq!([Phase::Ready, Phase::Starting].map(|phase| state(phase, 0)), [DrainState::In; 2]);
    }

    #[test]
    fn c5_what_requests_wait_for_meanwhile_is_told_as_it_is() {
        assert_eq!(meanwhile(1, false, 2, 1), "they wait for the one that is on its way");
        assert_eq!(meanwhile(3, true, 4, 1), "they wait for the first of 3 that are on their way");
        let full = "they wait until this one is stopped, since max is 1, and then for a new one";
        assert_eq!(meanwhile(0, false, 1, 1), full);
        assert_eq!(meanwhile(0, true, 2, 0), "the next one waits for a new replica, which is started for it");
        let floor = "they wait for a new one, which is started now, since at least 1 must be there";
        assert_eq!(meanwhile(0, true, 2, 1), floor);
    }
}
