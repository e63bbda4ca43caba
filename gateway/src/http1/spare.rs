//! Memory for bytes that are about to leave. They mostly leave at once, so a few pieces of it serve all messages of a
//! core, one after the other; those whose other side is slow keep theirs meanwhile.

use std::cell::RefCell;

/// Bytes of the largest piece that is kept.
const LARGEST: usize = 32 << 10;
/// Pieces that are kept: as many as messages often wait for their turn at a time.
const PIECES: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory with nothing in it.
pub fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(|pieces| pieces.pop().unwrap_or_default())
}

/// Gives memory back that is not needed any more.
pub fn give(mut memory: Vec<u8>) {
    if (1..=LARGEST).contains(&memory.capacity()) {
        memory.clear();
        SPARE.with_borrow_mut(|pieces| {
            if pieces.len() < PIECES {
                pieces.push(memory);
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
    }
}
