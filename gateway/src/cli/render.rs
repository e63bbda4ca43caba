//! Shows the status of a gateway as text: one block for each deployment, columns that line up, sentences wrapped to
//! the width of the terminal; at 80 columns, usual names and addresses fit.
//!
//! Never prints a control character that came from an engine, and colours only where the style says so.

use tidegate_scaler_core::config::Mode;
use tidegate_shared::replica::Phase;

use crate::admin::drain::DrainState;
use crate::admin::status::{DecisionStatus, DeploymentStatus, ReplicaStatus, Status, UnfitStatus};

use super::grid::{Cell, Grid, age, counted, sentence};
use super::scale::{origin, shown};
use super::style::{Style, Tint, clean};

/// Decisions shown for each deployment.
const DECISIONS: usize = 5;

/// The whole status.
pub(super) fn render(status: &Status, style: Style) -> String {
    let mut text = format!("tidegate {}, up {}\n", clean(&status.version), age(status.uptime_s));
    if let Some(stopping) = &status.stopping {
        text.push_str(&sentence("stopping: ", &stopping.text, Some(Tint::Yellow), style));
    }
    if let Some(trouble) = status.records.as_ref().and_then(|records| records.problem.as_ref()) {
        text.push_str(&sentence("trouble: ", trouble, Some(Tint::Red), style));
    }
    if let Some(trouble) = status.tls.as_ref().and_then(|tls| tls.trouble.as_ref()) {
        text.push_str(&sentence("trouble: ", trouble, Some(Tint::Red), style));
    }
    for deployment in &status.deployments {
        text.push('\n');
        text.push_str(&block(deployment, style));
    }
    text
}

fn block(deployment: &DeploymentStatus, style: Style) -> String {
    let name = style.paint(Tint::Bold, &clean(&deployment.name));
    let mut text = format!("{name}  {}\n  {}\n", size(deployment), load(deployment));
    if let Some(money) = deployment.money.as_ref().and_then(|money| money.text.as_ref()) {
        text.push_str(&sentence("", money, None, style));
    }
    if let Some(origins) = origins(deployment) {
        text.push_str(&sentence("", &origins, None, style));
    }
    if let Some(decision) = &deployment.decision {
        let wants = format!("wants {}: {}", counted(decision.target, "replica"), decision.text);
        text.push_str(&sentence("", &wants, None, style));
    }
    if let Some(tuning) = &deployment.tuning {
        text.push_str(&sentence("tuning: ", tuning, Some(Tint::Yellow), style));
    }
    if let Some(drift) = &deployment.drift {
        text.push_str(&sentence("drift: ", drift, Some(Tint::Yellow), style));
    }
    if let Some(why) = deployment.startless.as_ref().filter(|_| !deployment.startless_told) {
        let known = deployment.money.as_ref().is_none_or(|money| money.rate.is_some());
        let none = if known { "no replica runs" } else { "no replica is known to run" };
        let told = format!("{none}, and none can be started: {why}");
        text.push_str(&sentence("", &told, Some(Tint::Yellow), style));
    }
    if let Some(trouble) = &deployment.trouble {
        text.push_str(&sentence("trouble: ", trouble, Some(Tint::Red), style));
    }
    if let Some(news) = &deployment.news {
        text.push_str(&sentence("", news, None, style));
    }
    if !deployment.replicas.is_empty() {
        text.push('\n');
        text.push_str(&replicas(&deployment.replicas, style));
        for replica in &deployment.replicas {
            if let Some(ejected) = &replica.ejected {
                let label = format!("{}: ", clean(&replica.id));
                text.push_str(&sentence(&label, &ejected.sentence(), Some(Tint::Yellow), style));
            }
            if let Some(why) = &replica.why {
                let label = format!("{}: ", clean(&replica.id));
                let away = replica.unfit.as_ref().filter(|unfit| unfit.kind == UnfitStatus::UNREACHABLE);
                let since = away.map(|unfit| format!("unreachable for {}: ", age(unfit.for_s)));
                let why = format!("{}{why}", since.unwrap_or_default());
                text.push_str(&sentence(&label, &why, Some(Tint::Yellow), style));
            }
        }
    }
    if !deployment.decisions.is_empty() {
        text.push('\n');
        text.push_str(&decisions(&deployment.decisions, style));
    }
    text
}

fn size(deployment: &DeploymentStatus) -> String {
    let DeploymentStatus { min, max, provider, .. } = deployment;
    let mode = match deployment.mode {
        Mode::Flex => "flex",
        Mode::Active => "active",
    };
    let provider = clean(provider);
    let ready = deployment.replicas.iter().filter(|replica| replica.phase == Phase::Ready).count();
    let ejected = deployment.replicas.iter().filter(|replica| replica.ejected.is_some()).count();
    let ejected = if ejected == 0 { String::new() } else { format!(", {ejected} of them ejected") };
    if min == max {
        return format!("{provider}, fixed at {}; {ready} ready{ejected}", counted(*max, "replica"));
    }
    format!("{provider}, {mode}, {min} to {}; {ready} ready{ejected}", counted(*max, "replica"))
}

