//! `POST /deployments/NAME/tune`: measures one replica (A1) and tells how it goes, an event a line. What is found becomes the
//! target, unless `dry_run` is asked. Measures nothing by itself; when its client leaves, measuring ends and the replica
//! serves again.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_scaler::store::Tuned;
use tidegate_scaler_core::config::Task;
use tidegate_scaler_core::tune::drift::{LEAST_SEEN, Workload};
use tidegate_scaler_core::tune::search::{Goals, MOST};
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{DeploymentName, replica_name};
use tidegate_shared::replica::Hold;
use tidegate_shared::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::manage::{body, conflict, find, find_replica, named_by, plain, unsaved};
use super::{Admin, Watched, drift};
use crate::openai::ApiError;
use crate::pool::{Holding, NoHold};
use crate::sizing::sentence;
use crate::tune::{Done, Event, Job, Source, Stop, USUAL, run};

/// Most tokens that a prompt or an answer is asked to have.
pub(crate) const MOST_TOKENS: u64 = 1_000_000;
/// Most steps that a sweep may have.
const MOST_STEPS: usize = 64;
/// How long it takes at most unless asked, and the longest that may be asked.
const USUAL_LIMIT: u64 = 600;
const MOST_LIMIT: u64 = 24 * 60 * 60;
/// Longest goal, in milliseconds.
const MOST_GOAL: f64 = 3_600_000.0;
/// Events that wait for a client that reads slowly; then measuring waits.
const WAITING: usize = 64;
/// How long the last event waits for such a client.
const LAST_WORD: Duration = Duration::from_secs(30);

/// What is asked. All of it may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    replica: Option<String>,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    ttft_p95_ms: Option<f64>,
    tpot_p95_ms: Option<f64>,
    at: Option<Vec<u32>>,
    limit_s: Option<u64>,
    dry_run: bool,
}

impl Asked {
    fn read(body: &[u8]) -> Result<Self, ApiError> {
        let blank = body.iter().all(u8::is_ascii_whitespace);
        let asked: Self = if blank { Self::default() } else { parse(body)? };
        let within = |key: &'static str, value: Option<u64>, least: u64, most: u64| match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(bad(key, format!("{key} is {value}, but must be {least} to {most}")))
            }
            _ => Ok(()),
        };
        within("prompt_tokens", asked.prompt_tokens, 1, MOST_TOKENS)?;
        within("output_tokens", asked.output_tokens, 2, MOST_TOKENS)?;
        within("limit_s", asked.limit_s, 1, MOST_LIMIT)?;
        for (key, goal) in [("ttft_p95_ms", asked.ttft_p95_ms), ("tpot_p95_ms", asked.tpot_p95_ms)] {
            if let Some(goal) = goal.filter(|goal| !(0.001..=MOST_GOAL).contains(goal)) {
                return Err(bad(key, format!("{key} is {goal}, but must be 0.001 to {MOST_GOAL}")));
            }
        }
        for at in asked.at.iter().flatten() {
            within("at", Some(u64::from(*at)), 1, u64::from(MOST))?;
        }
        match asked.at.as_ref().map(Vec::len) {
            Some(count) if !(1..=MOST_STEPS).contains(&count) => {
                Err(bad("at", format!("at has {count} numbers, but must have 1 to {MOST_STEPS}")))
            }
            _ => Ok(asked),
        }
    }

    fn goals(&self) -> Goals {
        let time = |millis: Option<f64>| millis.map(|millis| Duration::from_secs_f64(millis / 1e3));
        Goals { ttft: time(self.ttft_p95_ms), tpot: time(self.tpot_p95_ms) }
    }
}

fn parse(body: &[u8]) -> Result<Asked, ApiError> {
    let object = serde_json::from_slice::<Map<String, Value>>(body);
    object.and_then(|object| serde_json::from_value(Value::Object(object))).map_err(|error| {
        ApiError::bad_request(format!(
            "the body must be a JSON object such as {{\"ttft_p95_ms\": 500, \"dry_run\": true}}: {}",
            plain(&error)
        ))
    })
}

fn bad(key: &'static str, message: String) -> ApiError {
    let mut error = ApiError::bad_request(message);
    error.error.param = Some(key);
    error
}

/// Events, a line each, as they come.
#[derive(Debug)]
pub(super) struct Feed(Receiver<Event>);

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| {
            let mut line = serde_json::to_vec(&event?).unwrap_or_default();
            line.push(b'\n');
            Some(Ok(Frame::data(line.into())))
        })
    }
}

