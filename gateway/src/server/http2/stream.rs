//! One request over HTTP/2: has it answered and sends the answer, as its client makes room for it.
//!
//! A client that makes none, or too little, is given up by the same limits as over HTTP/1.1 (H6): its stream is reset, and
//! the connection goes on for the others, unless it has room for nobody. Makes no answer by itself.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, StatusCode};
use http_body::Body as _;
use tidegate_shared::time::Instant;

use super::body::Body;
use super::wire::Tally;
use super::{head, heads};
use crate::clock::{self, Alarm};
use crate::http1::fields::Name;
use crate::http1::turn::UnderWay;
use crate::layer::body::{Response, ResponseBody};
use crate::layer::relay::Pauses;
use crate::server::link::ClientBody;
use crate::server::{Core, handle, http1};
use crate::telemetry::meter::{self, GaveUp};

/// Bytes of a piece of an answer for which room is asked at a time: the largest frame that every client takes.
const PIECE: usize = 16 << 10;

/// Counts among the open requests of its connection, with its head: that may be there until the answer has ended.
pub(super) struct Open {
    core: Rc<Core>,
    tally: Rc<Tally>,
    /// Bytes of the head, as [`head::size`] has them.
    head: usize,
}

impl Open {
    /// From here on, until it is dropped; `None` where there is no room for its head, on its connection or at all.
    pub(super) fn new(core: &Rc<Core>, tally: &Rc<Tally>, head: usize) -> Option<Self> {
        let together = tally.heads.get() + head;
        if together > heads::OF_CONNECTION || !core.gateway.heads.take(heads::of_request(head)) {
            return None;
        }
        tally.open.set(tally.open.get() + 1);
        tally.heads.set(together);
        Some(Self { core: Rc::clone(core), tally: Rc::clone(tally), head })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Self { core, tally, head } = self;
        tally.open.set(tally.open.get() - 1);
        tally.heads.set(tally.heads.get() - *head);
        core.gateway.heads.give(heads::of_request(*head));
        tally.ended.set(Some(core.gateway.clock.now()));
    }
}

/// Serves a request, until its answer has left or is given up. Its head is written anew at once, not with the first step:
/// the library's map of it takes several times as much, and the tasks of a crowd wait for their turns.
pub(super) fn serve(
    open: Open,
    client: IpAddr,
    (request, mut respond): (Request<RecvStream>, SendResponse<Bytes>),
) -> impl Future<Output = ()> {
    let (parts, stream) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    let body = Body::new(stream, head::announced(&parts.headers));
    let head = head::request(parts);
    async move {
        let _under_way = UnderWay::begin();
        let Open { core, tally, .. } = &open;
        let answer = answer(core, client, head, body, &mut respond).await;
        if let Some(response) = answer {
            send(core, tally, is_head, response, respond).await;
        }
    }
}

/// The answer; `None` when the client left before there was one.
async fn answer(
    core: &Rc<Core>,
    client: IpAddr,
    mut head: crate::http1::head::RequestHead,
    body: Body,
    respond: &mut SendResponse<Bytes>,
) -> Option<Response> {
    let expects =
        head.fields.get(Name::Expect).is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    let mut go_on = expects && !body.is_over();
    let mut handler = pin!(handle::handle(core, client, &mut head, ClientBody::http2(body)));
    let answered = poll_fn(|cx| {
        // One that was reset before it was looked at costs no work.
        if respond.poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        let answer = http1::caught(handler.as_mut(), cx);
        if answer.is_pending() && std::mem::take(&mut go_on) {
            // Its body is waited for. Where that fails, the client has left, which is seen next.
            let mut interim = http::Response::new(());
            *interim.status_mut() = StatusCode::CONTINUE;
            let _ = respond.send_informational(interim);
        }
        answer.map(Some)
    });
    answered.await
}

/// Sends an answer. Its body is kept to the end: with it goes the record of the request.
async fn send(
    core: &Core,
    tally: &Tally,
    is_head: bool,
    response: Response,
    mut respond: SendResponse<Bytes>,
) {
    let Response { status, fields, body } = response;
    let bodyless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let is_over = bodyless || is_head || body.is_end_stream();
    let head = head::response(status, fields, body.size_hint().exact(), clock::wall());
    let Ok(stream) = respond.send_response(head, is_over) else {
        return respond.send_reset(Reason::INTERNAL_ERROR);
    };
    if is_over {
        return;
    }
    let (clock, stall) = (core.gateway.clock, core.gateway.stall);
    let mut reply = Reply::new(stream, body);
    let mut alarm = Alarm::default();
    poll_fn(|cx| {
        if reply.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let now = clock.now();
        if reply.until(now, stall, tally).is_some_and(|by| alarm.is_late(cx, clock, by)) {
            reply.give_up(tally);
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// An answer on its way.
struct Reply {
    stream: SendStream<Bytes>,
    body: ResponseBody,
    /// What the client has no room for yet.
    piece: Bytes,
    /// It is the last one.
    last: bool,
    /// Bytes that it had room for.
    taken: u64,
    /// What had left the connection when one began.
    pauses: Pauses<u64>,
}

impl Reply {
    fn new(stream: SendStream<Bytes>, body: ResponseBody) -> Self {
        Self { stream, body, piece: Bytes::new(), last: false, taken: 0, pauses: Pauses::new() }
    }

    /// Sends what there is and has room, until all is sent or the client has left.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            if self.piece.is_empty() {
                let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
                match next.transpose() {
                    Ok(Some(frame)) => self.piece = frame.into_data().unwrap_or_default(),
                    Ok(None) => return self.end(),
                    Err(_) => {
                        self.stream.send_reset(Reason::INTERNAL_ERROR);
                        return Poll::Ready(());
                    }
                }
                self.last = self.body.is_end_stream();
                if self.piece.is_empty() && self.last {
                    return self.end();
                }
                continue;
            }
            self.stream.reserve_capacity(self.piece.len().min(PIECE));
            while self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    // It has left.
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
            let data = self.piece.split_to(self.stream.capacity().min(PIECE).min(self.piece.len()));
            self.taken += data.len() as u64;
            let ends = self.last && self.piece.is_empty();
            if self.stream.send_data(data, ends).is_err() || ends {
                return Poll::Ready(());
            }
        }
    }

    fn end(&mut self) -> Poll<()> {
        // Fails when it has left.
        let _ = self.stream.send_data(Bytes::new(), true);
        Poll::Ready(())
    }

    /// When the client is given up, if it makes no room until then; `None` while nothing waits for it.
    fn until(&mut self, now: Instant, limit: Duration, tally: &Tally) -> Option<Instant> {
        self.pauses.until(now, (!self.piece.is_empty(), self.taken), limit, tally.sent.get())
    }

    /// The client is too slow. Where nothing at all has left its connection meanwhile, for want of room, that is what it
    /// is too slow with.
    fn give_up(&mut self, tally: &Tally) {
        if self.body.give_up() {
            meter::gave_up(GaveUp::Answer);
        }
        self.stream.send_reset(Reason::CANCEL);
        if tally.is_shut() && self.pauses.mark() == Some(&tally.sent.get()) {
            tally.note_stuck();
        }
    }
}
