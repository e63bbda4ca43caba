//! The `usage` of an answer: how many tokens the engine says it took (R8), found in the last few kilobytes.
//!
//! Never parses an answer as a whole and never fails: an answer without a usage that makes sense has none.

use memchr::memrchr;

use super::request::BadBody;
use super::request::json::{Cursor, Skip};

/// How much of the end of an answer is kept, in bytes. The usage is one of the last fields of every engine's
/// answers and takes some 100 to 400 bytes.
pub const TAIL_BYTES: usize = 4096;

/// Token counts as an engine reported them. What it did not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the whole prompt, those found in the cache included.
    pub prompt: Option<u64>,
    /// Tokens of the answer.
    pub completion: Option<u64>,
    /// Tokens of the prompt that were found in the cache.
    pub cached: Option<u64>,
}

impl Usage {
    /// What `self` says, and where it is silent, what `earlier` said.
    pub fn or(self, earlier: Self) -> Self {
        Self {
            prompt: self.prompt.or(earlier.prompt),
            completion: self.completion.or(earlier.completion),
            cached: self.cached.or(earlier.cached),
        }
    }

    fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}

/// The last usage object in `tail`, the end of a JSON answer or of a stream; one that lies deeper than another, as in what
/// an engine echoes of a request, is not it. Text that a model wrote cannot be mistaken for one: inside a JSON string its
/// quotes are escaped.
pub fn find(tail: &[u8]) -> Option<Usage> {
    let mut before = tail;
    let mut best: Option<(usize, Usage)> = None;
    // No name inside of a usage has this letter.
    while let Some(at) = memrchr(b'g', before).filter(|at| *at >= BEFORE_G) {
        let (start, end) = (at - BEFORE_G, at - BEFORE_G + KEY.len());
        if tail.get(start..end) == Some(KEY)
            && let Some((usage, rest)) = tail.get(end..).and_then(usage)
        {
            let depth = depth(rest);
            if depth <= 1 {
                return Some(usage);
            }
            if best.is_none_or(|(least, _)| depth < least) {
                best = Some((depth, usage));
            }
        }
        before = before.get(..at).unwrap_or_default();
    }
    best.map(|(_, usage)| usage)
}

/// In how many objects and arrays something lies that is followed by `rest`: so many are closed there.
fn depth(rest: &[u8]) -> usize {
    let (mut open, mut depth, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in rest {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => open += 1,
            b'}' | b']' if open > 0 => open -= 1,
            b'}' | b']' => depth += 1,
            _ => {}
        }
    }
    depth
}

const KEY: &[u8] = br#""usage""#;
/// Bytes of it before its `g`.
const BEFORE_G: usize = 4;

/// Reads `: {…}` at the start of `rest`; gives what follows, too.
fn usage(rest: &[u8]) -> Option<(Usage, &[u8])> {
    let mut cursor = Cursor::new(rest);
    cursor.take(b':', "a value").ok()?;
    let mut counts = Counts::default();
    members(&mut cursor, |name, cursor| counts.member(name, cursor)).ok()?;
    let usage = Usage::from(counts);
    (!usage.is_silent()).then(|| (usage, rest.get(cursor.at()..).unwrap_or_default()))
}

/// Reads an object by its members; `read` takes the value of each.
fn members<'a>(
    cursor: &mut Cursor<'a>,
    mut read: impl FnMut(&[u8], &mut Cursor<'a>) -> Result<(), BadBody>,
) -> Result<(), BadBody> {
    let mut more = cursor.first_of(b'{', b'}')?;
    while more {
        let name = cursor.string("a key in quotes")?;
        cursor.take(b':', "`:` after a key")?;
        read(&name.name(), cursor)?;
        more = cursor.another(b'}', "`,` or `}` after a member")?;
    }
    Ok(())
}

