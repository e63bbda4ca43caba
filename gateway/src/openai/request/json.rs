//! JSON as bytes: a cursor that checks the structure of a document and hands out slices of it.
//!
//! Strings are skipped, not decoded; that is where the speed comes from. What stays unchecked is what cannot move
//! a boundary between values: control characters, encoding and lone surrogates inside strings that nobody decodes.

use std::borrow::Cow;

use memchr::memchr2;

use super::bad::BadBody;
use quotes::{escape, in_words, quote_or_escape};

mod quotes;

/// How deep arrays and objects may be nested; the top-level object is level 1.
pub const MAX_DEPTH: usize = 128;

/// A string of the document, still as written.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::openai) struct Raw<'a> {
    /// What is between the quotes, as written.
    pub(in crate::openai) inner: &'a [u8],
    /// Offset of the opening quote.
    pub(in crate::openai) at: usize,
    /// By how many bytes it shrinks when its escapes are decoded; 0 when it has none.
    shrink: usize,
}

impl<'a> Raw<'a> {
    /// Offset of the byte after the closing quote.
    pub(in crate::openai) fn end(&self) -> usize {
        self.at + self.inner.len() + 2
    }

    /// Length in bytes once decoded.
    pub(in crate::openai) fn decoded_len(&self) -> usize {
        self.inner.len().saturating_sub(self.shrink)
    }

    /// The text; `None` if it is not valid as JSON and Unicode.
    pub(in crate::openai) fn decode(&self) -> Option<Cow<'a, str>> {
        if self.shrink > 0 {
            let literal = [b"\"", self.inner, b"\""].concat();
            return serde_json::from_slice(&literal).ok().map(Cow::Owned);
        }
        let text = std::str::from_utf8(self.inner).ok()?;
        (!text.bytes().any(|byte| byte < 0x20)).then_some(Cow::Borrowed(text))
    }

    /// The text as bytes, for comparing; escapes cannot hide a name (`"mod\u0065l"` is `model`). A text that is not
    /// valid stays as written, and so equals no known name.
    pub(in crate::openai) fn name(&self) -> Cow<'a, [u8]> {
        if self.shrink == 0 {
            return Cow::Borrowed(self.inner);
        }
        match self.decode() {
            Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
            _ => Cow::Borrowed(self.inner),
        }
    }
}

/// What a walk over a value meets. `depth` is that of the array or object that holds the leaf, 0 for the walked
/// value itself; `key` is what the nearest member name above it means, the default if there is none.
pub(in crate::openai) trait Visit<'a> {
    /// What of a member's name matters to the walk.
    type Key: Copy + Default;

    /// What the name of a member means.
    fn key(name: Raw<'a>) -> Self::Key;

    /// A string that is not a key.
    fn string(&mut self, depth: usize, key: Self::Key, value: Raw<'a>) {
        let _ = (depth, key, value);
    }

    /// A number, as written.
    fn number(&mut self, depth: usize, key: Self::Key, value: &'a [u8]) {
        let _ = (depth, key, value);
    }

    /// `true`, `false` or `null` at offset `at`.
    fn word(&mut self, depth: usize, key: Self::Key, value: &'static str, at: usize) {
        let _ = (depth, key, value, at);
    }
}

/// Looks at nothing.
pub(in crate::openai) struct Skip;