/// What of its size is neither a default nor the configuration's, and where that comes from.
fn origins(deployment: &DeploymentStatus) -> Option<String> {
    let chosen = deployment.sizing.iter().filter(|(_, setting)| setting.age_s.is_some());
    let told = chosen.map(|(key, setting)| {
        format!("{} {}: {}", clean(key), shown(key, &setting.value), clean(&origin(key, setting)))
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn load(deployment: &DeploymentStatus) -> String {
    let DeploymentStatus { in_flight, queued, promised, conversations, .. } = deployment;
    let waited = match queued {
        0 => String::new(),
        _ => format!(" (oldest {})", age(deployment.oldest_wait_s)),
    };
    let told = match promised {
        0 => String::new(),
        _ => format!(", {promised} told to come back"),
    };
    format!(
        "{in_flight} in flight, {queued} queued{waited}{told}, {}",
        counted(*conversations, "conversation")
    )
}

fn replicas(replicas: &[ReplicaStatus], style: Style) -> String {
    let sized = replicas.iter().any(|replica| replica.capacity != 1);
    let told = replicas.iter().any(|replica| cache(replica).is_some());
    let mut table = Grid::new(&["REPLICA", "PHASE", ">FOR", ">IN FLIGHT", ">TOKENS", ">HOMES"]);
    table.add_column(told.then_some(">KV"));
    table.add_column(sized.then_some(">SIZE"));
    table.add_column(Some("URL"));
    for replica in replicas {
        let mut row = vec![
            (clean(&replica.id), None),
            phase(replica),
            (age(replica.unfit.as_ref().map_or(replica.age_s, |unfit| unfit.for_s)), None),
            (replica.in_flight.to_string(), None),
            (replica.load_tokens.to_string(), None),
            (replica.conversations.to_string(), None),
        ];
        if told {
            row.push((cache(replica).unwrap_or_else(|| "-".to_owned()), None));
        }
        if sized {
            row.push((replica.capacity.to_string(), None));
        }
        let url = replica.url.as_deref().map(|url| clean(url.strip_prefix("http://").unwrap_or(url)));
        row.push((url.unwrap_or_else(|| "-".to_owned()), None));
        table.rows.push(row);
    }
    table.render(style)
}

/// How full its engine says that its KV cache is.
fn cache(replica: &ReplicaStatus) -> Option<String> {
    let engine = replica.engine.as_ref()?;
    let (used, capacity) = engine.kv_used.zip(engine.kv_capacity)?;
    Some(format!("{} %", used.saturating_mul(100).checked_div(capacity)?))
}

/// Its phase; or, where it cannot serve, or is ready and not trusted, that.
fn phase(replica: &ReplicaStatus) -> Cell {
    if let Some(unfit) = &replica.unfit {
        return (clean(&unfit.kind.replace('_', " ")), Some(Tint::Red));
    }
    match &replica.ejected {
        Some(_) if replica.phase == Phase::Ready => ("ejected".to_owned(), Some(Tint::Red)),
        _ if replica.drain == Some(DrainState::Drained) => ("drained".to_owned(), tint(Phase::Draining)),
        _ => (replica.phase.to_string(), tint(replica.phase)),
    }
}

const fn tint(phase: Phase) -> Option<Tint> {
    match phase {
        Phase::Ready => Some(Tint::Green),
        Phase::Provisioning | Phase::Starting | Phase::Waking => Some(Tint::Yellow),
        Phase::Draining => Some(Tint::Cyan),
        Phase::Failed => Some(Tint::Red),
        Phase::Parked | Phase::Gone => Some(Tint::Dim),
    }
}

/// The newest decisions that changed something.
fn decisions(decisions: &[DecisionStatus], style: Style) -> String {
    let mut table = Grid::new(&[">DECIDED", ">REPLICAS", "WHY"]);
    for (decision, alike) in folded(decisions).into_iter().take(DECISIONS) {
        let (current, target) = (decision.current, decision.target);
        let moved = if current == target { target.to_string() } else { format!("{current} -> {target}") };
        table.rows.push(vec![
            (format!("{} ago", age(decision.age_s)), None),
            (moved, None),
            (clean(&format!("{}{}", decision.text, more(alike))), None),
        ]);
    }
    table.render(style)
}

/// Each decision, newest first, and those before it that are told with it: as long as a fleet keeps its size, and nothing or
/// the same holds it back, its load comes and goes, and steps would be lost among that.
fn folded(decisions: &[DecisionStatus]) -> Vec<(&DecisionStatus, &[DecisionStatus])> {
    let idle = |one: &DecisionStatus| one.current == one.target;
    let groups = decisions.chunk_by(|a, b| {
        let alike = a.reason == b.reason || (a.quiet && b.quiet);
        alike && idle(a) && idle(b) && a.target == b.target
    });
    groups.filter_map(|group| group.split_first()).collect()
}

/// How many are told with it, and since when.
fn more(alike: &[DecisionStatus]) -> String {
    match (alike, alike.last()) {
        ([_], Some(first)) => format!("; and 1 alike since {} ago", age(first.age_s)),
        (many, Some(first)) => format!("; and {} alike since {} ago", many.len(), age(first.age_s)),
        (_, None) => String::new(),
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
