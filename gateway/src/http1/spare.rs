//! Memory for bytes that are about to leave. They mostly leave at once, so a few pieces of it serve all messages of a
//! core, one after the other; those whose other side is slow keep theirs meanwhile.

use std::cell::RefCell;

/// Bytes of the largest piece that is kept.
const LARGEST: usize = 32 << 10;
/// Pieces that are kept, and the bytes of them all: as many as messages often wait for their turn at a time.
const PIECES: usize = 256;
const BYTES: usize = 1 << 20;

/// What is kept.
struct Spare {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { pieces: Vec::new(), bytes: 0 }) };
}

/// Memory with nothing in it.
pub fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(|spare| {
        let piece = spare.pieces.pop().unwrap_or_default();
        spare.bytes -= piece.capacity();
        piece
    })
}

/// Gives memory back that is not needed any more.
pub fn give(mut memory: Vec<u8>) {
    let size = memory.capacity();
    if (1..=LARGEST).contains(&size) {
        memory.clear();
        SPARE.with_borrow_mut(|spare| {
            if spare.pieces.len() < PIECES && spare.bytes + size <= BYTES {
                spare.bytes += size;
                spare.pieces.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_072_memory_goes_round_empty_and_only_up_to_a_size() {
        give(b"Bearer sk".to_vec());
        let memory = take();
        assert!(memory.is_empty() && memory.capacity() >= 9);
        assert_eq!(take().capacity(), 0, "there was one piece");
        give(Vec::with_capacity(LARGEST + 1));
        assert_eq!(take().capacity(), 0);
        (0..=PIECES).for_each(|_| give(Vec::with_capacity(9)));
        assert_eq!((0..=PIECES).filter(|_| take().capacity() > 0).count(), PIECES);
        (0..=BYTES / LARGEST).for_each(|_| give(Vec::with_capacity(LARGEST)));
        assert_eq!((0..=PIECES).map(|_| take().capacity()).sum::<usize>(), BYTES);
    }
}
