//! Asks slurmrestd: which version it speaks, what jobs and nodes there are; submits jobs and cancels them.
//!
//! One request over one connection each, bounded in time and size. Says of each failure what is known to have been done.
//! Never decides anything about a replica.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode};
use serde_json::Value;
use thiserror::Error;

use super::reply::{self, Job, Node, Reply};
use super::spec::SlurmAccess;
use super::token::Token;
use super::whose::Whose;
use crate::provider::rest::{self, Bounds, NoAnswer};

/// How long an answer may take: slurmrestd itself waits some 10 s for a controller that is down.
const TIME: Duration = Duration::from_secs(30);
/// Largest answer, in bytes: all jobs of a cluster, some 4 KB each.
const SIZE: usize = 256 << 20;
const BOUNDS: Bounds = Bounds { time: TIME, size: SIZE };

/// The oldest version of the API that is spoken, and the newest that is known.
const VERSIONS: std::ops::RangeInclusive<u32> = 36..=42;

const USER: &str = "x-slurm-user-name";
const TOKEN: &str = "x-slurm-user-token";

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Failure {
    /// Slurm refused or was not reached: nothing was done.
    #[error("{0}")]
    Refused(String),
    /// Whether it was done is not known.
    #[error("{0}")]
    Unknown(String),
    /// There is no such job, or no longer.
    #[error("Slurm knows no such job")]
    NoJob,
}

/// A way to slurmrestd.
#[derive(Debug)]
pub(super) struct Client {
    access: SlurmAccess,
    /// The version that slurmrestd speaks; 0 until it was asked.
    version: AtomicU32,
    /// Whose our jobs are: of those that are seen and ended with it, none is another's.
    whose: OnceLock<Whose>,
}

impl Client {
    pub(super) fn new(access: SlurmAccess) -> Self {
        let version = AtomicU32::new(access.api.unwrap_or(0));
        Self { access, version, whose: OnceLock::new() }
    }

    /// The version of the API to speak; asks once.
    pub(super) async fn version(&self) -> Result<u32, Failure> {
        let known = self.version.load(Ordering::Relaxed);
        if known > 0 {
            return Ok(known);
        }
        let (status, body) = self.send(Method::GET, "/openapi/v3", None).await?;
        let listing: Value = serde_json::from_slice(&body).map_err(|_| self.strange(status, &body))?;
        let mut found = reply::versions(&listing);
        found.sort_unstable();
        let known = found.iter().rev().find(|version| VERSIONS.contains(version));
        let newer = || found.iter().find(|version| *version > VERSIONS.end());
        let Some(version) = known.or_else(newer).copied() else {
            let why = format!(
                "{} offers no version of the API from v0.0.{} on",
                self.access.site,
                VERSIONS.start()
            );
            return Err(Failure::Refused(why));
        };
        tracing::info!("{} is spoken to as v0.0.{version}", self.access.site);
        self.version.store(version, Ordering::Relaxed);
        Ok(version)
    }

    /// Whose jobs are ours: the same as long as we run.
    pub(super) fn whose(&self) -> Result<Whose, String> {
        let now = Whose::of(&self.access)?;
        self.whose.get_or_init(|| now.clone());
        self.stays().map(|()| now)
    }

    /// That we are asked to be nobody else than before: as somebody else we would take those that run for gone, and start them
    /// again (C-005).
    pub(super) fn stays(&self) -> Result<(), String> {
        let (Some(ours), Ok(now)) = (self.whose.get(), Whose::of(&self.access)) else { return Ok(()) };
        if *ours == now {
            return Ok(());
        }
        let by = match &self.access.token {
            Some(path) => format!("the token in {}", path.display()),
            None => self.access.site.to_string(),
        };
        Err(format!(
            "{by} is of {now} now, and the jobs of this gateway are of {ours}: go back to {ours}, or restart the gateway to \
             start others as {now}"
        ))
    }

    /// Whether Slurm answers at all.
    pub(super) async fn ping(&self) -> Result<(), Failure> {
        let reply = self.call(Method::GET, "ping", None).await?;
        let down = || Failure::Unknown("Slurm says: no controller is up".to_owned());
        reply.is_up().then_some(()).ok_or_else(down)
    }

    /// Every job that Slurm knows.
    pub(super) async fn jobs(&self) -> Result<Vec<Job>, Failure> {
        Ok(self.call(Method::GET, "jobs", None).await?.jobs)
    }

