//! OpenAI's API as the gateway sees it: which paths there are, what a request says, what an answer says, and what
//! an error looks like.
//!
//! Everything here reads bytes that others own and says what they mean. Nothing here does IO, waits, copies a body
//! or rebuilds one; no input makes it panic.

pub mod error;
pub mod operation;
pub mod request;
pub mod sse;
pub mod usage;

pub use error::{ApiError, ErrorObject};
pub use operation::{BodyKind, Operation};
pub use request::{BadBody, Scan, scan};
pub use sse::SseScan;
pub use usage::{Tail, Usage};
