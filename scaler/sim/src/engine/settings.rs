//! What an engine can do: its speeds and its sizes. Decides nothing.

use tidegate_shared::time::Duration;

/// Tokens in one KV block: the granularity of KV space and of prefix sharing.
pub const BLOCK_TOKENS: u32 = 16;

/// Prompt tokens that one step computes at most, over all sequences (chunked prefill). It bounds how long a
/// long prompt holds up the tokens of those that are already decoding.
pub const PREFILL_CHUNK: u32 = 512;

/// Speeds and sizes of one engine.
///
/// One step takes `step + sequences × step_per_sequence + kv tokens × step_per_kv_token + prompt tokens ÷
/// prefill_rate`, rounded up to a microsecond, where the sequences are those that take part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Prompt tokens computed per second, on top of the step that carries them; at least 1 counts.
    pub prefill_rate: u64,
    /// The part of a step that does not depend on the batch (the weights are read once).
    pub step: Duration,
    /// What each sequence of the batch adds to a step.
    pub step_per_sequence: Duration,
    /// What each token of context held by the batch adds to a step.
    pub step_per_kv_token: Duration,
    /// KV space in tokens; whole blocks of [`BLOCK_TOKENS`] count.
    pub kv_tokens: u32,
    /// Sequences in one batch at most; at least 1 counts.
    pub slots: u32,
    /// Requests that may wait once every slot is taken; `None`: no bound.
    pub queue: Option<u32>,
    /// Longest prompt plus answer, in tokens.
    pub max_length: u32,
    /// From the engine's birth to its first step.
    pub load_time: Duration,
}

impl Default for Settings {
    /// A model of 8 billion parameters on a mid-size GPU (48 GB).
    fn default() -> Self {
        Self {
            prefill_rate: 8_000,
            step: Duration::from_millis(20),
            step_per_sequence: Duration::from_micros(100),
            step_per_kv_token: Duration::from_nanos(150),
            kv_tokens: 163_840,
            slots: 64,
            queue: None,
            max_length: 131_072,
            load_time: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// KV space in whole blocks.
    pub const fn blocks(&self) -> u32 {
        self.kv_tokens / BLOCK_TOKENS
    }

    /// How long a step takes, in whole microseconds, never zero.
    pub(super) fn step_time(&self, sequences: u64, kv_tokens: u64, prompt_tokens: u64) -> Duration {
        let nanos = |d: Duration| d.as_nanos();
        let prefill = u128::from(prompt_tokens) * 1_000_000_000 / u128::from(self.prefill_rate.max(1));
        let total = nanos(self.step)
            + nanos(self.step_per_sequence) * u128::from(sequences)
            + nanos(self.step_per_kv_token) * u128::from(kv_tokens)
            + prefill;
        Duration::from_micros(u64::try_from(total.div_ceil(1_000)).unwrap_or(u64::MAX).max(1))
    }
}
