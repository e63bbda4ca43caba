//! The whole, as users have it: the real binary, real llama.cpp replicas with a real model, OpenAI's own SDKs.
//!
//! Each file is one story of a user. What a story lacks to be told (an SDK, an engine) it names aloud, and with `CI=true`
//! it fails. Each story ends with nothing in flight, nothing queued and no process left (Q5, C-005).

#[cfg(test)]
mod conversation;
#[cfg(test)]
mod elastic;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod quickstart;
#[cfg(test)]
mod streaming;
#[cfg(test)]
mod surface;
