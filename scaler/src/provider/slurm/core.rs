//! What the provider knows of its replicas and their jobs, shared with the watch that asks Slurm.
//!
//! Never talks to Slurm. Its one lock is held for a few lines and never across a wait, but for the write of a few bytes: the
//! record of its jobs, which must not end older than they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant};

use super::super::folder::Folder;
use super::super::ids::Ids;
use super::super::news::News;
use super::super::{Instance, InstanceState};
use super::client::Client;
use super::mark::{self, Mark};
use super::reply::Job;
use super::room::Room;
use super::seen;
use super::spec::{SlurmOffer, SlurmSpec};
use super::whose::Whose;
use record::Record;
pub(super) use stopping::Stopping;

mod one;
mod record;
mod stopping;

/// How long a job whose submission was not answered may take to show up before it counts as never submitted.
pub(super) const LOST_LIMIT: Duration = Duration::from_secs(60);
/// How long after that it is still looked for, so that one that comes late is cancelled.
pub(super) const LATE_LIMIT: Duration = Duration::from_secs(600);

/// The replicas of one deployment.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) spec: SlurmSpec,
    pub(super) client: Client,
    pub(super) ids: Ids,
    pub(super) news: News,
    /// The watch is to look now.
    pub(super) look: Notify,
    owner: String,
    folder: Folder,
    /// Whether Slurm was asked at all, whatever it answered.
    asked: watch::Sender<bool>,
    fleet: Mutex<Fleet>,
}

#[derive(Debug, Default)]
struct Fleet {
    replicas: BTreeMap<ReplicaId, Replica>,
    /// The record of its jobs; `None` until it is known whose they are.
    record: Option<Record>,
    /// Those that an earlier run left here, until it is known which are there.
    earlier: BTreeSet<u32>,
    /// Why the list is not known.
    trouble: Option<String>,
    /// When Slurm is asked again; `None` while it is asked for the first time.
    asked_again: Option<Instant>,
    /// Until when a job may come late whose submission was not answered.
    late_until: Option<Instant>,
    /// What was free when the nodes were last looked at.
    room: Room,
}

#[derive(Clone, Debug)]
struct Replica {
    capacity: Capacity,
    price: Price,
    job: Option<u32>,
    /// The run of the job from which on it is this replica's.
    run: u32,
    /// When its submission was begun.
    since: Instant,
    /// Its submission has ended without an answer.
    lost: bool,
    /// What Slurm had to say when it took the job.
    remark: Option<String>,
    state: InstanceState,
    /// Its job has a node.
    costs: bool,
    /// Its job has or had one.
    ran: bool,
    /// What is shown while it is being stopped: its end is then nobody's news.
    stopping: Option<InstanceState>,
}

impl Replica {
    fn new(offer: &SlurmOffer, job: Option<u32>, run: u32, why: &str) -> Self {
        let state = InstanceState::Pending { why: why.to_owned() };
        let (capacity, price, since) = (offer.capacity, offer.price, Instant::now());
        let (lost, remark, costs, ran, stopping) = (false, None, false, false, None);
        Self { capacity, price, job, run, since, lost, remark, state, costs, ran, stopping }
    }
}

/// What a replica's job is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobOf {
    /// No such replica.
    Nobody,
    /// Its number.
    Known(u32),
    /// Its submission was not answered, or is not yet; begun so long ago.
    Unknown(Duration),
}

/// A job of ours in a listing that no replica wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) job: u32,
    /// Whose job it was, which may be another deployment than the one that lists.
    pub(super) deployment: DeploymentName,
    pub(super) why: &'static str,
}

impl Core {
    pub(super) fn new(spec: SlurmSpec, owner: &str, folder: Folder, next: ReplicaId) -> Self {
        // A submission of an earlier run may be under way.
        let late_until = Some(Instant::now() + LATE_LIMIT);
        let fleet = Fleet { late_until, ..Fleet::default() };
        Self {
            client: Client::new(spec.access.clone()),
            spec,
            ids: Ids::new(folder.clone(), next),
            news: News::default(),
            look: Notify::new(),
            owner: owner.to_owned(),
            folder,
            asked: watch::Sender::new(false),
            fleet: Mutex::new(fleet),
        }
    }

    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The public name of a replica.
    pub(super) fn name(&self, id: ReplicaId) -> String {
        replica_name(&self.spec.deployment, id)
    }

    /// The mark of the job of replica `id` on `offer`.
    pub(super) fn mark(&self, id: ReplicaId, offer: &SlurmOffer) -> Mark {
        Mark {
            owner: self.owner.clone(),
            deployment: self.spec.deployment.clone(),
            id,
            offer: offer.name.clone(),
            recipe: self.spec.fingerprint(offer),
        }
    }

