//! What the control loop shows to `/status` and to metrics: its newest decision, the decisions that changed something,
//! and what went wrong last. Read from any thread; it never waits for the loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tidegate_scaler_core::budget::{Budget, Room};
use tidegate_shared::decision::{ScaleDecision, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::{Money, Offer, Price};
use tidegate_shared::replica::Starts;
use tidegate_shared::time::{Duration, Instant};

use super::basis::Basis;
use super::book::Came;
use crate::provider::{Instance, InstanceState};

/// Decisions kept for each deployment.
pub const HISTORY: usize = 256;

/// A handle on what one control loop shows; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ControlStatus {
    view: Arc<Mutex<ControlView>>,
    pub(super) basis: Basis,
}

/// What one control loop shows at one moment. What it costs is no part of it: that goes on between two evaluations, and the
/// [`House`](crate::house::House) tells it to whoever asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControlView {
    /// The newest decision; none before the first evaluation, and never one for a static fleet.
    pub newest: Option<ScaleDecision>,
    /// When the loop last looked, where `newest` was made anew for whoever asks.
    pub looked: Option<Instant>,
    /// The last [`HISTORY`] decisions that changed the target, the kind of reason or what blocks growth, oldest first.
    pub history: VecDeque<ScaleDecision>,
    /// How many decisions each kind of reason led to, counted where `history` is extended.
    pub by_reason: BTreeMap<&'static str, u64>,
    /// When the provider last told what runs; `None` until it has.
    pub listed: Option<Instant>,
    /// Since when it is asked for the first time; `None` once it has answered, or failed to.
    pub asked: Option<Instant>,
    /// What the next evaluations go by; none before the first.
    pub outlook: Option<Outlook>,
    /// Replicas ordered by this loop that became ready.
    pub starts_ready: u64,
    /// Starts that failed.
    pub starts_failed: u64,
    /// Parked replicas that were woken and became ready, and those that did not (C6).
    pub wakes_ready: u64,
    /// See there.
    pub wakes_failed: u64,
    /// Why the provider does not answer, while it does not (C2).
    pub provider_error: Option<String>,
    /// When it is asked again then, at the latest: past while it is asked.
    pub asked_again: Option<Instant>,
    /// What the replicas that are not up yet wait for, as their provider says (C2).
    pub pending: BTreeMap<ReplicaId, String>,
    /// Those of them that wait for room, which may come.
    pub in_line: BTreeSet<ReplicaId>,
    /// Those of them that are not started before somebody changes something, each with what to do.
    pub held: BTreeMap<ReplicaId, String>,
    /// The replica that last ended by itself though it had been ready, when that was seen, and how it ended with its last
    /// lines (C1).
    pub lost: Option<(Instant, String)>,
    /// What the provider said of room when it last had none for a start; `None` once it takes one that was called since
    /// (C2).
    pub no_room: Option<String>,
    /// The last start or wake that failed; none again once a replica becomes ready.
    pub last_failure: Option<String>,
    /// What to do about it, where its provider had held the replica.
    pub mend: Option<String>,
    /// The replicas that could not be stopped, each with why; until they are gone.
    pub clinging: BTreeMap<ReplicaId, String>,
}

/// What the next evaluations go by, as of the last one (E2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// When the next check is due, if nothing stalls until then; `None` under a rule that needs none (B1).
    pub check: Option<Instant>,
    /// What the provider offers (M1).
    pub offers: Vec<Offer>,
    /// Room under the gateway's cap; `None` where there is none (A6).
    pub room: Option<Room>,
    /// The credit keeps one more from being started (M3).
    pub broke: bool,
    /// One more needs credit, whatever is left of that.
    pub paid: bool,
}

/// What a deployment costs (M2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spending {
    /// Since the deployment was first served, restarts included.
    pub spent: Money,
    /// For each hour, by what the provider listed last, and by what was ordered and stopped since.
    pub rate: Price,
    /// Credit that is left over all deployments; `None` where it is not counted (M3).
    pub credit: Option<Money>,
}

/// How old it is what a provider told of what runs; the better known comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listed {
    /// It answers.
    #[default]
    Now,
    /// It does not, and has told so long ago.
    Ago(Duration),
    /// It has not told yet, since the start of the gateway.
    Never,
}

