//! How text looks on a terminal: colours only where a person sees them, and never a control character that came
//! from elsewhere.

use std::env;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// A way to stand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tint {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Tint {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Cyan => "36",
        }
    }
}

/// What the output can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// A person reads it.
    pub(super) terminal: bool,
    /// That person wants colours.
    pub(super) colour: bool,
    /// Columns that sentences may fill; without a terminal, each stays on its line, for grep.
    pub(super) width: usize,
}

/// Columns of a terminal that does not tell.
const WIDTH: usize = 80;

impl Style {
    /// The style of a file or a pipe.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self { terminal: false, colour: false, width: usize::MAX };

    /// The style of `output`: no colours where `NO_COLOR` is set or the terminal is a dumb one.
    pub(super) fn of(output: &(impl IsTerminal + AsFd)) -> Self {
        let terminal = output.is_terminal();
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").as_deref() == Some(OsStr::new("dumb"));
        let width = if terminal { columns(output) } else { usize::MAX };
        Self { terminal, colour: terminal && !refused && !dumb, width }
    }

    /// `text` in `tint`, where colours are wanted.
    pub(super) fn paint(self, tint: Tint, text: &str) -> String {
        if self.colour { format!("\x1b[{}m{text}\x1b[0m", tint.code()) } else { text.to_owned() }
    }
}

fn columns(terminal: &impl AsFd) -> usize {
    let told = tcgetwinsize(terminal).ok().map(|size| usize::from(size.ws_col));
    told.filter(|&columns| columns > 0).unwrap_or(WIDTH).clamp(40, 160)
}

/// `text` on one line, without control characters: it may come from an engine or a file.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_those_who_want_them() {
        let colourful = Style { terminal: true, colour: true, ..Style::PLAIN };
        assert_eq!(colourful.paint(Tint::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::PLAIN.paint(Tint::Red, "x"), "x");
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}d"), "a [2Jb c d");
    }
}
