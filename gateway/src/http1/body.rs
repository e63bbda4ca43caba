//! Where a body ends: after a length, after the last chunk, or with the connection (RFC 9112, 6.3).

use bytes::{Bytes, BytesMut};
use http_body::SizeHint;

use super::chunks::{BadChunk, Chunks};

/// What is left of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunks),
    /// All until the connection ends.
    Close,
}

impl Left {
    /// No body.
    pub const NONE: Self = Self::Length(0);

    /// A chunked body.
    pub fn chunked() -> Self {
        Self::Chunked(Chunks::default())
    }

    /// Whether the body was read to its end; never where only the connection's end tells.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::Close => false,
        }
    }

    /// Whether the end of the connection may be the end of the body.
    pub fn ends_with_connection(&self) -> bool {
        self.is_over() || matches!(self, Self::Close)
    }

    /// The next bytes of the body in `bytes`, which they are taken from; `None` when there are none.
    ///
    /// # Errors
    /// See [`BadChunk`].
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<Option<Bytes>, BadChunk> {
        let data = match self {
            Self::Chunked(chunks) => return Ok(chunks.take(bytes)?.map(BytesMut::freeze)),
            Self::Length(left) => {
                let size = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= size as u64;
                if size == bytes.len() { bytes.split() } else { bytes.split_to(size) }
            }
            Self::Close => bytes.split(),
        };
        Ok((!data.is_empty()).then(|| data.freeze()))
    }

    /// How many bytes are left, where that is known.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(chunks) if chunks.is_over() => SizeHint::with_exact(0),
            Self::Chunked(_) | Self::Close => SizeHint::default(),
        }
    }
}
