//! Whether a deployment's traffic is still what its target was tuned on (A1). Measures nothing, and changes no target:
//! only another measurement tells what the new one should be.

use serde::{Deserialize, Serialize};

/// What a request is, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
}

/// So many times more or fewer tokens are another workload. What a request holds in memory, and how long it computes,
/// grow at most in proportion to them, so below that the best target is off by less than the one step of doubling from
/// which tuning starts; and the mean of mixed traffic wanders by tens of percent through a day without meaning anything.
pub const FACTOR: u64 = 2;
/// Prompts that are shorter than this cost too little for a factor between them to mean anything.
const SHORT: u64 = 64;
/// Requests that must have been seen before their mean says anything.
pub const LEAST_SEEN: u64 = 50;

/// How far traffic is from what was tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Prompts are longer or shorter by the factor.
    pub prompts: bool,
    /// Answers are.
    pub answers: bool,
}

/// How `live` traffic differs from what was `tuned` on; `None` where it does not.
pub fn drift(tuned: Workload, live: Workload) -> Option<Drift> {
    let far = |a: u64, b: u64| a.max(b) >= a.min(b).max(1).saturating_mul(FACTOR);
    let (before, now) = (tuned.prompt_tokens, live.prompt_tokens);
    let prompts = far(before, now) && before.max(now) >= SHORT;
    let answers = far(tuned.output_tokens, live.output_tokens);
    (prompts || answers).then_some(Drift { prompts, answers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prompt_tokens: u64, output_tokens: u64) -> Workload {
        Workload { prompt_tokens, output_tokens }
    }

    #[test]
    fn a1_traffic_has_drifted_from_twice_and_from_half() {
        let tuned = of(500, 200);
        for (live, prompts, answers) in [
            (of(999, 399), false, false),
            (of(251, 101), false, false),
            (of(1000, 200), true, false),
            (of(500, 400), false, true),
            (of(250, 100), true, true),
            (of(5000, 1), true, true),
        ] {
            let expected = (prompts || answers).then_some(Drift { prompts, answers });
            assert_eq!(drift(tuned, live), expected, "{live:?}");
        }
    }

    #[test]
    fn a1_short_prompts_may_differ() {
        assert_eq!(drift(of(10, 8), of(63, 8)), None);
        assert!(drift(of(10, 8), of(64, 8)).is_some());
        assert!(drift(of(0, 0), of(0, 2)).is_some());
        assert_eq!(drift(of(0, 0), of(0, 0)), None);
    }
}
