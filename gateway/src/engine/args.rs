//! The options of `tidegate engine` and the errors that end it. Decides only the defaults, which are those of the
//! model ([`Settings::default`]): a model of 8 billion parameters on a mid-size GPU.

use std::io;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use humantime::Duration;
use tidegate_sim::engine::Settings;

/// Runs a stand-in engine: the OpenAI API, in real time, with a model of continuous batching and no model of
/// language. Each answer says so.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = super::faults::HELP)]
pub struct EngineArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 lets the kernel choose.
    #[arg(long, short, default_value_t = 8000)]
    pub port: u16,
    /// Name of the model it pretends to serve.
    #[arg(long, short = 'm', default_value = "tidegate-engine")]
    pub model: String,
    /// Sequences in one batch at most.
    #[arg(long, default_value_t = Settings::default().slots, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub slots: u32,
    /// Requests that may wait beyond the slots; the next one gets 503. Without it there is no bound.
    #[arg(long, value_name = "REQUESTS")]
    pub queue: Option<u32>,
    /// KV space in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().kv_tokens, value_parser = clap::value_parser!(u32).range(16..))]
    pub kv_tokens: u32,
    /// Longest prompt plus answer in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().max_length, value_parser = clap::value_parser!(u32).range(16..))]
    pub max_length: u32,
    /// Prompt tokens computed per second.
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().prefill_rate, value_parser = clap::value_parser!(u64).range(1..))]
    pub prefill_rate: u64,
    /// Microseconds that each step of the batch takes, however small the batch.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20_000)]
    pub step_us: u64,
    /// Microseconds that each sequence adds to a step.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    pub step_sequence_us: u64,
    /// Nanoseconds that each token of context in the batch adds to a step.
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 150)]
    pub step_kv_ns: u64,
    /// Time that loading the model takes, such as 5s; until then /health says 503.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub load_time: Duration,
    /// Time that waking up from `POST /sleep` takes.
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = duration)]
    pub wake_time: Duration,
    /// It knows no sleep: `/sleep`, `/wake_up` and `/is_sleeping` are unknown paths.
    #[arg(long)]
    pub sleepless: bool,
    /// Length of the longest answer, in tokens, to a request that sets no bound; answers take between a
    /// quarter of it and all of it, by the hash of the prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(8..))]
    pub answer_tokens: u32,
}

/// A time with its unit.
fn duration(text: &str) -> Result<Duration, &'static str> {
    text.parse().map_err(|_| "it must be a number with a unit, such as 500ms")
}

impl EngineArgs {
    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// What the model of the engine is to be like.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            prefill_rate: self.prefill_rate,
            step: std::time::Duration::from_micros(self.step_us),
            step_per_sequence: std::time::Duration::from_micros(self.step_sequence_us),
            step_per_kv_token: std::time::Duration::from_nanos(self.step_kv_ns),
            kv_tokens: self.kv_tokens,
            slots: self.slots,
            queue: self.queue,
            max_length: self.max_length,
            load_time: self.load_time.into(),
        }
    }
}

/// Why the engine ended without being asked to by a signal.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --host or --port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The process cannot be told of signals.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// `POST /faults` with `"exit": true`.
    #[error("ended by the fault \"exit\"")]
    Exit,
}
