//! Shows the status of a gateway as text: one block for each deployment, columns that line up, 80 characters wide
//! for usual names and addresses.
//!
//! Never prints a control character that came from an engine, and colours only where the style says so.

use tidegate_scaler_core::config::Mode;
use tidegate_shared::replica::Phase;
use tidegate_shared::time::Duration;

use crate::admin::status::{DecisionStatus, DeploymentStatus, ReplicaStatus, Status};

use super::style::{Style, Tint, clean};

/// Decisions shown for each deployment.
const DECISIONS: usize = 5;
/// Width that long sentences are wrapped to.
const WIDTH: usize = 80;

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
    let mut text = format!("{name}  {}\n", size(deployment));
    text.push_str(&format!("  {}\n", load(deployment)));
    if let Some(trouble) = &deployment.trouble {
        text.push_str(&sentence("trouble:", trouble, Tint::Red, style));
    }
    if !deployment.replicas.is_empty() {
        text.push('\n');
        text.push_str(&replicas(&deployment.replicas, style));
        for replica in &deployment.replicas {
            if let Some(why) = &replica.why {
                text.push_str(&sentence(&format!("{}:", clean(&replica.id)), why, Tint::Yellow, style));
            }
        }
    }
    let decisions = recent(deployment);
    if !decisions.is_empty() {
        text.push('\n');
        text.push_str(&decision_table(&decisions, style));
    }
    text
}

fn size(deployment: &DeploymentStatus) -> String {
    let DeploymentStatus { min, max, target, provider, .. } = deployment;
    let mode = match deployment.mode {
        Mode::Flex => "flex",
        Mode::Active => "active",
    };
    let provider = clean(provider);
    let ready = deployment.replicas.iter().filter(|replica| replica.phase == Phase::Ready).count();
    if min == max {
        return format!("{provider}, fixed at {max}; {ready} ready");
    }
    format!("{provider}, {mode}, {min} to {max} replicas; {target} wanted, {ready} ready")
}

fn load(deployment: &DeploymentStatus) -> String {
    let DeploymentStatus { in_flight, queued, conversations, .. } = deployment;
    let waited = match queued {
        0 => String::new(),
        _ => format!(" (oldest {})", age(deployment.oldest_wait_s)),
    };
    format!("{in_flight} in flight, {queued} queued{waited}, {conversations} conversations")
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

/// The last evaluation and the changes before it, newest first.
fn recent(deployment: &DeploymentStatus) -> Vec<&DecisionStatus> {
    let last = deployment.decision.as_ref();
    let earlier = deployment.decisions.iter().filter(|&decision| Some(decision) != last);
    last.into_iter().chain(earlier).take(DECISIONS).collect()
}

fn decision_table(decisions: &[&DecisionStatus], style: Style) -> String {
    let mut table = Grid::new(&[">DECIDED", ">DEMAND", ">QUEUED", ">OLDEST", ">NEEDED", "REPLICAS", "WHY"]);
    for decision in decisions {
        let (current, target) = (decision.current, decision.target);
        let moved = if current == target { target.to_string() } else { format!("{current} -> {target}") };
        table.rows.push(vec![
            (format!("{} ago", age(decision.age_s)), None),
            (decision.demand.to_string(), None),
            (decision.queued.to_string(), None),
            (if decision.queued == 0 { "-".to_owned() } else { age(decision.oldest_wait_s) }, None),
            (decision.needed.to_string(), None),
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

    fn render(&self, style: Style) -> String {
        let heading = |&name: &&'static str| (name.trim_start_matches('>').to_owned(), Some(Tint::Dim));
        let head: Vec<Cell> = self.headings.iter().map(heading).collect();
        let rows = || std::iter::once(&head).chain(&self.rows);
        let width = |column: usize| {
            let cells = rows().filter_map(|row| row.get(column));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let mut text = String::new();
        for row in rows() {
            let mut line = String::from(" ");
            for (((cell, tint), width), heading) in row.iter().zip(&widths).zip(&self.headings) {
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                let cell = tint.map_or_else(|| cell.clone(), |tint| style.paint(tint, cell));
                let (left, right) =
                    if heading.starts_with('>') { (space, String::new()) } else { (String::new(), space) };
                line.push_str(&format!(" {left}{cell}{right} "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A labelled sentence, wrapped between words and indented.
fn sentence(label: &str, text: &str, tint: Tint, style: Style) -> String {
    let mut lines = vec![String::new()];
    let indent = label.chars().count() + 3;
    let room = WIDTH.saturating_sub(indent).max(20);
    for word in clean(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let body = lines.join(&format!("\n{}", " ".repeat(indent)));
    format!("  {} {body}\n", style.paint(tint, label))
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