/// What the three dialects call it: chat and completions, responses, messages.
#[derive(Default)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Counts {
    fn member(&mut self, name: &[u8], cursor: &mut Cursor<'_>) -> Result<(), BadBody> {
        match name {
            b"prompt_tokens" => self.prompt_tokens = count(cursor)?,
            b"completion_tokens" => self.completion_tokens = count(cursor)?,
            b"input_tokens" => self.input_tokens = count(cursor)?,
            b"output_tokens" => self.output_tokens = count(cursor)?,
            b"cache_read_input_tokens" => self.cache_read_input_tokens = count(cursor)?,
            b"cache_creation_input_tokens" => self.cache_creation_input_tokens = count(cursor)?,
            b"prompt_tokens_details" | b"input_tokens_details" if cursor.peek() == Some(b'{') => {
                members(cursor, |name, cursor| match name {
                    b"cached_tokens" => count(cursor).map(|cached| self.cached_tokens = cached),
                    _ => cursor.value(DETAIL, &mut Skip),
                })?;
            }
            _ => cursor.value(MEMBER, &mut Skip)?,
        }
        Ok(())
    }
}

/// How deep members of a usage lie in it, and those of its details.
const MEMBER: usize = 1;
const DETAIL: usize = 2;

/// A whole number from 0 on, or `null`. Anything else is no usage that makes sense.
fn count(cursor: &mut Cursor<'_>) -> Result<Option<u64>, BadBody> {
    cursor.peek();
    if let Some(count) = cursor.whole() {
        return Ok(Some(count));
    }
    let at = cursor.at();
    cursor.value(MEMBER, &mut Skip)?;
    if cursor.since(at) == b"null" { Ok(None) } else { Err(cursor.wanted("a whole number")) }
}

/// More tokens than any request holds: an engine that says so is wrong, and is not believed.
const MOST: u64 = 1 << 24;

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let likely = |count: Option<u64>| count.filter(|count| *count < MOST);
        // The messages API counts what the cache held, and what went into it, beside `input_tokens`, not in it.
        let beside = counts
            .cache_read_input_tokens
            .unwrap_or(0)
            .saturating_add(counts.cache_creation_input_tokens.unwrap_or(0));
        Self {
            prompt: likely(
                counts.prompt_tokens.or(counts.input_tokens.map(|input| input.saturating_add(beside))),
            ),
            completion: likely(counts.completion_tokens.or(counts.output_tokens)),
            cached: likely(counts.cached_tokens.or(counts.cache_read_input_tokens)),
        }
    }
}

/// The last [`TAIL_BYTES`] of a body that comes in chunks. Holds at most twice that.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    kept: Vec<u8>,
}

impl Tail {
    /// Adds a chunk. Costs a copy of it, or of its last [`TAIL_BYTES`].
    pub fn push(&mut self, chunk: &[u8]) {
        if let Some(end) = chunk.last_chunk::<TAIL_BYTES>() {
            self.kept.clear();
            self.kept.extend_from_slice(end);
            return;
        }
        if self.kept.len() + chunk.len() > 2 * TAIL_BYTES {
            self.kept.drain(..self.kept.len().saturating_sub(TAIL_BYTES));
        }
        self.kept.extend_from_slice(chunk);
    }

    /// The end of what was pushed: all of it, or its last [`TAIL_BYTES`].
    pub fn as_slice(&self) -> &[u8] {
        self.kept.last_chunk::<TAIL_BYTES>().map_or(&self.kept, |end| end)
    }

    /// The usage of what was pushed.
    pub fn usage(&self) -> Option<Usage> {
        find(self.as_slice())
    }

    /// The usage of a JSON answer that ends with `last`, which was not pushed.
    pub fn usage_with(&mut self, last: &[u8]) -> Option<Usage> {
        if self.kept.is_empty() {
            return find(last.last_chunk::<TAIL_BYTES>().map_or(last, |end| end));
        }
        self.push(last);
        self.usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt: u64, completion: u64, cached: u64) -> Usage {
        Usage { prompt: Some(prompt), completion: Some(completion), cached: Some(cached) }
    }

