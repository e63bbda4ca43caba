//! Turns one TOML value into one typed setting, or says what is allowed there.
//!
//! Each function here makes a parser: it gives the setting, or the rule that the value breaks as a sentence without
//! its subject ("must be …"). Never looks at other settings and never knows where the value stands.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use tidegate_shared::offer::Money;

use http::HeaderName;
use rustls::pki_types::ServerName;
use toml::de::DeValue;

use tidegate_shared::time::Duration;

use super::url::BaseUrl;

/// What a parser gives: the setting, or the rule that the value breaks.
pub(super) type Parsed<T> = Result<T, String>;

/// `true` or `false`.
pub(super) fn boolean(value: &DeValue<'_>) -> Parsed<bool> {
    value.as_bool().ok_or_else(|| "must be true or false".to_owned())
}

/// A text that is not empty.
pub(super) fn text(value: &DeValue<'_>) -> Parsed<String> {
    let text = value.as_str().filter(|text| !text.is_empty() && !text.contains('\0'));
    text.map(str::to_owned).ok_or_else(|| "must be a text in quotes, not empty".to_owned())
}

/// A text that may be empty.
pub(super) fn any_text(value: &DeValue<'_>) -> Parsed<String> {
    let text = value.as_str().filter(|text| !text.contains('\0'));
    text.map(str::to_owned).ok_or_else(|| "must be a text in quotes".to_owned())
}

/// A path of the file system.
pub(super) fn path(value: &DeValue<'_>) -> Parsed<PathBuf> {
    text(value).map(PathBuf::from).map_err(|_| "must be a path in quotes, not empty".to_owned())
}

/// An address to listen on.
pub(super) fn address(value: &DeValue<'_>) -> Parsed<std::net::SocketAddr> {
    let rule = || "must be an IP address and a port in quotes, such as \"127.0.0.1:8080\"".to_owned();
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(rule)
}

/// A base URL.
pub(super) fn url(value: &DeValue<'_>) -> Parsed<BaseUrl> {
    BaseUrl::parse(value.as_str().unwrap_or_default()).map_err(str::to_owned)
}

/// A name, or an address, that a certificate may be for.
pub(super) fn server_name(value: &DeValue<'_>) -> Parsed<ServerName<'static>> {
    let name = value.as_str().and_then(|text| ServerName::try_from(text.to_owned()).ok());
    name.ok_or_else(|| "must be the name of a host in quotes, such as \"engine.internal\"".to_owned())
}

/// The name of a model, as clients and engines write it.
pub(super) fn model_name(value: &DeValue<'_>) -> Parsed<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    let name = value.as_str().filter(|name| (1..=128).contains(&name.len()) && name.chars().all(allowed));
    name.map(str::to_owned).ok_or_else(|| {
        "must be 1 to 128 characters in quotes, each a letter, a digit or one of . _ : / -".to_owned()
    })
}

/// The name of a header, in lower case.
pub(super) fn header_name(value: &DeValue<'_>) -> Parsed<HeaderName> {
    let name = value.as_str().and_then(|text| HeaderName::from_bytes(text.as_bytes()).ok());
    name.ok_or_else(|| "must be the name of a header in quotes, such as \"x-session-id\"".to_owned())
}

/// One word of a closed list.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(&DeValue<'_>) -> Parsed<T> {
    move |value| {
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        found.map(|&(_, setting)| setting).ok_or_else(|| {
            let list: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            format!("must be one of {}", list.join(", "))
        })
    }
}

/// A whole number within `bounds`.
pub(super) fn integer(bounds: RangeInclusive<u32>) -> impl Fn(&DeValue<'_>) -> Parsed<u32> {
    move |value| {
        let number = whole(value).and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| format!("must be a whole number from {} to {}", bounds.start(), bounds.end()))
    }
}

/// A number with up to three decimals, in thousandths within `bounds`: `2.5` is 2500.
pub(super) fn thousandths(bounds: RangeInclusive<u32>) -> impl Fn(&DeValue<'_>) -> Parsed<u32> {
    move |value| {
        let text = value.as_float().map(|number| number.as_str().to_owned());
        let text = text.or_else(|| whole(value).map(|number| number.to_string()));
        text.and_then(|text| exact_thousandths(&text)).filter(|number| bounds.contains(number)).ok_or_else(
            || {
                let show = |bound: u32| f64::from(bound) / 1000.0;
                let (low, high) = (show(*bounds.start()), show(*bounds.end()));
                format!("must be a number from {low} to {high} with at most three decimals")
            },
        )
    }
}

