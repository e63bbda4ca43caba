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

/// An object that is being written, and where it begins.
#[derive(Debug)]
pub struct Object<'a> {
    into: &'a mut Vec<u8>,
    at: usize,
}

impl<'a> Object<'a> {
    /// An object at the end of `into`, of one field or more. The name of each is given by [`key`].
    pub fn begin(into: &'a mut Vec<u8>) -> Self {
        let at = into.len();
        Self { into, at }
    }

    /// The end of the object.
    pub fn end(self) {
        // The first field has a comma before it.
        if let Some(comma) = self.into.get_mut(self.at) {
            *comma = b'{';
        }
        self.into.push(b'}');
    }

    /// A field with a text, in UTF-8.
    #[inline(always)]
    pub fn text(&mut self, key: &'static str, value: impl AsRef<[u8]>) {
        self.key(key);
        self.into.push(b'"');
        let value = value.as_ref();
        if has_special(value) {
            escape(self.into, value);
        } else {
            self.into.extend_from_slice(value);
        }
        self.into.push(b'"');
    }

    /// A field with a word that needs no escape.
    #[inline(always)]
    pub fn word(&mut self, key: &'static str, value: impl AsRef<[u8]>) {
        self.key(key);
        self.into.push(b'"');
        self.into.extend_from_slice(value.as_ref());
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
    #[inline(always)]
    pub fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        decimal(self.into, value);
    }

    /// A field that is true or false.
    #[inline(always)]
    pub fn truth(&mut self, key: &'static str, value: bool) {
        self.key(key);
        self.into.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A field with a time span in milliseconds, to the microsecond.
    #[inline(always)]
    pub fn millis(&mut self, key: &'static str, value: Duration) {
        self.key(key);
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        decimal(self.into, micros / 1000);
        fraction(self.into, micros % 1000);
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
                // What is written behind the fraction.
                text.pop();
                *of = since.as_secs();
            }
            self.into.extend_from_slice(text.as_bytes());
        });
        fraction(self.into, since.subsec_millis().into());
        self.into.extend_from_slice(b"Z\"");
    }

    /// Inlined, as those who call it are: to copy a text of a known length is no call.
    #[inline(always)]
    fn key(&mut self, key: &'static str) {
        self.into.extend_from_slice(key.as_bytes());
    }
}

thread_local! {
    /// The text of a second of Unix time, and which it is.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Thousandths, below 1000.
fn fraction(into: &mut Vec<u8>, number: u64) {
    let digit = |unit| b'0' + (number / unit % 10) as u8;
    into.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

fn special(byte: &u8) -> bool {
    (*byte < b' ') | (*byte == b'"') | (*byte == b'\\')
}

/// Whether a text needs an escape. Looked at by words as long as it allows, with no early end in one.
fn has_special(text: &[u8]) -> bool {
    match text.len() {
        0..4 => text.iter().any(special),
        4..8 => has_special_in::<4>(text),
        8..16 => has_special_in::<8>(text),
        _ => has_special_in::<16>(text),
    }
}

/// The last word may lie over the one before.
fn has_special_in<const BYTES: usize>(text: &[u8]) -> bool {
    let any = |word: &[u8; BYTES]| word.iter().fold(false, |any, byte| any | special(byte));
    text.as_chunks().0.iter().any(any) || text.last_chunk().is_some_and(any)
}

/// Appends a text with escapes, which nearly none needs.
#[cold]
fn escape(into: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
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
        fn c_157_what_needs_an_escape_is_seen_wherever_it_is(
            plain in "[ !#-\\[\\]-~\u{7f}-\u{ff}]{0,40}", special in "[\"\\\\\u{0}-\u{1f}]", rest in "[ !a-z]{0,20}",
        ) {
            prop_assert!(!has_special(plain.as_bytes()));
            let text = format!("{plain}{special}{rest}");
            prop_assert!(has_special(text.as_bytes()));
            let mut line = Vec::new();
            let mut object = Object::begin(&mut line);
            object.text(key!("text"), &plain);
            object.end();
            prop_assert_eq!(String::from_utf8(line).expect("text"), format!("{{\"text\":\"{plain}\"}}"));
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