impl Spending {
    /// Of deployment `name`, as of `now` by the clock of money.
    pub(crate) fn of(budget: &Budget, name: &DeploymentName, now: Instant) -> Self {
        let ledger = budget.ledger(name);
        let spent = ledger.map_or(Money::default(), |ledger| ledger.total(now));
        let rate = ledger.map_or(Price::FREE, |ledger| ledger.rate());
        Self { spent, rate, credit: budget.credit(now) }
    }
}

/// How long a first answer is nobody's news.
const PROMPT: Duration = Duration::from_secs(1);

impl ControlView {
    /// How long the provider has not answered for, at `now`, since the gateway started; `None` where that is nobody's news, and
    /// once it is known to fail.
    pub fn unanswered(&self, now: Instant) -> Option<Duration> {
        self.asked.map(|at| now.since(at)).filter(|age| *age >= PROMPT)
    }

    /// How old it is at `now` what is known of what runs.
    pub fn listed(&self, now: Instant) -> Listed {
        match (self.listed, &self.provider_error) {
            (None, _) => Listed::Never,
            (Some(at), Some(_)) => Listed::Ago(now.since(at)),
            (Some(_), None) => Listed::Now,
        }
    }
}

impl ControlStatus {
    /// A copy of everything, taken at one moment.
    pub fn view(&self) -> ControlView {
        self.lock().clone()
    }

    /// The same, but the newest decision is what would be decided on `seen`: it agrees with the figures of `seen`, and is in
    /// no history before the loop has looked. When a silent provider is asked again is as of `seen` too.
    pub fn view_of(&self, seen: &Observation) -> ControlView {
        let newest = self.basis.decide(seen);
        let view = self.view();
        let looked = view.newest.as_ref().map(|decision| decision.at);
        let again = || Some(seen.at + self.basis.looks_in()?);
        let asked_again = view.asked_again.map(|told| again().unwrap_or(told));
        ControlView { newest: newest.or(view.newest), looked, asked_again, ..view }
    }

    /// When a replica could be ordered by an evaluation of `seen`; `None` before the first one.
    pub fn starts_for(&self, seen: &Observation) -> Option<Starts> {
        self.basis.starts(seen)
    }

    /// The newest decision alone.
    pub fn newest(&self) -> Option<ScaleDecision> {
        self.lock().newest.clone()
    }

    /// Takes in a decision; tells whether it changed the target, the kind of reason, or what blocks growth.
    pub(super) fn record(&self, decision: &ScaleDecision) -> bool {
        let mut view = self.lock();
        let alike = |last: &ScaleDecision| {
            (last.target, last.reason.as_str()) == (decision.target, decision.reason.as_str())
                && last.blocks().map(ScaleReason::as_str).eq(decision.blocks().map(ScaleReason::as_str))
        };
        let changed = !view.newest.as_ref().is_some_and(alike);
        if changed {
            *view.by_reason.entry(decision.reason.as_str()).or_default() += 1;
            if view.history.len() >= HISTORY {
                view.history.pop_front();
            }
            view.history.push_back(decision.clone());
        }
        view.newest = Some(decision.clone());
        changed
    }

    pub(super) fn became_ready(&self, how: Came) {
        let mut view = self.lock();
        match how {
            Came::Ordered => view.starts_ready += 1,
            Came::Woken => view.wakes_ready += 1,
            Came::Found => {}
        }
        (view.last_failure, view.mend) = (None, None);
    }

    pub(super) fn start_failed(&self, id: ReplicaId, what: String) {
        let mut view = self.lock();
        view.starts_failed += 1;
        (view.last_failure, view.mend) = (Some(what), view.held.get(&id).cloned());
    }

    /// A start has ended; `none` where its provider has no room.
    pub(super) fn room(&self, none: Option<String>) {
        self.lock().no_room = none;
    }

    pub(super) fn wake_failed(&self, what: String) {
        self.lock().wakes_failed += 1;
        self.failed(what);
    }

    pub(super) fn lost(&self, now: Instant, what: String) {
        self.lock().lost = Some((now, what));
    }

    pub(super) fn failed(&self, what: String) {
        let mut view = self.lock();
        (view.last_failure, view.mend) = (Some(what), None);
    }

    /// A stop of `id` has failed.
    pub(super) fn stop_failed(&self, id: ReplicaId, what: String) {
        self.lock().clinging.insert(id, what);
    }

