//! What the findings are made from: one deployment at one moment, as all parts of the gateway know it.

use tidegate_scaler::control::{ControlView, Listed, Spending};
use tidegate_scaler_core::budget::Room;
use tidegate_scaler_core::config::Sizing;
use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{DeploymentName, ReplicaId, replica_name};
use tidegate_shared::offer::{Offer, Price};
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::{Duration, Instant};

use super::words::{count, pick, span};
use crate::pool::{Recent, Trust, Unfit};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub(super) name: &'a DeploymentName,
    pub(super) sizing: &'a Sizing,
    /// Somebody here starts and stops its replicas; else the fleet is only used.
    pub(super) sized: bool,
    pub(super) seen: &'a Observation,
    /// Its replicas in the order of `seen`.
    pub(super) replicas: &'a [Known],
    pub(super) view: &'a ControlView,
    /// What it costs at this moment.
    pub(super) spending: Spending,
    /// What all deployments together cost now.
    pub(super) burn: Price,
    /// How old it is what is known of that, at worst.
    pub(super) listed: Listed,
    pub(super) recent: &'a Recent,
    /// How traffic differs from what the target was tuned on.
    pub(super) drift: Option<String>,
    /// What is wrong with the certificate that clients are shown, and whether that is so now or soon.
    pub(super) front: Option<(String, bool)>,
    /// How long the last start took, from order to readiness.
    pub(super) start_took: Option<Duration>,
}

/// What is known of one replica beside its facts.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// It is over its load limit.
    pub(super) over: bool,
    pub(super) trust: Trust,
    /// An operator took it out; how far that is.
    pub(super) drained: Option<String>,
    /// Why it cannot serve, and since when.
    pub(super) unfit: Option<(Unfit, Instant)>,
    /// What is wrong with it.
    pub(super) trouble: Option<String>,
}

impl Known {
    /// It takes no request, though it may be ready.
    pub(super) fn is_out(&self) -> bool {
        !matches!(self.trust, Trust::Whole) || self.unfit.is_some()
    }
}

