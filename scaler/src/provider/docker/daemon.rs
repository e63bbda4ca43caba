//! Speaks to one Docker daemon: each call in bounded time, each error as what Docker said.
//!
//! Decides nothing and remembers nothing but the connection. Only containers with an owner's labels are ever listed;
//! whoever stops or removes one names it by its id.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::container::LogOutput;
use bollard::errors::Error as BollardError;
use bollard::models::{ContainerCreateBody, ContainerSummary, ContainerSummaryStateEnum, EventMessage};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, EventsOptionsBuilder,
    ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
    StopContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::{Stream, StreamExt};
use thiserror::Error;
use tidegate_shared::id::DeploymentName;
use tokio::time::timeout;

use super::super::output;
use super::host::DockerHost;
use super::label::{DEPLOYMENT, GPUS, OWNER, Tag, gpus};

/// How long the daemon may take to tell something. Below the patience of the control loop with a list.
const TELL: Duration = Duration::from_secs(8);
/// How long it may take to make or to start a container: disks are slow, networks are set up.
const MAKE: Duration = Duration::from_secs(120);
/// How long an engine may take to end by itself after SIGTERM, in seconds.
const POLITE: i32 = 10;
/// How long a stop may take in all.
const STOP: Duration = Duration::from_secs(25);
/// How long the pull of an image may be silent.
const PULL_SILENCE: Duration = Duration::from_secs(300);
/// How far events are asked for in retrospect. One that is told twice costs a list.
const LOOK_BACK: Duration = Duration::from_secs(10);
/// Most bytes of a log that are read for its last lines: a line may be long.
const LOG_BYTES: usize = 256 * 1024;

mod pause;

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum DaemonError {
    /// It answered, and the answer is no.
    #[error("Docker says: {message}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// In its own words.
        message: String,
    },
    /// It did not answer, or nothing that can be understood.
    #[error("the Docker daemon at {host} does not answer: {why}")]
    Silent {
        /// Where it should be.
        host: String,
        /// What was tried and what came of it.
        why: String,
    },
}

impl DaemonError {
    /// Whether it answered with `wanted`.
    pub(super) fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == wanted)
    }
}

/// One container that a list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its id.
    pub(super) container: String,
    /// What its labels tell.
    pub(super) tag: Tag,
    /// How it is.
    pub(super) stage: Stage,
    /// Whether it is paused.
    pub(super) paused: bool,
    /// The port of the machine at which the engine's port is published, if it is.
    pub(super) published: Option<u16>,
}

/// How a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Made and not started.
    Created,
    /// It runs, or is paused.
    Runs,
    /// It has ended.
    Ended,
    /// Docker takes it away.
    Leaves,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    /// It has not.
    pub(super) running: bool,
    /// Whether it is paused, of one that runs.
    pub(super) paused: Option<bool>,
    /// Its exit code; above 128, mostly, a signal's number and 128.
    pub(super) code: i64,
    /// Whether the kernel killed it for its memory.
    pub(super) out_of_memory: bool,
    /// What Docker could not do for it; empty where nothing.
    pub(super) error: String,
}

/// A connection to a daemon, made at the first call and again where it broke.
#[derive(Debug)]
pub(super) struct Daemon {
    host: DockerHost,
    client: Mutex<Option<Docker>>,
}

impl Daemon {
    pub(super) fn new(host: DockerHost) -> Self {
        Self { host, client: Mutex::new(None) }
    }

    /// Every container of `deployment` that `owner` started, whatever became of it.
    pub(super) async fn list(
        &self,
        owner: &str,
        deployment: &DeploymentName,
    ) -> Result<Vec<Seen>, DaemonError> {
        let labels = vec![format!("{OWNER}={owner}"), format!("{DEPLOYMENT}={deployment}")];
        Ok(self.containers(labels).await?.iter().filter_map(seen).collect())
    }

    /// Every GPU that a container of some gateway has for itself, with the name of that container.
    pub(super) async fn taken_gpus(&self) -> Result<Vec<(String, String)>, DaemonError> {
        let mut taken = Vec::new();
        for one in self.containers(vec![GPUS.to_owned()]).await? {
            if stage(&one) != Stage::Ended {
                let holder = one.names.as_ref().and_then(|names| names.first()).map_or("", String::as_str);
                let holder = holder.trim_start_matches('/').to_owned();
                let labels = one.labels.unwrap_or_default();
                taken.extend(gpus(&labels).into_iter().map(|gpu| (gpu, holder.clone())));
            }
        }
        Ok(taken)
    }

