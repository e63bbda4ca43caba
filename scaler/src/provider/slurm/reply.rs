//! Reads what slurmrestd answers, in the shapes of all its versions: a number is plain or `{"set", "number"}`, a state is
//! a word or a list of words, an exit code is a wait status or taken apart.
//!
//! Pure and forgiving: a field that makes no sense is one that is not there, so that a strange job of somebody else's
//! spoils no list. Never says what a job means for the fleet.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

/// Anything that slurmrestd answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reply {
    /// What went wrong; newer versions also tell of mere warnings elsewhere.
    pub(super) errors: Vec<Fault>,
    /// The job that was submitted.
    #[serde(deserialize_with = "number")]
    job_id: Option<u64>,
    /// Where version 39 puts it.
    result: Option<Submitted>,
    /// Jobs that were asked for.
    pub(super) jobs: Vec<Job>,
    /// Nodes that were asked for.
    pub(super) nodes: Vec<Node>,
    /// Controllers that were looked for.
    pub(super) pings: Vec<Ping>,
}

/// Whether a controller answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Ping {
    #[serde(deserialize_with = "text", alias = "pinged")]
    ping: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Submitted {
    #[serde(deserialize_with = "number")]
    job_id: Option<u64>,
}

/// Something that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Fault {
    #[serde(deserialize_with = "text")]
    error: String,
    #[serde(deserialize_with = "text")]
    description: String,
    #[serde(deserialize_with = "number", alias = "error_code")]
    error_number: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    #[serde(deserialize_with = "number")]
    pub(super) job_id: Option<u64>,
    #[serde(deserialize_with = "words")]
    pub(super) job_state: Vec<String>,
    #[serde(deserialize_with = "text")]
    pub(super) state_reason: String,
    #[serde(deserialize_with = "text")]
    pub(super) name: String,
    #[serde(deserialize_with = "text")]
    pub(super) comment: String,
    /// The node on which the script runs.
    #[serde(deserialize_with = "text")]
    pub(super) batch_host: String,
    #[serde(deserialize_with = "number")]
    pub(super) user_id: Option<u64>,
    #[serde(deserialize_with = "text")]
    pub(super) user_name: String,
    /// How often Slurm has started it again.
    #[serde(deserialize_with = "number")]
    pub(super) restart_cnt: Option<u64>,
    #[serde(deserialize_with = "exit")]
    pub(super) exit_code: Exit,
}

/// How the script of a job ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) code: u64,
    pub(super) signal: u64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    #[serde(deserialize_with = "text")]
    pub(super) name: String,
    /// Where it is reached.
    #[serde(deserialize_with = "text")]
    pub(super) address: String,
    #[serde(deserialize_with = "words")]
    pub(super) state: Vec<String>,
    #[serde(deserialize_with = "words")]
    pub(super) state_flags: Vec<String>,
    /// Generic resources that it has: `gpu:a100:4(S:0-1)`.
    #[serde(deserialize_with = "text")]
    pub(super) gres: String,
    /// Those of them in use: `gpu:a100:1(IDX:0)`.
    #[serde(deserialize_with = "text")]
    pub(super) gres_used: String,
    #[serde(deserialize_with = "words")]
    pub(super) partitions: Vec<String>,
}

impl Reply {
    /// The number of the job that was submitted.
    pub(super) fn submitted(&self) -> Option<u32> {
        let id = self.job_id.or_else(|| self.result.as_ref()?.job_id)?;
        u32::try_from(id).ok().filter(|id| *id > 0)
    }

    /// All that went wrong, for people; `None` if nothing did.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut told: Vec<String> =
            self.errors.iter().map(Fault::told).filter(|text| !text.is_empty()).collect();
        told.dedup();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Whether a controller answered a ping.
    pub(super) fn is_up(&self) -> bool {
        self.pings.iter().any(|one| one.ping == "UP")
    }

    /// Whether one of the errors has this number.
    pub(super) fn has(&self, number: u64) -> bool {
        self.errors.iter().any(|fault| fault.error_number == Some(number))
    }

    /// Whether the errors say that Slurm refused, so that nothing has been done: it understood the request and did not
    /// like it (numbers of jobs and of parsing), or the controller could not be reached.
    pub(super) fn refused(&self) -> bool {
        let refusal = |number| matches!(number, CONTROLLER_UNREACHABLE | 2000..=2999 | 9000..=9999);
        self.errors.iter().any(|fault| fault.error_number.is_some_and(refusal))
    }
}

/// The controller cannot be connected to.
const CONTROLLER_UNREACHABLE: u64 = 1800;
/// There is no such job, or no longer.
pub(super) const INVALID_JOB: u64 = 2017;
/// The job is over already.
pub(super) const ALREADY_DONE: u64 = 2021;

impl Fault {
    fn told(&self) -> String {
        let vague = self.error.is_empty() || self.error == "Unspecified error";
        match (vague, self.description.is_empty()) {
            (true, _) => self.description.clone(),
            (false, true) => self.error.clone(),
            (false, false) if self.description.contains(&self.error) => self.description.clone(),
            (false, false) => format!("{} ({})", self.description, self.error),
        }
    }
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Value::deserialize(from).map(|value| as_number(&value))
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(value.as_str().filter(|text| *text != "(null)").unwrap_or_default().to_owned())
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => {
            text.split([',', '+']).map(str::to_owned).filter(|word| !word.is_empty()).collect()
        }
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    })
}

fn exit<'de, D: Deserializer<'de>>(from: D) -> Result<Exit, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(match as_number(&value) {
        Some(status) => Exit { code: (status >> 8) & 0xff, signal: status & 0x7f },
        None => {
            let signal =
                ["/signal/id", "/signal/signal_id"].map(|path| value.pointer(path).and_then(as_number));
            let code = value.get("return_code").and_then(as_number).unwrap_or_default();
            Exit { code, signal: signal.into_iter().flatten().next().unwrap_or_default() }
        }
    })
}

fn as_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Object(parts) => {
            let set = parts.get("set").is_none_or(|set| set.as_bool() == Some(true));
            set.then(|| parts.get("number").and_then(Value::as_u64))?
        }
        _ => None,
    }
}

/// The versions of the API that a listing of slurmrestd's paths names, such as 38 for `/slurm/v0.0.38/jobs`.
pub(super) fn versions(listing: &Value) -> Vec<u32> {
    let paths = listing.get("paths").and_then(Value::as_object).into_iter().flatten();
    let version =
        |path: &String| path.strip_prefix("/slurm/v0.0.")?.strip_suffix("/job/submit")?.parse().ok();
    paths.filter_map(|(path, _)| version(path)).collect()
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
