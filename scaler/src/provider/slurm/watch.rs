//! Asks Slurm again and again how the jobs of one deployment are, often while something is about to change and seldom
//! otherwise: each job by its number, and all jobs only at the start and while one may be missing.
//!
//! Cancels what is ours and nobody wants; never submits anything.

use std::sync::{Arc, Weak};

use tidegate_shared::id::{DeploymentName, ReplicaId};
use tokio::time::{Duration, Instant, sleep};
use tracing::{debug, info, warn};

use super::super::InstanceState;
use super::super::state::StateDir;
use super::client::{Client, Failure};
use super::core::Core;
use super::mark;
use super::reply::Job;
use super::room::Room;
use super::seen::{self, Seen};

/// The first pause after something has changed; it doubles.
const QUICK: Duration = Duration::from_millis(500);
/// The longest pause while a replica is on its way, and while Slurm does not answer: that it does again is to be known at once,
/// and nobody else asks.
const RESTLESS: Duration = Duration::from_secs(2);
/// The longest pause otherwise.
const CALM: Duration = Duration::from_secs(10);
/// The first pause between two lists of all jobs while one may come late; it doubles.
const SWEEP_FIRST: Duration = Duration::from_secs(2);
/// How often all jobs are listed while one may come late, in the long run, and how often the nodes are looked at.
const SWEEP: Duration = Duration::from_secs(60);

/// Watches the jobs of one deployment until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    core: Arc<Core>,
    state: Weak<StateDir>,
    /// Every deployment that has a provider here.
    wanted: Vec<String>,
    adopted: bool,
    swept: Option<Instant>,
    sweep_pause: Duration,
    looked_for_room: Option<Instant>,
}

impl Watch {
    pub(super) fn new(core: Arc<Core>, wanted: &[DeploymentName], state: Weak<StateDir>) -> Self {
        let wanted = wanted.iter().map(|name| name.as_str().to_owned()).collect();
        Self {
            core,
            state,
            wanted,
            adopted: false,
            swept: None,
            sweep_pause: SWEEP_FIRST,
            looked_for_room: None,
        }
    }

    /// Never ends.
    pub(super) async fn run(mut self) {
        let mut pause = QUICK;
        loop {
            let round = self.round().await;
            if let Ok(true) = round {
                pause = QUICK;
            }
            let calm = round.is_ok() && !self.core.is_restless();
            pause = pause.min(if calm { CALM } else { RESTLESS });
            let trouble = round.err().map(|failure| failure.to_string());
            if let Some(why) = &trouble {
                debug!("Slurm does not answer for {}: {why}", self.core.spec.deployment);
            }
            self.core.set_trouble(trouble, pause);
            tokio::select! {
                () = sleep(pause) => pause *= 2,
                () = self.core.look.notified() => pause = QUICK,
            }
        }
    }

    /// Looks at everything once; whether anything has changed.
    async fn round(&mut self) -> Result<bool, Failure> {
        self.core.client.stays().map_err(Failure::Refused)?;
        let due = |last: Option<Instant>, pause| last.is_none_or(|last| last.elapsed() >= pause);
        let sweeps = self.core.misses_jobs() && due(self.swept, self.sweep_pause);
        if !self.adopted || self.core.has_lost() || sweeps {
            self.sweep().await?;
        }
        let mut news = false;
        let jobs = self.core.jobs();
        if jobs.is_empty() {
            // Nothing else would be asked, and that Slurm is away is to be known before it is needed.
            self.core.client.ping().await?;
        }
        let whose = self.core.client.whose().map_err(Failure::Refused)?;
        // Before the jobs: one that starts in between would be taken for what fills its node. Where nobody tells, the jobs are
        // looked at all the same.
        let mut room = match self.core.has_younger(seen::LOOKED) && self.counts_room() {
            true => self.look_for_room().await.ok(),
            false => None,
        };
        for (id, number) in jobs {
            let job = match self.core.client.job(number).await {
                Ok(job) => Some(job).filter(|job| self.core.is_of(id, job, &whose)),
                Err(Failure::NoJob) => None,
                Err(other) => return Err(other),
            };
            news |= self.apply(id, number, job.as_ref(), room.as_mut()).await?;
        }
        if news {
            self.looked_for_room = None;
        }
        if due(self.looked_for_room, SWEEP) && self.counts_room() {
            self.look_for_room().await?;
        }
        Ok(news)
    }