    async fn containers(&self, labels: Vec<String>) -> Result<Vec<ContainerSummary>, DaemonError> {
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        self.call(TELL, async |docker| docker.list_containers(Some(options)).await).await
    }

    /// Makes a container; returns its id.
    pub(super) async fn create(
        &self,
        name: &str,
        container: ContainerCreateBody,
    ) -> Result<String, DaemonError> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let made =
            self.call(MAKE, async |docker| docker.create_container(Some(options), container).await).await?;
        Ok(made.id)
    }

    /// Starts a container.
    pub(super) async fn start(&self, container: &str) -> Result<(), DaemonError> {
        self.call(MAKE, async |docker| docker.start_container(container, None).await).await
    }

    /// Ends a container, politely first, and takes it away with its anonymous volumes. One that is gone is fine.
    pub(super) async fn end(&self, container: &str) -> Result<(), DaemonError> {
        let polite = StopContainerOptionsBuilder::default().t(POLITE).build();
        let stopped =
            self.call(STOP, async |docker| docker.stop_container(container, Some(polite)).await).await;
        match stopped {
            Err(error) if !error.is(404) && !error.is(304) => return Err(error),
            _ => {}
        }
        let force = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removed =
            self.call(STOP, async |docker| docker.remove_container(container, Some(force)).await).await;
        match removed {
            // 409: its removal is under way.
            Err(error) if !error.is(404) && !error.is(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// How a container ended.
    pub(super) async fn how(&self, container: &str) -> Result<End, DaemonError> {
        let told = self.call(TELL, async |docker| docker.inspect_container(container, None).await).await?;
        let state = told.state.unwrap_or_default();
        Ok(End {
            running: state.running.unwrap_or(false),
            paused: state.running.unwrap_or(false).then(|| state.paused.unwrap_or(false)),
            code: state.exit_code.unwrap_or(0),
            out_of_memory: state.oom_killed.unwrap_or(false),
            error: state.error.unwrap_or_default(),
        })
    }

    /// The id and the labels of the container that has this name or id; `None` where there is none.
    pub(super) async fn find(
        &self,
        name: &str,
    ) -> Result<Option<(String, HashMap<String, String>)>, DaemonError> {
        let told = self.call(TELL, async |docker| docker.inspect_container(name, None).await).await;
        match told {
            Err(error) if error.is(404) => Ok(None),
            Err(error) => Err(error),
            Ok(told) => {
                let labels = told.config.and_then(|config| config.labels).unwrap_or_default();
                Ok(told.id.map(|id| (id, labels)))
            }
        }
    }

    /// The last lines that a container printed, fit to be shown; none where they cannot be had.
    pub(super) async fn tail(&self, container: &str) -> Vec<String> {
        let lines = output::LINES.to_string();
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(&lines).build();
        let read = self.call(TELL, async |docker| {
            let mut log = std::pin::pin!(docker.logs(container, Some(options)));
            let mut text = Vec::new();
            while let Some(piece) = log.next().await {
                text.extend_from_slice(&LogOutput::into_bytes(piece?));
                if text.len() > LOG_BYTES {
                    text.drain(..text.len() - LOG_BYTES / 2);
                }
            }
            Ok(text)
        });
        read.await.map(|text| output::shown(&text)).unwrap_or_default()
    }

    /// Fetches an image from its registry.
    pub(super) async fn pull(&self, image: &str) -> Result<(), DaemonError> {
        // Without a tag Docker would fetch every one of them.
        let last = image.rsplit('/').next().unwrap_or(image);
        let whole = if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") };
        let options = CreateImageOptionsBuilder::default().from_image(&whole).build();
        let docker = self.client().await?;
        let mut progress = std::pin::pin!(docker.create_image(Some(options), None, None));
        loop {
            match timeout(PULL_SILENCE, progress.next()).await {
                Err(_) => {
                    return Err(self.silent(format!("the pull of {image} is silent for {PULL_SILENCE:?}")));
                }
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(self.translate(error)),
                Ok(Some(Ok(_))) => {}
            }
        }
    }

    /// What happens to the containers of `deployment` that `owner` started, from a moment ago on: the daemon does not
    /// say when it begins to tell, and what happens until then must not be missed. Ends when the daemon goes.
    pub(super) async fn events(
        &self,
        owner: &str,
        deployment: &DeploymentName,
    ) -> Result<impl Stream<Item = Result<EventMessage, BollardError>> + use<>, DaemonError> {
        let labels = vec![format!("{OWNER}={owner}"), format!("{DEPLOYMENT}={deployment}")];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(LOOK_BACK).as_secs();
        let filters = [
            ("type", vec!["container".to_owned()]),
            ("label", labels),
            ("event", ["start", "die", "destroy", "pause", "unpause"].map(str::to_owned).into()),
        ];
        let filters = filters.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
        let options = EventsOptionsBuilder::default().since(&since.to_string()).filters(&filters).build();
        let docker = self.client().await?;
        Ok(async_stream(docker, options))
    }

    /// The connection, which speaks the newest version of the API that both sides know.
    async fn client(&self) -> Result<Docker, DaemonError> {
        let kept = self.kept().clone();
        if let Some(docker) = kept {
            return Ok(docker);
        }
        let seconds = STOP.as_secs().max(MAKE.as_secs());
        let docker = match &self.host {
            DockerHost::Unix(path) => Docker::connect_with_unix(path, seconds, API_DEFAULT_VERSION),
            DockerHost::Tcp(address) => Docker::connect_with_http(address, seconds, API_DEFAULT_VERSION),
        };
        let docker = docker.map_err(|error| self.translate(error))?;
        let agreed = timeout(TELL, docker.negotiate_version()).await.map_err(|_| self.late(TELL))?;
        let docker = agreed.map_err(|error| self.translate(error))?;
        *self.kept() = Some(docker.clone());
        Ok(docker)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Docker>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&Docker) -> Result<T, BollardError>,
    ) -> Result<T, DaemonError> {
        let docker = self.client().await?;
        let done = timeout(limit, work(&docker)).await;
        let result =
            done.map_err(|_| self.late(limit)).and_then(|done| done.map_err(|error| self.translate(error)));
        if matches!(result, Err(DaemonError::Silent { .. })) {
            // The next daemon may speak another version.
            *self.kept() = None;
        }
        result
    }

    fn translate(&self, error: BollardError) -> DaemonError {
        match error {
            BollardError::DockerResponseServerError { status_code: status, message } => {
                DaemonError::Refused { status, message }
            }
            BollardError::DockerStreamError { error: message } => DaemonError::Refused { status: 0, message },
            error => {
                let mut why = error.to_string();
                let mut cause = error.source();
                while let Some(inner) = cause {
                    let text = inner.to_string();
                    if !why.contains(&text) {
                        why = format!("{why}: {text}");
                    }
                    cause = inner.source();
                }
                self.silent(why)
            }
        }
    }

    fn late(&self, limit: Duration) -> DaemonError {
        self.silent(format!("no answer within {limit:?}"))
    }

    fn silent(&self, why: String) -> DaemonError {
        DaemonError::Silent { host: self.host.to_string(), why }
    }
}

/// The stream of events, which keeps its own hold on the connection.
fn async_stream(
    docker: Docker,
    options: bollard::query_parameters::EventsOptions,
) -> impl Stream<Item = Result<EventMessage, BollardError>> + use<> {
    let first = (docker, Some(options), None);
    futures_util::stream::unfold(first, |(docker, mut options, stream)| async move {
        let mut stream = match stream {
            Some(stream) => stream,
            None => docker.events(options.take()).boxed(),
        };
        let next = stream.next().await?;
        Some((next, (docker, options, Some(stream))))
    })
}

fn stage(one: &ContainerSummary) -> Stage {
    use ContainerSummaryStateEnum as State;
    match one.state {
        Some(State::CREATED) => Stage::Created,
        Some(State::EXITED | State::DEAD) => Stage::Ended,
        Some(State::REMOVING) => Stage::Leaves,
        _ => Stage::Runs,
    }
}

/// `None` where its labels make no sense.
fn seen(one: &ContainerSummary) -> Option<Seen> {
    let tag = Tag::read(one.labels.as_ref()?)?;
    let ports = one.ports.as_deref().unwrap_or_default();
    let published =
        ports.iter().filter(|port| port.private_port == tag.port).find_map(|port| port.public_port);
    let paused = one.state == Some(ContainerSummaryStateEnum::PAUSED);
    Some(Seen { container: one.id.clone()?, tag, stage: stage(one), paused, published })
}
