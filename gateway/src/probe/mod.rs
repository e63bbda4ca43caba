//! Asks replicas how they are, over the same protocol as traffic (C-115), and tells the pool.
//!
//! Ready means: the engine's own health check says so and the model is listed (C-028). A replica that delivers bytes is
//! alive whatever its health check says (C-006). While it is ready, its engine is asked how full it is (G2). Never sends a completion; never ejects for slowness alone.

pub mod dialect;
pub mod signals;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

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
/// Probes in a row that must fail before a ready replica is taken out.
const FAILURES: u32 = 3;
/// The same while it works on requests and is only slow to answer: an engine in a long prefill may be (C-006).
const FAILURES_BUSY: u32 = 12;
/// A replica that delivered bytes within this time is alive.
const ALIVE: Duration = Duration::from_secs(10);

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
        let mut failures = 0;
        let mut suspected = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(if suspected { STARTING } else { READY }) => {}
                () = endpoint.until_suspected() => suspected = true,
            }
            match self.health(endpoint).await {
                Ok(()) => {
                    failures = 0;
                    if std::mem::take(&mut suspected) {
                        endpoint.well();
                        pool.change(endpoint.id(), Change::Ready);
                    }
                }
                // The gateway's own trouble says nothing about the replica.
                Err(NoAnswer::Local(_)) => {}
                Err(no) => {
                    // Bytes flow: it is busy, not dead (C-006).
                    let now = self.clock.now();
                    let alive = endpoint.last_bytes().is_some_and(|last| now.since(last) < ALIVE);
                    failures = if alive { 0 } else { failures + 1 };
                    let busy = matches!(no, NoAnswer::Slow { .. }) && pool.in_flight(endpoint.id()) > 0;
                    if failures >= if busy { FAILURES_BUSY } else { FAILURES } {
                        return no.to_string();
                    }
                }
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

    /// Engines without `/health` are well when they answer at all.
    async fn health(&self, endpoint: &Endpoint) -> Result<(), NoAnswer> {
        let (status, body) = get(endpoint.into(), "/health", PATIENCE).await?;
        match status {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status if status.is_success() => Ok(()),
            status => Err(format!("/health answers {status}: {}", excerpt(&body)).into()),
        }
    }
}

/// The beginning of a body, for a person.
fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body.get(..200).unwrap_or(body)).escape_debug().to_string()
}