/// Begins to measure, and gives what tells how it goes.
///
/// # Errors
/// 400 for what cannot be asked; 404 for an unknown deployment or replica; 409 where nothing can be measured now.
pub(super) async fn begin(admin: &Arc<Admin>, request: Request<Incoming>) -> Result<Feed, ApiError> {
    let path = request.uri().path().to_owned();
    let asked = Asked::read(&body(admin, request).await?)?;
    let watched = find(admin, named_by(&path, "/tune"))?.clone();
    let settings = watched.resizer.settings();
    if settings.task != Task::Chat {
        let name = watched.pool.name();
        return Err(conflict(format!(
            "`{name}` is no deployment of chats, and only streams of chats can be measured; set target_concurrency"
        )));
    }
    let holding = hold(&watched, asked.replica.as_deref())?;
    let (workload, from) = workload(&watched, &asked);
    let job = Job {
        holding,
        deployment: watched.pool.name().to_string(),
        model: settings.model,
        clock: admin.gateway.clock,
        workload,
        from,
        goals: asked.goals(),
        only: asked.at.clone(),
        limit: Duration::from_secs(asked.limit_s.unwrap_or(USUAL_LIMIT)),
        seed: RandomState::new().build_hasher().finish(),
    };
    let (out, events) = channel(WAITING);
    let task = measure(Arc::clone(admin), watched, job, asked.dry_run, out);
    spawn(task).map_err(|error| {
        let mut told = ApiError::internal();
        told.error.message = format!("no thread can be started: {error}");
        told
    })?;
    Ok(Feed(events))
}

/// Runs `task` on a thread of its own: neither requests nor probes wait for it.
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("tune".to_owned());
    thread.spawn(move || runtime.block_on(task)).map(drop)
}

async fn measure(admin: Arc<Admin>, watched: Watched, job: Job, dry_run: bool, out: Sender<Event>) {
    let replica = job.holding.endpoint().name().to_owned();
    tracing::info!("{replica} is measured: {}", job.holding.endpoint().url());
    let ended = run(job, &out).await;
    let event = match ended {
        Ok(done) => {
            let (stored, note) = if dry_run { (false, None) } else { keep(&admin, &watched, &done).await };
            tracing::info!("{replica} was measured: {}", logged(&done, stored));
            found(done, stored, note)
        }
        Err(Stop::Left) => {
            tracing::info!("{replica} is measured no longer: who asked for it has left");
            return;
        }
        Err(stop) => {
            tracing::info!("{replica} is measured no longer: {stop}");
            Event::Failed { why: stop.to_string() }
        }
    };
    // The replica serves again by now; a client that reads nothing is not waited for for ever.
    let _ = timeout(LAST_WORD, out.send(event)).await;
}

/// What the log says of what was found.
fn logged(done: &Done, stored: bool) -> String {
    let Done { target, because, .. } = done;
    match (done.settled, stored) {
        (true, true) => format!("the target is {target}, since {because}"),
        (true, false) => format!("the target would be {target}, and nothing was changed: {because}"),
        (false, _) => {
            format!("not certain, nothing was changed: {}", because.trim_start_matches("not certain: "))
        }
    }
}

fn found(done: Done, stored: bool, note: Option<String>) -> Event {
    let Done { target, because, settled, range, workload, .. } = done;
    let Workload { prompt_tokens, output_tokens } = workload;
    Event::Found { target, because, settled, range, prompt_tokens, output_tokens, stored, note }
}

/// Makes it the target, if it is certain.
async fn keep(admin: &Admin, watched: &Watched, done: &Done) -> (bool, Option<String>) {
    let target = done.target;
    if !done.settled {
        let name = watched.pool.name();
        let note = format!(
            "not certain, so the target in force stays; a longer `--limit` may tell, and `tidegate scale {name} --target \
             {target}` takes the best guess"
        );
        return (false, Some(note));
    }
    if watched.provider == "static" {
        let note =
            format!("the replicas are fixed by the configuration: set target_concurrency = {target} there");
        return (false, Some(note));
    }
    let kind = format!("{} as {}", done.engine, watched.provider);
    let model = watched.resizer.settings().model;
    let tuned = Tuned { target, model, kind, curve: drift::written(done) };
    match watched.resizer.tune(tuned, admin.house.lasting(admin.gateway.clock.now())) {
        Ok(()) => {
            let why = unsaved(admin).await;
            (true, why.map(|why| format!("not on disk yet, a restart would forget it: {why}")))
        }
        Err(faults) => (false, Some(sentence(&faults))),
    }
}