    /// Every replica, in order of id, or why that is not known. Waits until Slurm was asked once.
    pub(super) async fn list(&self) -> Result<Vec<Instance>, String> {
        // The sender lives as long as this.
        let _ = self.asked.subscribe().wait_for(|asked| *asked).await;
        self.news.listing();
        let fleet = self.fleet();
        if let Some(trouble) = &fleet.trouble {
            return Err(trouble.clone());
        }
        let instance = |(id, replica): (&ReplicaId, &Replica)| {
            let state = replica.stopping.as_ref().unwrap_or(&replica.state).clone();
            Instance {
                id: *id,
                capacity: replica.capacity,
                price: replica.price,
                state,
                costs: replica.costs,
            }
        };
        Ok(fleet.replicas.iter().map(instance).collect())
    }

    /// Slurm answers, or not, and is asked again after `pause`.
    pub(super) fn set_trouble(&self, trouble: Option<String>, pause: Duration) {
        let mut fleet = self.fleet();
        fleet.asked_again = Some(Instant::now() + pause);
        if fleet.trouble != trouble {
            fleet.trouble = trouble;
            self.news.tell();
        }
        self.asked.send_replace(true);
    }

    /// In how long Slurm is asked again; zero while it is.
    pub(super) fn asked_in(&self) -> Duration {
        let again = self.fleet().asked_again;
        again.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    /// A replica whose job is about to be submitted.
    pub(super) fn order(&self, id: ReplicaId, offer: &SlurmOffer) {
        let replica = Replica::new(offer, None, 0, "its job is being submitted");
        let mut fleet = self.fleet();
        fleet.replicas.insert(id, replica);
        self.keep(&mut fleet);
        self.news.tell();
    }

    /// Slurm has taken the job of a replica.
    pub(super) fn submitted(&self, id: ReplicaId, job: u32, remark: Option<String>) {
        if let Some(replica) = self.fleet().replicas.get_mut(&id) {
            (replica.job, replica.remark) = (Some(job), remark);
        }
        self.look.notify_one();
    }

    /// Whether Slurm has taken the job of a replica is not known.
    pub(super) fn unanswered(&self, id: ReplicaId, why: &str) {
        let mut fleet = self.fleet();
        fleet.late_until = Some(Instant::now() + LATE_LIMIT);
        if let Some(replica) = fleet.replicas.get_mut(&id) {
            replica.lost = true;
            let why = format!("whether Slurm has taken its job is not known yet ({why})");
            replica.state = InstanceState::Pending { why };
        }
        drop(fleet);
        self.look.notify_one();
    }

    /// Forgets a replica.
    pub(super) fn remove(&self, id: ReplicaId) {
        let mut fleet = self.fleet();
        fleet.replicas.remove(&id);
        self.open(&mut fleet);
        fleet.earlier.remove(&id.0);
        self.keep(&mut fleet);
        self.news.tell();
    }

    /// The replicas whose jobs have to be asked for, and their jobs.
    pub(super) fn jobs(&self) -> Vec<(ReplicaId, u32)> {
        let fleet = self.fleet();
        let living =
            fleet.replicas.iter().filter(|(_, one)| !matches!(one.state, InstanceState::Exited { .. }));
        living.filter_map(|(id, replica)| Some((*id, replica.job?))).collect()
    }

    /// Whether something is about to change: a replica is neither up nor over.
    pub(super) fn is_restless(&self) -> bool {
        let settled = |replica: &Replica| match replica.state {
            InstanceState::Up { .. } | InstanceState::Parked { .. } | InstanceState::Exited { .. } => true,
            InstanceState::Pending { .. }
            | InstanceState::Queued { .. }
            | InstanceState::Held { .. }
            | InstanceState::Ending { .. } => false,
        };
        !self.fleet().replicas.values().all(settled)
    }

    /// The job of a replica.
    pub(super) fn job(&self, id: ReplicaId) -> JobOf {
        match self.fleet().replicas.get(&id) {
            None => JobOf::Nobody,
            Some(Replica { job: Some(job), .. }) => JobOf::Known(*job),
            Some(replica) => JobOf::Unknown(replica.since.elapsed()),
        }
    }

    /// Whether `job`, asked for by its number, is the job of replica `id` still: Slurm may give a number again. Its
    /// name counts where somebody has changed its comment.
    pub(super) fn is_of(&self, id: ReplicaId, job: &Job, whose: &Whose) -> bool {
        let deployment = self.spec.deployment.clone();
        let (owner, offer, recipe) = (self.owner.clone(), String::new(), String::new());
        let named = Mark { owner, deployment, id, offer, recipe };
        let same =
            |mark: &Mark| (&mark.owner, &mark.deployment, mark.id) == (&self.owner, &named.deployment, id);
        let marked = mark::read(&job.comment).map(|(mark, _)| same(&mark));
        whose.owns(job) && marked.unwrap_or_else(|| job.name == named.job_name())
    }

    /// How a replica is now; whether that is new.
    pub(super) fn set_state(&self, id: ReplicaId, mut state: InstanceState) -> bool {
        let mut fleet = self.fleet();
        let Some(replica) = fleet.replicas.get_mut(&id) else { return false };
        if let (
            InstanceState::Pending { why } | InstanceState::Queued { why } | InstanceState::Held { why, .. },
            Some(remark),
        ) = (&mut state, &replica.remark)
        {
            *why = format!("{why} ({remark})");
        }
        let new = replica.state != state;
        if new {
            replica.state = state;
            self.news.tell();
        }
        new
    }

    /// Whether all jobs have to be listed: a submission was not answered, lately.
    pub(super) fn misses_jobs(&self) -> bool {
        let mut fleet = self.fleet();
        if fleet.late_until.is_some_and(|until| Instant::now() >= until) {
            fleet.late_until = None;
        }
        fleet.late_until.is_some()
    }

    /// Whether a replica waits for its job to show up.
    pub(super) fn has_lost(&self) -> bool {
        self.fleet().replicas.values().any(|replica| replica.lost && replica.job.is_none())
    }

    /// Compares a listing of all jobs with the book: jobs of lost submissions find their replicas, and with `adopt` so
    /// do those that an earlier run of the gateway left. Returns the jobs of ours that nobody wants; `wanted` are the
    /// deployments that there are.
    pub(super) fn take_in(&self, jobs: &[Job], whose: &Whose, wanted: &[String], adopt: bool) -> Vec<Stray> {
        let mut strays = Vec::new();
        for job in jobs.iter().filter(|job| whose.owns(job)) {
            let Some((mark, _)) = mark::read(&job.comment) else { continue };
            let number = job.job_id.and_then(|id| u32::try_from(id).ok());
            let (Some(number), true) = (number, mark.owner == self.owner) else { continue };
            if mark.deployment == self.spec.deployment {
                self.ids.saw(mark.id);
            }
            let run = job.restart_cnt.and_then(|run| u32::try_from(run).ok()).unwrap_or_default();
            if matches!(seen::look(job, run), seen::Seen::Over(_) | seen::Seen::Ending) {
                self.find(&mark, number, run);
                continue;
            }
            if mark.deployment != self.spec.deployment {
                if adopt && !wanted.iter().any(|name| name == mark.deployment.as_str()) {
                    let why = "its deployment is gone from the configuration";
                    strays.push(Stray { job: number, deployment: mark.deployment, why });
                }
                continue;
            }
            if let Err(why) = self.place(&mark, number, run, adopt) {
                strays.push(Stray { job: number, deployment: mark.deployment, why });
            }
        }
        strays
    }

    /// A job that lives: its replica's, or nobody's.
    fn place(&self, mark: &Mark, job: u32, run: u32, adopt: bool) -> Result<(), &'static str> {
        if self.find(mark, job, run) {
            return Ok(());
        }
        if self.fleet().replicas.contains_key(&mark.id) {
            return Err("its replica has another job");
        }
        if !adopt {
            return Err("its replica was given up");
        }
        let offer = self.spec.offer(&mark.offer).filter(|offer| self.spec.fingerprint(offer) == mark.recipe);
        let offer = offer.ok_or("an earlier configuration had started it")?;
        let replica = Replica::new(offer, Some(job), run, "adopted");
        self.fleet().replicas.insert(mark.id, replica);
        Ok(())
    }

