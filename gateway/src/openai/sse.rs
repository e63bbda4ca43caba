//! The scan of a streamed answer (`text/event-stream`): where events end, how many there were, whether the stream
//! said that it is done or that it failed (C-126), and its usage.
//!
//! Bytes are looked at on their way and never held back. Per event it costs one search for the line's end, a look at
//! the line's first bytes and a copy of the event into the tail; no JSON is parsed before the end.

use memchr::{memchr2, memmem};

use super::usage::{self, TAIL_BYTES, Tail, Usage};

/// How much of a line's start tells what it is. Enough for `data: {"error": {` with white space to spare.
const HEAD_BYTES: usize = 64;

/// Names of the events with which streams of messages and of responses end.
const LAST: [&[u8]; 3] = [b"message_stop", b"response.completed", b"response.incomplete"];

/// What a stream was, once it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Data events, `[DONE]` not counted.
    pub events: u64,
    /// Whether the last event was seen: see [`SseScan::done`].
    pub done: bool,
    /// Whether the engine reported an error in the stream, although its status was 200.
    pub failed: bool,
    /// Whether the stream ended at an event's end.
    pub at_boundary: bool,
    /// Whether it ended in the middle of an event that a client waits for: neither the last event nor an error was seen.
    pub torn: bool,
    /// The usage of the stream, if it had one in its last [`TAIL_BYTES`], completed by that of its first event.
    pub usage: Option<Usage>,
}

/// The scanner of one stream. Its state is some 100 bytes and a tail of at most twice [`TAIL_BYTES`].
#[derive(Clone, Debug)]
pub struct SseScan {
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// Bytes of the present line, its head included.
    line_len: u64,
    /// The last byte was a CR that ended a line; a LF belongs to it.
    after_cr: bool,
    at_boundary: bool,
    has_data: bool,
    /// The present event is named as the last one.
    is_last: bool,
    events: u64,
    done: bool,
    failed: bool,
    tail: Tail,
    opening: Usage,
}

impl Default for SseScan {
    fn default() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_len: 0,
            line_len: 0,
            after_cr: false,
            at_boundary: true,
            has_data: false,
            is_last: false,
            events: 0,
            done: false,
            failed: false,
            tail: Tail::default(),
            opening: Usage::default(),
        }
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Data,
    Done,
    /// The name of the last event of its stream.
    Last,
    Error,
    /// A comment, another field, or nothing that a client would read.
    Other,
}

impl SseScan {
    /// A scanner at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at the next bytes of the stream. How they are cut in chunks makes no difference.
    pub fn push(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        // The usage of the first event is read when nothing behind that is in the tail.
        while self.events == 0 && !rest.is_empty() {
            let (line, after) = first_line(rest);
            self.tail.push(line);
            self.see(line);
            rest = after;
        }
        self.tail.push(rest);
        while !rest.is_empty() {
            let (line, after) = first_line(rest);
            self.see(line);
            rest = after;
        }
    }

    /// Looks at a line, or a part of one that has no end yet.
    fn see(&mut self, line: &[u8]) {
        if std::mem::take(&mut self.after_cr) && line == b"\n" {
            return;
        }
        match line.split_last() {
            Some((end @ (b'\n' | b'\r'), line)) => {
                self.after_cr = *end == b'\r';
                self.end_line(line);
            }
            _ => self.extend_line(line),
        }
    }

    /// Whether the bytes so far end where an event ends: bytes put in here (an event, a comment) break no event.
    pub fn at_boundary(&self) -> bool {
        self.at_boundary
    }

    /// Data events so far, `[DONE]` not counted.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether all was said: `[DONE]` was seen, or the event that ends a stream of messages or responses. Clients may close then.
    pub fn done(&self) -> bool {
        self.done
    }

    /// Whether an error was seen at the start of an event. One deeper in the last event is found by
    /// [`SseScan::finish`].
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The verdict on the whole stream. Counts a last line that has no end.
    pub fn finish(&self) -> StreamEnd {
        let last = classify(self.head.get(..self.head_len).unwrap_or_default());
        let tail = self.tail.as_slice();
        let usage = usage::find(tail).unwrap_or_default().or(self.opening);
        let done = self.done || last == Line::Done;
        let failed = self.failed || last == Line::Error || holds_error(tail);
        let is_comment = self.head.starts_with(b":");
        let in_event = self.has_data || (self.line_len > 0 && !is_comment);
        StreamEnd {
            events: self.events,
            done,
            failed,
            torn: in_event && !done && !failed,
            at_boundary: self.at_boundary,
            usage: Some(usage).filter(|usage| *usage != Usage::default()),
        }
    }

