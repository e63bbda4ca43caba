//! `tidegate tune` inside the gateway (A1): measures one replica with requests of its own, straight over the connections
//! that traffic would use, until the search of `tidegate_scaler_core::tune` has its target.
//!
//! It runs here and not in the command, because here are the replica's TLS settings, and here it is let go however the
//! command ends. It runs on a thread of its own, so that neither traffic nor probes wait for it. Decides nothing: the
//! core says what to try and what the target is.

mod exchange;
mod load;
mod prompt;
mod report;
mod run;
mod stop;
mod tell;

pub use report::{Event, Source, Step};
pub use run::{Done, Job, run};
pub use stop::Stop;

use tidegate_scaler_core::tune::drift::Workload;

/// What is measured with where traffic has told nothing yet: a question with some context, and an answer of a paragraph.
pub const USUAL: Workload = Workload { prompt_tokens: 512, output_tokens: 128 };
