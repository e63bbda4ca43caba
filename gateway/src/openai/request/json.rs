//! JSON as bytes: a cursor that checks the structure of a document and hands out slices of it.
//!
//! Strings are skipped, not decoded; that is where the speed comes from. What stays unchecked is what cannot move
//! a boundary between values: control characters, encoding and lone surrogates inside strings that nobody decodes.

use std::borrow::Cow;

use memchr::memchr2;

use super::bad::BadBody;

/// How deep arrays and objects may be nested; the top-level object is level 1.
pub const MAX_DEPTH: usize = 128;

/// A string of the document, still as written.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::openai) struct Raw<'a> {
    /// With its quotes.
    literal: &'a [u8],
    /// Offset of the opening quote.
    pub(in crate::openai) at: usize,
    /// By how many bytes it shrinks when its escapes are decoded; 0 when it has none.
    shrink: usize,
}

impl<'a> Raw<'a> {
    /// What is between the quotes, as written.
    pub(in crate::openai) fn inner(&self) -> &'a [u8] {
        match self.literal {
            [_, inner @ .., _] => inner,
            _ => &[],
        }
    }

    /// Offset of the byte after the closing quote.
    pub(in crate::openai) fn end(&self) -> usize {
        self.at + self.literal.len()
    }

    /// Length in bytes once decoded.
    pub(in crate::openai) fn decoded_len(&self) -> usize {
        self.inner().len().saturating_sub(self.shrink)
    }

    /// The text; `None` if it is not valid as JSON and Unicode.
    pub(in crate::openai) fn decode(&self) -> Option<Cow<'a, str>> {
        if self.shrink > 0 {
            return serde_json::from_slice(self.literal).ok().map(Cow::Owned);
        }
        let text = std::str::from_utf8(self.inner()).ok()?;
        (!text.bytes().any(|byte| byte < 0x20)).then_some(Cow::Borrowed(text))
    }

    /// The text as bytes, for comparing; escapes cannot hide a name (`"mod\u0065l"` is `model`). A text that is not
    /// valid stays as written, and so equals no known name.
    pub(in crate::openai) fn name(&self) -> Cow<'a, [u8]> {
        if self.shrink == 0 {
            return Cow::Borrowed(self.inner());
        }
        match self.decode() {
            Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
            _ => Cow::Borrowed(self.inner()),
        }
    }

    /// Whether the text is `name`.
    pub(in crate::openai) fn is(&self, name: &str) -> bool {
        *self.name() == *name.as_bytes()
    }
}

/// What a walk over a value meets. `depth` is that of the array or object that holds the leaf, 0 for the walked
/// value itself; `key` is the nearest member name above it, the default one if there is none.
pub(in crate::openai) trait Visit<'a> {
    /// A string that is not a key.
    fn string(&mut self, depth: usize, key: Raw<'a>, value: Raw<'a>) {
        let _ = (depth, key, value);
    }

    /// A number, as written.
    fn number(&mut self, depth: usize, key: Raw<'a>, value: &'a [u8]) {
        let _ = (depth, key, value);
    }

    /// `true`, `false` or `null` at offset `at`.
    fn word(&mut self, depth: usize, key: Raw<'a>, value: &'static str, at: usize) {
        let _ = (depth, key, value, at);
    }
}

/// Looks at nothing.
pub(in crate::openai) struct Skip;

impl Visit<'_> for Skip {}

