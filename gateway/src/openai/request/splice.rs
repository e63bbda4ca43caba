//! Changing a few bytes of a body on its way to a replica (H3): the rest is shared, not copied.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

/// Bytes to put in place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What goes, in bytes of the body; empty for an insertion.
    pub range: Range<usize>,
    /// What comes.
    pub with: Bytes,
}

/// A body in pieces, to be sent one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spliced {
    /// The pieces, none of them empty.
    pub pieces: SmallVec<[Bytes; 1]>,
    /// Their length together in bytes: the new `content-length`.
    pub len: usize,
}

impl Spliced {
    fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }
}

/// `body` with `edits` made, whatever their order. `None` if they overlap or are not all within the body, which
/// edits made from the scan of this very body never are.
pub fn splice(body: &Bytes, mut edits: SmallVec<[Edit; 2]>) -> Option<Spliced> {
    edits.sort_by_key(|edit| edit.range.start);
    let mut out = Spliced::default();
    let mut from = 0;
    for Edit { range, with } in edits {
        if range.start < from || range.end < range.start || range.end > body.len() {
            return None;
        }
        out.push(body.slice(from..range.start));
        out.push(with);
        from = range.end;
    }
    out.push(body.slice(from..));
    Some(out)
}
