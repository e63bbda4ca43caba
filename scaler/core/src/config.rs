//! What an operator may set about the size of a deployment, with the one default of each number.

use serde::{Deserialize, Serialize};
use tidegate_shared::decision::Rule;
use tidegate_shared::offer::Price;
use tidegate_shared::time::Duration;

/// Largest number of replicas that a deployment may have (A6).
pub const MAX_REPLICAS: u32 = 32;
/// The largest target, in requests for each replica.
pub const MAX_TARGET: u32 = 100_000;

/// How long a removal by the token-load and jobs rules must have been right, without a break (B5).
pub const COOL: Duration = Duration::from_secs(150);

/// Whether a deployment may go to zero (A5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Scales to zero when nothing was in flight for the window.
    #[default]
    Flex,
    /// Keeps `min` replicas, at least 1, warm.
    Active,
}

impl Mode {
    /// The usual scale-down window: 30 s flex, 120 s active (A4).
    pub const fn window(self) -> Duration {
        match self {
            Self::Flex => Duration::from_secs(30),
            Self::Active => Duration::from_secs(120),
        }
    }

    /// The usual floor: 0 flex, 1 active (A5).
    pub const fn min(self) -> u32 {
        match self {
            Self::Flex => 0,
            Self::Active => 1,
        }
    }
}

/// What a deployment does; decides its usual target concurrency (A1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Chat and completions.
    #[default]
    Chat,
    /// Embeddings, reranking, scoring.
    Embeddings,
    /// Image generation.
    Image,
    /// Video generation.
    Video,
}

impl Task {
    /// Requests in flight per replica that the planner aims at: 32, 256, 2 and 1 (A1), or 4 images and 2 videos where
    /// the rule is that for jobs.
    pub const fn target_concurrency(self, rule: RuleChoice) -> u32 {
        match (self, rule) {
            (Self::Chat, _) => 32,
            (Self::Embeddings, _) => 256,
            (Self::Image, RuleChoice::Auto | RuleChoice::Fixed(Rule::Jobs)) => 4,
            (Self::Image, RuleChoice::Fixed(_)) => 2,
            (Self::Video, RuleChoice::Auto | RuleChoice::Fixed(Rule::Jobs)) => 2,
            (Self::Video, RuleChoice::Fixed(_)) => 1,
        }
    }

    /// The usual rule: jobs for images and videos, else concurrency, which acts within a second and needs nothing of
    /// the engines.
    pub const fn rule(self) -> RuleChoice {
        RuleChoice::Fixed(if self.is_jobs() { Rule::Jobs } else { Rule::Concurrency })
    }

    /// Whether its requests are jobs that run for long, of which the engine's memory says nothing.
    pub const fn is_jobs(self) -> bool {
        matches!(self, Self::Image | Self::Video)
    }
}

/// Which rule an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleChoice {
    /// Jobs for images and videos; else token load from the first moment on at which a ready replica tells what it
    /// can hold, and concurrency before.
    Auto,
    /// This one.
    Fixed(Rule),
}

/// The settings of one planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizing {
    /// How the need is worked out.
    pub rule: RuleChoice,
    /// What the deployment does; with [`RuleChoice::Auto`] it decides the rule.
    pub task: Task,
    /// Flex or active (A5).
    pub mode: Mode,
    /// Floor, 0 to `max`; at least 1 in active mode (A5, C1).
    pub min: u32,
    /// Ceiling, up to [`MAX_REPLICAS`] (A6).
    pub max: u32,
    /// Requests or jobs in flight per replica to aim at, at least 1 (A1).
    pub target_concurrency: u32,
    /// Requests that a replica is given at most, at least 1 (Q1); none where nobody says.
    pub limit: u32,
    /// How long demand must stay low before the fleet shrinks by the concurrency rule (A4).
    pub window: Duration,
    /// How long the same must hold for one removal by the other rules (B5).
    pub cool: Duration,
    /// Age of the oldest waiter that asks for growth by itself (A3).
    pub queue_threshold: Duration,
    /// `false` holds the fleet at `min` (C1).
    pub autoscale: bool,
    /// How long a draining replica may finish its requests before it is stopped all the same (C5).
    pub drain_limit: Duration,
    /// Replicas that may be kept asleep instead of stopped, of those up to `max`; none unless set (C6).
    pub parked: u32,
    /// The most that one replica may cost; any price will do where there is none (C2, M1).
    pub price_cap: Option<Price>,
    /// What the model needs of an offer's memory, in bytes; offers that do not tell theirs do not fit then (M1).
    pub memory: Option<u64>,
}

impl Default for Sizing {
    fn default() -> Self {
        Self {
            rule: RuleChoice::Auto,
            task: Task::Chat,
            mode: Mode::Flex,
            min: Mode::Flex.min(),
            max: 1,
            target_concurrency: Task::Chat.target_concurrency(Task::Chat.rule()),
            limit: u32::MAX,
            window: Mode::Flex.window(),
            cool: COOL,
            queue_threshold: Duration::from_secs(1),
            autoscale: true,
            drain_limit: Duration::from_secs(30 * 60),
            parked: 0,
            price_cap: None,
            memory: None,
        }
    }
}

impl Sizing {
    /// The most replicas that there may be: `max`, never more than [`MAX_REPLICAS`] (A6).
    pub fn ceiling(&self) -> u32 {
        self.max.min(MAX_REPLICAS)
    }

    /// The fewest replicas that there may be: `min`, at least 1 in active mode (A5), never more than the ceiling.
    pub fn floor(&self) -> u32 {
        self.min.max(self.mode.min()).min(self.ceiling())
    }

    /// Requests in flight per replica to aim at, at least 1 (A1): never more than a replica is given, else demand that one
    /// fewer cannot hold would count as too low for those that are there.
    pub fn target(&self) -> u32 {
        self.target_concurrency.min(self.limit).max(1)
    }

    /// The most that the fleet can cost in an hour: `max` × the price cap, each replica warm and paid `base_fee` for too
    /// (M3); `None` where there is no cap (M2).
    pub fn worst_case(&self, base_fee: Price) -> Option<Price> {
        self.price_cap.map(|cap| Price(cap.0.saturating_add(base_fee.0)).times(self.ceiling()))
    }
}
