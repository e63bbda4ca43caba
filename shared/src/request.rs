//! What the decision code may know about a request. No text of it, only sizes, keys and hashes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Duration;

/// A number of tokens, estimated from bytes unless an engine said so (R8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub u64);

/// Who a conversation is (R1), as a 64-bit hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConversationKey(pub u64);

/// How the gateway recognises the conversation that a request belongs to (R1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// The client named it: a header, `prompt_cache_key` or `metadata.conversation_id`.
    Named(ConversationKey),
    /// Nobody named it; the running hash after each message (chat) or block (completions), first to last.
    /// `follows_up` is false when the request holds no answer of a model yet: then it opens a conversation,
    /// and an exact repeat of it is another opening, not a second turn.
    Prefix {
        /// Running hashes, first boundary first; the last one covers the whole prompt.
        chain: Vec<ConversationKey>,
        /// Whether the request can be a later turn.
        follows_up: bool,
    },
    /// The request belongs to no conversation (embeddings and the like).
    #[default]
    None,
}

/// How urgent a request is (Q1), the most urgent first: who waits is served in this order, and in order of arrival
/// among equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Before all others.
    High,
    /// What is not said to be anything else.
    #[default]
    Normal,
    /// What can wait: batches, evaluations.
    Low,
}

impl Priority {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The header value and log word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The facts of one request, made before any lock is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFacts {
    /// The conversation.
    pub identity: Identity,
    /// Size of the body in bytes; counted against the queue's byte bound (Q1).
    pub body_bytes: u64,
    /// Bytes of text in the prompt; how many tokens they are is learned (R8).
    pub text_bytes: u64,
    /// Tokens of the prompt that the client sent as ids: exact.
    pub token_ids: u64,
    /// Images in the prompt.
    pub images: u32,
    /// Most tokens that the client allows for an answer.
    pub output_limit: Option<u64>,
    /// Answers wanted; 0 where no text is generated (embeddings).
    pub choices: u32,
    /// A hash of what was asked, the same when the same client asks again: a client that was refused and comes back
    /// when told is known by it (Q2).
    pub fingerprint: u64,
    /// Whether the client says that it has asked this before; `None` when it does not say. Tells a client that comes
    /// back from another one that asks the same for the first time (Q2).
    pub retry: Option<bool>,
    /// How urgent it is (Q1).
    pub priority: Priority,
    /// How long after it was admitted its client is still there to see it sent to a replica, as far as it said (Q2).
    pub start_within: Option<Duration>,
}

/// How a request came to its replica (H5, `x-tidegate-route`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// To the replica that holds the conversation's cache (R2).
    Home,
    /// A new conversation was given a home (R3).
    Placed,
    /// Served elsewhere this once; the home is unchanged (R4).
    Detour,
    /// The conversation has a new home: the old one is gone (R5), or the fleet has grown and little was lost (R2).
    Rehomed,
    /// No conversation; any replica will do.
    Any,
}

impl Route {
    /// The header value, log word and metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Placed => "placed",
            Self::Detour => "detour",
            Self::Rehomed => "rehomed",
            Self::Any => "any",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the answer to a forwarded request ended; nothing where the client left, or no answer began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The replica's answer, whatever its status, reached its end.
    Complete,
    /// The replica failed in the middle of an answer.
    FailedMidway,
    /// The gateway stopped and cut it.
    Stopped,
}

impl Outcome {
    /// The word of logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::FailedMidway => "failed_midway",
            Self::Stopped => "gateway_stopped",
        }
    }
}
