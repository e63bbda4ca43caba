//! One measuring from its beginning to its end: waits until the replica is free, learns how long prompts get, and takes the
//! steps that the core asks for. Ends at once when its client has left or the replica is needed.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_scaler_core::tune::drift::Workload;
use tidegate_scaler_core::tune::search::{self, Bounds, Found, Goals, Next, Why};
use tidegate_scaler_core::tune::step::{GOOD, SLICE, Step, error};
use tidegate_scaler_core::tune::work::Work;
use tidegate_scaler_core::tune::{Measured, curve};
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::exchange::Connection;
use super::load::{Counts, Crew, Ended, Field, Place, exchange};
use super::prompt::Prompts;
use super::report::{Event, Source, Step as Told, word};
use super::stop::{SILENT, Stop};
use super::tell;
use crate::clock::Clock;
use crate::pool::Holding;

/// Slices that a step may take to settle, 15 s of them: until each place has had its first token.
const SETTLE: usize = 60;
/// Failures that end a step.
const FAILURES: u32 = 3;

/// What is to be measured.
#[derive(Debug)]
pub struct Job {
    /// The replica, let go when the job ends.
    pub holding: Holding,
    /// The deployment, for the report.
    pub deployment: String,
    /// The name that the engine knows the model by.
    pub model: String,
    /// Reads time.
    pub clock: Clock,
    /// The mean of the requests to measure with.
    pub workload: Workload,
    /// Where the lengths of prompts and of answers come from.
    pub from: [Source; 2],
    /// What must hold at the target.
    pub goals: Goals,
    /// Measure these, and nothing else.
    pub only: Option<Vec<u32>>,
    /// How long it may take, all in all.
    pub limit: Duration,
    /// What makes the prompts differ from those of another run.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Requests in flight per replica to aim at.
    pub target: u32,
    /// Why, for people.
    pub because: String,
    /// See [`Found::settled`].
    pub settled: bool,
    /// The least and the most that the target may be, where noise leaves that open.
    pub range: Option<(u32, u32)>,
    /// The mean of what it was measured with, as the engine counted it.
    pub workload: Workload,
    /// How the engine speaks.
    pub engine: &'static str,
    /// Each step, in order.
    pub steps: Vec<Told>,
}

/// Measures, tells `out` how it goes, and gives the target with its reason.
///
/// # Errors
/// See [`Stop`].
pub async fn run(job: Job, out: &Sender<Event>) -> Result<Done, Stop> {
    let replica = job.holding.endpoint().name().to_owned();
    let engine = job.holding.endpoint().engine().unwrap_or_default();
    let report = engine.report.unwrap_or_default();
    let Workload { prompt_tokens, output_tokens } = job.workload;
    let each = prompt_tokens.saturating_add(output_tokens).max(1);
    let memory = report.kv_capacity.map(|tokens| u32::try_from(tokens.0 / each).unwrap_or(u32::MAX));
    let (places, only) = (report.slots, job.only.clone());
    let bounds = Bounds { goals: job.goals, cap: search::cap(places, memory), places, only };
    let mut bench = Bench {
        field: Arc::new(Field {
            clock: job.clock,
            endpoint: Arc::clone(job.holding.endpoint()),
            prompts: Mutex::new(Prompts::new(&job.model, engine.dialect, job.workload, job.seed)),
            counts: Mutex::default(),
        }),
        crew: Crew::default(),
        ticks: ticks(),
        began: job.clock.now(),
        left: None,
        replica: replica.clone(),
        job: &job,
        out,
    };
    bench
        .tell(Event::Begun {
            deployment: job.deployment.clone(),
            replica,
            aside: job.holding.is_aside(),
            engine: engine.dialect.as_str().to_owned(),
            places: report.slots,
            cap: bounds.cap,
            prompt_tokens,
            output_tokens,
            learned: job.from == [Source::Traffic; 2],
            from: job.from,
        })
        .await?;
    bench.until_free().await?;
    bench.learn().await?;
    let (found, because, steps) = bench.search(&bounds).await?;
    let (target, settled, workload) = (found.target, found.settled, bench.workload());
    Ok(Done {
        target,
        because,
        settled,
        range: found.range,
        workload,
        engine: engine.dialect.as_str(),
        steps,
    })
}

