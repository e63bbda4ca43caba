//! Shows where a request would go: in one line, or with the reasons and every replica.
//!
//! Never prints a control character that came from elsewhere, and colours only where the style says so.

use tidegate_shared::explained::Standing;
use tidegate_shared::replica::Phase;

use crate::admin::route::{CandidateTold, RouteAnswer, VerdictTold};

use super::grid::{Cell, Grid, latency, sentence, wrapped};
use super::style::{Style, Tint, clean};

/// Columns of the labels.
const LABEL: usize = 14;
/// Replicas named in a sentence.
const NAMED: usize = 8;

/// The verdict and its reason.
pub(super) fn line(answer: &RouteAnswer, style: Style) -> String {
    let (head, tint) = head(&answer.verdict);
    let head = clean(&head);
    let reason = wrapped(&answer.text, head.chars().count() + 2, style);
    format!("{}: {reason}\n", style.paint(tint, &head))
}

/// The same with all that was looked at.
pub(super) fn table(answer: &RouteAnswer, style: Style) -> String {
    let mut text = line(answer, style);
    text.push('\n');
    field(&mut text, "request", &request(answer), style);
    field(&mut text, "conversation", &conversation(answer), style);
    if !answer.holders.is_empty() {
        field(&mut text, "beginning", &format!("held by {}", names(&answer.holders)), style);
    }
    if let Some(price) = &answer.detour {
        let told = |time: Option<f64>| time.map_or_else(|| "not measured yet".to_owned(), latency);
        let price = format!(
            "prefilling elsewhere: {}; until home is under its limit: {}",
            told(price.prefill_s),
            told(price.wait_s)
        );
        field(&mut text, "detour", &price, style);
    }
    if let VerdictTold::Wait { expected_s, at_most_s, then, .. } = &answer.verdict {
        let expected = expected_s.map_or_else(|| "not measured yet".to_owned(), latency);
        field(&mut text, "wait", &format!("{expected}; at most {}, then {then}", latency(*at_most_s)), style);
    }
    if answer.promised {
        field(&mut text, "promise", "it was told to come back now, so it stands where it first stood", style);
    }
    field(&mut text, "policy", &answer.policy, style);
    if !answer.replicas.is_empty() {
        text.push('\n');
        text.push_str(&replicas(answer, style));
    }
    text
}

fn head(verdict: &VerdictTold) -> (String, Tint) {
    match verdict {
        VerdictTold::Forward { replica, route, .. } => (format!("{replica}  {route}"), Tint::Green),
        VerdictTold::Wait { .. } => ("waits".to_owned(), Tint::Yellow),
        VerdictTold::Refuse { reason, retry_after_s } => {
            (format!("503  {reason}, try again in {}", latency(*retry_after_s)), Tint::Red)
        }
    }
}

fn field(text: &mut String, label: &str, told: &str, style: Style) {
    let label = style.paint(Tint::Dim, &format!("{label:<LABEL$}"));
    text.push_str(&format!("  {label}{}\n", wrapped(told, LABEL + 2, style)));
}

fn request(answer: &RouteAnswer) -> String {
    let RouteAnswer { operation, model, deployment, prompt_tokens, output_tokens, .. } = answer;
    let whom = if model == deployment { model.clone() } else { format!("{model}, served by {deployment}") };
    let tokens = match (prompt_tokens, output_tokens) {
        (prompt, 0) => format!("about {prompt} tokens"),
        (prompt, output) => format!("about {prompt} tokens and {output} for the answer"),
    };
    format!("{operation} for {whom}; {tokens}")
}

fn conversation(answer: &RouteAnswer) -> String {
    let known = &answer.identity;
    let named = match (known.by.as_str(), &known.header) {
        ("none", _) => return "none".to_owned(),
        ("header", Some(header)) => Some(format!("named by the header {header}")),
        ("prefix", _) => None,
        (field, _) => Some(format!("named by {field}")),
    };
    let boundaries = known.boundaries;
    match (named, known.known_at, &known.home) {
        (Some(named), _, Some(home)) => format!("{named}; its home is {home}"),
        (Some(named), _, None) => format!("{named}; not known yet"),
        (None, Some(at), Some(home)) => {
            format!("known by its prefix, up to boundary {at} of {boundaries}; its home is {home}")
        }
        (None, ..) if known.follows_up => {
            format!("a later turn, but its prefix is not known at any of {}", boundaries_of(boundaries))
        }
        (None, ..) => "a first turn opens one".to_owned(),
    }
}

