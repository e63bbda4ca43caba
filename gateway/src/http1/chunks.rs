//! The chunked transfer coding (RFC 9112, 7.1), read from bytes that come in any pieces.
//!
//! Strict: a line ends with CR LF and nothing else, a size is 1 to 16 hexadecimal digits. What a sender may put beside
//! the data (extensions, trailers) is bounded, checked for its line ends, and thrown away.

use bytes::{Buf, BytesMut};
use thiserror::Error;

/// Bytes of extensions, and of trailers, in one body.
const ASIDE_MAX: u32 = 16 << 10;

/// Digits of a size that is read at once.
const PLAIN_DIGITS: usize = 8;

/// The bytes are no chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("bad chunk: {0}")]
pub struct BadChunk(&'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first digit of a size.
    Start,
    /// After this many digits.
    Size(u8),
    /// After white space behind a size.
    Space,
    Extension,
    /// Before the LF that ends the line of a size.
    SizeEnd,
    Data,
    /// Before the CR, and before the LF, behind the data.
    DataEnd,
    DataEndLf,
    /// At the start of a line behind the last chunk.
    Trailer,
    /// Inside such a line.
    InTrailer,
    TrailerLf,
    /// Before the very last byte.
    LastLf,
    End,
    /// It is no chunked body, and never ends.
    Broken(BadChunk),
}

/// Where in a chunked body the reader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    at: At,
    /// The size so far, then what is left of the chunk.
    left: u64,
    extensions: u32,
    trailers: u32,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Start, left: 0, extensions: 0, trailers: 0 }
    }
}

impl Chunks {
    /// Whether the body was read to its end.
    pub fn is_over(&self) -> bool {
        self.at == At::End
    }

    /// The next data in `bytes`, which it is taken from together with the framing around it; `None` when there is none:
    /// the body is over or `bytes` is used up. The framing behind data is read at once, so that the end is known as
    /// early as it can be; what is wrong with it is said next, since the data came whole (H3).
    ///
    /// # Errors
    /// See [`BadChunk`]. The body has no end then that could be trusted, and this is all that is said from then on.
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<Option<BytesMut>, BadChunk> {
        self.skip(bytes)?;
        if self.at != At::Data || bytes.is_empty() {
            return Ok(None);
        }
        let size = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let data = bytes.split_to(size);
        self.left -= size as u64;
        if self.left == 0 {
            self.at = At::DataEnd;
            // What broke it is kept, and so are the bytes that did.
            let _ = self.skip(bytes);
        }
        Ok(Some(data))
    }

    /// Reads framing up to the next data.
    fn skip(&mut self, bytes: &mut BytesMut) -> Result<(), BadChunk> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut read = self.skip_plain(bytes);
        while !matches!(self.at, At::Data | At::End)
            && let Some(byte) = bytes.get(read)
        {
            self.at = self.step(*byte).inspect_err(|bad| self.at = At::Broken(*bad))?;
            read += 1;
        }
        bytes.advance(read);
        Ok(())
    }

    /// Reads what nearly all framing is, the end of a chunk and a size alone on its line, and gives how many bytes that was;
    /// what is none of it, or not all there, is left to [`Chunks::step`].
    fn skip_plain(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        if self.at == At::DataEnd
            && let Some(after) = rest.strip_prefix(b"\r\n")
        {
            (self.at, self.left, rest) = (At::Start, 0, after);
        }
        if self.at == At::Start {
            let mut size = 0;
            for (count, byte) in rest.iter().take(PLAIN_DIGITS + 1).enumerate() {
                if let Some(digit) = char::from(*byte).to_digit(16) {
                    size = (size << 4) | u64::from(digit);
                } else if let (1.., Some([b'\r', b'\n', after @ ..])) = (size, rest.get(count..)) {
                    (self.at, self.left, rest) = (At::Data, size, after);
                    break;
                } else {
                    break;
                }
            }
        }
        bytes.len() - rest.len()
    }

    fn step(&mut self, byte: u8) -> Result<At, BadChunk> {
        match (self.at, byte) {
            (At::Start, _) => self.digit(byte, 0),
            (At::Size(_) | At::Space, b' ' | b'\t') => self.aside(At::Space),
            (At::Size(_) | At::Space, b';') => self.aside(At::Extension),
            (At::Size(_) | At::Space | At::Extension, b'\r') => Ok(At::SizeEnd),
            (At::Size(digits), _) => self.digit(byte, digits),
            (At::Space, _) => Err(BadChunk("its size is no number")),
            (At::Extension, b'\n') => Err(BadChunk("a line ends with LF alone")),
            (At::Extension, _) => self.aside(At::Extension),
            (At::SizeEnd, b'\n') if self.left == 0 => Ok(At::Trailer),
            (At::SizeEnd, b'\n') => Ok(At::Data),
            (At::DataEnd, b'\r') => Ok(At::DataEndLf),
            (At::DataEndLf, b'\n') => Ok(At::Start),
            (At::DataEnd | At::DataEndLf, _) => Err(BadChunk("it is longer than its size")),
            (At::Trailer, b'\r') => Ok(At::LastLf),
            (At::InTrailer, b'\r') => Ok(At::TrailerLf),
            (At::Trailer | At::InTrailer, b'\n') => Err(BadChunk("a line ends with LF alone")),
            (At::Trailer | At::InTrailer, _) => {
                self.trailers += 1;
                if self.trailers > ASIDE_MAX {
                    Err(BadChunk("its trailers are too long"))
                } else {
                    Ok(At::InTrailer)
                }
            }
            (At::TrailerLf, b'\n') => Ok(At::Trailer),
            (At::LastLf, b'\n') => Ok(At::End),
            (At::SizeEnd | At::TrailerLf | At::LastLf, _) => Err(BadChunk("a line ends with CR alone")),
            (At::Broken(bad), _) => Err(bad),
            (At::Data | At::End, _) => Ok(self.at),
        }
    }

    /// One more digit of a size that has so many.
    fn digit(&mut self, byte: u8, digits: u8) -> Result<At, BadChunk> {
        let value = char::from(byte).to_digit(16).ok_or(BadChunk("its size is no number"))?;
        if digits == 16 {
            return Err(BadChunk("its size has more than 16 digits"));
        }
        self.left = (self.left << 4) | u64::from(value);
        Ok(At::Size(digits + 1))
    }

    fn aside(&mut self, next: At) -> Result<At, BadChunk> {
        self.extensions += 1;
        if self.extensions > ASIDE_MAX { Err(BadChunk("its extensions are too long")) } else { Ok(next) }
    }
}
