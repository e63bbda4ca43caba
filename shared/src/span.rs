//! How long something takes or took, as people read it: a number and its unit, apart. Logs, sentences and tables share it.
//! Settings are told in the words of the configuration instead, by the caller.

use crate::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// `4.2 s`, `31 s`, `5 m 12 s`, `2 m`, `3 h 4 m`, `2 d 3 h`; what is left is cut off.
pub fn span(time: Duration) -> String {
    let two = |much: u64, unit: &str, rest: u64, smaller: &str| match rest {
        0 => format!("{much} {unit}"),
        rest => format!("{much} {unit} {rest} {smaller}"),
    };
    match (time.as_secs(), time.subsec_millis() / 100) {
        (s @ 0..10, tenths) => format!("{s}.{tenths} s"),
        (s @ 10..MINUTE, _) => format!("{s} s"),
        (s @ MINUTE..HOUR, _) => two(s / MINUTE, "m", s % MINUTE, "s"),
        (s @ HOUR..DAY, _) => two(s / HOUR, "h", s / MINUTE % 60, "m"),
        (s, _) => two(s / DAY, "d", s / HOUR % 24, "h"),
    }
}

/// The same in whole seconds, rounded down.
pub fn whole(time: Duration) -> String {
    ahead(Duration::from_secs(time.as_secs()))
}

/// The same for a time that is still to come, or was set: whole seconds, rounded up.
pub fn ahead(time: Duration) -> String {
    match time.as_secs() + u64::from(time.subsec_nanos() > 0) {
        s @ 0..10 => format!("{s} s"),
        s => span(Duration::from_secs(s)),
    }
}

/// The same for what may be short: `0.4 ms`, `120 ms`, `1.2 s`.
pub fn brief(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..10_000 => format!("{}.{} ms", micros / 1000, micros / 100 % 10),
        micros @ 10_000..1_000_000 => format!("{} ms", micros / 1000),
        _ => span(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_long_as_they_are_read() {
        for (millis, told) in [
            (0, "0.0 s"),
            (4_249, "4.2 s"),
            (9_999, "9.9 s"),
            (31_900, "31 s"),
            (109_000, "1 m 49 s"),
            (120_000, "2 m"),
            (11_040_000, "3 h 4 m"),
            (183_600_000, "2 d 3 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), told);
        }
        let ahead = |millis| ahead(Duration::from_millis(millis));
        assert_eq!([0, 1, 1_000, 11_001, 61_500].map(ahead), ["0 s", "1 s", "1 s", "12 s", "1 m 2 s"]);
        let brief = |micros| brief(Duration::from_micros(micros));
        assert_eq!([420, 85_000, 1_250_000].map(brief), ["0.4 ms", "85 ms", "1.2 s"]);
    }
}
