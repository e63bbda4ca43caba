//! The fields of a head, which most call headers: read once, told apart once, and written as they lie there.
//!
//! Names are in lower case, fields of one name keep their order. The lines lie one behind the other in memory that the
//! heads of a core use in turns, so that a head costs no allocation, one copy where it is read, and a copy for each line
//! where it is written. Knows which names mean something to the gateway, and not what: which fields go on is decided in
//! [`crate::layer::headers`].

use std::cell::RefCell;

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_shared::names::header;

/// Heads of which a core keeps the memory, and the largest of those, in bytes.
const KEPT: usize = 128;
const LARGEST: usize = 8 << 10;
/// Memory that a head begins with: bytes, and fields.
const BYTES: usize = 1 << 10;
const FIELDS: usize = 24;

thread_local! {
    static SPARE: RefCell<Vec<(Vec<u8>, Vec<Field>)>> = const { RefCell::new(Vec::new()) };
}

/// Makes [`Name`] from a list of names and how they are written.
macro_rules! names {
    ($($name:ident = $text:expr,)*) => {
        /// A name that means something to the gateway.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is named after its text")]
        pub enum Name { $($name),* }

        impl Name {
            /// As it is written, in lower case.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The one that is written so, in lower case.
            #[expect(non_upper_case_globals, reason = "patterns of a match must be constants")]
            fn of(text: &[u8]) -> Option<Self> {
                $(const $name: &[u8] = $text.as_bytes();)*
                match text {
                    $($name => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    AcceptEncoding = "accept-encoding",
    AccelBuffering = "x-accel-buffering",
    Allow = "allow",
    ApiKey = "api-key",
    Authorization = "authorization",
    CacheControl = "cache-control",
    Connection = "connection",
    ContentEncoding = "content-encoding",
    ContentLength = "content-length",
    ContentType = "content-type",
    Date = "date",
    EnvoyTimeoutMs = header::ENVOY_TIMEOUT_MS,
    Expect = "expect",
    Host = "host",
    KeepAlive = "keep-alive",
    Keepalive = header::KEEPALIVE,
    Priority = header::PRIORITY,
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    ProxyConnection = "proxy-connection",
    Replica = header::REPLICA,
    RequestId = header::REQUEST_ID,
    RetryAfter = "retry-after",
    RetryAfterMs = header::RETRY_AFTER_MS,
    RetryCount = header::RETRY_COUNT,
    Route = header::ROUTE,
    SdkReadTimeout = header::SDK_TIMEOUTS[0],
    SdkTimeout = header::SDK_TIMEOUTS[1],
    StartWithinMs = header::START_WITHIN_MS,
    Te = "te",
    Trailer = "trailer",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    XApiKey = "x-api-key",
}

/// A set of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names(u64);

impl Names {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// These.
    pub const fn of(names: &[Name]) -> Self {
        let (mut set, mut left) = (0, names);
        while let [first, rest @ ..] = left {
            set |= 1 << (*first as u32);
            left = rest;
        }
        Self(set)
    }

    /// These and those.
    pub const fn and(self, those: Self) -> Self {
        Self(self.0 | those.0)
    }

    /// Whether `name` is one of them.
    pub const fn has(self, name: Name) -> bool {
        self.0 & (1 << (name as u32)) != 0
    }
}

/// Where a line lies: `name: value`, and its end.
#[derive(Clone, Copy, Debug)]
struct Field {
    known: Option<Name>,
    at: usize,
    name: usize,
    value: usize,
}

impl Field {
    fn name(self, lines: &[u8]) -> &[u8] {
        lines.get(self.at..self.at + self.name).unwrap_or_default()
    }

    fn value(self, lines: &[u8]) -> &[u8] {
        let at = self.at + self.name + 2;
        lines.get(at..at + self.value).unwrap_or_default()
    }

    fn line(self, lines: &[u8]) -> &[u8] {
        lines.get(self.at..self.at + self.name + self.value + 4).unwrap_or_default()
    }

    fn is_of(self, names: Names) -> bool {
        self.known.is_some_and(|name| names.has(name))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Fields {
    lines: Vec<u8>,
    list: Vec<Field>,
    /// Which of the known names are there.
    known: Names,
}

impl Default for Fields {
    fn default() -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let (lines, list) = spare.unwrap_or_else(|| (Vec::with_capacity(BYTES), Vec::with_capacity(FIELDS)));
        Self { lines, list, known: Names::NONE }
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        let (mut lines, mut list) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.list));
        if lines.capacity() <= LARGEST {
            lines.clear();
            list.clear();
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < KEPT {
                    spare.push((lines, list))
                }
            });
        }
    }
}

impl Fields {
    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The fields that were found in `head`, names in any case. Lines that lie there as they are written here, as nearly
    /// all do, are copied with all others at once.
    pub fn found<'a>(head: &'a [u8], found: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut fields = Self::default();
        fields.lines.extend_from_slice(head);
        for (name, value) in found {
            let at = lies(head, name, value).unwrap_or_else(|| fields.write(name, value));
            fields.list_named(at, name.len(), value.len());
        }
        fields
    }

    /// Adds a field, of any name in any case, behind those that are there. That the name is a name and the value a value
    /// is for the caller to know.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let at = self.write(name, value);
        self.list_named(at, name.len(), value.len());
    }

    /// Lists the line at `at`, and writes its name in lower case.
    fn list_named(&mut self, at: usize, name: usize, value: usize) {
        let written = self.lines.get_mut(at..at + name).unwrap_or_default();
        lower(written);
        let known = Name::of(written);
        self.list(Field { known, at, name, value });
    }

    /// Makes `value` the only one of `name`.
    pub fn set(&mut self, name: Name, value: impl AsRef<[u8]>) {
        self.remove(Names::of(&[name]));
        let (text, value) = (name.as_str().as_bytes(), value.as_ref());
        let at = self.write(text, value);
        self.list(Field { known: Some(name), at, name: text.len(), value: value.len() });
    }

    fn write(&mut self, name: &[u8], value: &[u8]) -> usize {
        let at = self.lines.len();
        self.lines.reserve(name.len() + value.len() + 4);
        self.lines.extend_from_slice(name);
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
        at
    }

    fn list(&mut self, field: Field) {
        if let Some(known) = field.known {
            self.known = self.known.and(Names::of(&[known]));
        }
        self.list.push(field);
    }

    /// Whether there is one of `name`.
    pub fn has(&self, name: Name) -> bool {
        self.known.has(name)
    }

    /// The first value of `name`.
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of `name`.
    pub fn all(&self, name: Name) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        let list = if self.has(name) { self.list.as_slice() } else { &[] };
        list.iter().filter(move |field| field.known == Some(name)).map(|field| field.value(&self.lines))
    }

    /// The first value of a name, known or not, that is given in lower case.
    pub fn named(&self, name: &str) -> Option<&[u8]> {
        let is_it = |field: &&Field| field.name == name.len() && field.name(&self.lines) == name.as_bytes();
        let found = self.list.iter().find(is_it);
        found.map(|field| field.value(&self.lines))
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|field| (field.name(&self.lines), field.value(&self.lines)))
    }

    /// Drops the fields of `names`.
    pub fn remove(&mut self, names: Names) {
        if self.known.0 & names.0 != 0 {
            self.list.retain(|field| !field.is_of(names));
            self.known.0 &= !names.0;
        }
    }

    /// Drops the fields of a name in any case, known or not.
    pub fn remove_named(&mut self, name: &[u8]) {
        let Self { lines, list, known } = self;
        list.retain(|field| {
            let stays = !field.name(lines).eq_ignore_ascii_case(name);
            if let (false, Some(name)) = (stays, field.known) {
                known.0 &= !Names::of(&[name]).0;
            }
            stays
        });
    }

    /// Appends the lines of all fields but those of `names`.
    pub fn write_except(&self, into: &mut Vec<u8>, names: Names) {
        into.reserve(self.lines.len());
        for field in self.list.iter().filter(|field| !field.is_of(names)) {
            into.extend_from_slice(field.line(&self.lines));
        }
    }

    /// As the HTTP/2 side has them.
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.list.len());
        for (name, value) in self.iter() {
            // None that was read is no name or no value.
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                map.append(name, value);
            }
        }
        map
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in map {
            fields.add(name.as_str().as_bytes(), value.as_bytes());
        }
        fields
    }
}

