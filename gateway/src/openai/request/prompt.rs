//! The prompt of a request: how large it is (R8) and which conversations it can continue (R1).
//!
//! The identity of a conversation that nobody named is a chain of running hashes, one per boundary; a later turn
//! repeats its predecessor's bytes, so it repeats the predecessor's chain. Hashes cover bytes as written: a client
//! that writes the same message in another way has, to us, written another message. No text leaves this file.

use memchr::memmem;
use tidegate_shared::request::{ConversationKey, Identity};
use twox_hash::XxHash3_64;

use super::bad::BadBody;
use super::json::{Cursor, Raw, Skip, Visit};

/// The most boundaries of one request that are kept, the last ones: a predecessor ends near the end of its
/// successor, not near its start.
pub const MAX_BOUNDARIES: usize = 4096;

/// The size of a prompt, by kind of content (R8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptSize {
    /// Bytes of text once decoded as UTF-8, tool definitions included as written.
    pub text_bytes: u64,
    /// Bytes of inline media as written (data URLs, base64); no text, so not in `text_bytes`.
    pub media_bytes: u64,
    /// Image parts.
    pub images: u64,
    /// Tokens, where the client sent token ids in place of text.
    pub tokens: u64,
}

impl PromptSize {
    /// Takes a value of which only the size matters.
    pub(super) fn of(cursor: &mut Cursor<'_>, level: usize) -> Result<Self, BadBody> {
        let mut size = Self::default();
        cursor.value(level, &mut size)?;
        Ok(size)
    }

    /// Takes definitions that are put in front of the prompt as they are written: tools.
    pub(super) fn verbatim(cursor: &mut Cursor<'_>, level: usize) -> Result<Self, BadBody> {
        let start = cursor.at();
        cursor.value(level, &mut Skip)?;
        Ok(Self { text_bytes: cursor.since(start).len() as u64, ..Self::default() })
    }

    /// Adds the parts of another one.
    pub(super) fn add(&mut self, other: &Self) {
        self.text_bytes += other.text_bytes;
        self.media_bytes += other.media_bytes;
        self.images += other.images;
        self.tokens += other.tokens;
    }
}

/// What the name of a member says of its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::openai) enum Key {
    /// There is none, or an empty one.
    #[default]
    None,
    Role,
    Type,
    /// Inline media.
    Data,
    Other,
}

impl Key {
    #[inline]
    fn of(name: Raw<'_>) -> Self {
        match &*name.name() {
            b"" => Self::None,
            b"role" => Self::Role,
            b"type" => Self::Type,
            b"data" | b"file_data" => Self::Data,
            _ => Self::Other,
        }
    }
}

impl<'a> Visit<'a> for PromptSize {
    type Key = Key;

    fn key(name: Raw<'a>) -> Key {
        Key::of(name)
    }

    #[inline]
    fn string(&mut self, _: usize, key: Key, value: Raw<'a>) {
        match key {
            Key::Type => {
                self.images += u64::from(matches!(&*value.name(), b"image_url" | b"input_image" | b"image"));
            }
            Key::Data => self.media_bytes += value.inner.len() as u64,
            _ if is_data_url(value.inner) => self.media_bytes += value.inner.len() as u64,
            _ => self.text_bytes += value.decoded_len() as u64,
        }
    }

    fn number(&mut self, depth: usize, key: Key, _: &'a [u8]) {
        // Numbers of an object are settings of a part; only bare ones are token ids.
        self.tokens += u64::from(depth > 0 && key == Key::None);
    }
}

/// Whether a string is inline media; a text may well begin with `data:`, too.
fn is_data_url(text: &[u8]) -> bool {
    text.starts_with(b"data:") && memmem::find(text.get(..256).unwrap_or(text), b";base64,").is_some()
}

/// A running hash and the boundaries that it passed.
#[derive(Debug, Default)]
struct Chain {
    hash: u64,
    boundaries: Vec<ConversationKey>,
    /// Nobody wants it: it passes nothing.
    off: bool,
}

impl Chain {
    /// Passes a boundary after `bytes`.
    fn push(&mut self, bytes: &[u8]) {
        if self.off {
            return;
        }
        self.hash = mix(self.hash, XxHash3_64::oneshot(bytes));
        if self.boundaries.len() == 2 * MAX_BOUNDARIES {
            self.boundaries.drain(..MAX_BOUNDARIES);
        }
        self.boundaries.push(ConversationKey(self.hash));
    }

    /// The last [`MAX_BOUNDARIES`].
    fn into_boundaries(mut self) -> Vec<ConversationKey> {
        self.boundaries.drain(..self.boundaries.len().saturating_sub(MAX_BOUNDARIES));
        self.boundaries
    }
}

fn mix(before: u64, next: u64) -> u64 {
    let both = u128::from(before) << 64 | u128::from(next);
    XxHash3_64::oneshot(&both.to_le_bytes())
}

/// The key of a conversation that has a name: a header's value, `prompt_cache_key` or `metadata.conversation_id`.
/// One name is one conversation, wherever the client writes it.
pub fn named(name: &[u8]) -> ConversationKey {
    ConversationKey(XxHash3_64::oneshot(name))
}

/// One prompt field: its size, and the chain if its shape has one.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) size: PromptSize,
    chain: Chain,
    follows_up: bool,
}

