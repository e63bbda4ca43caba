//! Memory for bytes that are about to leave. They mostly leave at once, so one piece of it serves all messages of a
//! core, one after the other; those whose other side is slow keep theirs meanwhile.

use std::cell::Cell;

/// Bytes of the largest piece that is kept.
const LARGEST: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory with nothing in it.
pub fn take() -> Vec<u8> {
    SPARE.take()
}

/// Gives memory back that is not needed any more.
pub fn give(mut memory: Vec<u8>) {
    if (1..=LARGEST).contains(&memory.capacity()) {
        memory.clear();
        SPARE.set(memory);
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
        assert_eq!(take().capacity(), 0, "there is one piece");
        give(Vec::with_capacity(LARGEST + 1));
        assert_eq!(take().capacity(), 0);
    }
}
