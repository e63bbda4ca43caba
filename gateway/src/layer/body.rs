//! Bodies: what goes to a replica, and what goes to a client.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;

use super::keepalive::Kept;
use super::relay::Relay;
use crate::http1::fields::Fields;

/// Nearly always one; more where some bytes were rewritten.
pub type Pieces = SmallVec<[Bytes; 1]>;

/// A request body in memory, in pieces: the client's bytes, cut only where a rule rewrites some of them (H3). Cheap to
/// clone, so that it can be sent again.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    pieces: Pieces,
    next: usize,
    left: u64,
}

impl RequestBody {
    /// The pieces, one after the other.
    pub fn new(pieces: Pieces) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces, next: 0, left }
    }

    /// All pieces, those that were sent included.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// Bytes in all pieces.
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(SmallVec::from_iter([bytes]))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while let Some(piece) = self.pieces.get(self.next).cloned() {
            self.next += 1;
            self.left -= piece.len() as u64;
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// An answer to a client.
#[derive(Debug)]
pub struct Response<B = ResponseBody> {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub fields: Fields,
    /// Its body.
    pub body: B,
}

impl<B> Response<B> {
    /// One without a field yet.
    pub fn new(status: StatusCode, body: B) -> Self {
        Self { status, fields: Fields::default(), body }
    }
}

/// A response body.
#[derive(Debug)]
pub enum ResponseBody {
    /// The gateway's own, whole; `None` once sent.
    Own(Option<Bytes>),
    /// A replica's, as it comes.
    Relay(Relay),
    /// Either, with comments in its silences.
    Kept(Box<Kept>),
}

impl ResponseBody {
    /// The client takes it too slowly. Whether this is new: it may have been taken away before.
    pub fn give_up(&mut self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Relay(relay) => relay.give_up(),
            Self::Kept(kept) => kept.give_up(),
        }
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::Own((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = super::stream::Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relay(relay) => Pin::new(relay).poll_frame(cx),
            Self::Kept(kept) => Pin::new(&mut **kept).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Relay(relay) => relay.is_end_stream(),
            Self::Kept(kept) => kept.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Relay(relay) => relay.size_hint(),
            Self::Kept(kept) => kept.size_hint(),
        }
    }
}
