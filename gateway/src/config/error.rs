//! Why a configuration was refused: the file, its text and every fault, for logs and for `tidegate check`.

use std::fmt;
use std::path::{Path, PathBuf};

use tidegate_shared::problem::Problem;

use super::Config;

/// A configuration that cannot be used. `Display` gives one line for each fault under a head line, and repeats no
/// secret: it may go to a log.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    text: String,
    problems: Vec<Problem>,
    rest: Option<Box<Config>>,
}

impl ConfigError {
    pub(super) fn new(file: &Path, text: String, problems: Vec<Problem>) -> Self {
        Self { file: file.to_owned(), text, problems, rest: None }
    }

    /// The same with what could be read beside the faults.
    pub(super) fn beside(self, rest: Option<Config>) -> Self {
        Self { rest: rest.map(Box::new), ..self }
    }

    /// What could be read beside the faults, with the default in place of each: to warn of the rest, never to be used.
    pub fn rest(&self) -> Option<&Config> {
        self.rest.as_deref()
    }

    /// The file, as it was named.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Every fault, in the order of the file; at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Line `number` of the file, from 1, as it was read. It may hold a secret, so it is for the operator's own
    /// terminal only.
    pub fn source_line(&self, number: usize) -> Option<&str> {
        self.text.lines().nth(number.checked_sub(1)?)
    }

    /// The head line: how many faults, and where.
    pub fn summary(&self) -> String {
        match self.problems.len() {
            1 => format!("1 fault in {}", self.file.display()),
            count => format!("{count} faults in {}", self.file.display()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// Like `Display`, since the text may hold secrets.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigError").field("file", &self.file).field("problems", &self.problems).finish()
    }
}

impl std::error::Error for ConfigError {}
