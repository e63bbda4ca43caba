//! A body that a client sends piece by piece: of a length that it does not tell, shorter than a header announces, or
//! without an end.
//!
//! Never waits between two pieces: a connection takes them as fast as its peer lets it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};

/// See the module. Dropped before its end, it is cut.
#[derive(Debug)]
pub struct Partly {
    pieces: VecDeque<Bytes>,
    whole: bool,
}

impl Partly {
    /// These pieces and then the end, whatever a header has announced.
    pub fn whole(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self { pieces: pieces.into_iter().collect(), whole: true }
    }

    /// These pieces, and no end.
    pub fn endless(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self { pieces: pieces.into_iter().collect(), whole: false }
    }
}

impl Body for Partly {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.whole => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