/// Without floating point, so that what is written is what is meant.
fn exact_thousandths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    format!("{whole}{decimals:0<3}").parse().ok()
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Most dollars that an amount may be.
const MOST_DOLLARS: u64 = 1_000_000;
/// Digits after the point of an amount of dollars: nothing is rounded.
const DOLLAR_DIGITS: usize = 6;
/// The largest exponent that a number of dollars may be written with: more than any amount needs.
const MOST_EXPONENT: u32 = 20;

/// An amount of dollars, in millionths: `2`, `2.5`, exactly as it is written.
pub(super) fn dollars(value: &DeValue<'_>) -> Parsed<u64> {
    let written = match value {
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
        DeValue::Float(number) => Some(number.as_str()),
        _ => None,
    };
    let amount = written.and_then(micros).filter(|micros| *micros <= MOST_DOLLARS * 1_000_000);
    amount.ok_or_else(|| {
        format!(
            "must be an amount of dollars from 0 to {MOST_DOLLARS} with up to {DOLLAR_DIGITS} digits after the point, \
             such as 2.50"
        )
    })
}

/// An amount of dollars that a person adds to the credit, or with a sign takes back, in millionths.
///
/// # Errors
/// What an amount must be.
pub fn amount(written: &str) -> Result<Money, String> {
    let (sign, digits) = written.strip_prefix('-').map_or((1, written), |digits| (-1, digits));
    let found = without_exponent(digits)
        .and_then(|digits| micros(&digits))
        .filter(|micros| (1..=MOST_DOLLARS * 1_000_000).contains(micros));
    found.map(|micros| Money(sign * i128::from(micros))).ok_or_else(|| {
        format!(
            "must be an amount of dollars, not 0 and up to {MOST_DOLLARS}, with up to {DOLLAR_DIGITS} digits after the \
             point, such as 25.50"
        )
    })
}

/// `2.5e-05`, which is how programs write 0.000025, with its point moved instead; exact.
fn without_exponent(written: &str) -> Option<Cow<'_, str>> {
    let Some((digits, exponent)) = written.split_once(['e', 'E']) else { return Some(written.into()) };
    let exponent =
        exponent.parse::<i32>().ok().filter(|exponent| exponent.unsigned_abs() <= MOST_EXPONENT)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let zeros = "0".repeat(usize::try_from(exponent.unsigned_abs()).ok()?);
    if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let all = format!("{zeros}{whole}{part}{zeros}");
    let point = i32::try_from(zeros.len().checked_add(whole.len())?).ok()?.checked_add(exponent)?;
    let (whole, part) = all.split_at_checked(usize::try_from(point).ok()?)?;
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(format!("{whole}.{}", part.trim_end_matches('0')).into())
}

