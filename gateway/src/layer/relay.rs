//! The answers that are on their way on one core, and an end for those whose clients take nothing (H6).
//!
//! An answer is looked at only when its client has room for more: a client that never has would hold a place on a
//! replica, and a connection to it, for ever. So each answer can be taken away from the outside. Never touches one whose
//! client waits for the replica; how long a replica may be silent is for [`super::stream`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::stream::{Cut, Exchange};
use crate::clock::Clock;

/// How long a client may take nothing of an answer. What it has not read fills the buffers of both machines first, so
/// a person who stops a stream for a while is not meant.
pub const STALL: Duration = Duration::from_secs(60);
/// What is said of a client that was given up.
const STALLED: &str = "the client took nothing of the answer for too long";

/// `None` once it is taken away.
type Shared = Rc<RefCell<Option<Box<Exchange>>>>;

/// See the module.
#[derive(Debug)]
pub struct Relays {
    clock: Clock,
    limit: Duration,
    next: Cell<u64>,
    running: RefCell<HashMap<u64, Shared>>,
}

impl Relays {
    /// None yet. A client that takes nothing for `limit` loses its answer at the next sweep.
    pub fn new(clock: Clock, limit: Duration) -> Rc<Self> {
        Rc::new(Self { clock, limit, next: Cell::new(0), running: RefCell::default() })
    }

    pub(super) fn add(self: &Rc<Self>, exchange: Exchange) -> Relay {
        let key = self.next.get();
        self.next.set(key.wrapping_add(1));
        let exchange = Rc::new(RefCell::new(Some(Box::new(exchange))));
        self.running.borrow_mut().insert(key, Rc::clone(&exchange));
        Relay { key, exchange, relays: Rc::clone(self) }
    }

    /// Takes away the answers of clients that take nothing; for ever.
    pub async fn sweep(self: Rc<Self>) {
        let mut tick = tokio::time::interval((self.limit / 8).max(Duration::from_millis(1)));
        loop {
            tick.tick().await;
            let now = self.clock.now();
            let stalled = |shared: &Shared| {
                shared.borrow().as_ref().is_some_and(|exchange| exchange.is_stalled(now, self.limit))
            };
            let running = self.running.borrow();
            let stalled: Vec<Shared> = running.values().filter(|shared| stalled(shared)).cloned().collect();
            drop(running);
            for shared in stalled {
                let taken = shared.borrow_mut().take();
                if let Some(exchange) = taken {
                    exchange.give_up(STALLED);
                }
            }
        }
    }
}

/// The body of an answer of a replica's.
#[derive(Debug)]
pub struct Relay {
    key: u64,
    exchange: Shared,
    relays: Rc<Relays>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.relays.running.borrow_mut().remove(&self.key);
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.exchange.borrow_mut().as_deref_mut() {
            Some(exchange) => Pin::new(exchange).poll_frame(cx),
            None => Poll::Ready(Some(Err(Cut(STALLED.to_owned())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.borrow().as_ref().is_some_and(|exchange| exchange.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.borrow().as_ref().map(|exchange| exchange.size_hint()).unwrap_or_default()
    }
}