/// Holds the replica that is asked for, or any.
fn hold(watched: &Watched, wanted: Option<&str>) -> Result<Holding, ApiError> {
    let name = watched.pool.name();
    let wanted = wanted.map(|wanted| find_replica(watched, wanted)).transpose()?;
    watched.pool.hold(wanted).map_err(|no| {
        conflict(match (no, wanted) {
            (NoHold::Held(id), _) => format!("{} is being measured already", replica_name(name, id)),
            (NoHold::Unknown | NoHold::NotReady, Some(id)) => {
                format!("{} is not ready, or not trusted just now", replica_name(name, id))
            }
            (NoHold::Unknown | NoHold::NotReady, None) if watched.provider == "static" => {
                let out = watched.helm.drained().keys().next().map(|id| replica_name(name, *id));
                let undo = out.map(|out| format!(", or take one back with `tidegate drain {name} {out} --undo`"));
                format!(
                    "no replica of `{name}` is ready, and none is started here: start an engine at one of its URLs{}",
                    undo.unwrap_or_default()
                )
            }
            (NoHold::Unknown | NoHold::NotReady, None) => {
                format!(
                    "no replica of `{name}` is ready; with `tidegate scale {name} --min 1` there will be one"
                )
            }
        })
    })
}

/// What is told of a deployment while one of its replicas is held.
pub(super) fn running(name: &DeploymentName, seen: &Observation) -> Option<String> {
    let held = seen.replicas.iter().find_map(|replica| Some((replica.id, replica.hold?)));
    held.map(|(id, hold)| format!("{} is {}", replica_name(name, id), self::held(hold)))
}

/// What is told of a replica that is held.
pub(super) fn held(hold: Hold) -> String {
    match hold {
        Hold::Aside => "set aside while `tidegate tune` measures it".to_owned(),
        Hold::Serving => "measured by `tidegate tune`, until a request comes".to_owned(),
    }
}

/// What to measure with: as asked, else as traffic was lately, else the usual; and which of these it is.
fn workload(watched: &Watched, asked: &Asked) -> (Workload, [Source; 2]) {
    let seen = watched.pool.usual().filter(|(_, _, seen)| *seen >= LEAST_SEEN);
    let seen = seen.map(|(prompt, output, _)| (prompt.0.max(1), output.0.max(2))).unzip();
    let pick = |asked: Option<u64>, seen: Option<u64>, usual: u64| match (asked, seen) {
        (Some(asked), _) => (asked, Source::Asked),
        (None, Some(seen)) => (seen, Source::Traffic),
        (None, None) => (usual, Source::Guess),
    };
    let (prompt_tokens, prompts) = pick(asked.prompt_tokens, seen.0, USUAL.prompt_tokens);
    let (output_tokens, answers) = pick(asked.output_tokens, seen.1, USUAL.output_tokens);
    (Workload { prompt_tokens, output_tokens }, [prompts, answers])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(body: &str) -> String {
        Asked::read(body.as_bytes()).expect_err(body).error.message
    }

    #[test]
    fn a1_the_log_says_the_target_is_only_what_was_taken() {
        let done = |settled| Done {
            target: 2,
            because: if settled { "more bring no more" } else { "not certain: 1 to 4" }.to_owned(),
            settled,
            range: None,
            workload: USUAL,
            engine: "none",
            steps: Vec::new(),
        };
        for (settled, stored, told) in [
            (true, true, "the target is 2, since more bring no more"),
            (true, false, "the target would be 2, and nothing was changed: more bring no more"),
            (false, false, "not certain, nothing was changed: 1 to 4"),
        ] {
            assert_eq!(logged(&done(settled), stored), told);
        }
    }

    #[test]
    fn a1_what_is_asked_is_checked_with_its_value_and_what_is_allowed() {
        for (body, told) in [
            (r#"{"prompt_tokens": 0}"#, "prompt_tokens is 0, but must be 1 to 1000000"),
            (r#"{"output_tokens": 1}"#, "output_tokens is 1, but must be 2 to 1000000"),
            (r#"{"ttft_p95_ms": -1}"#, "ttft_p95_ms is -1, but must be 0.001 to 3600000"),
            (r#"{"at": []}"#, "at has 0 numbers, but must have 1 to 64"),
            (r#"{"at": [1, 0]}"#, "at is 0, but must be 1 to 1024"),
            (r#"{"limit_s": 100000}"#, "limit_s is 100000, but must be 1 to 86400"),
        ] {
            assert_eq!(fault(body), told);
        }
        assert!(fault("[]").contains("must be a JSON object"));
        assert!(fault(r#"{"repplica": "a"}"#).contains("unknown field `repplica`"));
        for good in ["", " \n", "{}", r#"{"at": [1, 1024], "limit_s": 1, "tpot_p95_ms": 0.5}"#] {
            assert!(Asked::read(good.as_bytes()).is_ok(), "{good}");
        }
    }
}
