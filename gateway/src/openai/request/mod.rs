//! The lazy scan of a request's body: one pass over the raw bytes that finds what routing needs (H1, R1, R8) and
//! checks the structure on the way.
//!
//! The body is looked at, never rebuilt and never copied. Fields that the gateway does not need may hold anything;
//! the engine judges them. Where a key is there twice, the last one counts, as it does for the engines' parsers; only
//! `model` must not be, because there the gateway and the engine must not disagree.

mod bad;
pub(super) mod json;
pub mod multipart;
mod options;
mod prompt;
#[cfg(test)]
mod properties;
mod splice;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use tidegate_shared::request::{Identity, Priority};
use twox_hash::XxHash3_64;

pub use bad::BadBody;
pub use json::MAX_DEPTH;
pub use prompt::{MAX_BOUNDARIES, PromptSize, named};
pub use splice::{Edit, Spliced, splice};

use super::operation::{Operation, PromptShape};
use json::{Cursor, Raw, Skip, Visit};
use options::{Options, UsagePlace};
use prompt::Prompt;

/// What a request's body says. Borrows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The model's name, decoded; never empty.
    pub model: Cow<'a, str>,
    /// Where the name is in the body, with its quotes if it has any.
    pub model_span: Range<usize>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The most tokens that the answer may have: `max_completion_tokens`, else `max_tokens`, else
    /// `max_output_tokens`. `None` where none of them is there or it is no whole number (llama.cpp takes -1 for "no
    /// limit").
    pub output_limit: Option<u64>,
    /// How many answers are wanted: `n`, 1 by default.
    pub choices: u64,
    /// What `service_tier` asks for: `priority` is high, `flex` is low. `None` for every other value: those mean what is
    /// usual, or something at a particular provider.
    pub priority: Option<Priority>,
    /// The conversation, as the body tells it (R1). A header, if there is one, comes first.
    pub identity: Identity,
    /// The field that names the conversation, where one does.
    pub named_by: Option<NamedBy>,
    /// The size of the prompt (R8).
    pub prompt: PromptSize,
    /// Whether `stream_options.include_usage` is set.
    pub include_usage: bool,
    /// Where `stream_options` is in the body, value only.
    pub stream_options: Option<Range<usize>>,
    /// Where the closing brace of the body is. A member can be inserted here, with a comma in front.
    pub end: usize,
    usage_place: UsagePlace,
}

/// A field of the body that names its conversation (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// `prompt_cache_key`
    CacheKey,
    /// `metadata.conversation_id`
    Metadata,
}

impl NamedBy {
    /// The field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheKey => "prompt_cache_key",
            Self::Metadata => "metadata.conversation_id",
        }
    }
}

impl Scan<'_> {
    /// The edit that makes `name` the body's model (H3).
    pub fn model_edit(&self, name: &str) -> Edit {
        let with = match self.usage_place {
            UsagePlace::Nowhere => Bytes::copy_from_slice(name.as_bytes()),
            _ => Bytes::from(serde_json::Value::from(name).to_string()),
        };
        Edit { range: self.model_span.clone(), with }
    }

    /// The edit that makes a streamed answer end with its usage (H3); `None` if it will anyway, or is no stream.
    pub fn usage_edit(&self) -> Option<Edit> {
        if !self.stream || self.include_usage {
            return None;
        }
        let (range, with) = match &self.usage_place {
            UsagePlace::Nowhere => return None,
            UsagePlace::NewOptions => (self.end..self.end, r#","stream_options":{"include_usage":true}"#),
            UsagePlace::Options(span) => (span.clone(), r#"{"include_usage":true}"#),
            UsagePlace::First(at, true) => (*at..*at, r#""include_usage":true,"#),
            UsagePlace::First(at, false) => (*at..*at, r#""include_usage":true"#),
            UsagePlace::Value(span) => (span.clone(), "true"),
        };
        Some(Edit { range, with: Bytes::from_static(with.as_bytes()) })
    }
}

/// `body` with the model's name changed to `name`, in pieces (H3): what comes before, the name, what comes after.
/// `None` if the scan is of another body.
pub fn splice_model(body: &Bytes, scan: &Scan<'_>, name: &str) -> Option<Spliced> {
    splice(body, [scan.model_edit(name)].into_iter().collect())
}

/// Scans the JSON body of a request to `operation`.
///
/// # Errors
/// [`BadBody`] if the body is not one JSON object, has no `model`, or a field that routing needs has a wrong type.
pub fn scan(operation: Operation, body: &[u8]) -> Result<Scan<'_>, BadBody> {
    scan_for(operation, body, true)
}

/// The same for a request whose conversation a header names. Its prompt is not hashed, so the scan tells no identity but a
/// name.
///
/// # Errors
/// As [`scan`].
pub fn scan_named(operation: Operation, body: &[u8]) -> Result<Scan<'_>, BadBody> {
    scan_for(operation, body, false)
}

fn scan_for(operation: Operation, body: &[u8], chained: bool) -> Result<Scan<'_>, BadBody> {
    let mut cursor = Cursor::new(body);
    let mut fields = Fields::default();
    let mut more = match cursor.peek() {
        Some(b'{') => cursor.first_of(b'{', b'}')?,
        _ => return Err(cursor.wanted("a JSON object")),
    };
    while more {
        let key = cursor.string("a key in quotes")?;
        cursor.take(b':', "`:` after a key")?;
        let _ = cursor.peek();
        fields.member(operation, chained, &key, &mut cursor)?;
        more = cursor.another(b'}', "`,` or `}` after a member")?;
    }
    let end = cursor.at().saturating_sub(1);
    if cursor.peek().is_some() {
        return Err(cursor.wanted("nothing after the JSON object"));
    }
    fields.finish(end)
}

