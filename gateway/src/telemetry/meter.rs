//! Prometheus metrics. The only module, with those below, that names the `metrics` crate; every name comes from
//! `tidegate_shared::names::metric`, and handles are made once, not per request.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use metrics::{Counter, Histogram, Label, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use parking_lot::Mutex;
use tidegate_shared::decision::Refusal;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::names::metric::{self as name, Kind};
use tidegate_shared::replica::Phase;
use tidegate_shared::request::{Outcome, Route};

mod growth;

pub use self::growth::Growth;
use super::tally::{TALLIES, Tally};
use crate::openai::{Operation, Usage};

/// Statuses from here on mean nothing, and are counted as one: an engine may send any up to 999.
const OTHER: u16 = 600;
/// Gauges of what is gone are forgotten after this time without an update; they are updated at each scrape.
const FORGET: Duration = Duration::from_secs(30);

/// Installs the process-wide recorder and gives the handle that renders the page.
///
/// # Errors
/// When a recorder is installed already.
pub fn install() -> Result<PrometheusHandle, String> {
    let seconds = [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
        1200.0,
    ];
    let recorder = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::GAUGE, Some(FORGET))
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &seconds)
        .map_err(|error| error.to_string())?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
    for metric in name::ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    Ok(handle)
}

/// How often what histograms were given is summed up.
pub const UPKEEP: Duration = Duration::from_secs(5);

/// Sums up what histograms were given, again and again, for ever. Until then they keep every single figure, so this
/// must go on also where nobody scrapes.
pub async fn keep_up(render: PrometheusHandle, every: Duration) {
    let mut tick = tokio::time::interval(every);
    loop {
        tick.tick().await;
        render.run_upkeep();
    }
}

/// Counts requests that a replica failed.
pub fn upstream_errors(deployment: &DeploymentName, replica: &str) -> Arc<Tally> {
    TALLIES.of(name::UPSTREAM_ERRORS, deployment, replica)
}

/// Counts figures of a replica's engine that cannot be true, and pages of it that cannot be read.
pub fn signal_errors(deployment: &DeploymentName, replica: &str) -> Arc<Tally> {
    TALLIES.of(name::SIGNAL_ERRORS, deployment, replica)
}

/// The page of all metrics.
pub fn page(render: &PrometheusHandle) -> String {
    let mut page = render.render();
    TALLIES.render(&mut page);
    page
}

/// Counts handlers that panicked.
pub fn panicked() {
    metrics::counter!(name::PANICS).increment(1);
}

/// What a client was too slow with, or did too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// Nothing of a request came.
    Idle,
    /// The head of a request did not come to its end.
    Head,
    /// The answer was not taken.
    Answer,
    /// It did not say that it is there.
    Ping,
    /// It was quick with what brings nothing.
    Flood,
    /// The heads of its requests were too large together.
    Heads,
}

/// Counts clients that were given up (H6).
pub fn gave_up(on: GaveUp) {
    let reason = match on {
        GaveUp::Idle => "idle",
        GaveUp::Head => "head",
        GaveUp::Answer => "answer",
        GaveUp::Ping => "ping",
        GaveUp::Flood => "flood",
        GaveUp::Heads => "heads",
    };
    metrics::counter!(name::GAVE_UP, &[("reason", reason)]).increment(1);
}

/// Why a client's TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// What came was no TLS.
    Clear,
    /// It did not come to its end in time.
    Slow,
    /// The client left in the middle of it.
    Left,
    /// The client showed no certificate of an issuer that it must have one of.
    Certificate,
    /// The client refused, mostly what it was shown.
    Refused,
    /// Client and gateway have nothing in common, or what came is broken.
    Protocol,
}

/// Counts TLS handshakes that failed (H6).
pub fn tls_failed(on: TlsFailure) {
    let reason = match on {
        TlsFailure::Clear => "clear",
        TlsFailure::Slow => "slow",
        TlsFailure::Left => "left",
        TlsFailure::Certificate => "certificate",
        TlsFailure::Refused => "refused",
        TlsFailure::Protocol => "protocol",
    };
    metrics::counter!(name::TLS_FAILURES, &[("reason", reason)]).increment(1);
}

