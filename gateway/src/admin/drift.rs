//! Whether traffic is still what a target was tuned on (A1), for status and for why: what it was tuned on is kept with the
//! curve, and what traffic is lately, the dispatcher has learned. Changes nothing: another target takes another tuning.

use serde_json::{Value, json};
use tidegate_scaler_core::tune::drift::{LEAST_SEEN, Workload, drift};
use tidegate_shared::request::Tokens;

use super::Watched;
use crate::sizing::TunedView;
use crate::tune::Done;

/// What was measured, as it is kept: a point each, with the requests that it was measured with.
pub(super) fn written(done: &Done) -> String {
    let Workload { prompt_tokens, output_tokens } = done.workload;
    let point = |step| {
        let mut point = json!(step);
        if let Some(point) = point.as_object_mut() {
            point.insert("prompt_tokens".to_owned(), prompt_tokens.into());
            point.insert("output_tokens".to_owned(), output_tokens.into());
        }
        point
    };
    Value::from_iter(done.steps.iter().map(point)).to_string()
}

/// What that was measured with; `None` where the one who measured did not say.
fn measured_with(curve: &str) -> Option<Workload> {
    let curve: Value = serde_json::from_str(curve).ok()?;
    let point = curve.as_array()?.first()?;
    let tokens = |key: &str| point.get(key).and_then(Value::as_u64);
    Some(Workload { prompt_tokens: tokens("prompt_tokens")?, output_tokens: tokens("output_tokens")? })
}

/// What is told of traffic that has drifted from what the target in force was tuned on; `None` where it has not, or nobody
/// can say.
pub(super) fn told(watched: &Watched, tuned: Option<&TunedView>) -> Option<String> {
    let tuned = tuned.filter(|tuned| tuned.in_force)?;
    sentence(&tuned.tuned.curve, tuned.tuned.target, watched.pool.usual())
}

fn sentence(curve: &str, target: u32, usual: Option<(Tokens, Tokens, u64)>) -> Option<String> {
    let before = measured_with(curve)?;
    let (prompt, output, _) = usual.filter(|(_, _, seen)| *seen >= LEAST_SEEN)?;
    let now = Workload { prompt_tokens: prompt.0, output_tokens: output.0 };
    let drifted = drift(before, now)?;
    let of =
        |what: &str, now: u64, before: u64| format!("{what} have {now} tokens lately, and {before} when");
    let what = match (drifted.prompts, drifted.answers) {
        (true, true) => format!(
            "prompts have {} tokens and answers {} lately, and {} and {} when",
            now.prompt_tokens, now.output_tokens, before.prompt_tokens, before.output_tokens
        ),
        (true, false) => of("prompts", now.prompt_tokens, before.prompt_tokens),
        (false, _) => of("answers", now.output_tokens, before.output_tokens),
    };
    Some(format!("{what} the target of {target} was tuned"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(prompt_tokens: u64, output_tokens: u64) -> String {
        let workload = Workload { prompt_tokens, output_tokens };
        let step = json!({"concurrency": 1, "why": "growing", "window_s": 2.0, "tokens": 10, "tokens_per_s": 5.0,
            "completed": 4, "failed": 0, "refused": 0});
        let steps = vec![serde_json::from_value(step).expect("a step")];
        let because = String::new();
        written(&Done { target: 4, because, settled: true, range: None, workload, engine: "vllm", steps })
    }

    #[test]
    fn a1_drift_is_told_with_what_was_and_what_is() {
        let told = |prompt, output, seen| {
            sentence(&tuned(500, 200), 12, Some((Tokens(prompt), Tokens(output), seen)))
        };
        assert_eq!(told(900, 150, 1000), None);
        assert_eq!(told(9000, 9000, LEAST_SEEN - 1), None, "too few were seen");
        for (prompt, output, expected) in [
            (1000, 200, "prompts have 1000 tokens lately, and 500 when the target of 12 was tuned"),
            (500, 60, "answers have 60 tokens lately, and 200 when the target of 12 was tuned"),
            (
                2000,
                400,
                "prompts have 2000 tokens and answers 400 lately, and 500 and 200 when the target of 12 was tuned",
            ),
        ] {
            assert_eq!(told(prompt, output, LEAST_SEEN).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a1_a_curve_from_elsewhere_may_say_nothing() {
        let live = Some((Tokens(5000), Tokens(5), 5000));
        for curve in
            ["[]", "", "{}", r#"[{"concurrency": 4}]"#, r#"[{"prompt_tokens": -1, "output_tokens": 2}]"#]
        {
            assert_eq!(sentence(curve, 4, live), None, "{curve}");
        }
    }
}