fn ticks() -> Interval {
    let mut ticks = interval(SLICE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

struct Bench<'a> {
    job: &'a Job,
    out: &'a Sender<Event>,
    field: Arc<Field>,
    crew: Crew,
    ticks: Interval,
    began: Instant,
    /// When it is over, roughly.
    left: Option<Instant>,
    replica: String,
}

impl Bench<'_> {
    /// Waits for who looks on slowly, and no longer than it may take: then he misses some of it.
    async fn tell(&mut self, event: Event) -> Result<(), Stop> {
        let out = self.out;
        while !self.is_late() {
            tokio::select! {
                biased;
                place = out.reserve() => {
                    place.map_err(|_| Stop::Left)?.send(event);
                    return Ok(());
                }
                slice = self.tick() => slice?,
            };
        }
        match out.try_send(event) {
            Err(TrySendError::Closed(_)) => Err(Stop::Left),
            Err(TrySendError::Full(_)) | Ok(()) => Ok(()),
        }
    }

    /// The next slice.
    async fn tick(&mut self) -> Result<Instant, Stop> {
        tokio::select! {
            _ = self.ticks.tick() => {}
            () = self.out.closed() => return Err(Stop::Left),
        }
        self.may_go_on()?;
        Ok(self.job.clock.now())
    }

    fn may_go_on(&self) -> Result<(), Stop> {
        let needed = self.job.holding.needed();
        needed.map_or(Ok(()), |needed| Err(Stop::Needed(tell::needed(&self.replica, needed))))
    }

    fn is_late(&self) -> bool {
        self.job.clock.now().since(self.began) >= self.job.limit
    }

    /// Until no request of a user is left there.
    async fn until_free(&mut self) -> Result<(), Stop> {
        let mut told = 0;
        loop {
            self.tick().await?;
            let in_flight = self.job.holding.in_flight();
            match in_flight {
                0 => return Ok(()),
                _ if self.is_late() => return Err(Stop::Needed(tell::busy(&self.replica, in_flight))),
                _ if in_flight != told => self.tell(Event::Waiting { in_flight }).await?,
                _ => {}
            }
            told = in_flight;
        }
    }

    /// Two requests that tell how many tokens words make, and whether there is anything to measure.
    async fn learn(&mut self) -> Result<(), Stop> {
        let [short, long] = self.field.prompts.lock().probes();
        let mut told = Vec::new();
        for words in [short, long] {
            let body = self.field.prompts.lock().request(words, 2);
            let usage = self.probe(&body).await?;
            told.extend(usage.map(|tokens| (words, tokens)));
        }
        if let [short, long] = told[..] {
            self.field.prompts.lock().learn(short, long);
        }
        *self.field.counts.lock() = Counts::default();
        Ok(())
    }

    /// Tokens of the prompt of a request, where its answer tells them.
    async fn probe(&mut self, body: &Value) -> Result<Option<u64>, Stop> {
        let field = Arc::clone(&self.field);
        let mut connection = Connection::new(&field.endpoint);
        let place = Mutex::new(Place::default());
        let asked = exchange(&field, &mut connection, body, &place);
        tokio::pin!(asked);
        let sent = self.job.clock.now();
        loop {
            let ended = tokio::select! {
                ended = &mut asked => ended,
                now = self.tick() => match now?.since(sent) {
                    since if since >= SILENT => return Err(Stop::Silent { replica: self.replica.clone() }),
                    _ if self.is_late() => return Err(Stop::Nothing(tell::too_little(self.job.limit))),
                    _ => continue,
                },
            };
            return match ended {
                Ended::Well(usage) => Ok(usage.prompt),
                Ended::Refused(why) | Ended::Rejected(why) | Ended::Failed(why) => Err(self.unusable(why)),
            };
        }
    }

    fn unusable(&self, why: String) -> Stop {
        Stop::Unusable { replica: self.replica.clone(), why }
    }

    async fn search(&mut self, bounds: &Bounds) -> Result<(Found, String, Vec<Told>), Stop> {
        let (mut steps, mut told): (Vec<Measured>, Vec<Told>) = Default::default();
        let began = self.job.clock.now();
        loop {
            self.left = self.ends(began, &steps, bounds);
            match search::next(&steps, bounds, self.is_late()) {
                Next::Try(concurrency, why) => {
                    let Some((seen, error)) = self.step(concurrency, why).await? else { continue };
                    let step = Told::new(&seen, why, error);
                    self.tell(Event::Measured(step.clone())).await?;
                    steps.push(seen);
                    told.push(step);
                }
                Next::Found(found) => {
                    let because = tell::because(&found, &curve(&steps), &bounds.goals);
                    return Ok((found, because, told));
                }
                Next::Nothing(limit) => {
                    let trouble = self.field.counts.lock().trouble.clone();
                    return Err(Stop::Nothing(tell::nothing(limit, &bounds.goals, trouble)));
                }
                Next::TooLittle => return Err(Stop::Nothing(tell::too_little(self.job.limit))),
            }
        }
    }

    /// When it is over if the steps to come take as long as those since `began`, and no later than it may be.
    fn ends(&self, began: Instant, steps: &[Measured], bounds: &Bounds) -> Option<Instant> {
        let done = u32::try_from(steps.len()).ok().filter(|done| *done > 0)?;
        let left = u32::try_from(search::left(steps, bounds)?).ok()?;
        let now = self.job.clock.now();
        let rest = (now.since(began) / done).saturating_mul(left);
        Some((now + rest).min(self.began + self.job.limit))
    }

    /// Measures `concurrency` requests at a time; with how far the throughput may be off, in thousandths. `None` where time
    /// was up before that was known: half a step is none.
    async fn step(&mut self, concurrency: u32, why: Why) -> Result<Option<(Measured, Option<u128>)>, Stop> {
        let mut began = self.job.clock.now();
        self.field.counts.lock().begin(began);
        self.crew.resize(concurrency, &self.field);
        let mut waited = 0;
        let settled = loop {
            began = self.tick().await?;
            self.show(concurrency, why, Duration::ZERO, 0);
            waited += 1;
            if self.is_broken()? {
                break false;
            }
            if self.is_late() {
                return Ok(None);
            }
            if waited >= SETTLE || (waited > 1 && self.crew.is_settled()) {
                break true;
            }
        };
        let step = Step { concurrency, goal: self.job.goals.any() };
        let (mut work, mut now) = (Work::begin(began), began);
        if settled {
            self.field.counts.lock().begin(began);
            loop {
                now = self.tick().await?;
                let ended = std::mem::take(&mut self.field.counts.lock().ended);
                work.slice(now, &ended, &self.crew.open());
                self.show(concurrency, why, now.since(began), work.tokens());
                let broken = self.is_broken()?;
                let counts = self.field.counts.lock();
                if broken || step.is_enough(work.slices(), counts.completed, counts.ttft.len()) {
                    break;
                }
                if self.is_late() {
                    return Ok(None);
                }
            }
        }
        let error = error(work.slices());
        let noisy = error.is_none_or(|error| error > GOOD);
        let off = error.and_then(|error| u32::try_from(error).ok()).unwrap_or_default();
        let seen = Measured { noisy, error: off, ..self.seen(concurrency, now.since(began), work.tokens()) };
        if seen.broke() {
            // Nothing of it weighs on the next.
            self.crew.resize(0, &self.field);
        }
        Ok(Some((seen, error)))
    }

    /// Whether the step need not go on.
    fn is_broken(&self) -> Result<bool, Stop> {
        let mut counts = self.field.counts.lock();
        if let Some(why) = counts.rejected.take() {
            return Err(self.unusable(why));
        }
        if self.job.clock.now().since(counts.last) >= SILENT {
            return Err(Stop::Silent { replica: self.replica.clone() });
        }
        let Counts { completed, failed, refused, .. } = *counts;
        let seen = Measured { completed, failed, refused, ..Measured::default() };
        Ok(seen.broke() && (refused > 0 || failed >= FAILURES))
    }

    fn seen(&self, concurrency: u32, window: Duration, events: u64) -> Measured {
        let counts = self.field.counts.lock();
        Measured {
            concurrency,
            window,
            tokens: counts.tokens(events),
            completed: counts.completed,
            failed: counts.failed,
            refused: counts.refused,
            noisy: false,
            error: 0,
            ttft: counts.ttft.clone(),
            tpot: counts.tpot.clone(),
        }
    }

    /// Who looks on slowly misses some of it.
    fn show(&self, concurrency: u32, why: Why, measured: Duration, events: u64) {
        let tokens = self.field.counts.lock().tokens(events) as f64;
        let measured_s = measured.as_secs_f64();
        let tokens_per_s = if measured_s > 0.0 { tokens / measured_s } else { 0.0 };
        let why = word(why).to_owned();
        let left_s = self.left.map(|ends| ends.since(self.job.clock.now()).as_secs_f64());
        let _ = self.out.try_send(Event::Trying { concurrency, why, measured_s, tokens_per_s, left_s });
    }

    /// What it was measured with, as the engine counted it.
    fn workload(&self) -> Workload {
        let told = self.field.counts.lock().told;
        match told.requests {
            0 => self.job.workload,
            requests => {
                Workload { prompt_tokens: told.prompt / requests, output_tokens: told.output / requests }
            }
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
