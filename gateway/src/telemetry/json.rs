//! Writes one flat JSON object, field by field, without a tree and without a formatter. Control characters are escaped
//! (C-157). Knows nothing of what the fields mean.

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http1::write::{decimal, hex};

/// The name of a field as it is written, from a word that needs no escape.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
pub(super) use key;

/// An object that is being written.
#[derive(Debug)]
pub struct Object<'a> {
    into: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Object<'a> {
    /// An object at the end of `into`. The name of each of its fields is given by [`key`].
    pub fn begin(into: &'a mut Vec<u8>) -> Self {
        into.push(b'{');
        Self { into, first: true }
    }

    /// The end of the object.
    pub fn end(self) {
        self.into.push(b'}');
    }

    /// A field with a text, in UTF-8.
    pub fn text(&mut self, key: &'static str, value: impl AsRef<[u8]>) {
        self.key(key);
        self.into.push(b'"');
        escape(self.into, value.as_ref());
        self.into.push(b'"');
    }

    /// A field with a word that needs no escape.
    pub fn word(&mut self, key: &'static str, value: &'static str) {
        self.key(key);
        self.into.push(b'"');
        self.into.extend_from_slice(value.as_bytes());
        self.into.push(b'"');
    }

    /// A field with an address.
    pub fn address(&mut self, key: &'static str, value: IpAddr) {
        self.key(key);
        self.into.push(b'"');
        match value {
            IpAddr::V4(value) => {
                for (index, part) in value.octets().into_iter().enumerate() {
                    if index > 0 {
                        self.into.push(b'.');
                    }
                    decimal(self.into, part.into());
                }
            }
            // A vector takes whatever is written.
            IpAddr::V6(value) => drop(write!(self.into, "{value}")),
        }
        self.into.push(b'"');
    }

    /// A field with a whole number.
    pub fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        decimal(self.into, value);
    }

    /// A field that is true or false.
    pub fn truth(&mut self, key: &'static str, value: bool) {
        self.key(key);
        self.into.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A field with a time span in milliseconds, to the microsecond.
    pub fn millis(&mut self, key: &'static str, value: Duration) {
        self.key(key);
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        decimal(self.into, micros / 1000);
        self.into.push(b'.');
        digits(self.into, micros % 1000);
    }

    /// A field with a moment of the wall clock, as RFC 3339 has it, to the millisecond.
    pub fn moment(&mut self, key: &'static str, value: SystemTime) {
        self.key(key);
        self.into.push(b'"');
        let since = value.duration_since(UNIX_EPOCH).unwrap_or_default();
        SECOND.with_borrow_mut(|(of, text)| {
            if *of != since.as_secs() || text.is_empty() {
                let whole = UNIX_EPOCH + Duration::from_secs(since.as_secs());
                *text = humantime::format_rfc3339_seconds(whole).to_string();
                *of = since.as_secs();
            }
            self.into.extend_from_slice(text.trim_end_matches('Z').as_bytes());
        });
        self.into.push(b'.');
        digits(self.into, since.subsec_millis().into());
        self.into.extend_from_slice(b"Z\"");
    }

    fn key(&mut self, key: &'static str) {
        let key = if std::mem::take(&mut self.first) { key.strip_prefix(',').unwrap_or(key) } else { key };
        self.into.extend_from_slice(key.as_bytes());
    }
}

thread_local! {
    /// The text of a second of Unix time, and which it is.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// A number below 1000, with three digits.
fn digits(into: &mut Vec<u8>, number: u64) {
    for unit in [100, 10, 1] {
        into.push(b'0' + (number / unit % 10) as u8);
    }
}

fn escape(into: &mut Vec<u8>, text: &[u8]) {
    let special = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    let mut rest = text;
    // Nearly always there is none, which is seen by many bytes at a time where no early end is asked for.
    if !rest.iter().fold(false, |any, byte| any | special(byte)) {
        return into.extend_from_slice(rest);
    }
    while let Some(at) = rest.iter().position(special) {
        let (plain, special) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        into.extend_from_slice(plain);
        match special.first() {
            Some(byte @ (b'"' | b'\\')) => into.extend_from_slice(&[b'\\', *byte]),
            Some(b'\n') => into.extend_from_slice(b"\\n"),
            Some(byte) => {
                into.extend_from_slice(b"\\u");
                into.extend_from_slice(hex(&mut [0; 16], (*byte).into(), 4));
            }
            None => {}
        }
        rest = special.get(1..).unwrap_or_default();
    }
    into.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    proptest! {
        #[test]
        fn c_157_any_text_is_one_line_of_json_that_says_the_same(
            text in any::<String>(), number: u64, truth: bool, micros in 0_u64..1 << 50, address: IpAddr,
        ) {
            let text = format!("{text}\n\u{1}\"\\\u{7f}");
            let mut line = Vec::new();
            let mut object = Object::begin(&mut line);
            object.text(key!("text"), &text);
            object.word(key!("word"), "a");
            object.number(key!("number"), number);
            object.address(key!("address"), address);
            object.truth(key!("truth"), truth);
            object.millis(key!("millis"), Duration::from_micros(micros));
            object.end();
            prop_assert!(line.iter().all(|byte| *byte >= b' '));
            let read: Value = serde_json::from_slice(&line).expect("JSON");
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let millis = micros as f64 / 1000.0;
            let wanted = serde_json::json!({
                "text": text, "word": "a", "number": number, "truth": truth, "millis": millis,
                "address": address.to_string(),
            });
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn moments_are_those_of_the_calendar(millis in 0_u64..253_402_300_800_000) {
            let moment = UNIX_EPOCH + Duration::from_millis(millis);
            let mut line = Vec::new();
            let mut object = Object::begin(&mut line);
            object.moment(key!("at"), moment);
            object.end();
            let wanted = humantime::format_rfc3339_millis(moment);
            prop_assert_eq!(String::from_utf8(line).expect("text"), format!("{{\"at\":\"{wanted}\"}}"));
        }
    }
}