/// Members of the top-level object (the top-level object is level 1).
const LEVEL: usize = 1;

#[derive(Default)]
struct Fields<'a> {
    model: Option<Raw<'a>>,
    stream: bool,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    n: Option<u64>,
    tier: Option<Raw<'a>>,
    cache_key: Option<Raw<'a>>,
    conversation: Option<Raw<'a>>,
    options: Options,
    prompt: Prompt,
    preamble: PromptSize,
    preamble_hash: Option<u64>,
    tools: PromptSize,
    functions: PromptSize,
}

impl<'a> Fields<'a> {
    /// Reads the value of `key`; `chained`: the chain of the prompt is wanted.
    fn member(
        &mut self,
        operation: Operation,
        chained: bool,
        key: &Raw<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<(), BadBody> {
        let name = key.name();
        match &*name {
            b"model" => {
                if self.model.is_some() {
                    return Err(BadBody::Duplicate { param: "model", at: key.at });
                }
                let at = cursor.at();
                let wrong = || BadBody::WrongType { param: "model", at, expected: "a string" };
                self.model = Some(text(cursor)?.ok_or_else(wrong)?);
            }
            b"stream" => self.stream = flag(cursor, "stream")?,
            b"max_tokens" => self.max_tokens = count(cursor, "max_tokens")?,
            b"max_completion_tokens" => self.max_completion_tokens = count(cursor, "max_completion_tokens")?,
            b"max_output_tokens" => self.max_output_tokens = count(cursor, "max_output_tokens")?,
            b"n" => self.n = count(cursor, "n")?,
            b"service_tier" => self.tier = text(cursor)?,
            b"prompt_cache_key" => self.cache_key = text(cursor)?,
            b"metadata" => {
                let mut found = Metadata { conversation: None };
                cursor.value(LEVEL, &mut found)?;
                self.conversation = found.conversation;
            }
            b"stream_options" => self.options = Options::read(cursor)?,
            b"tools" => self.tools = PromptSize::verbatim(cursor, LEVEL)?,
            b"functions" => self.functions = PromptSize::verbatim(cursor, LEVEL)?,
            name if name == operation.prompt_field().as_bytes() => {
                self.prompt = prompt_of(operation, cursor, chained)?
            }
            name if operation.preamble_field().is_some_and(|field| field.as_bytes() == name) => {
                let start = cursor.at();
                self.preamble = PromptSize::of(cursor, LEVEL)?;
                let value = cursor.since(start);
                self.preamble_hash = (chained && value != b"null").then(|| XxHash3_64::oneshot(value));
            }
            _ => cursor.value(LEVEL, &mut Skip)?,
        }
        Ok(())
    }

    fn finish(self, end: usize) -> Result<Scan<'a>, BadBody> {
        let written = self.model.ok_or(BadBody::Missing { param: "model" })?;
        let wrong = |expected| BadBody::WrongType { param: "model", at: written.at, expected };
        let model = written.decode().ok_or_else(|| wrong("a string of valid Unicode text"))?;
        if model.is_empty() {
            return Err(wrong("a string that is not empty"));
        }
        let mut size = self.prompt.size;
        for part in [&self.preamble, &self.tools, &self.functions] {
            size.add(part);
        }
        let names = [(self.cache_key, NamedBy::CacheKey), (self.conversation, NamedBy::Metadata)];
        let mut names = names.iter().filter_map(|(name, by)| Some((name.as_ref()?.name(), *by)));
        let (identity, named_by) = match names.find(|(name, _)| !name.is_empty()) {
            Some((name, by)) => (Identity::Named(named(&name)), Some(by)),
            None => (self.prompt.identity(self.preamble_hash), None),
        };
        Ok(Scan {
            model,
            model_span: written.at..written.end(),
            stream: self.stream,
            output_limit: self.max_completion_tokens.or(self.max_tokens).or(self.max_output_tokens),
            choices: self.n.unwrap_or(1),
            priority: self.tier.and_then(|tier| tier_priority(&tier.name())),
            identity,
            named_by,
            prompt: size,
            include_usage: self.options.include_usage,
            stream_options: self.options.span,
            end,
            usage_place: self.options.place,
        })
    }
}

