//! The scan of a `multipart/form-data` body (H1): finds the `model` part, and `stream` and `n` if they are there.
//!
//! Files are skipped at memory speed and never looked into.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;
use tidegate_shared::request::Identity;

use super::{BadBody, PromptSize, Scan, UsagePlace};

/// Scans the multipart body of a request whose `content-type` is `content_type`.
///
/// # Errors
/// [`BadBody`] if the type is not `multipart/form-data` with a boundary of 1 to 70 bytes, the body is cut short, or
/// there is not exactly one `model` part with a text in it.
pub fn scan<'a>(content_type: &str, body: &'a [u8]) -> Result<Scan<'a>, BadBody> {
    let boundary = boundary(content_type)?;
    let mut model = None;
    let (mut stream, mut choices) = (false, 1);
    let mut parts = Parts::new(&boundary, body)?;
    while let Some(part) = parts.next()? {
        let value = body.get(part.value.clone()).unwrap_or_default();
        match &*part.name {
            "model" if model.is_some() => {
                return Err(BadBody::Duplicate { param: "model", at: part.value.start });
            }
            "model" => model = Some((value, part.value)),
            "stream" => stream = value.eq_ignore_ascii_case(b"true") || value == b"1",
            "n" => choices = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok()).unwrap_or(1),
            _ => {}
        }
    }
    let (name, span) = model.ok_or(BadBody::Missing { param: "model" })?;
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty()).ok_or(BadBody::WrongType {
        param: "model",
        at: span.start,
        expected: "a text that is not empty",
    })?;
    Ok(Scan {
        model: Cow::Borrowed(name),
        model_span: span,
        stream,
        output_limit: None,
        choices,
        priority: None,
        identity: Identity::None,
        named_by: None,
        prompt: PromptSize { media_bytes: body.len() as u64, ..PromptSize::default() },
        include_usage: false,
        stream_options: None,
        end: body.len(),
        usage_place: UsagePlace::Nowhere,
    })
}

fn boundary(content_type: &str) -> Result<Cow<'_, str>, BadBody> {
    let (media, params) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !media.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(BadBody::Multipart { expected: "content-type multipart/form-data" });
    }
    param(params, "boundary")
        .filter(|boundary| (1..=70).contains(&boundary.len()))
        .ok_or(BadBody::Multipart { expected: "a boundary of 1 to 70 bytes in the content-type" })
}

/// The value of `name` in `; a=b; c="d"`, quotes and escapes removed.
fn param<'t>(mut params: &'t str, name: &str) -> Option<Cow<'t, str>> {
    loop {
        let (key, rest) = params.split_once('=')?;
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, after) = rest.split_once(';').unwrap_or((rest, ""));
                (Cow::Borrowed(value.trim()), after)
            }
        };
        // Words without a value (`form-data;`) may stand before the key.
        let key = key.rsplit(';').next().unwrap_or(key).trim();
        if key.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        params = after;
    }
}

/// The text up to the closing quote, and what follows it.
fn unquote(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut escaped = false;
    let (end, _) = quoted.char_indices().find(|&(_, c)| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    })?;
    let text = quoted.get(..end)?;
    let after = quoted.get(end + 1..)?;
    if !text.contains('\\') {
        return Some((Cow::Borrowed(text), after));
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Some((Cow::Owned(plain), after))
}

/// A part with a name.
struct Part {
    name: String,
    value: Range<usize>,
}

/// The parts of a body, in order.
struct Parts<'a> {
    body: &'a [u8],
    at: usize,
    delimiter: memmem::Finder<'static>,
    delimiter_len: usize,
}

impl<'a> Parts<'a> {
    fn new(boundary: &str, body: &'a [u8]) -> Result<Self, BadBody> {
        let delimiter = format!("\r\n--{boundary}");
        // The first delimiter may stand at the very start, without the line break that belongs to it.
        let at = match body.starts_with(delimiter.as_bytes().get(2..).unwrap_or_default()) {
            true => delimiter.len() - 2,
            false => memmem::find(body, delimiter.as_bytes())
                .map(|at| at + delimiter.len())
                .ok_or(BadBody::Multipart { expected: "the boundary that the content-type names" })?,
        };
        let delimiter_len = delimiter.len();
        Ok(Self {
            body,
            at,
            delimiter: memmem::Finder::new(delimiter.as_bytes()).into_owned(),
            delimiter_len,
        })
    }