/// Where the line of a field lies that was found in `head`, if it lies there as it would be written.
fn lies(head: &[u8], name: &[u8], value: &[u8]) -> Option<usize> {
    let place = |part: &[u8]| part.as_ptr().addr().checked_sub(head.as_ptr().addr());
    let (at, value_at) = (place(name)?, place(value)?);
    // Between the two is the colon then, and behind a value comes no CR but that of the line's end.
    let near = value_at == at + name.len() + 2 && head.get(value_at - 1) == Some(&b' ');
    (near && head.get(value_at + value.len()) == Some(&b'\r')).then_some(at)
}

/// Makes a name lower-case: one of the usual lengths as two words, which may lie over each other.
fn lower(name: &mut [u8]) {
    match name.len() {
        4..8 => lower_ends::<4>(name),
        8..=16 => lower_ends::<8>(name),
        _ => name.make_ascii_lowercase(),
    }
}

fn lower_ends<const BYTES: usize>(name: &mut [u8]) {
    name.first_chunk_mut::<BYTES>().into_iter().for_each(|word| word.make_ascii_lowercase());
    name.last_chunk_mut::<BYTES>().into_iter().for_each(|word| word.make_ascii_lowercase());
}

/// A value of printable ASCII and tabs alone.
pub fn text(value: &[u8]) -> Option<&str> {
    let printable = value.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~' | b'\t'));
    if printable { std::str::from_utf8(value).ok() } else { None }
}

#[cfg(test)]
mod tests;