    /// Gives a replica whose submission was not answered its job; whether `job` is its job now.
    fn find(&self, mark: &Mark, job: u32, run: u32) -> bool {
        if mark.deployment != self.spec.deployment {
            return false;
        }
        let mut fleet = self.fleet();
        let Some(replica) = fleet.replicas.get_mut(&mark.id) else { return false };
        if replica.job.is_none() {
            (replica.job, replica.run, replica.lost) = (Some(job), run, false);
        }
        replica.job == Some(job)
    }

    /// Replicas whose jobs never showed up, `asked` being when Slurm was last asked for all jobs, are over.
    pub(super) fn give_up_lost(&self, asked: Instant) {
        let mut fleet = self.fleet();
        let lost = |one: &&mut Replica| {
            one.lost && one.job.is_none() && asked.saturating_duration_since(one.since) >= LOST_LIMIT
        };
        for replica in fleet.replicas.values_mut().filter(lost) {
            let how = "its submission was not answered, and Slurm has no job of it".to_owned();
            (replica.state, replica.lost) = (InstanceState::Exited { how, output: Vec::new() }, false);
            self.news.tell();
        }
    }

    /// How much room there is, as the nodes tell.
    pub(super) fn set_room(&self, room: Room) {
        self.fleet().room = room;
    }

    /// How many more replicas of an offer would find room; `None` where nobody knows.
    pub(super) fn free(&self, offer: &SlurmOffer) -> Option<u32> {
        self.fleet().room.left(&offer.name)
    }
}