    /// The next part that has a name; `None` after the closing delimiter.
    fn next(&mut self) -> Result<Option<Part>, BadBody> {
        loop {
            let rest = self.body.get(self.at..).unwrap_or_default();
            if rest.starts_with(b"--") {
                return Ok(None);
            }
            let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let start = self.at + padding;
            let part = self.body.get(start..).filter(|rest| rest.starts_with(b"\r\n"));
            let part =
                part.ok_or(BadBody::Multipart { expected: "a line break or `--` after the boundary" })?;
            let head_len = memmem::find(part, b"\r\n\r\n")
                .ok_or(BadBody::Multipart { expected: "an empty line after the headers of a part" })?;
            let value_start = start + head_len + 4;
            let value = self.body.get(value_start..).unwrap_or_default();
            let len = self
                .delimiter
                .find(value)
                .ok_or(BadBody::Multipart { expected: "a boundary after each part" })?;
            self.at = value_start + len + self.delimiter_len;
            if let Some(name) = part.get(..head_len).and_then(name) {
                return Ok(Some(Part { name, value: value_start..value_start + len }));
            }
        }
    }
}

/// The `name` in the `Content-Disposition` of a part's headers.
fn name(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    head.split("\r\n").find_map(|line| {
        let (field, value) = line.split_once(':')?;
        if !field.trim().eq_ignore_ascii_case("content-disposition") {
            return None;
        }
        let (kind, params) = value.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return None;
        }
        param(params, "name").map(Cow::into_owned)
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::splice_model;
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=----x";

    fn part(head: &str, value: &str) -> String {
        format!("------x\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    }

    fn body(parts: &[(&str, &str)]) -> String {
        parts.iter().map(|(head, value)| part(head, value)).collect::<String>() + "------x--\r\n"
    }

    #[test]
    fn h1_the_model_part_is_found_among_files() {
        let file = "RIFF name=\"model\"\r\n--x\r\n------\r\n".repeat(100);
        let body = body(&[
            ("name=\"file\"; filename=\"a;name=model.wav\"\r\nContent-Type: audio/wav", &file),
            ("filename=\"model\"; name=\"other\"", "no"),
            ("NAME=model", "whisper-1"),
            ("name=\"stream\"", "true"),
        ]);
        let scan = scan(TYPE, body.as_bytes()).unwrap();
        assert_eq!(scan.model, "whisper-1");
        assert_eq!(&body[scan.model_span.clone()], "whisper-1");
        assert!(scan.stream);
        assert!(scan.usage_edit().is_none());
    }

    #[test]
    fn h3_the_model_part_is_rewritten_in_place() {
        let text = body(&[("name=\"model\"", "alias"), ("name=\"file\"", "bytes")]);
        let scan = scan(TYPE, text.as_bytes()).unwrap();
        let spliced = splice_model(&Bytes::from(text.clone()), &scan, "real-name").unwrap();
        let joined = spliced.pieces.concat();
        assert_eq!(joined.len(), spliced.len);
        assert_eq!(String::from_utf8(joined).unwrap(), text.replace("alias", "real-name"));
    }

    #[test]
    fn the_boundary_may_be_quoted_and_the_type_in_any_case() {
        let text = body(&[("name=\"model\"", "m")]);
        for content_type in [
            "multipart/form-data; boundary=\"----x\"",
            "Multipart/Form-Data;charset=utf-8; Boundary=----x",
            "multipart/form-data; a=\"q\\\"; boundary=no\"; boundary=----x; b=c",
        ] {
            assert_eq!(scan(content_type, text.as_bytes()).unwrap().model, "m", "{content_type}");
        }
    }

    #[test]
    fn h4_what_is_wrong_is_said() {
        let good = body(&[("name=\"model\"", "m")]);
        let code = |content_type: &str, body: &str| scan(content_type, body.as_bytes()).unwrap_err().code();
        assert_eq!(code("application/json", &good), "invalid_multipart");
        assert_eq!(code("multipart/form-data", &good), "invalid_multipart");
        assert_eq!(code("multipart/form-data; boundary=", &good), "invalid_multipart");
        assert_eq!(code("multipart/form-data; boundary=other", &good), "invalid_multipart");
        assert_eq!(code(TYPE, ""), "invalid_multipart");
        assert_eq!(code(TYPE, &good[..good.len() - 12]), "invalid_multipart");
        assert_eq!(code(TYPE, &body(&[("name=\"file\"", "m")])), "missing_required_parameter");
        assert_eq!(code(TYPE, &body(&[("name=\"model\"", "")])), "invalid_type");
        let twice = body(&[("name=\"model\"", "a"), ("name=\"model\"", "b")]);
        assert_eq!(code(TYPE, &twice), "duplicate_parameter");
    }

    proptest! {
        #[test]
        fn no_input_panics(
            at in 0_usize..400,
            junk in proptest::collection::vec(any::<u8>(), 0..40),
            content_type in "(multipart/form-data; ?)?(boundary=)?[\"\\\\;=a ----x]{0,20}",
        ) {
            let mut bytes = body(&[("name=\"file\"; filename=\"f\"", "data"), ("name=\"model\"", "m")]).into_bytes();
            let at = at.min(bytes.len());
            bytes.splice(at..(at + 3).min(bytes.len()), junk);
            let _ = scan(TYPE, &bytes);
            let _ = scan(&content_type, &bytes);
        }
    }
}
