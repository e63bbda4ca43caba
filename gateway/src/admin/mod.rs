//! The operator's side, on a port of its own: a page for people, `/status`, `/metrics`, `/livez`, `/route`, and why a
//! deployment is as it is. Gathers what others know, and hands on what an operator changes; decides nothing. Never waits
//! for a queue of requests (C-046): it runs on the control thread.

mod ask;
pub(crate) mod dollars;
pub mod drain;
mod drift;
mod explain;
pub mod manage;
mod page;
mod reason;
pub mod route;
mod serve;
pub mod status;
pub mod stopping;
mod trouble;
pub(crate) mod tune;
pub mod tuned;
pub mod why;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tidegate_scaler::control::{ControlStatus, ControlView, Helm, Spending};
use tidegate_scaler::house::House;
use tidegate_scaler::orphans::Orphanage;
use tidegate_scaler::store::{Past, Store};
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{DeploymentName, replica_name};
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::Instant;

use crate::clock;
use crate::config::Deployment;
use crate::openai::ApiError;
use crate::pool::{Pool, ReplicaDetail};
use crate::provide::Records;
use crate::server::Gateway;
use crate::sizing::Resizer;
use crate::telemetry::meter::{self, DeploymentMeter, Figures, Growth};
use ask::{Ask, ask};
use page::Page;
pub use serve::serve;
use status::{
    DecisionStatus, DeploymentStatus, EjectedStatus, EngineStatus, MOST_DECISIONS, MoneyStatus,
    RecordsStatus, ReplicaStatus, Status, TlsStatus, UnfitStatus,
};
use stopping::Since;
use trouble::Place;
use tune::Feed;

const PHASES: [Phase; 7] = [
    Phase::Provisioning,
    Phase::Starting,
    Phase::Waking,
    Phase::Ready,
    Phase::Draining,
    Phase::Parked,
    Phase::Failed,
];

/// What there is to say of a replica that is parked.
const SLEEPS: &str = "it sleeps, and is woken before another is started";

/// What the operator's side knows of one deployment.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its requests and replicas.
    pub pool: Arc<Pool>,
    /// Its metrics.
    pub meter: Arc<DeploymentMeter>,
    /// What its control loop decided.
    pub control: ControlStatus,
    /// Its size, which can be changed.
    pub resizer: Arc<Resizer>,
    /// Whom an operator takes out.
    pub helm: Helm,
    /// The kind of its provider.
    pub provider: &'static str,
}

/// Renders the page of metrics.
pub type Render = metrics_exporter_prometheus::PrometheusHandle;

/// See the module.
pub struct Admin {
    gateway: Arc<Gateway>,
    watched: Vec<Watched>,
    /// What survives restarts; `None` where nothing does.
    store: Option<Store>,
    house: House,
    orphans: Orphanage,
    /// Since when it stops.
    since: Since,
    /// The last decisions of earlier runs, newest first.
    past: BTreeMap<DeploymentName, Vec<Past>>,
    render: Render,
    page: Page,
}

