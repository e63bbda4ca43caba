//! How measuring looks: what is measured, a line for each step with the present one in motion, the curve, the target and
//! what becomes of it. Without a terminal the same lines, and nothing in motion.

use std::collections::BTreeMap;

use crate::cli::grid::{age, latency, wrapped};
use crate::cli::style::{Style, Tint, clean};
use crate::tune::{Event, Source, Step};

/// Columns of the longest bar, at most.
const LONGEST: usize = 48;
/// Columns of a line beside its bar.
const BESIDE: usize = 36;

/// See the module.
pub(super) struct Screen {
    style: Style,
    steps: Vec<Step>,
    /// A line is in motion, and is to be written over.
    moving: bool,
    headed: bool,
}

impl Screen {
    pub(super) fn new(style: Style) -> Self {
        Self { style, steps: Vec::new(), moving: false, headed: false }
    }

    /// What to print.
    pub(super) fn take(&mut self, event: &Event) -> String {
        match event {
            Event::Begun { .. } => self.begun(event),
            Event::Waiting { in_flight } => {
                let text = match in_flight {
                    1 => "waiting for 1 request of a user to end there".to_owned(),
                    _ => format!("waiting for {in_flight} requests of users to end there"),
                };
                self.over(&text)
            }
            Event::Trying { concurrency, why, measured_s, tokens_per_s, left_s } => {
                let now = match *measured_s > 0.0 {
                    true => format!("measuring, {measured_s:.0} s"),
                    false => "settling".to_owned(),
                };
                let rate = if *measured_s > 0.0 { rate(*tokens_per_s) } else { String::new() };
                let roughly = if why == "growing" { "at least" } else { "about" };
                let left = left_s.map(|left| format!("; {roughly} {} left", age(left.ceil())));
                let left = left.unwrap_or_default();
                let heading = self.heading();
                let line = self.over(&format!("{concurrency:>9}  {rate:>8}  {now}{left}"));
                format!("{heading}{line}")
            }
            Event::Measured(step) => {
                let heading = self.heading();
                let line = self.still(&row(step, self.style));
                self.steps.push(step.clone());
                format!("{heading}{line}")
            }
            Event::Found { .. } => self.found(event),
            Event::Failed { .. } => self.wipe(),
        }
    }

    fn begun(&self, event: &Event) -> String {
        let Event::Begun { deployment, replica, aside, engine, places, cap, .. } = event else {
            return String::new();
        };
        let Event::Begun { prompt_tokens, output_tokens, from, .. } = event else { return String::new() };
        let engine = match (engine.as_str(), places) {
            ("none", _) => String::new(),
            (engine, Some(places)) => format!(" ({}, {places} places)", clean(engine)),
            (engine, None) => format!(" ({})", clean(engine)),
        };
        let name = clean(deployment);
        let how = match aside {
            true => "is set aside while it is measured",
            false => "serves all the while, being the only one; a request of a user ends the tuning",
        };
        let who = format!("{}{engine} {how}", clean(replica));
        let said = |source| match source {
            Source::Asked => "as asked",
            Source::Traffic => "as in recent traffic",
            Source::Guess => "a guess",
        };
        let lengths = match from {
            [one, other] if one == other => {
                format!(
                    "prompts of {prompt_tokens} tokens and answers of {output_tokens} on average, {}",
                    said(*one)
                )
            }
            [one, other] => format!(
                "prompts of {prompt_tokens} tokens ({}) and answers of {output_tokens} ({}) on average",
                said(*one),
                said(*other)
            ),
        };
        let untold = match from.contains(&Source::Guess) {
            true => {
                ": of too few recent requests engines told what they took, so give yours with --prompt-tokens and --output-tokens"
            }
            false => "",
        };
        let what = format!("{lengths}{untold}; up to {cap} requests at a time");
        let indent = name.chars().count() + 2;
        format!(
            "{}  {}\n  {}\n\n",
            self.style.paint(Tint::Bold, &name),
            wrapped(&who, indent, self.style),
            wrapped(&what, 2, self.style)
        )
    }

    fn heading(&mut self) -> String {
        if std::mem::replace(&mut self.headed, true) {
            return String::new();
        }
        let [columns, parts] = [
            "AT A TIME  TOKENS/S     ±     TO FIRST TOKEN     PER NEXT TOKEN   DONE",
            "                             MEDIAN      P95    MEDIAN      P95",
        ];
        let first = self.still(&self.style.paint(Tint::Dim, columns));
        format!("{first}{}", self.still(&self.style.paint(Tint::Dim, parts)))
    }

