//! What an operator may set about the size of a deployment, with the one default of each number.

use serde::{Deserialize, Serialize};
use tidegate_shared::time::Duration;

/// Largest number of replicas that a deployment may have (A6).
pub const MAX_REPLICAS: u32 = 32;

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
    /// Requests in flight per replica that the planner aims at (A1).
    pub const fn target_concurrency(self) -> u32 {
        match self {
            Self::Chat => 32,
            Self::Embeddings => 256,
            Self::Image => 2,
            Self::Video => 1,
        }
    }
}

/// The settings of one planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizing {
    /// Flex or active (A5).
    pub mode: Mode,
    /// Floor, 0 to `max`; at least 1 in active mode (A5, C1).
    pub min: u32,
    /// Ceiling, up to [`MAX_REPLICAS`] (A6).
    pub max: u32,
    /// Requests in flight per replica to aim at, at least 1 (A1).
    pub target_concurrency: u32,
    /// How long demand must stay low before the fleet shrinks (A4).
    pub window: Duration,
    /// Age of the oldest waiter that asks for growth by itself (A3).
    pub queue_threshold: Duration,
    /// `false` holds the fleet at `min` (C1).
    pub autoscale: bool,
    /// How long a draining replica may finish its requests before it is stopped all the same (C5).
    pub drain_limit: Duration,
}

impl Default for Sizing {
    fn default() -> Self {
        Self {
            mode: Mode::Flex,
            min: Mode::Flex.min(),
            max: 1,
            target_concurrency: Task::Chat.target_concurrency(),
            window: Mode::Flex.window(),
            queue_threshold: Duration::from_secs(1),
            autoscale: true,
            drain_limit: Duration::from_secs(30 * 60),
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
}