    /// Whether any offer asks for what nodes count.
    fn counts_room(&self) -> bool {
        self.core.spec.offers.iter().any(|offer| offer.gres.is_some())
    }

    async fn look_for_room(&mut self) -> Result<Room, Failure> {
        self.looked_for_room = Some(Instant::now());
        let room = Room::of(&self.core.spec.offers, &self.core.client.nodes().await?);
        self.core.set_room(room.clone());
        Ok(room)
    }

    /// Lists all jobs; adopts the first time.
    async fn sweep(&mut self) -> Result<(), Failure> {
        sweep(&self.core, &self.wanted, !self.adopted).await?;
        if !self.adopted
            && let Some(state) = self.state.upgrade()
        {
            self.core.settle_earlier(&state, &self.wanted);
        }
        if self.swept.is_some() {
            self.sweep_pause = (self.sweep_pause * 2).min(SWEEP);
        }
        (self.adopted, self.swept) = (true, Some(Instant::now()));
        Ok(())
    }

    /// Takes in how the job of a replica is; whether that is new.
    async fn apply(
        &self,
        id: ReplicaId,
        number: u32,
        job: Option<&Job>,
        room: Option<&mut Room>,
    ) -> Result<bool, Failure> {
        let core = &self.core;
        let exited = |how: String| InstanceState::Exited { how, output: core.output(id) };
        let Some(job) = job else {
            let how = format!("Slurm no longer knows its job {number}");
            return Ok(core.set_state(id, exited(how)));
        };
        // One that ended between two looks is never seen on its node.
        if !job.batch_host.is_empty() {
            core.set_ran(id);
        }
        let seen = seen::look(job, core.run(id));
        let full = match (&seen, room, mark::read(&job.comment)) {
            (Seen::New(_), Some(room), Some((mark, _))) => room.is_full(&mark.offer),
            _ => false,
        };
        let seen = seen.at_age(core.age(id), full);
        seen.costs().into_iter().for_each(|costs| core.set_costs(id, costs));
        let state = match seen {
            Seen::Queued(why) => {
                return Ok(waits(core, id, &why, InstanceState::Queued { why: why.clone() }));
            }
            Seen::Held { why, advice } => {
                let advice = advice.to_owned();
                return Ok(waits(core, id, &why, InstanceState::Held { why: why.clone(), advice }));
            }
            Seen::New(why) | Seen::Starting(why) => InstanceState::Pending { why },
            Seen::Listens { .. } if core.is_up(id) => return Ok(false),
            Seen::Listens { node, port } => InstanceState::Up { url: url(&core.client, &node, port).await? },
            Seen::Ending => InstanceState::Ending { why: "Slurm ends its job".to_owned() },
            Seen::Over(how) => exited(how),
        };
        Ok(core.set_state(id, state))
    }
}

/// Takes in that a replica waits, and says so once; whether that is new.
fn waits(core: &Core, id: ReplicaId, why: &str, state: InstanceState) -> bool {
    let new = core.set_state(id, state);
    if new {
        info!("{} waits: {why}", core.name(id));
    }
    new
}

async fn url(client: &Client, node: &str, port: u16) -> Result<String, Failure> {
    let host = client.address(node).await?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(format!("http://{host}:{port}"))
}

/// Lists all jobs once: finds those that are missing, and cancels those of ours that nobody wants.
pub(super) async fn sweep(core: &Core, wanted: &[String], adopt: bool) -> Result<(), Failure> {
    core.client.stays().map_err(Failure::Refused)?;
    let asked = Instant::now();
    let jobs = core.client.jobs().await?;
    let whose = core.client.whose().map_err(Failure::Refused)?;
    let strays = core.take_in(&jobs, &whose, wanted, adopt);
    for stray in strays {
        warn!("job {} of {} is cancelled: {}", stray.job, stray.deployment, stray.why);
        core.client.cancel(stray.job).await?;
    }
    if adopt {
        for (id, job) in core.jobs() {
            info!("{} is adopted: it runs since the last gateway (job {job})", core.name(id));
        }
    }
    core.give_up_lost(asked);
    Ok(())
}
