//! A gateway over stand-in engines of the test's own, and what answers say of the way that they came.

use serde_json::{Value, json};
use tidegate_tests::client::Answer;
use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::gateway::Gateway;
use tidegate_tests::stand_in::StandIn;

/// See the module.
pub(crate) struct Fleet {
    pub(crate) gateway: Gateway,
    pub(crate) engines: Vec<StandIn>,
}

impl Fleet {
    /// The deployment `chat` over engines of these capacities, all started with `arguments`, and changed by `set`.
    pub(crate) async fn start(
        capacities: &[u32],
        arguments: &[&str],
        set: impl FnOnce(Deployment) -> Deployment,
    ) -> Self {
        let (mut deployment, mut engines) = (Deployment::named("chat"), Vec::new());
        for capacity in capacities {
            let engine = StandIn::start(arguments).await;
            deployment = deployment.replica(&engine.url(), *capacity);
            engines.push(engine);
        }
        Self { gateway: Gateway::start(Config::of(set(deployment))).await, engines }
    }
}

/// The number of the replica in a public name: 0 for `chat-1`.
pub(crate) fn number(replica: &str) -> usize {
    let number = replica.strip_prefix("chat-").and_then(|number| number.parse::<usize>().ok());
    number.unwrap_or_else(|| panic!("no replica's name: {replica:?}")) - 1
}

/// How a request came to its replica, and to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) route: String,
    pub(crate) replica: usize,
}

impl Way {
    /// Of an answer, which must be 200.
    #[track_caller]
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        Self {
            route: answer.header("x-tidegate-route").to_owned(),
            replica: number(answer.header("x-tidegate-replica")),
        }
    }
}

/// How many went to each of so many replicas.
pub(crate) fn counts<'a>(ways: impl IntoIterator<Item = &'a Way>, replicas: usize) -> Vec<usize> {
    let mut counts = vec![0; replicas];
    ways.into_iter().for_each(|way| counts[way.replica] += 1);
    counts
}

/// Tokens of prompts, and how many of them engines found in their caches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cached {
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
}

impl Cached {
    /// What one answer says.
    pub(crate) fn of(answer: &Answer) -> Self {
        let body = answer.json();
        let figure = |path: &str| body.pointer(path).and_then(Value::as_u64).expect("usage");
        Self {
            prompt: figure("/usage/prompt_tokens"),
            cached: figure("/usage/prompt_tokens_details/cached_tokens"),
        }
    }

    /// The share that was found, in percent.
    pub(crate) fn percent(self) -> f64 {
        100.0 * self.cached as f64 / self.prompt as f64
    }
}

impl std::iter::Sum for Cached {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            prompt: sum.prompt + one.prompt,
            cached: sum.cached + one.cached,
        })
    }
}

/// A chat of these messages whose answer takes `tokens` tokens at most.
pub(crate) fn of_messages(messages: &[Value], tokens: u32) -> Value {
    json!({"model": "chat", "max_tokens": tokens, "messages": messages})
}
