//! The address of one replica, and what is known about it outside of the dispatcher.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use http::uri::Uri;
use parking_lot::Mutex;
use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::replica::EngineReport;
use tidegate_shared::time::Instant;
use tokio::sync::{Notify, watch};

use crate::config::BaseUrl;
use crate::openai::Operation;
use crate::probe::Look;
use crate::probe::dialect::Dialect;
use crate::telemetry::meter;
use crate::telemetry::tally::Tally;
use crate::upstream::dial::{Dialer, Site};

/// Where a replica is.
#[derive(Debug)]
pub struct Endpoint {
    id: ReplicaId,
    deployment: DeploymentName,
    name: String,
    header: HeaderValue,
    url: String,
    host: HeaderValue,
    prefix: String,
    /// Request targets without a query, by operation, made once.
    targets: [OnceLock<Option<Uri>>; Operation::ALL.len()],
    site: Site,
    /// When its last byte of any answer came, in microseconds; 0: never.
    last_byte: AtomicU64,
    trouble: Mutex<Option<Arc<str>>>,
    closed: AtomicBool,
    closing: Notify,
    suspected: Notify,
    /// It is parked, and asked for nothing (C6).
    rests: watch::Sender<bool>,
    look: tokio::sync::Mutex<Look>,
    /// A series of metrics from the replica's first moment on.
    errors: Arc<Tally>,
    signal_errors: OnceLock<Arc<Tally>>,
    engine: Mutex<Option<Engine>>,
}

/// What is known of the engine behind a replica, from itself (G2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// How it speaks of itself.
    pub dialect: Dialect,
    /// What it said last; absent before the first answer.
    pub report: Option<EngineReport>,
}

impl Endpoint {
    /// The replica `id` at `url`, which is connected to as `dialer` says.
    ///
    /// # Errors
    /// A sentence that names what is wrong with the URL or the name.
    pub fn new(
        deployment: &DeploymentName,
        id: ReplicaId,
        url: &str,
        dialer: &Dialer,
    ) -> Result<Self, String> {
        let base = BaseUrl::parse(url).map_err(|rule| format!("replica URL {url:?} {rule}"))?;
        let site = Site::new(&base, dialer)?;
        let name = replica_name(deployment, id);
        let header = HeaderValue::from_str(&name).map_err(|_| format!("{name:?} is no header value"))?;
        let host = HeaderValue::from_str(base.authority().as_str())
            .map_err(|_| format!("the host of {url:?} is no header value"))?;
        Ok(Self {
            id,
            deployment: deployment.clone(),
            name,
            header,
            url: base.to_string(),
            host,
            prefix: base.prefix().to_owned(),
            targets: [const { OnceLock::new() }; Operation::ALL.len()],
            site,
            last_byte: AtomicU64::new(0),
            trouble: Mutex::new(None),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            suspected: Notify::new(),
            rests: watch::Sender::new(false),
            look: tokio::sync::Mutex::default(),
            // It begins at zero, so that the first one is an increase.
            errors: meter::upstream_errors(deployment, &replica_name(deployment, id)),
            signal_errors: OnceLock::new(),
            engine: Mutex::new(None),
        })
    }

    /// Which replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Its public name (H5).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its public name as a header value.
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// Its base URL, for operators only.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The `host` header that it expects.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Where it is on the network, and how to get there.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Path before the API's own; empty for most.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The request target for an `operation`, after the replica's own prefix, and the client's raw query, untouched
    /// (C-142). `None` when that is longer than a request target may be, 65,534 bytes.
    pub fn target(&self, operation: Operation, query: Option<&str>) -> Option<Uri> {
        let (prefix, path) = (self.prefix(), operation.path());
        match (query, self.targets.get(operation as usize)) {
            (None, Some(made)) => made.get_or_init(|| format!("{prefix}{path}").parse().ok()).clone(),
            (None, None) => format!("{prefix}{path}").parse().ok(),
            (Some(query), _) => format!("{prefix}{path}?{query}").parse().ok(),
        }
    }

    /// Bytes of an answer came.
    pub fn note_bytes(&self, now: Instant) {
        self.last_byte.store(now.as_micros(), Ordering::Relaxed);
    }

    /// When bytes of an answer last came.
    pub fn last_bytes(&self) -> Option<Instant> {
        match self.last_byte.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Instant::from_micros(micros)),
        }
    }

    /// A failure of the replica; `what` is shown in status until [`Endpoint::well`].
    pub fn note_trouble(&self, what: &str) {
        *self.trouble.lock() = Some(what.into());
    }

    /// Counts a request that the replica failed.
    pub fn count_error(&self) {
        self.errors.add(1);
    }

    /// Counts figures of its engine that cannot be true, and pages that cannot be read (C-051).
    pub fn count_signal_errors(&self, count: u32) {
        let counter = self.signal_errors.get_or_init(|| meter::signal_errors(&self.deployment, &self.name));
        counter.add(count.into());
    }

    /// What its engine said last, with its dialect; absent while the replica is not ready (G2).
    pub fn engine(&self) -> Option<Engine> {
        *self.engine.lock()
    }

    /// What its engine said last; absent while that is unknown.
    pub fn report(&self) -> Option<EngineReport> {
        self.engine().and_then(|engine| engine.report)
    }

    /// Keeps the dialect of its engine; what was said before counts no more.
    pub fn note_dialect(&self, dialect: Dialect) {
        *self.engine.lock() = Some(Engine { dialect, report: None });
    }

    /// Keeps what its engine said.
    pub fn note_report(&self, report: EngineReport) {
        self.engine.lock().get_or_insert_default().report = Some(report);
    }

    /// Forgets what its engine said: it may be another one when the replica answers again (C-104).
    pub fn forget_engine(&self) {
        *self.engine.lock() = None;
    }

    /// A request could not even connect, or was told that the model loads: the probe should look now.
    pub fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Resolves when somebody suspects that it is down.
    pub async fn until_suspected(&self) {
        self.suspected.notified().await;
    }

    /// It is parked from now on, or not any more: while it is, nobody probes it (C6).
    pub fn rest(&self, rests: bool) {
        self.rests.send_replace(rests);
    }

    /// Resolves when it is parked, or when it is not, as `rests` says.
    pub async fn until_rests(&self, rests: bool) {
        // Fails only when the sender is gone, and the sender is `self`.
        let _ = self.rests.subscribe().wait_for(|now| *now == rests).await;
    }

    /// What it last said after it did not serve a request; held while it is asked.
    pub fn look(&self) -> &tokio::sync::Mutex<Look> {
        &self.look
    }

    /// It is well.
    pub fn well(&self) {
        *self.trouble.lock() = None;
    }

    /// What is wrong with it.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.lock().clone()
    }

    /// The replica is gone: no probe, no idle connection outlives it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
    }

    /// Whether it is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Resolves when it is gone.
    pub async fn until_closed(&self) {
        let notified = self.closing.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !self.is_closed() {
            notified.await;
        }
    }
}