    /// A stop of `id` has worked.
    pub(super) fn stopped(&self, id: ReplicaId) {
        self.lock().clinging.remove(&id);
    }

    /// Takes in what the provider lists at `now`: so it answers.
    pub(super) fn listed(&self, instances: &[Instance], now: Instant) {
        let why = |one: &Instance| match &one.state {
            InstanceState::Pending { why }
            | InstanceState::Queued { why }
            | InstanceState::Held { why, .. }
            | InstanceState::Ending { why } => Some((one.id, why.clone())),
            InstanceState::Up { .. } | InstanceState::Parked { .. } | InstanceState::Exited { .. } => None,
        };
        let mut view = self.lock();
        (view.provider_error, view.asked_again) = (None, None);
        (view.listed, view.asked) = (Some(now), None);
        view.clinging.retain(|id, _| instances.iter().any(|one| one.id == *id));
        view.pending = instances.iter().filter_map(why).collect();
        let held = |one: &Instance| match &one.state {
            InstanceState::Held { advice, .. } => Some((one.id, advice.clone())),
            _ => None,
        };
        view.held = instances.iter().filter_map(held).collect();
        let queued = |one: &&Instance| matches!(one.state, InstanceState::Queued { .. });
        view.in_line = instances.iter().filter(queued).map(|one| one.id).collect();
    }

    pub(super) fn looks_ahead(&self, outlook: Outlook) {
        self.lock().outlook = Some(outlook);
    }

    /// The provider is asked for the first time.
    pub(super) fn asks(&self, now: Instant) {
        self.lock().asked = Some(now);
    }

    /// Whether the provider did not answer when it was asked last.
    pub(super) fn is_silent(&self) -> bool {
        self.lock().provider_error.is_some()
    }

    /// The provider does not answer.
    pub(super) fn silent(&self, why: String, again: Instant) {
        let mut view = self.lock();
        (view.provider_error, view.asked_again, view.asked) = (Some(why), Some(again), None);
    }

    fn lock(&self) -> MutexGuard<'_, ControlView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::decision::Rule;

    use super::*;

    fn decision(at: u64, target: u32, reason: ScaleReason) -> ScaleDecision {
        ScaleDecision {
            at: Instant::from_micros(at),
            rule: Rule::Concurrency,
            load: None,
            engine_queue: 0,
            waiters: 0,
            demand: 0,
            queued: 0,
            promised: 0,
            oldest_wait: Duration::ZERO,
            current: 0,
            needed: 0,
            target,
            woken: 0,
            wanted: None,
            reason,
            also: Vec::new(),
        }
    }

    #[test]
    fn e1_history_holds_changes_and_the_newest_is_always_known() {
        let status = ControlStatus::default();
        let cooling = |seconds| ScaleReason::Cooling {
            low_for: Duration::from_secs(seconds),
            window: Duration::from_secs(30),
            to: 0,
        };
        assert!(status.record(&decision(1, 1, ScaleReason::Steady)));
        assert!(status.record(&decision(2, 1, cooling(1))));
        assert!(!status.record(&decision(3, 1, cooling(2))));
        assert!(status.record(&decision(4, 0, ScaleReason::Idle)));
        assert!(!status.record(&decision(5, 0, ScaleReason::Idle)));
        let view = status.view();
        assert_eq!(
            view.history.iter().map(|decision| decision.at.as_micros()).collect::<Vec<_>>(),
            [1, 2, 4]
        );
        assert_eq!(view.by_reason["cooling"], 1);
        assert_eq!(status.newest().unwrap().at, Instant::from_micros(5));
    }

    #[test]
    fn c2_what_else_blocks_growth_is_in_the_history_when_it_comes_and_goes() {
        let status = ControlStatus::default();
        let blocked = |at, also| ScaleDecision { also, ..decision(at, 2, ScaleReason::NoCapacity) };
        assert!(status.record(&blocked(1, vec![])));
        assert!(status.record(&blocked(2, vec![ScaleReason::NoCredit])));
        assert!(!status.record(&blocked(3, vec![ScaleReason::NoCredit])));
        assert!(status.record(&blocked(4, vec![])));
    }

    #[test]
    fn history_is_bounded() {
        let status = ControlStatus::default();
        (0..1000).for_each(|target| assert!(status.record(&decision(0, target, ScaleReason::Demand))));
        assert_eq!(status.view().history.len(), HISTORY);
    }
}
