//! The frames of HTTP/2 as they lie on the wire (RFC 9113, 4.1 and 6): finds their heads in bytes that come in any pieces.
//!
//! Never looks into a frame but for the increment of a WINDOW_UPDATE, and never says that one is wrong.

/// Kinds of frames.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    #[cfg(test)]
    pub(in super::super) const RST_STREAM: u8 = 3;
    #[cfg(test)]
    pub(in super::super) const SETTINGS: u8 = 4;
    #[cfg(test)]
    pub(in super::super) const PING: u8 = 6;
    #[cfg(test)]
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// Bytes of the head of a frame, and of the increment behind the head of a WINDOW_UPDATE.
const HEAD: usize = 9;
const INCREMENT: usize = 4;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) length: usize,
}

impl Frame {
    /// Whether it brings neither headers nor data nor room.
    pub(super) fn is_idle(self) -> bool {
        match self.kind {
            kind::HEADERS | kind::CONTINUATION | kind::WINDOW_UPDATE => false,
            kind::DATA => self.length == 0 && self.flags & END_STREAM == 0,
            _ => true,
        }
    }
}

/// Finds the frames in bytes that come in any pieces.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The head of a frame, and the increment of a WINDOW_UPDATE.
    start: [u8; HEAD + INCREMENT],
    have: usize,
    /// Bytes of the present frame that are not in `start` and still to come.
    left: usize,
}

impl Scan {
    /// Looks at `bytes`; tells of each frame when its head is there, and again when all of it is.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Frame, Part)) {
        loop {
            if self.have >= HEAD && self.have == self.wanted() && self.left == 0 {
                tell(self.frame(), Part::Whole(self.increment()));
                self.have = 0;
            }
            if bytes.is_empty() {
                return;
            }
            let (had, wanted) = (self.have, self.wanted());
            if had == wanted {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let more = (wanted - had).min(bytes.len());
            self.start.iter_mut().skip(had).zip(bytes.iter().take(more)).for_each(|(to, from)| *to = *from);
            self.have += more;
            bytes = bytes.get(more..).unwrap_or_default();
            if had < HEAD && self.have == HEAD {
                let frame = self.frame();
                tell(frame, Part::Head);
                self.left = frame.length + HEAD - self.wanted();
            }
        }
    }

    /// Bytes that are kept of the present frame.
    fn wanted(&self) -> usize {
        if self.have < HEAD {
            return HEAD;
        }
        let frame = self.frame();
        if frame.kind == kind::WINDOW_UPDATE { HEAD + frame.length.min(INCREMENT) } else { HEAD }
    }

    fn frame(&self) -> Frame {
        let [a, b, c, kind, flags, d, e, f, g, ..] = self.start;
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Frame { kind, flags, stream, length }
    }

    fn increment(&self) -> u64 {
        let [.., a, b, c, d] = self.start;
        u64::from(u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff)
    }
}

/// What has come of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Head,
    /// All of it; with the increment, should it be a WINDOW_UPDATE.
    Whole(u64),
}

/// A frame, as a test sends it.
#[cfg(test)]
pub(super) fn of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h6_frames_are_found_in_bytes_that_come_in_any_pieces() {
        let frames = [
            of(4, 0, 0, &[0; 6]),
            of(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
            of(kind::HEADERS, 0, 1, &[7; 5]),
            of(kind::CONTINUATION, END_HEADERS, 1, &[]),
            of(kind::DATA, END_STREAM, 1, &[8; 300]),
            of(kind::WINDOW_UPDATE, 0, 5, &[0x80, 0, 0, 2]),
            // Malformed: the library says so.
            of(kind::WINDOW_UPDATE, 0, 0, &[0, 1]),
            of(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 3, 9, 9]),
            of(6, 1, 0, &[1; 8]),
        ]
        .concat();
        let found = |step: usize| {
            let (mut scan, mut found) = (Scan::default(), Vec::new());
            frames.chunks(step).for_each(|piece| {
                scan.push(piece, |frame, part| {
                    let part = if frame.kind == kind::WINDOW_UPDATE || part == Part::Head {
                        Some(part)
                    } else {
                        None
                    };
                    found.push((frame.kind, frame.flags, frame.stream, frame.length, part));
                });
            });
            assert_eq!((scan.have, scan.left), (0, 0), "in pieces of {step}");
            found
        };
        let whole = found(frames.len());
        assert_eq!(whole.len(), 18, "the head and the end of each");
        assert_eq!(whole[3], (kind::WINDOW_UPDATE, 0, 0, 4, Some(Part::Whole(256))));
        assert_eq!(whole[11], (kind::WINDOW_UPDATE, 0, 5, 4, Some(Part::Whole(2))));
        assert_eq!(whole[15], (kind::WINDOW_UPDATE, 0, 0, 6, Some(Part::Whole(3))));
        for step in 1..frames.len() {
            assert_eq!(found(step), whole, "in pieces of {step}");
        }
    }
}
