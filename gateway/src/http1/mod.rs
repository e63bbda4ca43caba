//! HTTP/1.1 as bytes: heads, and where bodies end. Both sides of the gateway use it, towards clients in
//! [`crate::server`] and towards replicas in [`crate::upstream`].
//!
//! Takes what RFC 9112 allows and nothing that another reader could understand in another way. Opens no connection,
//! knows no limit on time, and decides nothing about requests.

pub mod body;
pub mod chunks;
pub mod fields;
pub mod fill;
pub mod head;
pub mod spare;
pub mod turn;
pub mod write;

#[cfg(test)]
mod tests;
