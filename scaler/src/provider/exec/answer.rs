//! What the operator's commands answer, version 1 of the contract.
//!
//! `start` prints one replica and `list` prints all, as JSON on standard output:
//!
//! ```json
//! {"version": 1, "replica": {"id": 3, "state": "pending", "why": "a machine is ordered"}}
//! {"version": 1, "replicas": [{"id": 3, "state": "up", "url": "http://10.0.0.3:8000"},
//!                             {"id": 5, "state": "ending", "why": "its machine is taken back"},
//!                             {"id": 4, "state": "exited", "how": "exit code 1", "output": ["no GPU"]}]}
//! ```
//!
//! Fields that are not known are ignored. Anything else that does not fit is an error and no answer: a list that
//! cannot be read is never an empty list.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Capacity;

use super::super::InstanceState;
use super::super::output;

/// The version of the contract.
pub(super) const VERSION: u32 = 1;

/// Longest URL, in bytes.
const URL_LIMIT: usize = 2048;
/// Characters of an answer that an error quotes, at most.
const QUOTED: usize = 120;

/// One replica as a command tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) id: ReplicaId,
    /// Its size, where it tells.
    pub(super) capacity: Option<Capacity>,
    pub(super) state: InstanceState,
    /// The last lines of its engine, where it tells.
    pub(super) output: Vec<String>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Deserialize)]
struct Started {
    replica: Raw,
}

#[derive(Deserialize)]
struct Listed {
    replicas: Vec<Raw>,
}

#[derive(Deserialize)]
struct Raw {
    id: u32,
    state: State,
    url: Option<String>,
    why: Option<String>,
    how: Option<String>,
    capacity: Option<u32>,
    #[serde(default)]
    output: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Pending,
    Up,
    Ending,
    Exited,
}

/// The answer of `start` for replica `id`. The error is for people.
pub(super) fn started(text: &[u8], id: ReplicaId) -> Result<Told, String> {
    let started: Started = read(text, "{\"version\": 1, \"replica\": {…}}")?;
    let told = started.replica.check().map_err(|why| quoting(&why, text))?;
    if told.id != id {
        return Err(quoting(&format!("it tells of replica {}, and {id} was to be started", told.id), text));
    }
    Ok(told)
}

/// The answer of `list`, in order of id. The error is for people.
pub(super) fn listed(text: &[u8]) -> Result<Vec<Told>, String> {
    let listed: Listed = read(text, "{\"version\": 1, \"replicas\": […]}")?;
    let all: Result<Vec<Told>, String> = listed.replicas.into_iter().map(Raw::check).collect();
    let mut all = all.map_err(|why| quoting(&why, text))?;
    all.sort_by_key(|told| told.id);
    match all.windows(2).find(|pair| matches!(pair, [one, two] if one.id == two.id)) {
        Some([twice, ..]) => Err(quoting(&format!("replica {} is there twice", twice.id), text)),
        _ => Ok(all),
    }
}

fn read<T: DeserializeOwned>(text: &[u8], wanted: &str) -> Result<T, String> {
    let parse = |error: serde_json::Error| quoting(&format!("its answer is not {wanted} ({error})"), text);
    let Versioned { version } = serde_json::from_slice(text).map_err(parse)?;
    if version != VERSION {
        return Err(format!(
            "its answer is of version {version} of the contract, and only {VERSION} is understood"
        ));
    }
    serde_json::from_slice(text).map_err(parse)
}

/// `why` with the beginning of what was printed.
fn quoting(why: &str, text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut letters = text.trim().chars();
    let start: String = letters.by_ref().take(QUOTED).flat_map(char::escape_debug).collect();
    match (start.as_str(), letters.next()) {
        ("", _) => format!("{why}; it printed nothing"),
        (start, None) => format!("{why}; it printed {start}"),
        (start, Some(_)) => format!("{why}; it printed {start}…"),
    }
}

impl Raw {
    fn check(self) -> Result<Told, String> {
        let id = ReplicaId(self.id);
        if self.id == 0 {
            return Err("a replica has id 0, and ids begin at 1".to_owned());
        }
        let capacity = match self.capacity {
            Some(units @ (0 | 1_000_001..)) => {
                return Err(format!("replica {id} has capacity {units}, which must be from 1 to 1000000"));
            }
            units => units.map(Capacity::new),
        };
        let output = output::shown(self.output.join("\n").as_bytes());
        let state = match self.state {
            State::Pending => {
                InstanceState::Pending { why: self.why.unwrap_or_else(|| "it is on its way".to_owned()) }
            }
            State::Up => InstanceState::Up { url: base_url(id, self.url.as_deref())? },
            State::Ending => {
                InstanceState::Ending { why: self.why.unwrap_or_else(|| "its list says so".to_owned()) }
            }
            State::Exited => {
                let how = self.how.unwrap_or_else(|| "its list does not say how".to_owned());
                InstanceState::Exited { how, output: output.clone() }
            }
        };
        Ok(Told { id, capacity, state, output })
    }
}

