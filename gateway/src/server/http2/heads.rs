//! What the heads of requests over HTTP/2 may take of the memory: those of one connection, and those of all connections of the
//! process together (C-072).
//!
//! A field that a connection has had before costs its client a byte, and the gateway a hundred. So what is counted is what
//! lies in memory, at its worst. Decides numbers alone: who is refused or ended is for others.

use std::sync::Arc;

use crate::layer::read::Budget;

/// Bytes of the heads of all open requests of one connection, as HTTP/2 counts them: 4 KiB for each. Those beyond are
/// refused as streams beyond [`super::STREAMS`] are.
pub(super) const OF_CONNECTION: usize = 1 << 20;
/// What all connections have together: this part of what bodies may take, beside it, and in any case so many bytes.
const PART: u64 = 4;
const LEAST: u64 = 16 << 20;
/// Bytes that an open request takes beside its head: its task, its stream, its record.
const REQUEST: u64 = 8 << 10;
/// A head in memory is at most so many times what HTTP/2 counts: memory that grows is up to half empty.
const IN_MEMORY: u64 = 2;
/// Bytes that the library holds for a byte of a block of headers, and for one whole block, at most: fields that its table
/// has, in a map that has just grown.
const FIELD: u64 = 160;
const BLOCK: u64 = 1 << 20;

/// What the heads of all connections may take where bodies may take so many bytes.
pub fn budget(buffered: u64) -> Arc<Budget> {
    Budget::new((buffered / PART).max(LEAST))
}

/// Bytes that an open request takes whose head HTTP/2 counts as so many.
pub(super) fn of_request(head: usize) -> u64 {
    REQUEST + IN_MEMORY * head as u64
}

/// Bytes that the library may hold for blocks of headers that took so many on the wire.
pub(super) fn of_blocks(wire: u64) -> u64 {
    wire.saturating_mul(FIELD).min(BLOCK)
}
