//! Bounded waits. Every await of a suite that could hang goes through here and fails with a name.
//!
//! Never measures: a wait is generous, and how long something took is not for a test to judge.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long anything may take before the test fails: far longer than it takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The same for what a real model does, which is slow on a busy machine without a GPU.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Pause between two looks at something that cannot be awaited, such as a metrics page.
const PAUSE: Duration = Duration::from_millis(10);

/// Awaits `future`; panics with `what` and the caller's line when [`LIMIT`] passes first.
#[track_caller]
pub fn within<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    bounded(what, LIMIT, future, Location::caller())
}

/// [`within`] for what a real model does: the limit is [`PATIENCE`].
#[track_caller]
pub fn patiently<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    bounded(what, PATIENCE, future, Location::caller())
}

async fn bounded<F: Future>(what: &str, limit: Duration, future: F, caller: &Location<'_>) -> F::Output {
    match timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: did not happen within {limit:?}, awaited at {caller}"),
    }
}

/// Comes back when told (Q2): the one case in which time itself is what a client waits for.
pub async fn as_told(wait: Duration) {
    sleep(wait).await;
}

/// Looks again and again until `look` answers `Ok`; panics with `what` and the last `Err` when [`LIMIT`] passes first.
#[track_caller]
pub fn eventually<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + LIMIT;
        loop {
            match within(what, look()).await {
                Ok(found) => return found,
                Err(seen) if Instant::now() >= end => {
                    panic!("{what}: did not happen within {LIMIT:?}, awaited at {caller}; last seen: {seen}")
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}