    /// One job.
    pub(super) async fn job(&self, id: u32) -> Result<Job, Failure> {
        let mut jobs = self.call(Method::GET, &format!("job/{id}"), None).await?.jobs;
        jobs.retain(|job| job.job_id == Some(u64::from(id)));
        jobs.pop().ok_or(Failure::NoJob)
    }

    /// Every node.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, Failure> {
        Ok(self.call(Method::GET, "nodes", None).await?.nodes)
    }

    /// Where a node is reached: its `NodeAddr`.
    pub(super) async fn address(&self, node: &str) -> Result<String, Failure> {
        let path = format!("node/{node}");
        let nodes = self.call(Method::GET, &path, None).await?.nodes;
        let found = nodes.into_iter().find(|one| one.name == node).map(|node| node.address);
        Ok(found.filter(|address| !address.is_empty()).unwrap_or_else(|| node.to_owned()))
    }

    /// Submits a job; its number, and what Slurm had to say about it.
    pub(super) async fn submit(&self, body: &Value) -> Result<(u32, Option<String>), Failure> {
        let reply = self.reply(Method::POST, "job/submit", Some(body)).await?;
        match (reply.1.submitted(), reply.1.trouble()) {
            // Slurm takes some jobs that cannot start yet, and says why.
            (Some(job), trouble) => Ok((job, trouble)),
            (None, _) => Err(self.failure(reply.0, &reply.1)),
        }
    }

    /// Cancels a job: Slurm sends SIGTERM, and after its `KillWait` SIGKILL. One that is over already is fine.
    pub(super) async fn cancel(&self, job: u32) -> Result<(), Failure> {
        match self.call(Method::DELETE, &format!("job/{job}"), None).await {
            Ok(_) | Err(Failure::NoJob) => Ok(()),
            Err(other) => Err(other),
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, Failure> {
        let (status, reply) = self.reply(method, path, body).await?;
        let done = status.is_success() && (reply.trouble().is_none() || reply.has(reply::ALREADY_DONE));
        if done || reply.has(reply::ALREADY_DONE) { Ok(reply) } else { Err(self.failure(status, &reply)) }
    }

    async fn reply(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Reply), Failure> {
        let path = format!("/slurm/v0.0.{}/{path}", self.version().await?);
        let (status, body) = self.send(method, &path, body.map(Value::to_string)).await?;
        let reply = serde_json::from_slice(&body).map_err(|_| self.strange(status, &body))?;
        Ok((status, reply))
    }

    fn failure(&self, status: StatusCode, reply: &Reply) -> Failure {
        if reply.has(reply::INVALID_JOB) {
            return Failure::NoJob;
        }
        let told = reply.trouble().unwrap_or_else(|| format!("HTTP status {}", status.as_u16()));
        let why = format!("Slurm says: {told}{}", self.hint());
        if reply.refused() { Failure::Refused(why) } else { Failure::Unknown(why) }
    }

    /// What came is no answer of the API.
    fn strange(&self, status: StatusCode, body: &[u8]) -> Failure {
        let site = &self.access.site;
        let why = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                format!("{site} does not accept who asks (HTTP {}){}", status.as_u16(), self.hint())
            }
            StatusCode::NOT_FOUND => format!("{site} does not know this version of the API (HTTP 404)"),
            _ => {
                let begin: String = String::from_utf8_lossy(body).chars().take(80).collect();
                let why = format!("{site} answers HTTP {} with {begin:?}", status.as_u16());
                return Failure::Unknown(why);
            }
        };
        Failure::Refused(why)
    }

    /// What may be behind a failure that Slurm itself does not explain: a token that has expired.
    fn hint(&self) -> String {
        let Some(path) = &self.access.token else { return String::new() };
        let token = match Token::read(path) {
            Ok(token) => token,
            Err(why) => return format!("; {why}"),
        };
        // Only for the words: nothing is decided by the wall clock.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let expired = token.expired(now);
        expired
            .map(|ago| format!("; the token in {} expired {ago} s ago", path.display()))
            .unwrap_or_default()
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(path) = &self.access.token {
            let token = Token::read(path).map_err(Failure::Refused)?;
            if let Some(user) = self.access.user.as_deref().or(token.user()) {
                request = request.header(USER, user);
            }
            request = request.header(TOKEN, token.text);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).map_err(|error| Failure::Refused(format!("{path}: {error}")))?;
        rest::ask(&self.access.site, request, BOUNDS).await.map_err(|none| match none {
            NoAnswer::NotAsked(why) => Failure::Refused(why),
            NoAnswer::Lost(why) => Failure::Unknown(why),
        })
    }
}
