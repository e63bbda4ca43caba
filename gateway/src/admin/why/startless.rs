//! Why no replica could be started for the next request, where none runs (C2): by the settings, or by what the last
//! evaluation knew of the provider. Decides nothing, and says nothing of a fleet that is there.

use tidegate_scaler::control::ControlView;
use tidegate_scaler_core::budget::Room;
use tidegate_scaler_core::config::Sizing;
use tidegate_scaler_core::offer::{Blocked, choose, over_cap};
use tidegate_shared::demand::Observation;
use tidegate_shared::offer::Money;
use tidegate_shared::replica::{Phase, ReplicaFacts};

use super::facts::Facts;
use super::words::count;
use super::{Finding, Line};

/// What is to be done where the gateway's cap is reached.
pub(super) const CAPPED: &str = "raise budget.replicas, or lower min or max of another deployment";

/// What keeps starts from happening where nobody knows what runs.
const UNKNOWN: &str =
    "the provider has not answered since the gateway started, and what it runs is not known yet";

/// What keeps every start from happening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Startless {
    /// Which question it belongs to.
    pub(in crate::admin) line: Line,
    /// The same for people, to follow "because".
    pub(in crate::admin) why: String,
}

/// What keeps every start from happening, with so much `credit` left where it is counted; `None` where nothing does.
pub(in crate::admin) fn startless(
    sizing: &Sizing,
    view: &ControlView,
    credit: Option<Money>,
) -> Option<Startless> {
    let of = |line, why: &str| Some(Startless { line, why: why.to_owned() });
    if sizing.ceiling() == 0 {
        return of(Line::NothingStarts, "max is 0");
    }
    if !sizing.autoscale && sizing.floor() == 0 {
        return of(Line::AutoscaleOff, "scaling is switched off and min is 0");
    }
    if view.provider_error.is_some() {
        let never = view.listed.is_none();
        return of(Line::ProviderDown, if never { UNKNOWN } else { "the provider does not answer" });
    }
    let outlook = view.outlook.as_ref()?;
    // The balance is of this moment, what was evaluated may be older.
    if outlook.broke && credit.is_some_and(|credit| credit.0 <= 0) {
        return of(Line::NoCredit, "the credit is used up");
    }
    if let Some(room) = outlook.room.filter(|room| room.left == 0 && !room.comes) {
        let full = format!("{}, and no other deployment has one to spare", full(room));
        return of(Line::Blocked, &full);
    }
    let why = match choose(&outlook.offers, sizing, 1).1? {
        Blocked::PriceCap { cap, cheapest } => {
            format!("the price cap is {cap} and the cheapest offer costs {cheapest}")
        }
        Blocked::NoCapacity if outlook.offers.is_empty() => "the provider offers nothing".to_owned(),
        Blocked::NoCapacity => match sizing.price_cap.zip(over_cap(&outlook.offers, sizing)) {
            Some((cap, dearer)) => {
                let next = dearer.price;
                format!("no offer within the price cap of {cap} has room, and the next that has costs {next}")
            }
            None => "no offer has room".to_owned(),
        },
        Blocked::NoFit => "no offer has the memory that the model needs".to_owned(),
    };
    of(Line::Blocked, &why)
}

/// That the gateway's cap is reached.
pub(super) fn full(room: Room) -> String {
    format!("the gateway has its {} of `budget.replicas`", count(room.cap, "replica"))
}

/// Whether nothing of these serves, or could without a start.
pub(in crate::admin) fn is_bare(replicas: &[ReplicaFacts]) -> bool {
    replicas.iter().all(|facts| matches!(facts.phase, Phase::Draining | Phase::Failed | Phase::Gone))
}

/// That requests are refused, where somebody asks: `startless` says why nothing runs.
pub(in crate::admin) fn refuses(startless: &Startless, seen: &Observation) -> Option<String> {
    let why = &startless.why;
    (seen.queued > 0 || seen.promised > 0)
        .then(|| format!("requests get 503, since no replica runs and none can be started: {why}"))
}

/// That requests are refused, since an operator has drained every replica of a fleet that nobody sizes.
pub(in crate::admin) fn shut(sized: bool, replicas: &[ReplicaFacts]) -> Option<String> {
    let drained = replicas.iter().all(|facts| facts.phase == Phase::Draining);
    let shut = !sized && drained && !replicas.is_empty();
    shut.then(|| "requests get 503, since every replica is drained by an operator".to_owned())
}

/// Nothing runs, and no request starts a replica; told where no other question is about it.
pub(super) fn finding(facts: &Facts<'_>) -> Option<Finding> {
    let bare = facts.sized && is_bare(&facts.seen.replicas);
    let why = startless(facts.sizing, facts.view, facts.spending.credit).filter(|_| bare)?.why;
    let nothing = if facts.view.listed.is_some() { "nothing runs" } else { "nothing is known to run" };
    let text = format!("{nothing}, and no request starts a replica, because {why}: requests get 503");
    let line = Line::NothingStarts.now(text);
    Some(match (facts.sizing.ceiling(), facts.sizing.autoscale) {
        (0, _) => line.advise(format!("`tidegate scale {} --max 1`, or more", facts.name)),
        _ if facts.is_capped() => line.advise(CAPPED),
        (_, false) => line.advise(format!("`tidegate scale {} --autoscale on`, or raise min", facts.name)),
        _ => line,
    })
}
