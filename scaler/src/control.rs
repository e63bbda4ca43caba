//! The control loop of one deployment: list, announce, observe, tick, reconcile, execute. It owns no decision (the
//! planner's) and no request (the gateway's); the gateway's clock is its clock, and only its sleeps are its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_scaler_core::planner::{Plan, Planner};
use tidegate_scaler_core::reconcile::Action;
use tidegate_shared::decision::ScaleDecision;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::{Offer, Price};
use tidegate_shared::replica::{Phase, Starts};
use tidegate_shared::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, debug_span};

use crate::fleet::{Change, Fleet};
use crate::house::{House, Recorded};
use crate::provider::{Instance, InstanceState, Provider, ProviderError};
use book::{Book, News, Purpose};
use calls::{Call, CallKind};
pub use helm::{Drained, Helm};
use log::Log;
pub use status::{ControlStatus, ControlView, HISTORY, Listed, Outlook, Spending};
pub use terms::Terms;

mod basis;
mod book;
mod calls;
mod evaluate;
mod finish;
mod helm;
mod log;
mod release;
mod status;
mod terms;

/// How long a start may take until the replica is ready, unless set otherwise: large models load for many minutes.
pub const START_LIMIT: Duration = Duration::from_secs(30 * 60);
/// The least time between two evaluations, however often the gateway presses.
const BREATH: Duration = Duration::from_millis(20);
/// How long a provider may take to list its replicas before it counts as silent.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// The first pause after a provider did not answer, and the last; it doubles.
const SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The pause before a failed stop is tried again.
pub const STOP_RETRY: Duration = Duration::from_secs(5);
/// How long the end of the loop waits for provider calls under way when the fleet is kept.
const CALLS_LIMIT: Duration = Duration::from_secs(10);
/// How often a fixed fleet is listed when its provider tells of no change.
const FIXED_TICK: Duration = Duration::from_secs(60);

/// What becomes of the fleet when the loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Replicas run on; the next start of the gateway adopts them (C3).
    Keep,
    /// All replicas are stopped, all at once.
    Stop {
        /// How long that may take at most.
        within: Duration,
    },
}

/// Drives one deployment. Made by [`Control::new`] or [`Control::fixed`], then [`Control::run`].
pub struct Control {
    name: DeploymentName,
    log: Log,
    fleet: Arc<dyn Fleet>,
    provider: Arc<dyn Provider>,
    house: House,
    /// None for a fleet that is only announced.
    planner: Option<Planner>,
    start_limit: Duration,
    book: Book,
    next_id: u32,
    calls: JoinSet<Call>,
    /// Dropped, they end the wait for an engine that is to sleep or to wake up.
    waits: BTreeMap<ReplicaId, oneshot::Sender<()>>,
    /// The pause that follows if the provider does not answer now.
    silence: Duration,
    status: ControlStatus,
    helm: Helm,
}

/// Until when the loop rests, and what may wake it sooner.
struct Rest {
    longest: Duration,
    pressed: bool,
    changed: bool,
}

impl Control {
    /// A loop that sizes the fleet by `terms`, within what `house` allows to all deployments together.
    pub fn new(
        name: DeploymentName,
        fleet: Arc<dyn Fleet>,
        provider: Arc<dyn Provider>,
        house: House,
        terms: Terms,
    ) -> Self {
        let Terms { sizing, base_fee, start_limit } = terms;
        let now = fleet.observe().at;
        house.open(&name, base_fee, sizing.floor(), now);
        let planner = Some(Planner::new(sizing, now));
        let book = Book::after(house.told_to_stop(&name));
        Self { planner, start_limit, house, book, ..Self::fixed(name, fleet, provider) }
    }

    /// A loop that announces what the provider lists, and never orders, drains or stops anything.
    pub fn fixed(name: DeploymentName, fleet: Arc<dyn Fleet>, provider: Arc<dyn Provider>) -> Self {
        Self {
            log: Log::new(name.clone()),
            name,
            fleet,
            provider,
            house: House::default(),
            planner: None,
            start_limit: START_LIMIT,
            book: Book::default(),
            next_id: 0,
            calls: JoinSet::new(),
            waits: BTreeMap::new(),
            silence: SILENCE.0,
            status: ControlStatus::default(),
            helm: Helm::default(),
        }
    }