fn micros(written: &str) -> Option<u64> {
    let written = written.strip_prefix('+').unwrap_or(written);
    let (whole, part) = written.split_once('.').unwrap_or((written, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > DOLLAR_DIGITS || !digits(whole) || !digits(part) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(format!("{part:0<6}").parse().ok()?)
}

/// A time like `"1h 30m"` within `bounds`.
pub(super) fn duration(bounds: RangeInclusive<Duration>) -> impl Fn(&DeValue<'_>) -> Parsed<Duration> {
    move |value| {
        let time = value.as_str().and_then(|text| humantime::parse_duration(text).ok());
        time.filter(|time| bounds.contains(time)).ok_or_else(|| {
            let show = |bound: &Duration| humantime::format_duration(*bound).to_string();
            let (low, high) = (show(bounds.start()), show(bounds.end()));
            format!("must be a time from {low} to {high} in quotes, such as \"30s\" or \"1h 30m\"")
        })
    }
}

/// A number of bytes within `bounds`: a whole number, or one with a unit, like `"64MiB"`.
pub(super) fn size(bounds: RangeInclusive<u64>) -> impl Fn(&DeValue<'_>) -> Parsed<u64> {
    move |value| {
        let bytes = value.as_str().map_or_else(|| whole(value), bytes_of);
        bytes.filter(|bytes| bounds.contains(bytes)).ok_or_else(|| {
            let (low, high) = (show_size(*bounds.start()), show_size(*bounds.end()));
            format!(
                "must be a size from {low} to {high}: a whole number of bytes, or in quotes with KiB, MiB, GiB, TiB, MB, GB \
                 or TB, such as \"64MiB\""
            )
        })
    }
}

const UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// `bytes` in the largest binary unit that shows it exactly.
pub(crate) fn show_size(bytes: u64) -> String {
    let exact = UNITS.iter().take(6).skip(2).rfind(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match exact {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T>(source: &str, parse: impl Fn(&DeValue<'_>) -> Parsed<T>) -> Parsed<T> {
        parse(DeValue::parse(source).expect(source).get_ref())
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        let any = || size(0..=u64::MAX);
        for (source, bytes) in [
            ("0", 0),
            ("1_000", 1000),
            ("0x10", 16),
            ("\"64MiB\"", 64 << 20),
            ("\"1 GiB\"", 1 << 30),
            ("\"5MB\"", 5_000_000),
            ("\"12\"", 12),
            ("\"12B\"", 12),
        ] {
            assert_eq!(parsed(source, any()), Ok(bytes), "{source}");
        }
        for source in
            ["-1", "1.5", "\"\"", "\"MiB\"", "\"1.5MiB\"", "\"64mb\"", "\"99999999TiB\"", "\"-1\"", "true"]
        {
            assert!(parsed(source, any()).is_err(), "{source}");
        }
        let rule = "must be a size from 1 to 1TiB: a whole number of bytes, or in quotes with KiB, MiB, GiB, TiB, MB, GB or TB, \
                    such as \"64MiB\"";
        assert_eq!(parsed("0", size(1..=1 << 40)), Err(rule.to_owned()));
    }

    #[test]
    fn m2_dollars_are_read_exactly() {
        for (source, micros) in [
            ("0", 0),
            ("2", 2_000_000),
            ("2.5", 2_500_000),
            ("0.1", 100_000),
            ("1_000.000001", 1_000_000_001),
        ] {
            assert_eq!(parsed(source, dollars), Ok(micros), "{source}");
        }
        for source in ["-1", "1e3", "inf", "nan", "0.0000001", "1000000.01", "\"2\"", "0x10", "true"] {
            assert!(parsed(source, dollars).is_err(), "{source}");
        }
        let rule = "must be an amount of dollars from 0 to 1000000 with up to 6 digits after the point, such as 2.50";
        assert_eq!(parsed("-0.5", dollars), Err(rule.to_owned()));
    }

    #[test]
    fn times_need_a_unit_and_keep_their_bounds() {
        let second = Duration::from_secs(1);
        let any = || duration(Duration::ZERO..=second * 86_400);
        assert_eq!(parsed("\"1h 30m\"", any()), Ok(second * 5400));
        assert_eq!(parsed("\"0s\"", any()), Ok(Duration::ZERO));
        for source in
            ["30", "\"30\"", "\"\"", "\"soon\"", "\"-1s\"", "\"2days\"", "\"99999999999999999999s\"", "[]"]
        {
            assert!(parsed(source, any()).is_err(), "{source}");
        }
        let rule = "must be a time from 0s to 1day in quotes, such as \"30s\" or \"1h 30m\"";
        assert_eq!(parsed("5", any()), Err(rule.to_owned()));
    }

    #[test]
    fn thousandths_are_exact() {
        for (source, number) in [("2", 2000), ("2.5", 2500), ("0.01", 10), ("1.125", 1125), ("0b11", 3000)] {
            assert_eq!(parsed(source, thousandths(10..=1_024_000)), Ok(number), "{source}");
        }
        for source in ["0", "0.0001", "-1.0", "1e3", "inf", "\"2\"", "1025.0"] {
            let rule = "must be a number from 0.01 to 1024 with at most three decimals".to_owned();
            assert_eq!(parsed(source, thousandths(10..=1_024_000)), Err(rule), "{source}");
        }
    }

    #[test]
    fn whole_numbers_keep_their_bounds() {
        for source in ["1", "+5", "0b11", "32"] {
            assert!(parsed(source, integer(1..=32)).is_ok(), "{source}");
        }
        for source in ["0", "33", "-1", "2.0", "\"2\"", "99999999999999999999999"] {
            let rule = "must be a whole number from 1 to 32".to_owned();
            assert_eq!(parsed(source, integer(1..=32)), Err(rule), "{source}");
        }
    }

    #[test]
    fn names_hold_to_their_alphabet() {
        let long = format!("\"{}\"", "m".repeat(128));
        for source in ["\"chat\"", "\"org/Model-7B:v1.0_x\"", long.as_str()] {
            assert!(parsed(source, model_name).is_ok(), "{source}");
        }
        let longer = format!("\"{}\"", "m".repeat(129));
        for source in ["\"\"", "\"a b\"", "\"é\"", "7", longer.as_str()] {
            assert!(parsed(source, model_name).is_err(), "{source}");
        }
        assert_eq!(parsed("\"X-Session-Id\"", header_name), Ok(HeaderName::from_static("x-session-id")));
        assert!(parsed("\"x session\"", header_name).is_err());
    }
}