/// Sets the moment at which the certificate that clients are shown expires.
pub fn tls_expires(at: SystemTime) {
    gauge!(name::TLS_EXPIRES).set(as_f64(at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())));
}

/// Sets the gauge of buffered bodies.
pub fn buffered(bytes: u64) {
    gauge!(name::BUFFERED_BYTES).set(as_f64(bytes));
}

/// Gauges hold whole numbers far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

/// The handles of one deployment.
pub struct DeploymentMeter {
    name: String,
    /// Answered by a replica with 200 and to the end, by operation: nearly all of them.
    served: [OnceLock<Counter>; Operation::ALL.len()],
    requests: DashMap<(Option<Operation>, u16, Option<Outcome>), Counter>,
    routes: [Counter; 5],
    refusals: DashMap<Refusal, Counter>,
    seconds: Histogram,
    ttft: Histogram,
    queue: Histogram,
    retries: Counter,
    prompt: Counter,
    cached: Counter,
    output: Counter,
    /// The replicas of the last scrape.
    told: Mutex<BTreeSet<String>>,
}

impl std::fmt::Debug for DeploymentMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeploymentMeter").field(&self.name).finish()
    }
}

const ROUTES: [Route; 5] = [Route::Home, Route::Placed, Route::Detour, Route::Rehomed, Route::Any];

impl DeploymentMeter {
    /// The handles of `deployment`; requests for no known model are counted under an empty name.
    pub fn new(deployment: &str) -> Arc<Self> {
        let labels = || vec![Label::new("deployment", deployment.to_owned())];
        let counter = |metric| metrics::counter!(metric, labels());
        // How long it takes to say that there is no such model tells nothing.
        let histogram = |metric| match deployment {
            "" => Histogram::noop(),
            _ => metrics::histogram!(metric, labels()),
        };
        let route = |route: Route| {
            let route = ("route", route.as_str().to_owned());
            metrics::counter!(name::ROUTES, &[("deployment", deployment.to_owned()), route])
        };
        Arc::new(Self {
            name: deployment.to_owned(),
            served: [const { OnceLock::new() }; Operation::ALL.len()],
            requests: DashMap::new(),
            routes: ROUTES.map(route),
            // They begin at zero, so that the first one is an increase.
            refusals: Refusal::ALL
                .into_iter()
                .filter(|_| !deployment.is_empty())
                .map(|why| (why, refusals(deployment, why)))
                .collect(),
            seconds: histogram(name::REQUEST_SECONDS),
            ttft: histogram(name::TTFT_SECONDS),
            queue: histogram(name::QUEUE_SECONDS),
            retries: counter(name::RETRIES),
            prompt: counter(name::PROMPT_TOKENS),
            cached: counter(name::CACHED_TOKENS),
            output: counter(name::OUTPUT_TOKENS),
            told: Mutex::default(),
        })
    }

    /// The deployment; empty for requests for no known model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A request was answered with `status`; a replica's answer ended as `outcome` says (C-126).
    pub fn answered(
        &self,
        operation: Option<Operation>,
        status: u16,
        outcome: Option<Outcome>,
        took: Duration,
    ) {
        let make = || {
            let labels = [
                ("deployment", self.name.clone()),
                ("endpoint", operation.map_or("", Operation::as_str).to_owned()),
                ("status", if status < OTHER { status.to_string() } else { "other".to_owned() }),
                ("outcome", outcome.map_or("", Outcome::as_str).to_owned()),
            ];
            metrics::counter!(name::REQUESTS, &labels)
        };
        let good = status == 200 && outcome == Some(Outcome::Complete);
        let served = operation.filter(|_| good).and_then(|operation| self.served.get(operation as usize));
        match served {
            Some(counter) => counter.get_or_init(make).increment(1),
            None => count(&self.requests, (operation, status.min(OTHER), outcome), make),
        }
        self.seconds.record(took);
    }

    /// A request was sent to a replica.
    pub fn routed(&self, route: Route) {
        let at = ROUTES.iter().position(|known| *known == route);
        if let Some(counter) = at.and_then(|at| self.routes.get(at)) {
            counter.increment(1);
        }
    }

