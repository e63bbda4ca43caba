//! `stream_options`: whether a streamed answer ends with its usage, and where that can be set (H3).

use std::ops::Range;

use super::LEVEL;
use super::bad::BadBody;
use super::json::{Cursor, Raw, Visit};

/// How `include_usage` can be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum UsagePlace {
    /// Not at all: the body is no JSON.
    Nowhere,
    /// With a member `stream_options` at the body's end.
    #[default]
    NewOptions,
    /// With an object in place of `null`.
    Options(Range<usize>),
    /// With a first member in the object; whether others follow.
    First(usize, bool),
    /// In place of its present value.
    Value(Range<usize>),
}

/// A walk over `stream_options`.
#[derive(Default)]
pub(super) struct Options {
    pub(super) include_usage: bool,
    pub(super) place: UsagePlace,
    pub(super) span: Option<Range<usize>>,
    wrong: Option<usize>,
}

impl Options {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, BadBody> {
        let start = cursor.at();
        let first = cursor.peek();
        let mut found = Self::default();
        cursor.value(LEVEL, &mut found)?;
        let (span, value) = (start..cursor.at(), cursor.since(start));
        match (first, value, &found.place) {
            (_, b"null", _) => found.place = UsagePlace::Options(span.clone()),
            (Some(b'{'), [_, inner @ .., _], UsagePlace::NewOptions) => {
                found.place = UsagePlace::First(start + 1, !inner.trim_ascii().is_empty());
            }
            (Some(b'{'), ..) => {}
            _ => {
                return Err(BadBody::WrongType { param: "stream_options", at: start, expected: "an object" });
            }
        }
        if let Some(at) = found.wrong {
            let param = "stream_options.include_usage";
            return Err(BadBody::WrongType { param, at, expected: "true or false" });
        }
        found.span = Some(span);
        Ok(found)
    }
}

impl<'a> Visit<'a> for Options {
    /// Where `include_usage` is, if it is that.
    type Key = Option<usize>;

    fn key(name: Raw<'a>) -> Option<usize> {
        (*name.name() == *b"include_usage").then_some(name.at)
    }

    fn word(&mut self, depth: usize, key: Option<usize>, value: &'static str, at: usize) {
        if depth == 1 && key.is_some() {
            self.include_usage = value == "true";
            self.place = UsagePlace::Value(at..at + value.len());
        }
    }

    fn string(&mut self, depth: usize, key: Option<usize>, _: Raw<'a>) {
        if depth == 1 {
            self.wrong = key.or(self.wrong);
        }
    }

    fn number(&mut self, depth: usize, key: Option<usize>, _: &'a [u8]) {
        if depth == 1 {
            self.wrong = key.or(self.wrong);
        }
    }
}