    fn extend_line(&mut self, more: &[u8]) {
        let free = self.head.get_mut(self.head_len..).unwrap_or_default();
        for (to, from) in free.iter_mut().zip(more) {
            *to = *from;
        }
        self.head_len = (self.head_len + more.len()).min(HEAD_BYTES);
        self.line_len += more.len() as u64;
        self.at_boundary = false;
    }

    /// Ends the present line with `rest`, its last bytes.
    fn end_line(&mut self, rest: &[u8]) {
        if self.line_len == 0 {
            if rest.is_empty() {
                return self.end_event();
            }
            self.note(classify(rest.get(..HEAD_BYTES).unwrap_or(rest)));
        } else {
            self.extend_line(rest);
            self.note(classify(self.head.get(..self.head_len).unwrap_or_default()));
            (self.head_len, self.line_len) = (0, 0);
        }
        self.at_boundary = false;
    }

    fn note(&mut self, line: Line) {
        match line {
            Line::Data => self.has_data = true,
            Line::Error => (self.has_data, self.failed) = (true, true),
            Line::Done => self.done = true,
            Line::Last => self.is_last = true,
            Line::Other => {}
        }
    }

    fn end_event(&mut self) {
        self.at_boundary = true;
        let is_last = std::mem::take(&mut self.is_last);
        if std::mem::take(&mut self.has_data) {
            self.events += 1;
            self.done |= is_last;
            // The messages API tells the prompt's tokens in its first event only.
            if self.events == 1 {
                self.opening = self.tail.usage().unwrap_or_default();
            }
        }
    }
}

/// The first line with the byte that ends it, or all where none does; and what is behind it.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    // An empty line is every other one.
    let end = if bytes.first() == Some(&b'\n') { Some(0) } else { memchr2(b'\n', b'\r', bytes) };
    end.and_then(|end| bytes.split_at_checked(end + 1)).unwrap_or((bytes, &[]))
}

/// What a line is, by its first [`HEAD_BYTES`].
fn classify(head: &[u8]) -> Line {
    if let Some(value) = head.strip_prefix(b"data:") {
        let value = value.trim_ascii_start();
        return match value.first() {
            Some(b'{') if opens_with_error(value) => Line::Error,
            Some(b'[') if value.starts_with(b"[DONE]") => Line::Done,
            _ => Line::Data,
        };
    }
    match head.first() {
        Some(b'e') if head.strip_prefix(b"event:").is_some_and(|name| LAST.contains(&name.trim_ascii())) => {
            Line::Last
        }
        // An error without the field's name, as some engines write it when they fail midway.
        Some(b'{') if opens_with_error(head) => Line::Error,
        Some(b'e') if head.strip_prefix(b"event:").is_some_and(|name| name.trim_ascii() == b"error") => {
            Line::Error
        }
        Some(b'e') if head.starts_with(b"error:") => Line::Error,
        _ => Line::Other,
    }
}

/// Whether an object begins with an `error` that is not null, or says that it is one (`"object":"error"`,
/// `"type":"error"`).
fn opens_with_error(object: &[u8]) -> bool {
    let members = object.strip_prefix(b"{").unwrap_or_default().trim_ascii_start();
    // Nearly every event begins with its `id`.
    if !matches!(members, [b'"', b'e' | b'o' | b't', ..]) {
        return false;
    }
    let member = |name: &[u8]| {
        let rest = members.strip_prefix(name)?;
        Some(rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
    };
    let says_error = |value: &[u8]| value.starts_with(b"\"error\"");
    member(b"\"error\"").is_some_and(|value| !value.starts_with(b"null"))
        || member(b"\"object\"").is_some_and(says_error)
        || member(b"\"type\"").is_some_and(says_error)
}

/// Whether an object `error` is anywhere in `tail`. What a model wrote cannot be mistaken for one, its quotes are
/// escaped.
fn holds_error(tail: &[u8]) -> bool {
    const KEY: &[u8] = b"\"error\"";
    debug_assert!(tail.len() <= TAIL_BYTES);
    memmem::find_iter(tail, KEY).any(|at| {
        let value = tail.get(at + KEY.len()..).unwrap_or_default().trim_ascii_start();
        value.strip_prefix(b":").is_some_and(|value| value.trim_ascii_start().starts_with(b"{"))
    })
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
