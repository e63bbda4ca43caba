//! What goes into the dispatcher and what comes out of it.

use std::sync::Arc;

use tidegate_shared::decision::Refusal;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Capacity, Hold};
use tidegate_shared::request::{RequestFacts, Route, Tokens};
use tidegate_shared::time::Duration;

use crate::health::{Cause, Sign};
use crate::ledger::Charge;
use crate::queue::TicketId;

use super::Unfit;

/// The right to send one request to one replica. Ended exactly once, by [`Dispatcher::end`]; not `Clone` for that.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is not ended keeps its place for ever"]
pub struct Lease {
    /// Where to.
    pub replica: ReplicaId,
    /// How it came there.
    pub route: Route,
    /// Tokens reserved for the answer; see [`super::Dispatcher::grow`].
    pub reserved: Tokens,
    /// How the exchange went, set by the driver before it ends the lease; neutral for one that was cut short.
    pub sign: Sign,
    /// Whether it is the one request by which the replica shows that it can be trusted again.
    pub(super) trial: bool,
    /// Its number in the measure of the drain.
    pub(super) number: u64,
    pub(super) charge: Charge,
    pub(super) facts: Arc<RequestFacts>,
}

impl Lease {
    /// Whether it is the one request by which its replica shows that it can be trusted again; if it begins to be answered
    /// well, [`super::Dispatcher::proved`] says so at once.
    pub fn is_on_trial(&self) -> bool {
        self.trial
    }
}

/// A refusal (Q2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Which limit was crossed.
    pub reason: Refusal,
    /// When to come again: between a second and an hour.
    pub retry_after: Duration,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Forward(Lease),
    /// It waits; [`Dispatcher::take_woken`] tells how it ends, unless [`Dispatcher::abandon`] is called.
    Wait(TicketId),
    /// Answer 503.
    Reject(Rejection),
}

/// What becomes of a request that a replica was too busy for.
#[derive(Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Send it there.
    Forward(Lease),
    /// Nobody else has room now.
    Nobody,
    /// Somebody has, but too many requests were sent twice lately.
    Spent,
}

/// A replica was taken out because of how it answers (R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Which.
    pub replica: ReplicaId,
    /// Why.
    pub why: Cause,
    /// For how long; after it, one request is tried.
    pub pause: Duration,
}

/// What happened to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Ordered; no machine yet.
    Ordered(Capacity),
    /// Its engine has an address; the model loads. Also makes it known.
    Starting(Capacity),
    /// It takes requests: the model is loaded, or it answers again. Does not undo a drain.
    Ready,
    /// It takes no new request (C5). A parked one stays parked.
    Draining,
    /// It takes no new conversation, nor anybody's detour: only what is at home there, until that ends (C-129).
    OwnOnly,
    /// Load came back, or an operator took it in again: its drain is undone (C5), and it takes everybody's requests.
    Undrain,
    /// It is put to sleep: it was drained, and nothing runs there (C6).
    Parked,
    /// Its engine has given up its cache, as engines do that sleep: no beginning of a prompt counts as held there (C6, R6).
    CacheLost,
    /// Its engine turns out to sleep already: whoever parked it is gone. Only one that starts is parked by that.
    Asleep,
    /// It is parked, and is being woken (C6).
    Waking,
    /// It was ready and does not answer. A draining one stays draining.
    Failed,
    /// A request could not even connect to it: it takes no request until the probe says [`Change::Ready`] or
    /// [`Change::Failed`].
    Suspect,
    /// The same, because nothing listens there: its conversations are rehomed when they come (R5).
    Refused,
    /// Its probe looked, and it is not ready: whether it may become so by itself (`None`), or cannot serve as it is.
    Looked(Option<Unfit>),
    /// It was ordered and never became ready.
    StartFailed,
    /// It is gone; conversations at home there are rehomed when they come again (R5).
    Gone,
    /// Its size is another one.
    Capacity(Capacity),
    /// An operator holds it (A1); conversations at home there detour while it is aside.
    Hold(Hold),
    /// And lets it go.
    Release,
}
