//! Numbers as people say them: counts, times, money, memory, lists. Knows nothing of deployments.

use std::fmt::Display;

pub(super) use tidegate_shared::span::{ahead, span};
use tidegate_shared::time::Duration;

/// Names in a list before the rest is counted.
const LISTED: usize = 4;
const GIB: u64 = 1 << 30;

/// `1 replica`, `2 replicas`, `0 replicas`.
pub(super) fn count(number: impl Into<u64>, one: &str) -> String {
    match number.into() {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    }
}

/// `one` for 1, else `many`.
pub(super) fn pick<'a>(number: impl Into<u64>, one: &'a str, many: &'a str) -> &'a str {
    if number.into() == 1 { one } else { many }
}

/// How long a first token takes: `85 ms`, `1.2 s`.
pub(super) fn latency(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        _ => span(time),
    }
}

/// `24 GiB`, `512 MiB`; rounded down to a tenth.
pub(super) fn memory(bytes: u64) -> String {
    let (unit, name) = if bytes >= GIB { (GIB, "GiB") } else { (1 << 20, "MiB") };
    match u128::from(bytes) * 10 / u128::from(unit) {
        tenths if tenths % 10 == 0 => format!("{} {name}", tenths / 10),
        tenths => format!("{}.{} {name}", tenths / 10, tenths % 10),
    }
}

/// `a`, `a and b`, `a, b and c`; beyond four, the rest is counted.
pub(super) fn list(all: &[impl Display]) -> String {
    let mut told: Vec<String> = all.iter().take(LISTED).map(ToString::to_string).collect();
    if let Some(more) = all.len().checked_sub(LISTED).filter(|more| *more > 0) {
        told.push(format!("{more} more"));
    }
    match told.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// `a, b, c`.
pub(super) fn dot_list(all: &[String]) -> String {
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_right_at_none_one_and_many() {
        assert_eq!(
            [0u32, 1, 2].map(|some| count(some, "replica")),
            ["0 replicas", "1 replica", "2 replicas"]
        );
        assert_eq!(list(&[""; 0]), "");
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b"]), "a and b");
        assert_eq!(list(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }

    #[test]
    fn a_first_token_is_told_in_milliseconds_below_a_second() {
        assert_eq!([85, 1_250].map(|ms| latency(Duration::from_millis(ms))), ["85 ms", "1.2 s"]);
    }

    #[test]
    fn memory_is_told_in_its_unit() {
        assert_eq!([24 << 30, 3 << 29, 512 << 20].map(memory), ["24 GiB", "1.5 GiB", "512 MiB"]);
    }
}