    /// A handle for `/status` and metrics; it outlives the loop.
    pub fn status(&self) -> ControlStatus {
        self.status.clone()
    }

    /// A handle to steer it by; it outlives the loop.
    pub fn helm(&self) -> Helm {
        self.helm.clone()
    }

    /// Runs until `shutdown` resolves. Returns the replicas that were to be stopped and could not be in time.
    pub async fn run(mut self, shutdown: impl Future<Output = Shutdown> + Send) -> Vec<ReplicaId> {
        let span = debug_span!("control", deployment = %self.name);
        async move {
            self.status.asks(self.now());
            let fleet = Arc::clone(&self.fleet);
            let keeps = self.house.clone().keep_on(self.name.clone(), move || fleet.observe().at);
            tokio::pin!(shutdown, keeps);
            let (provider, helm) = (Arc::clone(&self.provider), self.helm.clone());
            loop {
                let mut listing = std::pin::pin!(list(&*provider));
                let listed = loop {
                    tokio::select! {
                        how = &mut shutdown => return self.finish(how).await,
                        listed = &mut listing => break listed,
                        () = helm.changed() => self.changed_meanwhile(),
                        () = &mut keeps => {}
                    }
                };
                let rest = self.step(listed);
                tokio::select! {
                    how = &mut shutdown => return self.finish(how).await,
                    () = self.rest(rest) => {}
                    () = &mut keeps => {}
                }
            }
        }
        .instrument(span)
        .await
    }

    /// One evaluation. Nothing in it waits, so a shutdown never cuts it in half.
    fn step(&mut self, listed: Result<Vec<Instance>, ProviderError>) -> Rest {
        match listed {
            Ok(instances) => {
                self.silence = SILENCE.0;
                self.resume(&instances);
                self.status.listed(&instances, self.now());
                let (no_loss, now) = (self.book.no_loss(), self.now());
                let news = self.book.take_in(&instances, now);
                for (id, change) in news {
                    match &change {
                        Change::Gone { .. } if no_loss.contains(&id) => self.log.announced(id, &change),
                        change => {
                            if let (Change::Gone { why }, Some(_)) = (change, &self.planner) {
                                self.status.lost(now, format!("{} is lost: {why}", self.log.replica(id)));
                            }
                            self.log.heard(id, change, self.book.ordered(id), self.planner.is_none());
                        }
                    }
                    self.announce(id, change);
                }
                for id in self.book.lingering() {
                    self.still_listed(id);
                }
                self.forget_released();
                self.evaluate()
            }
            Err(error) => self.hold(&error),
        }
    }

    /// What an earlier run left goes on costing from where that run ended (M2).
    fn resume(&self, listed: &[Instance]) {
        let lives = |one: &&Instance| one.costs && !matches!(one.state, InstanceState::Exited { .. });
        let still: Vec<_> = listed.iter().filter(lives).map(|one| one.id).collect();
        self.house.resume(&self.name, &still, self.now());
    }

    async fn rest(&mut self, rest: Rest) {
        let (fleet, provider) = (Arc::clone(&self.fleet), Arc::clone(&self.provider));
        let helm = self.helm.clone();
        let woken = async {
            sleep(BREATH).await;
            tokio::select! {
                () = helm.changed() => {}
                () = fleet.pressed(), if rest.pressed => {}
                () = provider.changed(), if rest.changed => {}
            }
        };
        tokio::select! {
            Some(call) = self.calls.join_next() => {
                self.settle(call);
                self.planner.iter().for_each(|planner| self.status.basis.renew(planner, &self.book));
            }
            () = sleep(rest.longest) => {}
            () = woken => {}
        }
    }

