//! What measuring tells while it goes on: one JSON object a line, shared by the gateway that writes it and by `tidegate
//! tune` that shows it. Only the shape. Fields may be added; readers ignore those that they do not know.

use serde::{Deserialize, Serialize};
use tidegate_scaler_core::tune::search::Why;
use tidegate_scaler_core::tune::{Measured, percentile};

/// Where the length that is aimed at comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// It was asked for.
    Asked,
    /// Engines told it of recent requests.
    Traffic,
    /// It is a usual one: nothing is known of the deployment's own.
    #[default]
    Guess,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A replica is held.
    Begun {
        /// The deployment.
        deployment: String,
        /// The replica.
        replica: String,
        /// Whether it serves nobody meanwhile; else it is the only one, and any request ends the measuring.
        aside: bool,
        /// How its engine speaks.
        engine: String,
        /// Requests that its engine says it can run at a time.
        places: Option<u32>,
        /// The largest concurrency that is tried.
        cap: u32,
        /// Tokens of a prompt that are aimed at.
        prompt_tokens: u64,
        /// Tokens of an answer that are aimed at.
        output_tokens: u64,
        /// Whether these were learned from the deployment's traffic.
        learned: bool,
        /// Where they come from otherwise: what engines told of traffic, what was asked, or a guess.
        #[serde(default)]
        from: [Source; 2],
    },
    /// It still works on so many requests of users.
    Waiting {
        /// How many.
        in_flight: u32,
    },
    /// A step is under way; comes about four times a second.
    Trying {
        /// Requests at a time.
        concurrency: u32,
        /// Why it is tried: `growing`, `again`, `peak`, `knee`, `confirm`, `asked`.
        why: String,
        /// Seconds that it is measured; 0 while it settles.
        measured_s: f64,
        /// Tokens of answers a second so far.
        tokens_per_s: f64,
        /// Seconds until the end, roughly; at least so many while `why` is `growing`. Absent before the first step is measured.
        #[serde(default)]
        left_s: Option<f64>,
    },
    /// A step is measured.
    Measured(Step),
    /// The target is found.
    Found {
        /// Requests in flight per replica to aim at.
        target: u32,
        /// Why, for people.
        because: String,
        /// Whether the search came to its end before the time was up, and what noise leaves open is within one of the target, or
        /// within a sixteenth of it. Otherwise it is not stored.
        settled: bool,
        /// The least and the most that the target may be, where noise leaves that open.
        #[serde(default)]
        range: Option<(u32, u32)>,
        /// Mean tokens of a prompt, as the engine counted them.
        prompt_tokens: u64,
        /// Mean tokens of an answer.
        output_tokens: u64,
        /// Whether it is kept, and sizes the fleet from now on unless `note` says otherwise.
        stored: bool,
        /// What an operator should know of that.
        note: Option<String>,
    },
    /// There is no target.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// One step. Latencies are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Requests at a time.
    pub concurrency: u32,
    /// Why it was tried.
    pub why: String,
    /// Seconds that it was measured.
    pub window_s: f64,
    /// Tokens of answers that came in them.
    pub tokens: u64,
    /// The same a second.
    pub tokens_per_s: f64,
    /// How far that can be off, one standard error in percent; absent where it is not known.
    pub error_percent: Option<f64>,
    /// Requests that ended well.
    pub completed: u32,
    /// Requests that failed.
    pub failed: u32,
    /// Requests that the replica had no room for.
    pub refused: u32,
    /// From sending to the first token: the median.
    pub ttft_p50_ms: Option<f64>,
    /// And the 95th percentile.
    pub ttft_p95_ms: Option<f64>,
    /// From one token to the next: the median of the answers' means.
    pub tpot_p50_ms: Option<f64>,
    /// And the 95th percentile.
    pub tpot_p95_ms: Option<f64>,
}

impl Step {
    pub(super) fn new(seen: &Measured, why: Why, error: Option<u128>) -> Self {
        let millis = |values: &[std::time::Duration], percent| {
            percentile(values, percent).map(|value| value.as_secs_f64() * 1e3)
        };
        Self {
            concurrency: seen.concurrency,
            why: word(why).to_owned(),
            window_s: seen.window.as_secs_f64(),
            tokens: seen.tokens,
            tokens_per_s: seen.rate() as f64 / 1e3,
            error_percent: error.map(|error| error as f64 / 10.0),
            completed: seen.completed,
            failed: seen.failed,
            refused: seen.refused,
            ttft_p50_ms: millis(&seen.ttft, 50),
            ttft_p95_ms: millis(&seen.ttft, 95),
            tpot_p50_ms: millis(&seen.tpot, 50),
            tpot_p95_ms: millis(&seen.tpot, 95),
        }
    }
}

pub(super) const fn word(why: Why) -> &'static str {
    match why {
        Why::Asked => "asked",
        Why::Growing => "growing",
        Why::Again => "again",
        Why::Peak => "peak",
        Why::Knee => "knee",
        Why::Confirm => "confirm",
    }
}
