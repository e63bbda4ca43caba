//! Where a string of JSON ends, or an escape in it begins. Decodes nothing.

use memchr::memchr2;

use super::{BadBody, wanted};

/// The place of the first `"` or `\`. Most lines are short, and a call of the vector search costs more than they do.
#[inline]
pub(super) fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    in_words(bytes).or_else(|| memchr2(b'"', b'\\', bytes))
}

/// The same, if it is found in the first two words of eight bytes.
#[inline]
pub(super) fn in_words(bytes: &[u8]) -> Option<usize> {
    let (first, rest) = bytes.split_first_chunk()?;
    let second = || in_word(rest.first_chunk()?).map(|at| 8 + at);
    in_word(first).or_else(second)
}

#[inline]
fn in_word(word: &[u8; 8]) -> Option<usize> {
    let word = u64::from_le_bytes(*word);
    let hits = zero_bytes(word ^ QUOTES) | zero_bytes(word ^ ESCAPES);
    (hits != 0).then(|| (hits.trailing_zeros() / 8) as usize)
}

const ONES: u64 = u64::MAX / 0xff;
const QUOTES: u64 = ONES * b'"' as u64;
const ESCAPES: u64 = ONES * b'\\' as u64;

/// The high bit of each byte that is zero. Bytes above the lowest such byte may be marked wrongly; the lowest is right.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The escape at `at`: its length as written, and as UTF-8. Half of a surrogate pair counts as two bytes.
pub(super) fn escape(bytes: &[u8], at: usize) -> Result<(usize, usize), BadBody> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((2, 1)),
        Some(b'u') => {
            let mut unit = 0;
            for place in at + 2..at + 6 {
                let digit = bytes.get(place).and_then(|&byte| char::from(byte).to_digit(16));
                unit = unit * 16 + digit.ok_or_else(|| wanted(bytes, place, "a hexadecimal digit"))?;
            }
            Ok((
                6,
                match unit {
                    0..0x80 => 1,
                    0x80..0x800 | 0xd800..0xe000 => 2,
                    _ => 3,
                },
            ))
        }
        _ => Err(wanted(bytes, at + 1, "one of `\"\\/bfnrtu` after `\\`")),
    }
}
