//! Text that lines up: columns, sentences wrapped to the width of the terminal, counts and ages as people say them.
//!
//! Never prints a control character that came from elsewhere in a sentence, and colours only where the style says so.

use tidegate_shared::span::{brief, span};
use tidegate_shared::time::Duration;

use super::style::{Style, Tint, clean};

/// Columns that line up; a heading that begins with `>` aligns its column to the right.
pub(super) struct Grid {
    headings: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

pub(super) type Cell = (String, Option<Tint>);

impl Grid {
    pub(super) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(super) fn add_column(&mut self, heading: Option<&'static str>) {
        self.headings.extend(heading);
    }

    /// The last column is wrapped between words to the width of `style`.
    pub(super) fn render(&self, style: Style) -> String {
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

pub(super) fn paint(style: Style, tint: Option<Tint>, text: &str) -> String {
    tint.map_or_else(|| text.to_owned(), |tint| style.paint(tint, text))
}

/// A sentence with its label, indented and wrapped.
pub(super) fn sentence(label: &str, text: &str, tint: Option<Tint>, style: Style) -> String {
    let body = wrapped(text, label.chars().count() + 2, style);
    format!("  {}{body}\n", paint(style, tint.filter(|_| !label.is_empty()), label))
}

/// `text` in lines that end between words at the width of `style`; all but the first are set in by `indent`.
pub(super) fn wrapped(text: &str, indent: usize, style: Style) -> String {
    let room = style.width.saturating_sub(indent).max(16);
    let mut lines: Vec<String> = Vec::new();
    for written in text.lines() {
        let mut line = String::new();
        for word in words(&clean(written)) {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        lines.push(line);
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// The words of a line; a number and its unit are one.
fn words(line: &str) -> Vec<String> {
    const UNITS: [&str; 8] = ["ms", "s", "m", "h", "d", "%", "MiB", "GiB"];
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let unit = word.trim_end_matches([',', ';', '.', ':', ')']);
        match words.last_mut().filter(|last| last.ends_with(|c: char| c.is_ascii_digit())) {
            Some(number) if UNITS.contains(&unit) => number.push_str(&format!(" {word}")),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Seconds of the JSON as people say them: `4.2 s`, `31 s`, `5 m 12 s`, `3 h 4 m`, `2 d 3 h`.
pub(super) fn age(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// The same for what may be short: `0.4 ms`, `120 ms`, `1.2 s`.
pub(super) fn latency(seconds: f64) -> String {
    brief(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// `1 replica`, `2 replicas`.
pub(super) fn counted(count: u32, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