impl Prompt {
    /// An array of messages or items; with `text_allowed`, one text in place of it. `null` is nothing.
    /// `None` if the value is none of these. Without `chained` there is no chain.
    pub(super) fn turns(
        cursor: &mut Cursor<'_>,
        level: usize,
        text_allowed: bool,
        chained: bool,
    ) -> Result<Option<Self>, BadBody> {
        let mut prompt = Self { chain: Chain { off: !chained, ..Chain::default() }, ..Self::default() };
        let first = cursor.peek();
        if first == Some(b'[') {
            return prompt.elements(cursor, level).map(|()| Some(prompt));
        }
        let start = cursor.at();
        cursor.value(level, &mut prompt.size)?;
        let value = cursor.since(start);
        let is_text = text_allowed && first == Some(b'"');
        if is_text {
            prompt.chain.push(value);
        }
        Ok((is_text || value == b"null").then_some(prompt))
    }

    fn elements(&mut self, cursor: &mut Cursor<'_>, level: usize) -> Result<(), BadBody> {
        let mut more = cursor.first_of(b'[', b']')?;
        while more {
            let _ = cursor.peek();
            let start = cursor.at();
            let mut turn = Turn { size: &mut self.size, of_a_model: false };
            cursor.value(level + 1, &mut turn)?;
            self.follows_up |= turn.of_a_model;
            self.chain.push(cursor.since(start));
            more = cursor.another(b']', "`,` or `]` after an element")?;
        }
        Ok(())
    }

    /// One text, or one array of token ids, cut in blocks at fixed places. Several texts are several
    /// conversations, so they are none.
    pub(super) fn blocks(cursor: &mut Cursor<'_>, level: usize, chained: bool) -> Result<Self, BadBody> {
        let first = cursor.peek();
        let start = cursor.at();
        let mut batch = Batch::default();
        cursor.value(level, &mut batch)?;
        let mut prompt = Self { size: batch.size, ..Self::default() };
        let text = match (first, batch.texts, batch.others) {
            _ if !chained => &[],
            (Some(b'"' | b'['), 1, false) => batch.text.inner,
            (Some(b'['), 0, false) => match cursor.since(start) {
                [_, ids @ .., _] => ids,
                _ => &[],
            },
            _ => &[],
        };
        for block in Blocks(text, 0) {
            prompt.chain.push(block);
        }
        prompt.follows_up = !prompt.chain.boundaries.is_empty();
        Ok(prompt)
    }

    /// A value of which only the size matters.
    pub(super) fn plain(cursor: &mut Cursor<'_>, level: usize) -> Result<Self, BadBody> {
        Ok(Self { size: PromptSize::of(cursor, level)?, ..Self::default() })
    }

    /// The identity that the chain gives; `preamble` is the hash of what stands before the prompt, such as the
    /// system text, and becomes the first boundary.
    pub(super) fn identity(self, preamble: Option<u64>) -> Identity {
        let follows_up = self.follows_up;
        let mut chain = self.chain.into_boundaries();
        if let Some(preamble) = preamble.filter(|_| !chain.is_empty()) {
            for key in &mut chain {
                key.0 = mix(preamble, key.0);
            }
            if chain.len() < MAX_BOUNDARIES {
                chain.insert(0, ConversationKey(mix(preamble, 0)));
            }
        }
        if chain.is_empty() { Identity::None } else { Identity::Prefix { chain, follows_up } }
    }
}

/// A walk over one message or item.
struct Turn<'s> {
    size: &'s mut PromptSize,
    /// Whether a model, or a tool on its behalf, wrote it.
    of_a_model: bool,
}

impl<'a> Visit<'a> for Turn<'_> {
    type Key = Key;

    fn key(name: Raw<'a>) -> Key {
        Key::of(name)
    }

    fn string(&mut self, depth: usize, key: Key, value: Raw<'a>) {
        if depth == 1 && !self.of_a_model {
            self.of_a_model = match key {
                Key::Role => matches!(&*value.name(), b"assistant" | b"tool" | b"function"),
                Key::Type => {
                    let kind = value.name();
                    kind.ends_with(b"_call") || kind.ends_with(b"_call_output") || *kind == *b"reasoning"
                }
                _ => false,
            };
        }
        self.size.string(depth, key, value);
    }
}

/// A walk over a prompt that may be one text, several, token ids, or several lists of them.
#[derive(Default)]
struct Batch<'a> {
    size: PromptSize,
    text: Raw<'a>,
    texts: u64,
    numbers: u64,
    others: bool,
}

impl<'a> Visit<'a> for Batch<'a> {
    type Key = Key;

    fn key(name: Raw<'a>) -> Key {
        Key::of(name)
    }

    fn string(&mut self, depth: usize, key: Key, value: Raw<'a>) {
        self.size.string(depth, key, value);
        self.texts += 1;
        self.text = value;
        self.others |= depth > 1 || self.numbers > 0;
    }

    fn number(&mut self, depth: usize, key: Key, value: &'a [u8]) {
        self.size.number(depth, key, value);
        self.numbers += 1;
        self.others |= depth > 1 || self.texts > 0;
    }

    fn word(&mut self, _: usize, _: Key, _: &'static str, _: usize) {
        self.others = true;
    }
}

/// The full blocks of a text. Where they end depends on their place only, never on what follows, so a text and
/// its continuation agree on them: each 16 bytes up to 128, each 64 up to 1 KiB, each 256 up to 16 KiB, each 1 KiB beyond.
struct Blocks<'a>(&'a [u8], usize);

impl<'a> Iterator for Blocks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let size = match self.1 {
            0..128 => 16,
            128..1024 => 64,
            1024..16_384 => 256,
            _ => 1024,
        };
        let (block, rest) = self.0.split_at_checked(size)?;
        *self = Self(rest, self.1 + size);
        Some(block)
    }
}
