//! HTTP/2 towards clients: one connection of theirs, as many requests at a time as it carries.
//!
//! The frames, the compression of heads and the windows are the `h2` library's, which bounds what a client can make it
//! hold: blocks of headers without an end (CVE-2024-27316), streams that are reset before they are taken up, resets
//! that it is made to send, small frames of data; one answer to a ping or to settings is sent before the next is
//! read. What is decided here is when a connection ends, by [`keeper`], and whether there is room for a head, by [`heads`]; each
//! request is for [`stream`].

pub(super) mod body;
mod frame;
mod head;
pub mod heads;
mod keeper;
mod stream;
mod wire;

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::Request;

use self::keeper::{Keeper, Step};
pub(super) use self::wire::Socket;
use self::wire::{Tally, Wire};
use super::Core;
use crate::clock::Alarm;
use crate::telemetry::meter::{self, GaveUp};

/// What a client sends first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests at a time on one connection; those beyond are refused, to be sent again (REFUSED_STREAM).
const STREAMS: u32 = 256;
/// Largest head, in bytes as HTTP/2 counts them. Those over the limit of all heads and under this one are answered with
/// the reason. Of those over this one the library keeps nothing, answers with a bare 431 and tells nobody; and it ends the
/// connection of one four times as large. To hold them for a better answer is what the limit is there against.
const LARGEST_HEAD: u32 = 128 << 10;
/// Bytes that a client may send ahead on one stream and on one connection.
const WINDOWS: (u32, u32) = (1 << 20, 4 << 20);
/// Bytes of one answer that wait for the socket, at most: a client may open its windows and read nothing.
const SENT_AHEAD: usize = 32 << 10;

/// Serves a connection, from its preface to its end.
pub(super) async fn serve<S: Socket>(core: Rc<Core>, socket: S, client: IpAddr) {
    let tally = Rc::new(Tally::default());
    let wire = Wire::new(socket, PREFACE.len(), Rc::clone(&tally));
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(LARGEST_HEAD)
        .initial_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_send_buffer_size(SENT_AHEAD);
    let limit = core.gateway.limits.header_read;
    let Ok(Ok(mut connection)) = tokio::time::timeout(limit, builder.handshake(wire)).await else { return };
    let pings = connection.ping_pong();
    let driver = Driver { core, tally, client, connection, pings, alarm: Alarm::default(), loose: 0 };
    if let Err(error) = driver.run().await {
        if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            meter::gave_up(GaveUp::Flood);
        }
        tracing::debug!(%error, "connection");
    }
}

struct Driver<S: Socket> {
    core: Rc<Core>,
    tally: Rc<Tally>,
    client: IpAddr,
    connection: Connection<Wire<S>, Bytes>,
    pings: Option<PingPong>,
    alarm: Alarm,
    /// Bytes that are taken of the budget of heads for those that are no request's yet, or are none's.
    loose: u64,
}

impl<S: Socket> Driver<S> {
    /// Drives the connection to its end, and what is asked over it in tasks of their own.
    async fn run(mut self) -> Result<(), h2::Error> {
        let core = Rc::clone(&self.core);
        let tally = Rc::clone(&self.tally);
        let (mut stopped, mut stuck) = (pin!(core.closing.told()), pin!(tally.told.notified()));
        let mut keeper = Keeper::new(core.gateway.clock.now(), core.gateway.limits.header_read);
        poll_fn(|cx| {
            tally.begin_turn();
            loop {
                match self.connection.poll_accept(cx) {
                    Poll::Ready(Some(Ok(request))) => {
                        self.take(request);
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => {}
                }
                let now = core.gateway.clock.now();
                if self.pings.as_mut().is_some_and(|pings| pings.poll_pong(cx).is_ready()) {
                    keeper.ponged(now, &tally);
                }
                let stops = core.closing.poll_begun(stopped.as_mut(), cx).is_ready();
                // It is asked of the tally whether it was told.
                let _ = stuck.as_mut().poll(cx);
                let step = match keeper.step(now, &tally, stops) {
                    Step::Wait(by) if !self.alarm.is_late(cx, core.gateway.clock, by) => {
                        if self.has_room() {
                            if tally.has_next_turn() {
                                cx.waker().wake_by_ref();
                            }
                            return Poll::Pending;
                        }
                        keeper.crowded(now, &tally)
                    }
                    step => step,
                };
                if step == Step::Drop {
                    return Poll::Ready(Ok(()));
                }
                self.apply(step);
            }
        })
        .await
    }

    /// Has a request served, where there is room for its head.
    fn take(&self, (request, mut respond): (Request<RecvStream>, SendResponse<Bytes>)) {
        // Counted before its task runs: whether the connection ends is decided in this turn.
        let Some(open) = stream::Open::new(&self.core, &self.tally, head::size(&request)) else {
            meter::gave_up(GaveUp::Heads);
            self.tally.note_refused();
            return respond.send_reset(Reason::REFUSED_STREAM);
        };
        tokio::task::spawn_local(stream::serve(open, self.client, (request, respond)));
    }

    /// Counts what the library holds of blocks of headers at the end of a turn: all requests were taken by then, so it is a block
    /// that is not whole, or trailers that nobody has thrown away yet. Whether there is room for it.
    fn has_room(&mut self) -> bool {
        let (wanted, all) = (heads::of_blocks(self.tally.loose_bytes()), &self.core.gateway.heads);
        let more = wanted.saturating_sub(self.loose);
        if more > 0 && !all.take(more) {
            return false;
        }
        if wanted < self.loose {
            all.give(self.loose - wanted);
        }
        self.loose = wanted;
        true
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Wait(_) | Step::Drop => {}
            Step::Ping => {
                // Fails while one is under way, or the connection has failed.
                let _ = self.pings.as_mut().map(|pings| pings.send_ping(Ping::opaque()));
            }
            Step::Leave(why) => {
                why.into_iter().for_each(meter::gave_up);
                self.connection.graceful_shutdown();
            }
            Step::Cut(why) => {
                why.into_iter().for_each(meter::gave_up);
                self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            }
        }
    }
}

impl<S: Socket> Drop for Driver<S> {
    fn drop(&mut self) {
        self.core.gateway.heads.give(self.loose);
    }
}

#[cfg(test)]
mod tests;