    /// A request was refused.
    pub fn refused(&self, reason: Refusal) {
        count(&self.refusals, reason, || refusals(&self.name, reason));
    }

    /// The first byte of an answer came.
    pub fn first_byte(&self, after: Duration) {
        self.ttft.record(after);
    }

    /// A request left the queue, or was refused in it.
    pub fn queued(&self, waited: Duration) {
        self.queue.record(waited);
    }

    /// A request is sent again.
    pub fn retried(&self) {
        self.retries.increment(1);
    }

    /// What an answer said of tokens.
    pub fn usage(&self, usage: &Usage) {
        self.prompt.increment(usage.prompt.unwrap_or(0));
        self.cached.increment(usage.cached.unwrap_or(0));
        self.output.increment(usage.completion.unwrap_or(0));
    }

    /// Brings the gauges, and the counters that others keep, up to date; called at each scrape, so that they are exact.
    pub fn gauges(&self, figures: &Figures) {
        let deployment = || ("deployment", self.name.clone());
        gauge!(name::QUEUED, &[deployment()]).set(f64::from(figures.queued));
        gauge!(name::CONVERSATIONS, &[deployment()]).set(f64::from(figures.conversations));
        if let Some(target) = figures.target {
            gauge!(name::TARGET, &[deployment()]).set(f64::from(target));
        }
        let in_flight = |replica: &str, count: u32| {
            gauge!(name::IN_FLIGHT, &[deployment(), ("replica", replica.to_owned())]).set(f64::from(count));
        };
        let there: BTreeSet<String> = figures.in_flight.iter().map(|(replica, _)| replica.clone()).collect();
        // Who is gone counts no more from now on, and not only once it is forgotten (C-104).
        let mut told = self.told.lock();
        told.difference(&there).for_each(|gone| in_flight(gone, 0));
        *told = there;
        drop(told);
        figures.in_flight.iter().for_each(|(replica, count)| in_flight(replica, *count));
        for (reason, count) in &figures.decisions {
            let labels = [deployment(), ("reason", (*reason).to_owned())];
            metrics::counter!(name::DECISIONS, &labels).absolute(*count);
        }
        for (result, count) in figures.starts {
            let labels = [deployment(), ("result", result.to_owned())];
            metrics::counter!(name::STARTS, &labels).absolute(count);
        }
        for (reason, count) in &figures.ejections {
            let labels = [deployment(), ("reason", (*reason).to_owned())];
            metrics::counter!(name::EJECTIONS, &labels).absolute(*count);
        }
        metrics::counter!(name::RETRIES_REFUSED, &[deployment()]).absolute(figures.retries_refused);
        for (phase, count) in &figures.phases {
            gauge!(name::REPLICAS, &[deployment(), ("phase", phase.as_str().to_owned())])
                .set(f64::from(*count));
        }
    }
}

fn refusals(deployment: &str, reason: Refusal) -> Counter {
    let labels = [("deployment", deployment.to_owned()), ("reason", reason.as_str().to_owned())];
    metrics::counter!(name::REFUSALS, &labels)
}

/// Counts one. All but the first of a kind share the lock of the map.
fn count<K: Eq + Hash>(counters: &DashMap<K, Counter>, kind: K, make: impl FnOnce() -> Counter) {
    if let Some(counter) = counters.get(&kind) {
        return counter.increment(1);
    }
    counters.entry(kind).or_insert_with(make).increment(1);
}

/// The gauges of one deployment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests in the queue.
    pub queued: u32,
    /// Conversations with a home.
    pub conversations: u32,
    /// Replicas wanted, where somebody decides that.
    pub target: Option<u32>,
    /// Requests in flight by replica.
    pub in_flight: Vec<(String, u32)>,
    /// Replicas by phase.
    pub phases: Vec<(Phase, u32)>,
    /// Decisions that changed something, by reason.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Replicas taken out because of how they answered, by reason.
    pub ejections: Vec<(&'static str, u64)>,
    /// Failed requests that were not sent again because too many were.
    pub retries_refused: u64,
    /// Starts of replicas by result.
    pub starts: [(&'static str, u64); 4],
}

#[cfg(test)]
mod tests;
