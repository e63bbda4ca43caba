//! How urgent a request is, and how long its client waits for it to start (Q1, Q2): read from headers, and from the one
//! field of the body that OpenAI has for it.
//!
//! Tidegate's own headers are held to their values: a bad one is 400. Headers that others send for ends of their own
//! (SDKs, proxies) are believed where they make sense, and are nothing where they do not.

use std::time::Duration;

use tidegate_shared::request::Priority;

use super::headers::only;
use crate::http1::fields::{Fields, Name, text};
use crate::openai::ApiError;

/// The longest time that a client may give a request to start.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How urgent the request is: the header says it, else the body does (`service_tier`), else it is as urgent as others.
/// Who asks for more than is due to him is to be brought down here; today nobody is known, so everybody is believed.
///
/// # Errors
/// 400 for a header that names no priority, or that is there twice.
pub fn priority(fields: &Fields, tier: Option<Priority>) -> Result<Priority, ApiError> {
    let Some(asked) = only(fields, Name::Priority)? else { return Ok(tier.unwrap_or_default()) };
    let asked = asked.trim_ascii();
    let known = Priority::ALL.into_iter().find(|known| asked.eq_ignore_ascii_case(known.as_str().as_bytes()));
    known.ok_or_else(|| ApiError::bad_header(Name::Priority.as_str(), asked, "one of high, normal, low"))
}

/// How long the client waits for the request to be sent to a replica: the shortest of what it said itself, what its
/// SDK said of its own patience, and what an Envoy in front said of its. `None` where nobody said anything.
///
/// # Errors
/// 400 for a bad value of Tidegate's own header, or one that is there twice.
pub fn start_within(fields: &Fields) -> Result<Option<Duration>, ApiError> {
    let own = match only(fields, Name::StartWithinMs)? {
        None => None,
        Some(value) => {
            let rule = "a whole number of milliseconds from 1 to 86400000";
            let bad = || ApiError::bad_header(Name::StartWithinMs.as_str(), value, rule);
            Some(milliseconds(value).ok_or_else(bad)?)
        }
    };
    let envoy = fields.get(Name::EnvoyTimeoutMs).and_then(milliseconds);
    let sdk = [Name::SdkReadTimeout, Name::SdkTimeout].into_iter();
    let sdk = sdk.filter_map(|name| fields.get(name)).filter_map(seconds);
    Ok(own.into_iter().chain(envoy).chain(sdk).min())
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    let text = text(value)?.trim();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    sensible(Duration::from_millis(text.parse().ok().filter(|_| digits)?))
}

/// Seconds as Python and JavaScript write them. Node's SDK cuts off what is below a second, so its 0 says nothing.
fn seconds(value: &[u8]) -> Option<Duration> {
    let number: f64 = text(value)?.trim().parse().ok()?;
    sensible(Duration::try_from_secs_f64(number).ok()?)
}

fn sensible(time: Duration) -> Option<Duration> {
    (Duration::from_millis(1)..=LONGEST).contains(&time).then_some(time)
}

#[cfg(test)]
mod tests {
    use tidegate_shared::names::header;

    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> Fields {
        let mut fields = Fields::default();
        list.iter().for_each(|(name, value)| fields.add(name.as_bytes(), value.as_bytes()));
        fields
    }

    #[test]
    fn q1_a_header_says_the_priority_else_the_body_does() {
        let asked = |value: &str| priority(&headers(&[(header::PRIORITY, value)]), Some(Priority::Low));
        assert_eq!(asked("high"), Ok(Priority::High));
        assert_eq!(asked(" Normal"), Ok(Priority::Normal));
        assert_eq!(asked("LOW"), Ok(Priority::Low));
        assert_eq!(priority(&Fields::default(), Some(Priority::Low)), Ok(Priority::Low));
        assert_eq!(priority(&Fields::default(), None), Ok(Priority::Normal));
        for bad in ["", "0", "urgent", "high,low", "höher"] {
            let error = asked(bad).expect_err(bad);
            assert_eq!((error.status, error.error.param), (400, Some(header::PRIORITY)));
            let text = error.error.message;
            assert!(text.contains(bad) && text.contains("one of high, normal, low"), "{text}");
        }
        let twice = [(header::PRIORITY, "high"), (header::PRIORITY, "high")];
        assert_eq!(priority(&headers(&twice), None).expect_err("twice").status, 400);
    }

    #[test]
    fn q2_the_shortest_patience_counts_and_nonsense_of_others_does_not() {
        let told = |list: &[(&'static str, &str)]| start_within(&headers(list)).expect("no error");
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[(header::START_WITHIN_MS, "1500")]), millis(1500));
        assert_eq!(told(&[("x-stainless-read-timeout", "600")]), millis(600_000));
        assert_eq!(told(&[("x-stainless-read-timeout", "2.5")]), millis(2500));
        assert_eq!(told(&[("x-stainless-timeout", "3"), ("x-stainless-read-timeout", "4")]), millis(3000));
        let own = (header::START_WITHIN_MS, "1500");
        let envoy = (header::ENVOY_TIMEOUT_MS, "900");
        assert_eq!(told(&[own, ("x-stainless-timeout", "60"), envoy]), millis(900));
        for bad in ["", "0", "-1", "soon", "nan", "inf", "1e300", "0.0001"] {
            let foreign = ["x-stainless-timeout", "x-stainless-read-timeout", header::ENVOY_TIMEOUT_MS];
            foreign.iter().for_each(|name| assert_eq!(told(&[(name, bad)]), None, "{name}: {bad}"));
        }
        for bad in ["", "0", "-1", "+5", "1.5", "soon", "86400001", "99999999999999999999"] {
            let error = start_within(&headers(&[(header::START_WITHIN_MS, bad)])).expect_err(bad);
            assert_eq!((error.status, error.error.param), (400, Some(header::START_WITHIN_MS)));
        }
    }
}
