//! What goes into an engine and what comes out of it. Decides nothing.

use tidegate_shared::time::Instant;

/// Names a request. Unique among those that the engine has not finished.
pub type Id = u64;

/// What an engine needs to know of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: Id,
    /// Length of the prompt in tokens; zero counts as one.
    pub prompt_tokens: u32,
    /// The running hash after each full block of prompt and answer, first block first: equal hashes mean equal
    /// tokens from the start up to there. May be shorter than the text; what is missing is never shared.
    pub chain: Vec<u64>,
    /// How long the answer would be if nothing bounded it; zero for an embedding.
    pub answer_tokens: u32,
    /// How long the client lets it be.
    pub max_tokens: u32,
}

impl Request {
    /// Tokens that the answer will have.
    pub(super) fn output(&self) -> u32 {
        self.answer_tokens.min(self.max_tokens)
    }

    pub(super) fn prompt(&self) -> u32 {
        self.prompt_tokens.max(1)
    }

    /// Prompt and answer, in tokens.
    pub(super) fn length(&self) -> u64 {
        u64::from(self.prompt()) + u64::from(self.output())
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It was complete.
    Stop,
    /// The client's bound cut it.
    Length,
}

/// Something that happened to a request at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It left the queue; `cached_tokens` of its prompt need not be computed.
    Started {
        /// Which request.
        id: Id,
        /// When.
        at: Instant,
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
    },
    /// Its `n`th token of output appeared; the first is 1.
    Token {
        /// Which request.
        id: Id,
        /// When.
        at: Instant,
        /// How many tokens it has now.
        n: u32,
    },
    /// It is done and holds nothing any more.
    Finished {
        /// Which request.
        id: Id,
        /// When.
        at: Instant,
        /// Why.
        reason: Finish,
        /// Prompt tokens that were found in the prefix cache.
        cached_tokens: u32,
    },
}

/// Why a request was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Prompt and answer need more than the model's length or the whole KV space.
    TooLong {
        /// Tokens of prompt and answer.
        tokens: u64,
        /// What is allowed.
        allowed: u32,
    },
    /// As many wait as may.
    QueueFull {
        /// How many wait.
        waiting: u32,
    },
}

/// Sums since the engine's birth, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Prompt tokens of the requests that started, cached ones included.
    pub prompt: u64,
    /// Those found in the prefix cache.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
}

impl Event {
    /// The request that it happened to.
    pub const fn id(&self) -> Id {
        match *self {
            Self::Started { id, .. } | Self::Token { id, .. } | Self::Finished { id, .. } => id,
        }
    }

    /// When it happened.
    pub const fn at(&self) -> Instant {
        match *self {
            Self::Started { at, .. } | Self::Token { at, .. } | Self::Finished { at, .. } => at,
        }
    }
}