/// A position in a document. Every method either moves it past what it read or says why it cannot.
#[derive(Debug)]
pub(in crate::openai) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(in crate::openai) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The offset of the next byte.
    pub(in crate::openai) fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, without taking it.
    #[inline]
    pub(in crate::openai) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// What was read since `start`.
    pub(in crate::openai) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// The error that `expected` was not found here.
    pub(in crate::openai) fn wanted(&self, expected: &'static str) -> BadBody {
        wanted(self.bytes, self.at, expected)
    }

    /// Takes `byte` after white space.
    pub(in crate::openai) fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), BadBody> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.wanted(expected))
    }

    /// Takes a string. The next byte after white space must be its opening quote.
    pub(in crate::openai) fn string(&mut self, expected: &'static str) -> Result<Raw<'a>, BadBody> {
        self.take(b'"', expected)?;
        let open = self.at.saturating_sub(1);
        let mut from = self.at;
        let mut shrink = 0;
        loop {
            let Some(hit) = quote_or_escape(self.bytes, from) else {
                return Err(wanted(self.bytes, self.bytes.len(), "the end of a string"));
            };
            if self.bytes.get(hit) == Some(&b'"') {
                self.at = hit + 1;
                return Ok(Raw { literal: self.since(open), at: open, shrink });
            }
            let (written, decoded) = escape(self.bytes, hit)?;
            from = hit + written;
            shrink += written - decoded;
        }
    }

    /// Takes a number.
    #[inline]
    fn number(&mut self) -> Result<&'a [u8], BadBody> {
        // Nearly all numbers are whole and positive.
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        let ends = !matches!(rest.get(len), Some(b'.' | b'e' | b'E'));
        if ends && (len == 1 || (len > 1 && rest.first() != Some(&b'0'))) {
            self.at += len;
            return Ok(rest.get(..len).unwrap_or_default());
        }
        self.any_number()
    }

    fn any_number(&mut self) -> Result<&'a [u8], BadBody> {
        let start = self.at;
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let zero = self.bytes.get(self.at) == Some(&b'0');
        let digits = self.digits()?;
        if zero && digits > 1 {
            self.at -= digits - 1;
            return Err(self.wanted("no digit after a leading 0"));
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.since(start))
    }

    fn digits(&mut self) -> Result<usize, BadBody> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { Err(self.wanted("a digit")) } else { Ok(self.at - start) }
    }

    fn word(&mut self, word: &'static str) -> Result<(), BadBody> {
        for &byte in word.as_bytes() {
            if self.bytes.get(self.at) != Some(&byte) {
                return Err(self.wanted(word));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Takes any value; `level` is the nesting of what it stands in (1 for members of the top-level object).
    pub(in crate::openai) fn value<V: Visit<'a>>(
        &mut self,
        level: usize,
        visit: &mut V,
    ) -> Result<(), BadBody> {
        self.nested(Nesting { level, depth: 0 }, Raw::default(), visit)
    }

    fn nested<V: Visit<'a>>(&mut self, n: Nesting, key: Raw<'a>, visit: &mut V) -> Result<(), BadBody> {
        match self.peek() {
            Some(b'"') => {
                let value = self.string("a string")?;
                visit.string(n.depth, key, value);
            }
            Some(b'-' | b'0'..=b'9') => {
                let value = self.number()?;
                visit.number(n.depth, key, value);
            }
            Some(b'{') => return self.object(n.deeper(self.at)?, visit),
            Some(b'[') => return self.array(n.deeper(self.at)?, key, visit),
            Some(first @ (b't' | b'f' | b'n')) => {
                let (at, word) = (
                    self.at,
                    if first == b't' {
                        "true"
                    } else if first == b'f' {
                        "false"
                    } else {
                        "null"
                    },
                );
                self.word(word)?;
                visit.word(n.depth, key, word, at);
            }
            _ => return Err(self.wanted("a value")),
        }
        Ok(())
    }

    fn object<V: Visit<'a>>(&mut self, n: Nesting, visit: &mut V) -> Result<(), BadBody> {
        let mut more = self.first_of(b'{', b'}')?;
        while more {
            let key = self.string("a key in quotes")?;
            self.take(b':', "`:` after a key")?;
            self.nested(n, key, visit)?;
            more = self.another(b'}', "`,` or `}` after a member")?;
        }
        Ok(())
    }

    fn array<V: Visit<'a>>(&mut self, n: Nesting, key: Raw<'a>, visit: &mut V) -> Result<(), BadBody> {
        let mut more = self.first_of(b'[', b']')?;
        while more {
            // Token ids and vectors come in long runs of numbers: no call per element.
            if let Some(b'-' | b'0'..=b'9') = self.peek() {
                let value = self.number()?;
                visit.number(n.depth, key, value);
            } else {
                self.nested(n, key, visit)?;
            }
            more = self.another(b']', "`,` or `]` after an element")?;
        }
        Ok(())
    }

    /// Takes `open`; whether a member or element follows. If none does, takes `close`, too.
    pub(in crate::openai) fn first_of(&mut self, open: u8, close: u8) -> Result<bool, BadBody> {
        self.take(open, "an array or object")?;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes `,` or `close`; whether another member or element follows.
    #[inline]
    pub(in crate::openai) fn another(&mut self, close: u8, expected: &'static str) -> Result<bool, BadBody> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.wanted(expected)),
        }
    }
}

/// Where a walk is: `level` counts from the document's top, `depth` from the walked value.
#[derive(Clone, Copy)]
struct Nesting {
    level: usize,
    depth: usize,
}

impl Nesting {
    fn deeper(self, at: usize) -> Result<Self, BadBody> {
        if self.level >= MAX_DEPTH {
            return Err(BadBody::TooDeep { at });
        }
        Ok(Self { level: self.level + 1, depth: self.depth + 1 })
    }
}

fn wanted(bytes: &[u8], at: usize, expected: &'static str) -> BadBody {
    BadBody::Syntax { at, expected, found: bytes.get(at).copied() }
}

/// The offset of the next `"` or `\` at or after `from`. The first 16 bytes are looked at by words: most strings
/// and lines are short, and a call of the vector search costs more than they do.
#[inline]
fn quote_or_escape(bytes: &[u8], from: usize) -> Option<usize> {
    let mut rest = bytes.get(from..)?;
    let mut at = from;
    for _ in 0..2 {
        let Some((word, after)) = rest.split_first_chunk::<8>() else { break };
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ QUOTES) | zero_bytes(word ^ ESCAPES);
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        rest = after;
        at += 8;
    }
    memchr2(b'"', b'\\', rest).map(|offset| at + offset)
}

const ONES: u64 = u64::MAX / 0xff;
const QUOTES: u64 = ONES * b'"' as u64;
const ESCAPES: u64 = ONES * b'\\' as u64;

/// The high bit of each byte that is zero. Bytes above the lowest such byte may be marked wrongly; the lowest is right.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The escape at `at`: its length as written, and as UTF-8. Half of a surrogate pair counts as two bytes.
fn escape(bytes: &[u8], at: usize) -> Result<(usize, usize), BadBody> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((2, 1)),
        Some(b'u') => {
            let mut unit = 0;
            for place in at + 2..at + 6 {
                let digit = bytes.get(place).and_then(|&byte| char::from(byte).to_digit(16));
                unit = unit * 16 + digit.ok_or_else(|| wanted(bytes, place, "a hexadecimal digit"))?;
            }
            Ok((
                6,
                match unit {
                    0..0x80 => 1,
                    0x80..0x800 | 0xd800..0xe000 => 2,
                    _ => 3,
                },
            ))
        }
        _ => Err(wanted(bytes, at + 1, "one of `\"\\/bfnrtu` after `\\`")),
    }
}