fn base_url(id: ReplicaId, url: Option<&str>) -> Result<String, String> {
    let url = url.ok_or_else(|| format!("replica {id} is up and has no url"))?;
    let rest = url.strip_prefix("http://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let strange = |letter: char| letter.is_whitespace() || letter.is_control() || "?#@\\\"".contains(letter);
    if authority.is_empty() || url.len() > URL_LIMIT || url.contains(strange) {
        let rule = "must be http://HOST:PORT, with a path prefix if needed";
        return Err(format!("replica {id} has url {url:?}, which {rule}"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(id: u32, url: &str) -> Told {
        let state = InstanceState::Up { url: url.to_owned() };
        Told { id: ReplicaId(id), capacity: None, state, output: Vec::new() }
    }

    #[test]
    fn lists_come_in_order_and_fields_may_be_added() {
        let text = br#"{"version": 1, "region": "eu", "replicas": [
            {"id": 4, "state": "exited", "how": "exit code 1", "output": ["loading", "no \u001b[1mGPU"]},
            {"id": 3, "state": "up", "url": "http://10.0.0.3:8000/", "zone": 7},
            {"id": 7, "state": "ending", "url": "http://10.0.0.7:8000"},
            {"id": 9, "state": "pending", "capacity": 4}]}"#;
        let all = listed(text).unwrap();
        assert_eq!(all[0], up(3, "http://10.0.0.3:8000"));
        let output = vec!["loading".to_owned(), "no \\u{1b}[1mGPU".to_owned()];
        assert_eq!(all[1].state, InstanceState::Exited { how: "exit code 1".to_owned(), output });
        assert_eq!(all[2].state, InstanceState::Ending { why: "its list says so".to_owned() });
        assert_eq!((all[3].id, all[3].capacity), (ReplicaId(9), Some(Capacity::new(4))));
        assert_eq!(listed(br#"{"version":1,"replicas":[]}"#), Ok(Vec::new()));
    }

    #[test]
    fn garbage_is_an_error_that_quotes_it() {
        for (text, wanted) in [
            ("", "it printed nothing"),
            ("[]", "is not {\"version\""),
            ("Error: quota\nexceeded", "it printed Error: quota\\nexceeded"),
            (r#"{"version":2,"replicas":[]}"#, "version 2 of the contract, and only 1"),
            (r#"{"replicas":[]}"#, "missing field `version`"),
            (r#"{"version":1}"#, "missing field `replicas`"),
            (r#"{"version":1,"replicas":[{"id":1,"state":"running"}]}"#, "unknown variant `running`"),
            (r#"{"version":1,"replicas":[{"id":1,"state":"up"}]}"#, "replica 1 is up and has no url"),
            (r#"{"version":1,"replicas":[{"id":0,"state":"pending"}]}"#, "ids begin at 1"),
            (r#"{"version":1,"replicas":[{"id":1,"state":"pending","capacity":0}]}"#, "from 1 to 1000000"),
            (
                r#"{"version":1,"replicas":[{"id":1,"state":"pending"},{"id":1,"state":"pending"}]}"#,
                "1 is there twice",
            ),
            (
                r#"{"version":1,"replicas":[{"id":1,"state":"up","url":"https://h:1"}]}"#,
                "must be http://HOST:PORT",
            ),
            (
                r#"{"version":1,"replicas":[{"id":1,"state":"up","url":"http://h:1/a b"}]}"#,
                "must be http://HOST:PORT",
            ),
        ] {
            let error = listed(text.as_bytes()).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let long = listed("x".repeat(5000).as_bytes()).unwrap_err();
        assert!(long.len() < 300 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn a_start_tells_of_the_replica_that_was_meant() {
        let text = br#"{"version":1,"replica":{"id":3,"state":"up","url":"http://h:1"}}"#;
        assert_eq!(started(text, ReplicaId(3)), Ok(up(3, "http://h:1")));
        let error = started(text, ReplicaId(4)).unwrap_err();
        assert!(error.starts_with("it tells of replica 3, and 4 was to be started"), "{error}");
    }
}
