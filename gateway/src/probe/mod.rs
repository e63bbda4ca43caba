//! Asks replicas how they are, over the same protocol as traffic (C-115), and tells the pool.
//!
//! Ready means: the engine's own health check says so, the model is listed (C-028), and it does not sleep (C6). A
//! replica that delivers bytes is alive whatever its health check says (C-006); what failed checks mean is for
//! `tidegate_gateway_core::health`. While it is ready, its engine is asked how full it is (G2). Never sends a
//! completion; never ejects for slowness alone.

pub mod asleep;
pub mod dialect;
mod listed;
pub mod signals;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use thiserror::Error;
use tidegate_gateway_core::health::{Judgement, Life, Probes, Unwell};
use tidegate_shared::time::Instant;

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::once::{NoAnswer, get};
use crate::pool::{Change, Pool, Unfit};
use listed::Listed;

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

/// Why a replica is not ready.
#[derive(Debug, Error)]
enum NotReady {
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// Its engine is well, and lists other models.
    #[error("/v1/models lists {others}, and not `{model}`")]
    OtherModel { others: String, model: Arc<str> },
    /// Somebody has put its engine to sleep.
    #[error("its engine sleeps")]
    Asleep,
}

impl NotReady {
    /// Whether it says that the replica cannot serve as it is; `None` where nothing was seen of it.
    fn unfit(&self) -> Option<Option<Unfit>> {
        match self {
            Self::OtherModel { .. } => Some(Some(Unfit::OtherModel)),
            Self::NoAnswer(NoAnswer::Unreachable(_) | NoAnswer::Late(_)) => Some(Some(Unfit::Unreachable)),
            Self::NoAnswer(NoAnswer::Slow(_) | NoAnswer::Broken(_) | NoAnswer::NotNow(_)) | Self::Asleep => {
                Some(None)
            }
            Self::NoAnswer(NoAnswer::Local(_)) => None,
        }
    }
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
            () = self.while_awake(&pool, &endpoint) => {}
        }
    }

    /// Who is parked is asked for nothing, and begins anew when it is woken.
    async fn while_awake(&self, pool: &Arc<Pool>, endpoint: &Arc<Endpoint>) {
        loop {
            endpoint.until_rests(false).await;
            tokio::select! {
                biased;
                () = endpoint.until_rests(true) => {}
                () = self.keep_asking(pool, endpoint) => {}
            }
            endpoint.forget_engine();
            endpoint.well();
        }
    }

    async fn keep_asking(&self, pool: &Arc<Pool>, endpoint: &Arc<Endpoint>) {
        let mut starting = true;
        loop {
            self.until_ready(pool, endpoint, starting).await;
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

    async fn until_ready(&self, pool: &Arc<Pool>, endpoint: &Endpoint, starting: bool) {
        let mut last = None;
        while let Err(no) = self.readiness(endpoint).await {
            endpoint.note_trouble(&no.to_string());
            if let Some(found) = no.unfit().filter(|found| last != Some(*found)) {
                last = Some(found);
                pool.change(endpoint.id(), Change::Looked(found));
                self.warn(pool, endpoint, &no, starting);
            }
            if !matches!(no, NotReady::Asleep) {
                tokio::time::sleep(STARTING).await;
                continue;
            }
            // At each look: what happens to the replica meanwhile may have it start anew, and it sleeps still.
            pool.change(endpoint.id(), Change::Asleep);
            tokio::time::sleep(READY).await;
        }
    }

    /// Once for each time that it turns out to be unfit; that one which was ready cannot be reached is told already.
    fn warn(&self, pool: &Pool, endpoint: &Endpoint, no: &NotReady, starting: bool) {
        let name = endpoint.name();
        match pool.unfit(endpoint.id()) {
            Some(Unfit::OtherModel) => tracing::warn!(
                "{name} serves another model: {no}; it gets no request until it lists `{}` (`model` in its deployment)",
                self.model
            ),
            Some(Unfit::Unreachable) if starting => {
                tracing::warn!("{name} cannot be reached at {}: {no}; it is tried on", endpoint.url());
            }
            Some(Unfit::Unreachable) | None => {}
        }
    }

    /// Gives the reason for which the replica is down.
    async fn until_down(&self, pool: &Arc<Pool>, endpoint: &Endpoint) -> String {
        let mut probes = Probes::default();
        let (mut suspected, mut doubtful) = (false, false);
        // It says that it takes no requests now.
        let mut aside = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(if suspected { STARTING } else { READY }) => {}
                () = endpoint.until_suspected() => suspected = true,
            }
            // Who is suspected, or was not well, may have begun anew, and is ready when it has loaded its model (C-028).
            let look = match suspected || doubtful {
                true => self.readiness(endpoint).await,
                false => self.health(endpoint).await.map_err(NotReady::from),
            };
            let no = match look {
                // The gateway's own trouble says nothing about the replica.
                Err(NotReady::NoAnswer(NoAnswer::Local(_))) => continue,
                // Its answers would keep it alive.
                Err(no @ NotReady::OtherModel { .. }) => return no.to_string(),
                Err(no) => no,
                Ok(()) => {
                    doubtful = false;
                    probes.well();
                    if std::mem::take(&mut suspected) | std::mem::take(&mut aside) {
                        endpoint.well();
                        pool.change(endpoint.id(), Change::Ready);
                    }
                    continue;
                }
            };
            if matches!(no, NotReady::NoAnswer(NoAnswer::NotNow(_))) {
                aside = self.puts_aside(pool, endpoint, &no, aside);
            }
            let slow = matches!(no, NotReady::NoAnswer(NoAnswer::Slow(_) | NoAnswer::Late(_)));
            let how = if slow { Unwell::Slow } else { Unwell::Wrong };
            doubtful |= !slow;
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

    /// An engine that is about to end says so at its health check, and finishes what it has (C-058). Gives whether it gets
    /// nothing new from now on; `before` says whether that was so already.
    fn puts_aside(&self, pool: &Arc<Pool>, endpoint: &Endpoint, no: &NotReady, before: bool) -> bool {
        let aside = pool.not_now(endpoint.id());
        if aside && !before {
            endpoint.note_trouble(&no.to_string());
            tracing::warn!("{} gets no new requests, as it says that it is not ready: {no}", endpoint.name());
        }
        aside
    }

    async fn readiness(&self, endpoint: &Endpoint) -> Result<(), NotReady> {
        self.health(endpoint).await?;
        let (status, body) = get(endpoint.into(), "/v1/models", PATIENCE).await?;
        if matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        ) {
            return Ok(());
        }
        if status != StatusCode::OK {
            return Err(NoAnswer::Broken(format!("/v1/models answers {status}")).into());
        }
        match listed::look(&body, &self.model).map_err(NoAnswer::Broken)? {
            // An engine that answers all else and not this knows nothing of it.
            Listed::Yes => match asleep::is_asleep(endpoint.into()).await {
                Ok(Some(true)) => Err(NotReady::Asleep),
                _ => Ok(()),
            },
            Listed::Nothing => Err(NoAnswer::Broken("/v1/models lists no model yet".to_owned()).into()),
            Listed::Others(others) => Err(NotReady::OtherModel { others, model: Arc::clone(&self.model) }),
        }
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
            Err(NoAnswer::Broken(_) | NoAnswer::NotNow(_)) => Some(NotWell::Loading),
            Err(NoAnswer::Unreachable(_)) => Some(NotWell::Gone),
            Ok(()) | Err(NoAnswer::Slow(_) | NoAnswer::Late(_) | NoAnswer::Local(_)) => None,
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
        status => {
            let why = format!("/health answers {status}: {}", excerpt(&body));
            Err(if status == StatusCode::SERVICE_UNAVAILABLE { NoAnswer::NotNow(why) } else { why.into() })
        }
    }
}

/// What a body says, for a person: its message where it is an error in JSON, else its beginning; on one line, and nothing
/// of it steers a terminal.
fn excerpt(body: &[u8]) -> String {
    let json = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    let said =
        ["/error/message", "/error", "/message", "/detail"].iter().find_map(|at| json.pointer(at)?.as_str());
    let body = said.map_or(body, str::as_bytes);
    let text = String::from_utf8_lossy(body.get(..200).unwrap_or(body));
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_an_engine_says_is_shown_in_its_words_and_on_one_line() {
        let body = b"{\n  \"error\": \"loading\"\r\n}\n\x1b[2J";
        assert_eq!(super::excerpt(body), r#"{ "error": "loading" } [2J"#, "no JSON: as it is");
        assert_eq!(super::excerpt(br#"{"error":{"code":503,"message":"Loading\nmodel"}}"#), "Loading model");
        assert_eq!(super::excerpt(br#"{"error":"loading"}"#), "loading");
        assert_eq!(super::excerpt(br#"{"status":"starting"}"#), r#"{"status":"starting"}"#);
    }
}