impl Visit<'_> for Skip {
    type Key = ();

    fn key(_: Raw<'_>) {}
}

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
        if self.peek() != Some(b'"') {
            return self.no_string(expected);
        }
        let at = self.at;
        let rest = self.bytes.get(at + 1..).unwrap_or_default();
        // Nearly all keys and most values end here, without a call.
        let hit = in_words(rest);
        match hit.and_then(|len| rest.split_at_checked(len)) {
            Some((inner, [b'"', ..])) => {
                self.at = at + inner.len() + 2;
                Ok(Raw { inner, at, shrink: 0 })
            }
            _ => self.long_string(rest, hit),
        }
    }

    #[cold]
    fn no_string(&self, expected: &'static str) -> Result<Raw<'a>, BadBody> {
        Err(self.wanted(expected))
    }

    /// Takes a string that begins here, with an opening quote before `rest`; `hit` is the first `"` or `\` of it where that
    /// is known.
    #[inline(never)]
    fn long_string(&mut self, rest: &'a [u8], hit: Option<usize>) -> Result<Raw<'a>, BadBody> {
        let (at, mut len, mut shrink) = (self.at, 0, 0);
        let mut hit = hit.or_else(|| memchr2(b'"', b'\\', rest));
        loop {
            let Some(found) = hit else {
                return Err(wanted(self.bytes, self.bytes.len(), "the end of a string"));
            };
            len += found;
            if let Some((inner, [b'"', ..])) = rest.split_at_checked(len) {
                self.at = at + len + 2;
                return Ok(Raw { inner, at, shrink });
            }
            let (written, decoded) = escape(self.bytes, at + 1 + len)?;
            len += written;
            shrink += written - decoded;
            hit = rest.get(len..).and_then(quote_or_escape);
        }
    }

    /// Takes a number.
    #[inline]
    fn number(&mut self) -> Result<&'a [u8], BadBody> {
        // Nearly all numbers are whole and positive.
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        if is_whole(rest, len) {
            self.at += len;
            return Ok(rest.get(..len).unwrap_or_default());
        }
        self.any_number()
    }

    /// Takes a whole number from 0 on that is written in digits alone and fits; takes nothing of anything else.
    #[inline]
    pub(in crate::openai) fn whole(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..)?;
        let (mut len, mut sum) = (0, 0_u64);
        while let Some(digit @ b'0'..=b'9') = rest.get(len) {
            sum = sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            len += 1;
        }
        is_whole(rest, len).then(|| {
            self.at += len;
            sum
        })
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

    #[inline]
    fn word(&mut self, word: &'static str) -> Result<&'static str, BadBody> {
        if self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            self.at += word.len();
            return Ok(word);
        }
        self.no_word(word)
    }

    /// The error that `word` is not here, at the first byte that differs.
    #[cold]
    fn no_word(&mut self, word: &'static str) -> Result<&'static str, BadBody> {
        for &byte in word.as_bytes() {
            if self.bytes.get(self.at) != Some(&byte) {
                return Err(self.wanted(word));
            }
            self.at += 1;
        }
        Ok(word)
    }

    /// Takes any value; `level` is the nesting of what it stands in (1 for members of the top-level object).
    pub(in crate::openai) fn value<V: Visit<'a>>(
        &mut self,
        level: usize,
        visit: &mut V,
    ) -> Result<(), BadBody> {
        self.nested(Nesting { level, depth: 0 }, V::Key::default(), visit)
    }

    #[inline(always)]
    fn nested<V: Visit<'a>>(&mut self, n: Nesting, key: V::Key, visit: &mut V) -> Result<(), BadBody> {
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
                let at = self.at;
                let word = match first {
                    b't' => self.word("true")?,
                    b'f' => self.word("false")?,
                    _ => self.word("null")?,
                };
                visit.word(n.depth, key, word, at);
            }
            _ => return Err(self.wanted("a value")),
        }
        Ok(())
    }

    #[inline(never)]
    fn object<V: Visit<'a>>(&mut self, n: Nesting, visit: &mut V) -> Result<(), BadBody> {
        let mut more = self.first_of(b'{', b'}')?;
        while more {
            let key = self.string("a key in quotes")?;
            self.take(b':', "`:` after a key")?;
            self.nested(n, V::key(key), visit)?;
            more = self.another(b'}', "`,` or `}` after a member")?;
        }
        Ok(())
    }

    #[inline(never)]
    fn array<V: Visit<'a>>(&mut self, n: Nesting, key: V::Key, visit: &mut V) -> Result<(), BadBody> {
        let mut more = self.first_of(b'[', b']')?;
        while more {
            self.nested(n, key, visit)?;
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

/// Whether a number that begins with `len` digits has nothing else, and no zero before them.
#[inline]
fn is_whole(number: &[u8], len: usize) -> bool {
    let ends = !matches!(number.get(len), Some(b'.' | b'e' | b'E'));
    ends && (len == 1 || (len > 1 && number.first() != Some(&b'0')))
}
