//! Asks replicas how they are, over the same protocol as traffic (C-115), and tells the pool.
//!
//! Ready means: the engine's own health check says so and the model is listed (C-028). A replica that delivers bytes is
//! alive whatever its health check says (C-006); what failed checks mean is for `tidegate_gateway_core::health`. While it is ready, its engine is asked how full it is (G2). Never sends a completion; never ejects for slowness alone.

pub mod dialect;
pub mod signals;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tidegate_gateway_core::health::{Judgement, Life, Probes, Unwell};
use tidegate_shared::time::Instant;

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::once::{NoAnswer, get};
use crate::pool::{Change, Pool};

/// Between probes of a replica that starts or is down.
const STARTING: Duration = Duration::from_millis(100);
/// Between probes of a replica that is well.
const READY: Duration = Duration::from_secs(1);
/// How long a probe waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a replica that did not serve a request is asked how it is: somebody waits for the answer.
const LOOK: Duration = Duration::from_secs(1);

/// How the replicas of one deployment are probed.
#[derive(Clone, Debug)]
pub struct Prober {
    clock: Clock,
    /// The model that must be listed.
    model: Arc<str>,
}

#[derive(Debug, Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    id: String,
}

impl Prober {
    /// Replicas that serve `model`.
    pub fn new(clock: Clock, model: &str) -> Self {
        Self { clock, model: model.into() }
    }

    /// Probes a replica until it is gone.
    pub async fn watch(self, pool: Arc<Pool>, endpoint: Arc<Endpoint>) {
        tokio::select! {
            () = endpoint.until_closed() => {}
            () = self.keep_asking(&pool, &endpoint) => {}
        }
    }

    async fn keep_asking(&self, pool: &Arc<Pool>, endpoint: &Arc<Endpoint>) {
        let mut starting = true;
        loop {
            self.until_ready(endpoint).await;
            endpoint.well();
            pool.change(endpoint.id(), Change::Ready);
            if !std::mem::take(&mut starting) {
                tracing::info!("{} answers again", endpoint.name());
            }
            let why = tokio::select! {
                why = self.until_down(pool, endpoint) => why,
                never = signals::keep_asking(pool, endpoint) => match never {},
            };
            endpoint.forget_engine();
            endpoint.note_trouble(&why);
            tracing::warn!("{} does not answer: {why}", endpoint.name());
            pool.change(endpoint.id(), Change::Failed);
        }
    }

    async fn until_ready(&self, endpoint: &Endpoint) {
        loop {
            match self.readiness(endpoint).await {
                Ok(()) => return,
                Err(no) => endpoint.note_trouble(&no.to_string()),
            }
            tokio::time::sleep(STARTING).await;
        }
    }

    /// Gives the reason for which the replica is down.
    async fn until_down(&self, pool: &Arc<Pool>, endpoint: &Endpoint) -> String {
        let mut probes = Probes::default();
        let mut suspected = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(if suspected { STARTING } else { READY }) => {}
                () = endpoint.until_suspected() => suspected = true,
            }
            // Who is suspected may have begun anew, and is ready when it has loaded its model (C-028).
            let look = if suspected { self.readiness(endpoint).await } else { self.health(endpoint).await };
            let no = match look {
                // The gateway's own trouble says nothing about the replica.
                Err(NoAnswer::Local(_)) => continue,
                Err(no) => no,
                Ok(()) => {
                    probes.well();
                    if std::mem::take(&mut suspected) {
                        endpoint.well();
                        pool.change(endpoint.id(), Change::Ready);
                    }
                    continue;
                }
            };
            let how = if matches!(no, NoAnswer::Slow(_)) { Unwell::Slow } else { Unwell::Wrong };
            let life = Life { last_bytes: endpoint.last_bytes(), busy: pool.in_flight(endpoint.id()) > 0 };
            match probes.unwell(self.clock.now(), how, life) {
                // It is late because it works.
                Judgement::Alive if how == Unwell::Slow && std::mem::take(&mut suspected) => {
                    pool.change(endpoint.id(), Change::Ready);
                }
                Judgement::Alive | Judgement::Doubt => {}
                Judgement::Slow if !pool.too_slow(endpoint.id()) => {}
                Judgement::Slow | Judgement::Down => return no.to_string(),
            }
        }
    }

    async fn readiness(&self, endpoint: &Endpoint) -> Result<(), NoAnswer> {
        self.health(endpoint).await?;
        let (status, body) = get(endpoint.into(), "/v1/models", PATIENCE).await?;
        if matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        ) {
            return Ok(());
        }
        if status != StatusCode::OK {
            return Err(format!("/v1/models answers {status}").into());
        }
        let models: Models = serde_json::from_slice(&body)
            .map_err(|error| format!("/v1/models is no list of models: {error}"))?;
        if models.data.iter().any(|model| *model.id == *self.model) {
            return Ok(());
        }
        let listed: Vec<&str> = models.data.iter().map(|model| model.id.as_str()).take(5).collect();
        Err(format!("/v1/models does not list `{}`; it lists {listed:?}", self.model).into())
    }

    async fn health(&self, endpoint: &Endpoint) -> Result<(), NoAnswer> {
        health(endpoint, PATIENCE).await
    }
}

/// What a replica that did not serve a request last said of itself.
#[derive(Debug, Default)]
pub struct Look {
    /// When it was asked.
    at: Instant,
    seen: Option<NotWell>,
}

/// How a replica is that did not serve a request, and is not only full or unlucky.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWell {
    /// Its health check says that it is not ready: it loads its model.
    Loading,
    /// Nothing is there any more.
    Gone,
}

/// Asks a replica that answered 503, or whose connection ended under a request, whether it is well: one that loads is
/// not full (C-028), and one that died is no accident of one connection. It is asked by one at a time, whose answer
/// serves all who came before the question. Who answers late is well.
pub async fn look(clock: Clock, endpoint: &Endpoint) -> Option<NotWell> {
    let since = clock.now();
    let mut look = endpoint.look().lock().await;
    if look.at < since {
        let at = clock.now();
        let seen = match health(endpoint, LOOK).await {
            Err(NoAnswer::Broken(_)) => Some(NotWell::Loading),
            Err(NoAnswer::Unreachable(_)) => Some(NotWell::Gone),
            Ok(()) | Err(NoAnswer::Slow(_) | NoAnswer::Local(_)) => None,
        };
        *look = Look { at, seen };
    }
    look.seen
}

/// Engines without `/health` are well when they answer at all.
async fn health(endpoint: &Endpoint, patience: Duration) -> Result<(), NoAnswer> {
    let (status, body) = get(endpoint.into(), "/health", patience).await?;
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(()),
        status if status.is_success() => Ok(()),
        status => Err(format!("/health answers {status}: {}", excerpt(&body)).into()),
    }
}

/// The beginning of a body, for a person.
fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body.get(..200).unwrap_or(body)).escape_debug().to_string()
}