    /// Does what was decided. Who is withdrawn is told why (M1, M3).
    fn execute(&mut self, action: Action, seen: &Observation, plan: &Plan) {
        match action {
            Action::Start(offer) => self.order(offer, Purpose::Order, seen.at),
            Action::Drain(id) => self.tell(id, Change::Drain),
            Action::Undrain(id) => self.tell(id, Change::Undrain),
            Action::Park(id) if self.book.park(id, seen.at) => {
                self.tell(id, Change::Parked);
                self.call(id, CallKind::Park);
            }
            Action::Park(_) => {}
            Action::Wake(id) => {
                if let Some(way) = self.book.wake(id, seen.at) {
                    self.tell(id, Change::Waking);
                    self.call(id, CallKind::Wake(way));
                }
            }
            Action::Stop(id) => {
                let facts = seen.replicas.iter().find(|facts| facts.id == id);
                let (phase, in_flight) =
                    facts.map_or((Phase::Gone, 0), |facts| (facts.phase, facts.in_flight));
                let why = match phase {
                    Phase::Failed => "it failed",
                    Phase::Draining if in_flight > 0 => "its drain took longer than the drain limit",
                    Phase::Draining => "it was drained",
                    _ if plan.moved.contains(&id) => "an offer that it may have has room",
                    _ if plan.withdrawn.contains(&id) => {
                        let cap = self.planner.as_ref().and_then(|planner| planner.sizing().price_cap);
                        why_withdrawn(facts.map(|facts| facts.price), cap)
                    }
                    _ => "it is not needed any more",
                };
                self.log.stopping(id, why);
                let news = self.book.end(id, why, phase == Phase::Failed);
                self.tell_all(news);
            }
        }
    }

    /// Starts a replica. Of a mere try nobody is told.
    fn order(&mut self, offer: Offer, purpose: Purpose, now: Instant) {
        self.next_id = self.next_id.max(self.provider.next_id().0);
        let id = ReplicaId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        self.book.order(id, &offer, purpose, now);
        self.planner.iter_mut().for_each(|planner| planner.start_begins(&offer.name));
        if purpose == Purpose::Order {
            self.tell(id, Change::Ordered { capacity: offer.capacity });
        }
        let recorded = match offer.queues {
            true => Recorded::default(),
            false => self.house.begins(&self.name, id, offer.price, now),
        };
        self.call_after(recorded, id, CallKind::Start(offer));
    }

    fn notice_ready(&mut self, observed: &Observation) {
        self.book.notice_asleep(observed);
        for new in self.book.became_ready(observed) {
            self.log.ready(&new);
            self.status.became_ready(new.how);
            self.planner.iter_mut().for_each(Planner::became_ready);
        }
    }

    fn tell_all(&mut self, news: impl IntoIterator<Item = News>) {
        news.into_iter().for_each(|(id, change)| self.tell(id, change));
    }

    fn tell(&mut self, id: ReplicaId, change: Change) {
        self.log.announced(id, &change);
        self.announce(id, change);
    }

    fn announce(&mut self, id: ReplicaId, change: Change) {
        if let Change::StartFailed { why } = &change {
            self.status.start_failed(id, format!("{} did not start: {why}", self.log.replica(id)));
            let now = self.now();
            if let Some(planner) = self.planner.as_mut() {
                planner.start_failed(now);
                self.fleet.hold_starts(Starts::From(planner.starts_from()));
            }
        }
        self.fleet.announce(id, change);
    }

    fn record(&self, decision: &ScaleDecision) {
        if self.status.record(decision) {
            self.log.decided(decision);
            self.house.decided(&self.name, decision);
        }
    }

    fn now(&self) -> Instant {
        self.fleet.observe().at
    }
}

/// Why one of this price may not wait for a machine any more.
fn why_withdrawn(price: Option<Price>, cap: Option<Price>) -> &'static str {
    if cap.is_some() && price > cap {
        "it would cost more than the price cap"
    } else {
        "the credit is used up"
    }
}

/// Lists what the provider runs, in bounded time.
async fn list(provider: &dyn Provider) -> Result<Vec<Instance>, ProviderError> {
    timeout(LIST_LIMIT, provider.list()).await.unwrap_or_else(|_| {
        let why = format!("no list of replicas within {LIST_LIMIT:?}");
        Err(ProviderError::Unavailable { kind: provider.kind(), why })
    })
}

#[cfg(test)]
mod tests;