impl Admin {
    /// Over these deployments, in the order of the configuration.
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        watched: Vec<Watched>,
        records: &Records,
        render: Render,
    ) -> Arc<Self> {
        let (store, house, past) = (records.store.clone(), records.house.clone(), records.past.clone());
        let (since, pools) = (Since::default(), watched.iter().map(|one| Arc::clone(&one.pool)).collect());
        tokio::spawn(since.clone().tell(Arc::clone(&gateway), pools));
        let orphans = records.orphans.clone();
        Arc::new(Self { gateway, watched, store, house, orphans, past, render, since, page: Page::new() })
    }

    fn status(&self) -> Status {
        // One moment for all: the credit that they share is one sum.
        let now = self.gateway.clock.now();
        let orphans = self.orphans.left(&self.house, now);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: now.since(Instant::ZERO).as_secs_f64(),
            stopping: self.since.status(&self.gateway, &self.watched),
            records: self.store.as_ref().map(|store| RecordsStatus::new(store.view(), &orphans)),
            tls: self.gateway.tls.as_ref().map(|shown| TlsStatus::new(shown, clock::wall())),
            deployments: self.watched.iter().map(|watched| self.deployment(watched, now)).collect(),
        }
    }

    /// What a deployment costs, as of `now`.
    fn spending(&self, watched: &Watched, now: Instant) -> Spending {
        self.house.spending(watched.pool.name(), now)
    }

    fn deployment(&self, watched: &Watched, now: Instant) -> DeploymentStatus {
        let (seen, known, conversations) = watched.pool.inspect();
        let (view, spending) = (watched.control.view_of(&seen), self.spending(watched, now));
        // Ages of what is kept go on while the machine sleeps.
        let lasting = self.house.lasting(seen.at);
        let replicas = replicas(watched, &seen, &known, &view);
        let Deployment { sizing, base_fee, .. } = watched.resizer.settings();
        let whole = why::is_whole(&view, &seen.replicas);
        let bare = watched.provider != "static" && why::is_bare(&seen.replicas);
        let startless = why::startless(&sizing, &view, spending.credit).filter(|_| bare);
        let (name, provider, misfit) = (watched.pool.name(), watched.provider, watched.resizer.misfit());
        let place =
            Place { name, provider, seen: &seen, view: &view, misfit, startless: startless.as_ref(), now };
        let trouble = place.trouble();
        let told = |decision| DecisionStatus::new(decision, seen.at);
        let before = self.past.get(watched.pool.name()).into_iter().flatten().map(|past| {
            let age = past.age + lasting.since(Instant::ZERO);
            DecisionStatus::new(&past.decision, past.decision.at + age)
        });
        DeploymentStatus {
            name: watched.pool.name().to_string(),
            mode: sizing.mode,
            provider: watched.provider.to_owned(),
            min: sizing.min,
            max: sizing.max,
            target: view.newest.as_ref().map_or(sizing.min, |decision| decision.target),
            in_flight: seen.in_flight,
            queued: seen.queued,
            promised: seen.promised,
            oldest_wait_s: seen.oldest_wait.as_secs_f64(),
            conversations,
            replicas,
            decision: view.newest.as_ref().map(|decision| DecisionStatus {
                age_s: view.looked.map_or(0.0, |at| seen.at.since(at).as_secs_f64()),
                ..told(decision)
            }),
            decisions: view.history.iter().rev().map(told).chain(before).take(MOST_DECISIONS).collect(),
            money: (watched.provider != "static")
                .then(|| MoneyStatus::new(spending, view.listed(now), sizing.worst_case(base_fee), base_fee)),
            sizing: manage::sizing(watched, None, lasting).sizing,
            tuning: tune::running(watched.pool.name(), &seen),
            drift: drift::told(watched, watched.resizer.tuned(lasting).as_ref()),
            startless_told: trouble
                .as_ref()
                .zip(startless.as_ref())
                .is_some_and(|(told, why)| told.tells(why)),
            startless: startless.map(|startless| startless.why),
            trouble_is: trouble.as_ref().and_then(|trouble| trouble.line),
            trouble: trouble.map(|trouble| trouble.text),
            news: why::made_good(&view, seen.at).filter(|_| whole),
        }
    }

    /// Brings the gauges up to date and renders all metrics.
    fn metrics(&self) -> String {
        for watched in &self.watched {
            let (seen, _, conversations) = watched.pool.inspect();
            let name = |id| replica_name(watched.pool.name(), id);
            let count = |phase| seen.replicas.iter().filter(|facts| facts.phase == phase).count();
            let (now, view) = (self.gateway.clock.now(), watched.control.view_of(&seen));
            let spending = self.spending(watched, now);
            let judged = watched.pool.judged();
            if watched.provider != "static" {
                let Deployment { sizing, base_fee, .. } = watched.resizer.settings();
                watched.meter.growth(&Growth {
                    blocks: view.newest.iter().flat_map(ScaleDecision::blocks).cloned().collect(),
                    rate: view.listed.map(|_| spending.rate),
                    most: sizing.worst_case(base_fee).map(|most| most.max(spending.rate)),
                    credit: spending.credit,
                });
            }
            watched.meter.gauges(&Figures {
                queued: seen.queued,
                conversations,
                // What the loop works towards, not what it would decide now.
                target: watched.control.newest().map(|decision| decision.target),
                in_flight: seen.replicas.iter().map(|facts| (name(facts.id), facts.in_flight)).collect(),
                phases: PHASES.map(|phase| (phase, u32::try_from(count(phase)).unwrap_or(u32::MAX))).to_vec(),
                decisions: view.by_reason,
                ejections: judged.ejections,
                retries_refused: judged.retries_refused,
                starts: [
                    ("ready", view.starts_ready),
                    ("failed", view.starts_failed),
                    ("woken", view.wakes_ready),
                    ("not_woken", view.wakes_failed),
                ],
            });
        }
        if let Some(until) = self.gateway.tls.as_ref().and_then(|shown| shown.until()) {
            meter::tls_expires(until);
        }
        meter::buffered(self.gateway.budget.used());
        meter::page(&self.render)
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Either<Full<Bytes>, Feed>> {
        let asked = match ask(&request) {
            Ok(asked) => asked,
            Err(refusal) => return refusal.response().map(Full::new).map(Either::Left),
        };
        let mut status = StatusCode::OK;
        let (kind, body) = match asked {
            Ask::Tune => match tune::begin(self, request).await {
                Ok(feed) => return events(feed),
                Err(error) => ("application/json", told(Err(error), &mut status)),
            },
            Ask::Page => ("text/html; charset=utf-8", self.page.html()),
            Ask::Status => {
                ("application/json", serde_json::to_vec(&self.status()).unwrap_or_default().into())
            }
            Ask::Metrics => ("text/plain; version=0.0.4; charset=utf-8", Bytes::from(self.metrics())),
            Ask::Why => ("application/json", told(why::why(self, request.uri().path()), &mut status)),
            Ask::Alive => ("application/json", Bytes::from_static(b"{\"status\":\"ok\"}")),
            Ask::Route => ("application/json", told(explain::answer(self, request).await, &mut status)),
            Ask::Drain => ("application/json", told(drain::answer(self, request).await, &mut status)),
            Ask::Tuned => ("application/json", told(tuned::answer(self, request).await, &mut status)),
            Ask::Sizing | Ask::Decisions | Ask::Credit => {
                ("application/json", told(manage::answer(self, asked, request).await, &mut status))
            }
        };
        let mut response = Response::new(Either::Left(Full::new(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if asked == Ask::Page {
            self.page.protect(headers);
        }
        response
    }
}

/// What there is to say of each replica.
fn replicas(
    watched: &Watched,
    seen: &Observation,
    known: &[ReplicaDetail],
    view: &ControlView,
) -> Vec<ReplicaStatus> {
    let (drained, fixed) = (watched.helm.drained(), watched.provider == "static");
    let out = |facts: &ReplicaFacts, known: &ReplicaDetail| {
        let taken = drain::sentence(drained.get(&facts.id), facts, fixed, seen.at);
        // Where it cannot serve anyway, that is told first.
        let trouble = known.endpoint.as_ref().filter(|_| known.unfit.is_some());
        let trouble = trouble.and_then(|endpoint| endpoint.trouble());
        let trouble = trouble.map(|why| format!("{why}; ")).unwrap_or_default();
        let taken = taken.map(|taken| trouble + &taken);
        taken.or_else(|| facts.hold.map(tune::held))
    };
    let told = seen.replicas.iter().zip(known).map(|(facts, known)| ReplicaStatus {
        id: replica_name(watched.pool.name(), facts.id),
        phase: facts.phase,
        age_s: seen.at.since(facts.since).as_secs_f64(),
        in_flight: facts.in_flight,
        limit: known.limit,
        load_tokens: known.load.0,
        capacity: facts.capacity.units(),
        conversations: facts.conversations,
        url: known.endpoint.as_ref().map(|endpoint| endpoint.url().to_owned()),
        engine: known
            .endpoint
            .as_ref()
            .and_then(|endpoint| endpoint.engine())
            .map(|engine| EngineStatus::new(&engine, seen.at)),
        ejected: EjectedStatus::new(known.trust, seen.at),
        unfit: known.unfit.map(|unfit| UnfitStatus::new(unfit, seen.at)),
        drained: drained.contains_key(&facts.id),
        drain: drain::state(drained.get(&facts.id), facts, fixed),
        own_only: facts.own_only,
        why: out(facts, known).or_else(|| match &known.endpoint {
            _ if facts.phase == Phase::Parked && !fixed => Some(SLEEPS.to_owned()),
            Some(endpoint) => endpoint.trouble().map(|why| why.to_string()),
            None => view.pending.get(&facts.id).cloned(),
        }),
    });
    told.collect()
}

/// The answer that goes on for as long as something happens.
fn events(feed: Feed) -> Response<Either<Full<Bytes>, Feed>> {
    let mut response = Response::new(Either::Right(feed));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The answer, or the error with its status.
fn told(answer: Result<Bytes, ApiError>, status: &mut StatusCode) -> Bytes {
    answer.unwrap_or_else(|error| {
        *status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_REQUEST);
        error.body()
    })
}
