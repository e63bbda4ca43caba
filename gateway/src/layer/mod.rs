//! What happens to a request between its head and the last byte of its answer, one step a file, in this order:
//! `read` → `identify` → `forward` (admission, the replica, retries) → `stream`; `relay` takes an
//! answer away from a client that takes nothing of it, `respond` makes every answer of the gateway's own, `models` those
//! that the configuration gives. Around `forward` and `stream` stands `keepalive`, where a client asks for it.

pub mod body;
pub mod forward;
pub mod headers;
pub mod identify;
pub mod keepalive;
pub mod models;
pub mod read;
pub mod relay;
pub mod respond;
pub mod space;
pub mod stream;
pub mod urgency;