fn boundaries_of(count: u32) -> String {
    if count == 1 { "1 boundary".to_owned() } else { format!("{count} boundaries") }
}

fn names(all: &[String]) -> String {
    let mut names: Vec<_> = all.iter().take(NAMED).cloned().collect();
    if let Some(more) = all.len().checked_sub(NAMED).filter(|more| *more > 0) {
        names.push(format!("{} more", more));
    }
    names.join(", ")
}

fn replicas(answer: &RouteAnswer, style: Style) -> String {
    let all = &answer.replicas;
    let told = all.iter().any(|replica| replica.kv_capacity.is_some());
    let sized = all.iter().any(|replica| replica.capacity != 1);
    let loaded = all.iter().any(|replica| replica.fullness_percent.is_some());
    let mut table = Grid::new(&["REPLICA", ">NEXT", ">IN FLIGHT", ">TOKENS"]);
    table.add_column(told.then_some(">KV"));
    table.add_column(sized.then_some(">SIZE"));
    table.add_column(Some(">SHARE"));
    table.add_column(loaded.then_some(">FULL"));
    table.add_column(Some("STATE"));
    let percent = |told: Option<u64>| told.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
    for replica in all {
        let cache = |capacity| replica.load_tokens.saturating_mul(100).checked_div(capacity);
        let mut row: Vec<Cell> = vec![
            (clean(&replica.id), None),
            (replica.order.map_or_else(|| "-".to_owned(), |order| order.to_string()), None),
            (format!("{}/{}", replica.in_flight, replica.limit), None),
            (replica.load_tokens.to_string(), None),
        ];
        row.extend(told.then(|| (percent(replica.kv_capacity.and_then(cache)), None)));
        row.extend(sized.then(|| (replica.capacity.to_string(), None)));
        row.push((percent(Some(replica.share_percent.into())), None));
        row.extend(loaded.then(|| (percent(replica.fullness_percent.map(u64::from)), None)));
        row.push(state(answer, replica));
        table.rows.push(row);
    }
    let mut text = table.render(style);
    for replica in all {
        if let Some((_, trouble)) = replica.why.as_deref().and_then(|why| why.split_once(": ")) {
            let label = format!("{}: ", clean(&replica.id));
            text.push_str(&sentence(&label, trouble, Some(Tint::Yellow), style));
        }
    }
    text
}

/// What speaks for and against a replica, in few words.
fn state(answer: &RouteAnswer, replica: &CandidateTold) -> Cell {
    let chosen = matches!(&answer.verdict, VerdictTold::Forward { replica: to, .. } if *to == replica.id);
    let home = answer.identity.home.as_ref() == Some(&replica.id);
    let against = replica.why.as_deref().and_then(|why| why.split(": ").next()).map(clean);
    let parts = [chosen.then(|| "goes here".to_owned()), home.then(|| "home".to_owned()), against];
    let mut text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        text.push_str("free");
    }
    let tint = match (replica.standing, replica.phase) {
        _ if chosen => Some(Tint::Green),
        (Standing::Free, _) => None,
        (
            Standing::OverLimit
            | Standing::NoRoom
            | Standing::Claimed
            | Standing::Full
            | Standing::Busy
            | Standing::OnTrial
            | Standing::WarmingUp,
            _,
        ) => Some(Tint::Yellow),
        (
            Standing::NotReady,
            Phase::Provisioning | Phase::Starting | Phase::Waking | Phase::Draining | Phase::Parked,
        )
        | (Standing::Aside | Standing::OwnOnly, _) => Some(Tint::Cyan),
        (
            Standing::Ejected
            | Standing::Suspect
            | Standing::Refused
            | Standing::OtherModel
            | Standing::Unreachable
            | Standing::NotReady,
            _,
        ) => Some(Tint::Red),
    };
    (text, tint)
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