    /// A line in motion; nothing without a terminal.
    fn over(&mut self, text: &str) -> String {
        if !self.style.terminal {
            return String::new();
        }
        self.moving = true;
        let room = self.style.width.saturating_sub(3);
        let text: String = text.chars().take(room).collect();
        format!("\r\x1b[K  {}", self.style.paint(Tint::Dim, &text))
    }

    /// A line that stays.
    fn still(&mut self, text: &str) -> String {
        format!("{}  {text}\n", self.wipe())
    }

    fn wipe(&mut self) -> String {
        if std::mem::take(&mut self.moving) { "\r\x1b[K".to_owned() } else { String::new() }
    }

    fn found(&mut self, event: &Event) -> String {
        let Event::Found { target, because, settled, prompt_tokens, output_tokens, stored, note, .. } = event
        else {
            return String::new();
        };
        let word = if *settled { "target" } else { "best guess" };
        let mut text = format!("{}\n{}\n", self.wipe(), self.curve(*target, word));
        let label = format!("{word} {target}");
        let tint = if *settled { Tint::Green } else { Tint::Yellow };
        let because = wrapped(because, label.chars().count() + 4, self.style);
        text.push_str(&format!("  {}  {because}\n", self.style.paint(tint, &label)));
        let measured =
            format!("measured with prompts of {prompt_tokens} tokens and answers of {output_tokens}");
        let kept = match stored {
            true => format!("stored, and in force from now on; {measured}"),
            false => format!("not stored; {measured}"),
        };
        text.push_str(&format!("  {}\n", wrapped(&kept, 2, self.style)));
        if let Some(note) = note {
            text.push_str(&format!("  {}\n", wrapped(note, 2, self.style)));
        }
        text
    }

    /// Throughput by requests at a time, all visits put together.
    fn curve(&self, target: u32, word: &str) -> String {
        let mut points: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
        for step in &self.steps {
            let point = points.entry(step.concurrency).or_default();
            *point = (point.0 + step.tokens, point.1 + step.window_s);
        }
        let rates: Vec<(u32, f64)> = points
            .into_iter()
            .map(|(at, (tokens, seconds))| (at, if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }))
            .collect();
        let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let room = self.style.width.saturating_sub(BESIDE).clamp(10, LONGEST);
        let mut text = String::new();
        for (at, seen) in rates {
            let share = if most > 0.0 { seen / most } else { 0.0 };
            let bar = bar(share, room);
            let (bar, mark) = match at == target {
                true => {
                    (self.style.paint(Tint::Green, &bar), self.style.paint(Tint::Bold, &format!("  {word}")))
                }
                false => (bar, String::new()),
            };
            let line = format!("  {at:>9}  {:>8}  {bar}{mark}", rate(seen));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A bar of eighths of a column.
fn bar(share: f64, room: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round();
    let (mut left, mut bar) = (eighths, String::new());
    while left >= 8.0 {
        bar.push('█');
        left -= 8.0;
    }
    let parts = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let part = (1..=7).zip(parts).find(|(eighth, _)| f64::from(*eighth) >= left && left > 0.0);
    bar.extend(part.map(|(_, part)| part));
    bar
}

fn row(step: &Step, style: Style) -> String {
    let error = step.error_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %"));
    let pair = |half: Option<f64>, most: Option<f64>| match (half, most) {
        (Some(half), Some(most)) => format!("{:>8}  {:>7}", latency(half / 1e3), latency(most / 1e3)),
        _ => "-".to_owned(),
    };
    let first = pair(step.ttft_p50_ms, step.ttft_p95_ms);
    let next = pair(step.tpot_p50_ms, step.tpot_p95_ms);
    let mut text = format!(
        "{:>9}  {:>8}  {error:>4}  {first:>17}  {next:>17}  {:>5}",
        step.concurrency,
        rate(step.tokens_per_s),
        step.completed
    );
    if step.refused > 0 {
        text.push_str(&style.paint(Tint::Red, &format!("  {} refused", step.refused)));
    }
    if step.failed > 0 {
        text.push_str(&style.paint(Tint::Red, &format!("  {} failed", step.failed)));
    }
    text
}

fn rate(tokens_per_s: f64) -> String {
    if tokens_per_s < 100.0 { format!("{tokens_per_s:.1}") } else { format!("{tokens_per_s:.0}") }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
