//! Shows the status of a gateway as text: one block for each deployment, columns that line up, sentences wrapped to
//! the width of the terminal; at 80 columns, usual names and addresses fit.
//!
//! Never prints a control character that came from an engine, and colours only where the style says so.

use tidegate_scaler_core::config::Mode;
use tidegate_shared::offer::{Money, Price};
use tidegate_shared::replica::Phase;
use tidegate_shared::time::Duration;

use crate::admin::status::{DecisionStatus, DeploymentStatus, MoneyStatus, ReplicaStatus, Status};

use super::style::{Style, Tint, clean};

/// Decisions shown for each deployment.
const DECISIONS: usize = 5;

/// The whole status.
pub(super) fn render(status: &Status, style: Style) -> String {
    let mut text = format!("tidegate {}, up {}\n", clean(&status.version), age(status.uptime_s));
    for deployment in &status.deployments {
        text.push('\n');
        text.push_str(&block(deployment, style));
    }
    text
}

fn block(deployment: &DeploymentStatus, style: Style) -> String {
    let name = style.paint(Tint::Bold, &clean(&deployment.name));
    let mut text = format!("{name}  {}\n  {}\n", size(deployment), load(deployment));
    if let Some(money) = deployment.money.and_then(money) {
        text.push_str(&format!("  {money}\n"));
    }
    if let Some(decision) = &deployment.decision {
        let wants = format!("wants {}: {}", counted(decision.target, "replica"), decision.text);
        text.push_str(&sentence("", &wants, None, style));
    }
    if let Some(trouble) = &deployment.trouble {
        text.push_str(&sentence("trouble: ", trouble, Some(Tint::Red), style));
    }
    if !deployment.replicas.is_empty() {
        text.push('\n');
        text.push_str(&replicas(&deployment.replicas, style));
        for replica in &deployment.replicas {
            if let Some(why) = &replica.why {
                let label = format!("{}: ", clean(&replica.id));
                text.push_str(&sentence(&label, why, Some(Tint::Yellow), style));
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
    if min == max {
        return format!("{provider}, fixed at {}; {ready} ready", counted(*max, "replica"));
    }
    format!("{provider}, {mode}, {min} to {}; {ready} ready", counted(*max, "replica"))
}

fn load(deployment: &DeploymentStatus) -> String {
    let DeploymentStatus { in_flight, queued, conversations, .. } = deployment;
    let waited = match queued {
        0 => String::new(),
        _ => format!(" (oldest {})", age(deployment.oldest_wait_s)),
    };
    format!("{in_flight} in flight, {queued} queued{waited}, {}", counted(*conversations, "conversation"))
}

/// What it costs, where anything has a price.
fn money(money: MoneyStatus) -> Option<String> {
    let MoneyStatus { spent, rate, worst_case, credit } = money;
    if (spent, rate, worst_case, credit) == (Money::default(), Price::FREE, None, None) {
        return None;
    }
    let worst = worst_case.map(|worst| format!(", {worst} at most")).unwrap_or_default();
    let credit = credit.map(|credit| format!("; credit {credit}")).unwrap_or_default();
    Some(format!("{rate} now{worst}, {spent} spent{credit}"))
}

/// `1 replica`, `2 replicas`.
fn counted(count: u32, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

fn replicas(replicas: &[ReplicaStatus], style: Style) -> String {
    let sized = replicas.iter().any(|replica| replica.capacity != 1);
    let told = replicas.iter().any(|replica| cache(replica).is_some());
    let mut table = Grid::new(&["REPLICA", "PHASE", ">FOR", ">LOAD", ">TOKENS", ">HOMES"]);
    table.add_column(told.then_some(">KV"));
    table.add_column(sized.then_some(">SIZE"));
    table.add_column(Some("URL"));
    for replica in replicas {
        let mut row = vec![
            (clean(&replica.id), None),
            (replica.phase.to_string(), tint(replica.phase)),
            (age(replica.age_s), None),
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
        row.push((replica.url.as_deref().map_or_else(|| "-".to_owned(), clean), None));
        table.rows.push(row);
    }
    table.render(style)
}

/// How full its engine says that its KV cache is.
fn cache(replica: &ReplicaStatus) -> Option<String> {
    let engine = replica.engine.as_ref()?;
    let (used, capacity) = engine.kv_used.zip(engine.kv_capacity)?;
    Some(format!("{}%", used.saturating_mul(100).checked_div(capacity)?))
}

const fn tint(phase: Phase) -> Option<Tint> {
    match phase {
        Phase::Ready => Some(Tint::Green),
        Phase::Provisioning | Phase::Starting => Some(Tint::Yellow),
        Phase::Draining => Some(Tint::Cyan),
        Phase::Failed => Some(Tint::Red),
        Phase::Gone => Some(Tint::Dim),
    }
}

/// The newest decisions that changed something.
fn decisions(decisions: &[DecisionStatus], style: Style) -> String {
    let mut table = Grid::new(&[">DECIDED", ">REPLICAS", "WHY"]);
    for decision in decisions.iter().take(DECISIONS) {
        let (current, target) = (decision.current, decision.target);
        let moved = if current == target { target.to_string() } else { format!("{current} -> {target}") };
        table.rows.push(vec![
            (format!("{} ago", age(decision.age_s)), None),
            (moved, None),
            (clean(&decision.text), None),
        ]);
    }
    table.render(style)
}

/// Columns that line up; a heading that begins with `>` aligns its column to the right.
struct Grid {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

type Cell = (String, Option<Tint>);

impl Grid {
    fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    fn add_column(&mut self, heading: Option<&'static str>) {
        self.headings.extend(heading);
    }

    /// The last column is wrapped between words to the width of `style`.
    fn render(&self, style: Style) -> String {
        let heading = |&name: &&'static str| (name.trim_start_matches('>').to_owned(), Some(Tint::Dim));
        let head: Vec<Cell> = self.headings.iter().map(heading).collect();
        let rows = || std::iter::once(&head).chain(&self.rows);
        let width = |column: usize| {
            let cells = rows().filter_map(|row| row.get(column));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or(0)
        };
        let fixed: Vec<usize> = (0..self.headings.len().saturating_sub(1)).map(width).collect();
        let indent = 2 + fixed.iter().map(|width| width + 2).sum::<usize>();
        let mut text = String::new();
        for row in rows() {
            text.push_str("  ");
            for (((cell, tint), width), heading) in row.iter().zip(&fixed).zip(&self.headings) {
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                let cell = paint(style, *tint, cell);
                let (left, right) = if heading.starts_with('>') { (&*space, "") } else { ("", &*space) };
                text.push_str(&format!("{left}{cell}{right}  "));
            }
            if let Some((cell, tint)) = row.get(fixed.len()) {
                text.push_str(&paint(style, *tint, &wrapped(cell, indent, style)));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

fn paint(style: Style, tint: Option<Tint>, text: &str) -> String {
    tint.map_or_else(|| text.to_owned(), |tint| style.paint(tint, text))
}

/// A sentence with its label, indented and wrapped.
fn sentence(label: &str, text: &str, tint: Option<Tint>, style: Style) -> String {
    let body = wrapped(text, label.chars().count() + 2, style);
    format!("  {}{body}\n", paint(style, tint.filter(|_| !label.is_empty()), label))
}

/// `text` in lines that end between words at the width of `style`; all but the first are set in by `indent`.
fn wrapped(text: &str, indent: usize, style: Style) -> String {
    let room = style.width.saturating_sub(indent).max(20);
    let mut lines: Vec<String> = Vec::new();
    for written in text.lines() {
        let mut line = String::new();
        for word in clean(written).split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Seconds as people say them, to two places: `4.2s`, `31s`, `5m 12s`, `3h 4m`, `2d 3h`.
fn age(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        s @ 10..60 => format!("{s}s"),
        s @ 60..3_600 => format!("{}m {}s", s / 60, s % 60),
        s @ 3_600..86_400 => format!("{}h {}m", s / 3_600, s / 60 % 60),
        s => format!("{}d {}h", s / 86_400, s / 3_600 % 24),
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