impl Facts<'_> {
    /// The last evaluation; none for a fleet that nobody sizes, and before the first.
    pub(super) fn decision(&self) -> Option<&ScaleDecision> {
        self.view.newest.as_ref().filter(|_| self.sized)
    }

    pub(super) fn reason(&self) -> Option<&ScaleReason> {
        self.decision().map(|decision| &decision.reason)
    }

    /// The first of all that block growth that is of this kind.
    pub(super) fn block(&self, kind: impl Fn(&ScaleReason) -> bool) -> Option<&ScaleReason> {
        self.decision()?.blocks().find(|block| kind(block))
    }

    pub(super) fn offers(&self) -> &[Offer] {
        self.view.outlook.as_ref().map_or(&[], |outlook| &outlook.offers)
    }

    /// No more may be added under the gateway's cap, which nobody makes room under.
    pub(super) fn is_capped(&self) -> bool {
        self.room().is_some_and(|room| room.left == 0 && !room.comes)
    }

    /// Room under the gateway's cap, where there is one.
    pub(super) fn room(&self) -> Option<Room> {
        self.view.outlook.as_ref()?.room
    }

    /// Time until the next check; `None` under a rule that has none.
    pub(super) fn check_in(&self) -> Option<Duration> {
        Some(self.view.outlook.as_ref()?.check?.since(self.seen.at))
    }

    pub(super) fn those(&self, which: impl Fn(&ReplicaFacts) -> bool) -> impl Iterator<Item = &ReplicaFacts> {
        self.seen.replicas.iter().filter(move |replica| which(replica))
    }

    pub(super) fn phase(&self, phase: Phase) -> u32 {
        u32::try_from(self.those(|replica| replica.phase == phase).count()).unwrap_or(u32::MAX)
    }

    /// Replicas that are ordered and not ready.
    pub(super) fn on_the_way(&self) -> u32 {
        u32::try_from(self.those(ReplicaFacts::is_on_its_way).count()).unwrap_or(u32::MAX)
    }

    /// Those of them that wait for room at their provider, which has taken them.
    pub(super) fn in_line(&self) -> u32 {
        let waits =
            |replica: &ReplicaFacts| replica.is_on_its_way() && self.view.in_line.contains(&replica.id);
        u32::try_from(self.those(waits).count()).unwrap_or(u32::MAX)
    }

    /// Those of them that their provider does not start as they are.
    pub(super) fn held(&self) -> u32 {
        let held =
            |replica: &ReplicaFacts| replica.is_on_its_way() && self.view.held.contains_key(&replica.id);
        u32::try_from(self.those(held).count()).unwrap_or(u32::MAX)
    }

    /// Replicas in this phase that cannot serve as they are.
    pub(super) fn unfit(&self, phase: Phase) -> u32 {
        let unfit = self.each().filter(|(replica, known)| replica.phase == phase && known.unfit.is_some());
        u32::try_from(unfit.count()).unwrap_or(u32::MAX)
    }

    /// Replicas that are taken out for good: nothing runs there, and nobody stops them.
    pub(super) fn drained(&self) -> u32 {
        let out = self.those(|replica| replica.phase == Phase::Draining && replica.in_flight == 0);
        if self.sized { 0 } else { u32::try_from(out.count()).unwrap_or(u32::MAX) }
    }

    /// Replicas that count as capacity, now or soon.
    pub(super) fn current(&self) -> u32 {
        self.phase(Phase::Ready) + self.on_the_way()
    }

    /// Each replica with what else is known of it.
    pub(super) fn each(&self) -> impl Iterator<Item = (&ReplicaFacts, &Known)> {
        self.seen.replicas.iter().zip(self.replicas)
    }

    /// The public name of a replica (H5).
    pub(super) fn replica(&self, id: ReplicaId) -> String {
        replica_name(self.name, id)
    }

    /// What the last evaluation saw and what that needs: `97 in progress (12 of them queued) need 4 replicas`.
    pub(super) fn needs(&self, decision: &ScaleDecision) -> String {
        let ScaleDecision { demand, queued, promised, needed, load, rule, .. } = decision;
        let replicas = count(*needed, "replica");
        // The load needs no more, and figures of it would not add up to what is wanted.
        if let Some(waited) = decision.waited() {
            return format!("{waited}, which asks for more than the {} there", decision.current);
        }
        if decision.waiters > 0 {
            return format!("{}, which needs {replicas}", decision.unplaced());
        }
        if decision.engine_queue > 0 {
            return format!("{}, which needs {replicas}", decision.crowded());
        }
        if let Some(load) = load {
            return format!("the replicas' memory is {load} % full, which needs {replicas}");
        }
        let waits = self.then(decision, decision.waiting("of them queued"));
        match demand {
            0 => "nothing is in progress".to_owned(),
            // What counts is the mean: one moment's number beside it would contradict it.
            _ if *rule == Rule::Jobs => {
                format!(
                    "{}{waits} now, and the mean of the last 30 s needs {replicas}",
                    count(*demand, "job")
                )
            }
            1 => format!(
                "1 in progress{} needs {replicas}",
                self.then(decision, alone(*queued, *promised).to_owned())
            ),
            _ => format!("{demand} in progress{waits} need {replicas}"),
        }
    }

    /// `waits`, which stands in brackets, with its age where the last evaluation saw others wait than wait now.
    fn then(&self, decision: &ScaleDecision, waits: String) -> String {
        let age = self.seen.at.since(decision.at);
        let alike = (decision.queued, decision.promised) == (self.seen.queued, self.seen.promised);
        match waits.strip_suffix(')') {
            Some(open) if !alike && age > Duration::ZERO => format!("{open}, {} ago)", span(age)),
            _ => waits,
        }
    }

    /// Who waits here and who was told to come back, to follow a comma or a semicolon.
    pub(super) fn waits(&self) -> String {
        let (queued, told) = (self.seen.queued, self.seen.promised);
        let inside = self.decision().is_some_and(|decision| decision.engine_queue > 0);
        let here = match (queued, span(self.seen.oldest_wait)) {
            (0, _) if told == 0 && !inside => "nobody waits".to_owned(),
            (0, _) => "nobody waits here".to_owned(),
            (1, oldest) => format!("1 request waits, for {oldest} so far"),
            (_, oldest) => format!("{queued} requests wait, the oldest for {oldest}"),
        };
        if told == 0 {
            return here;
        }
        let joint = if queued == 0 { "but" } else { "and" };
        format!("{here}, {joint} {told} {} refused and told to come back", pick(told, "was", "were"))
    }
}

/// What is said of the only one in progress where it is at no replica.
fn alone(queued: u32, promised: u32) -> &'static str {
    match (queued, promised) {
        (0, 0) => "",
        (0, _) => " (told to come back)",
        _ => " (queued)",
    }
}