    #[test]
    fn r8_usage_of_each_dialect() {
        let chat = br#"{"choices":[],"usage":{"completion_tokens":7,"prompt_tokens":639,"total_tokens":646,"prompt_tokens_details":{"cached_tokens":621}},"timings":{"n":1}}"#;
        assert_eq!(find(chat), Some(usage(639, 7, 621)));
        let responses = br#"{"output":[], "usage" : {"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":2},"metadata":{}}"#;
        assert_eq!(find(responses), Some(usage(10, 2, 4)));
        let messages =
            br#"{"usage":{"cache_read_input_tokens":30,"cache_creation_input_tokens":5,"input_tokens":10,"output_tokens":2}}"#;
        assert_eq!(find(messages), Some(usage(45, 2, 30)));
        let spaced = br#"{"usage" : { "prompt_tokens" : 5 , "prompt_tokens_details" : null, "x": [{"g": 1}], "completion_tokens":null } }"#;
        assert_eq!(find(spaced), Some(Usage { prompt: Some(5), ..Usage::default() }));
        let embeddings = br#"{"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
        assert_eq!(find(embeddings), Some(Usage { prompt: Some(8), ..Usage::default() }));
    }

    #[test]
    fn the_last_usage_that_makes_sense_is_taken() {
        let body = br#"{"usage":{"prompt_tokens":1}} {"usage":{"prompt_tokens":2}} {"usage":null} {"usage":{}} {"content":"usage"}"#;
        assert_eq!(find(body), Some(Usage { prompt: Some(2), ..Usage::default() }));
    }

    #[test]
    fn r8_counts_that_cannot_be_are_no_counts() {
        let body = br#"{"usage":{"prompt_tokens":18446744073709551615,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4294967296}}}"#;
        assert_eq!(find(body), Some(Usage { completion: Some(7), ..Usage::default() }));
    }

    #[test]
    fn r8_what_an_engine_echoes_of_a_request_is_not_its_usage() {
        let echo = br#"{"usage":{"prompt_tokens":11,"x":{"usage":{"prompt_tokens":99}}},"metadata":{"s":"}\"{","usage":{"prompt_tokens":99}}}"#;
        assert_eq!(find(echo), Some(Usage { prompt: Some(11), ..Usage::default() }));
        let event = b"data: {\"response\":{\"usage\":{\"input_tokens\":7},\"metadata\":{\"usage\":{\"input_tokens\":99}}}}\n\ndata: [DONE]\n\n";
        assert_eq!(find(event), Some(Usage { prompt: Some(7), ..Usage::default() }));
        let later = b"data: {\"message\":{\"usage\":{\"input_tokens\":7}}}\n\ndata: {\"usage\":{\"output_tokens\":3}}\n\n";
        assert_eq!(find(later), Some(Usage { completion: Some(3), ..Usage::default() }));
    }

    #[test]
    fn text_of_the_model_is_not_usage() {
        assert_eq!(find(br#"{"content":"\"usage\":{\"prompt_tokens\":9}"}"#), None);
    }

    #[test]
    fn garbage_has_no_usage() {
        for body in [
            &b""[..],
            b"\"usage\"",
            b"\"usage\":",
            b"\"usage\":{",
            b"\"usage\":{\"prompt_tokens\":-1}",
            b"\"usage\":{\"prompt_tokens\":\"1\"}",
            b"\"usage\":{\"prompt_tokens\":1.5}",
            b"\"usage\":{\"prompt_tokens\":18446744073709551616}",
            b"\"usage\":{\"prompt_tokens\":true}",
            b"\"usage\":{\"prompt_tokens\":1,}",
            b"\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":[]}}",
            b"gggg\"usag\":{}g",
            b"\"usage\":[]",
            b"\"usage\":{\"prompt_tokens\":1",
            b"\xff\"usage\":\xff",
        ] {
            assert_eq!(find(body), None, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn the_tail_is_the_end_whatever_the_chunks() {
        let body: Vec<u8> = (0..40_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for size in [1, 7, 1000, 4095, 4096, 4097, 9000, 40_000] {
            let mut tail = Tail::default();
            for chunk in body.chunks(size) {
                tail.push(chunk);
                assert!(tail.kept.len() <= 2 * TAIL_BYTES);
            }
            assert_eq!(tail.as_slice(), &body[body.len() - TAIL_BYTES..]);
        }
    }
}
