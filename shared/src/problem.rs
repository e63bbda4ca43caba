//! A fault in what somebody gave us: where, what value, which rule. Configuration errors are lists of these.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where, as a TOML path: `limits.body`; `deployment chat: max` where the deployment's name is known, else `deployment[0].max`.
    pub path: String,
    /// The value found, as written; empty when the fault is that nothing is there.
    pub value: String,
    /// What is allowed, as a sentence.
    pub rule: String,
    /// Line of the file, from 1; 0 when the fault is not in a line.
    pub line: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{}", self.path)?;
        if !self.value.is_empty() {
            write!(f, " = {}", self.value)?;
        }
        write!(f, ": {}", self.rule)
    }
}