fn tier_priority(tier: &[u8]) -> Option<Priority> {
    match tier {
        b"priority" => Some(Priority::High),
        b"flex" => Some(Priority::Low),
        _ => None,
    }
}

fn prompt_of(operation: Operation, cursor: &mut Cursor<'_>, chained: bool) -> Result<Prompt, BadBody> {
    let at = cursor.at();
    match operation.prompt_shape() {
        PromptShape::Plain => Prompt::plain(cursor, LEVEL),
        PromptShape::Blocks => Prompt::blocks(cursor, LEVEL, chained),
        PromptShape::Turns => Prompt::turns(cursor, LEVEL, operation == Operation::Responses, chained)?
            .ok_or_else(|| BadBody::WrongType { param: operation.prompt_field(), at, expected: "an array" }),
    }
}

/// A string; `None` for any other value.
fn text<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Raw<'a>>, BadBody> {
    if cursor.peek() == Some(b'"') {
        return cursor.string("a string").map(Some);
    }
    cursor.value(LEVEL, &mut Skip).map(|()| None)
}

/// `true`, `false` or `null`, which counts as `false`.
fn flag(cursor: &mut Cursor<'_>, param: &'static str) -> Result<bool, BadBody> {
    let at = cursor.at();
    cursor.value(LEVEL, &mut Skip)?;
    match cursor.since(at) {
        b"true" => Ok(true),
        b"false" | b"null" => Ok(false),
        _ => Err(BadBody::WrongType { param, at, expected: "true or false" }),
    }
}

/// A number or `null`. What is no whole number from 0 on is left to the engine, and is `None` here; what is too
/// large to count is as large as can be.
fn count(cursor: &mut Cursor<'_>, param: &'static str) -> Result<Option<u64>, BadBody> {
    if let Some(count) = cursor.whole() {
        return Ok(Some(count));
    }
    let at = cursor.at();
    cursor.value(LEVEL, &mut Skip)?;
    let value = cursor.since(at);
    match value {
        [b'0'..=b'9', ..] if value.iter().all(u8::is_ascii_digit) => Ok(Some(u64::MAX)),
        b"null" | [b'-' | b'0'..=b'9', ..] => Ok(None),
        _ => Err(BadBody::WrongType { param, at, expected: "a whole number" }),
    }
}

/// A walk over `metadata` that looks for a conversation's name.
struct Metadata<'a> {
    conversation: Option<Raw<'a>>,
}

impl<'a> Visit<'a> for Metadata<'a> {
    /// Whether it is the conversation's.
    type Key = bool;

    fn key(name: Raw<'a>) -> bool {
        *name.name() == *b"conversation_id"
    }

    fn string(&mut self, depth: usize, is_wanted: bool, value: Raw<'a>) {
        if depth == 1 && is_wanted {
            self.conversation = Some(value);
        }
    }
}
