//! The requests of one HTTP/1.1 connection, one after the other: reads a head, has it answered, sends the answer.
//!
//! Decides what becomes of the connection after each: it goes on, ends, or ends after what the client still sends was
//! thrown away. Never looks into a body.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::{Method, StatusCode, Version};
use http_body::Body;
use tokio::sync::futures::Notified;

use super::link::{ClientBody, Link, Next};
use super::reply::{Reply, Sent};
use super::{Core, handle};
use crate::http1::fields::Name;
use crate::http1::fill::poll_fill;
use crate::http1::head::{Head, RequestHead};
use crate::http1::turn::{self, UnderWay};
use crate::http1::write::{self, After, Framing};
use crate::layer::body::Response;
use crate::layer::{read, respond};
use crate::openai::ApiError;
use crate::telemetry::meter::{self, GaveUp};

pub(super) type Shared = Rc<RefCell<Link>>;

/// What an answer must know of its request.
#[derive(Clone, Copy, Debug)]
struct About {
    version: Version,
    is_head: bool,
    /// The client lets the connection go on.
    keeps: bool,
}

/// Serves the requests of a connection, until it ends.
pub(super) async fn serve(core: &Rc<Core>, link: Shared, client: IpAddr) {
    let mut closing = pin!(core.closing.told());
    loop {
        let head = match next(core, &link, closing.as_mut()).await {
            Next::Request(head) => head,
            Next::Bad(bad) => {
                // Boxed: rare, and large.
                Box::pin(refuse(core, &link, client, &ApiError::bad_head(bad))).await;
                break;
            }
            Next::Slow => {
                Box::pin(refuse(core, &link, client, &slow_head(core))).await;
                break;
            }
            Next::End => break,
        };
        let _under_way = UnderWay::begin();
        let Head { message: mut request, keeps, .. } = head;
        let about = About { version: request.version, is_head: request.method == Method::HEAD, keeps };
        let response = answer(core, &link, client, &mut request).await;
        // An answer may take long.
        drop(request);
        let Some(response) = response else { return };
        if !send(core, &link, about, response).await {
            break;
        }
    }
    // Nobody reads a body any more.
    if let Some(link) = Rc::into_inner(link) {
        Box::pin(linger(link.into_inner())).await;
    }
}

/// A client that has begun a request, or a protocol, and did not come to the end of that in time.
pub(super) async fn too_slow(core: &Rc<Core>, link: Link, client: IpAddr) {
    end_with(core, link, client, &slow_head(core)).await;
}

/// A client that speaks HTTP in the clear where TLS is spoken.
pub(super) async fn in_the_clear(core: &Rc<Core>, link: Link, client: IpAddr) {
    let error = ApiError::bad_request("TLS is spoken here: the URL must begin with https://");
    end_with(core, link, client, &error).await;
}

/// Answers the first request of a connection, which is none, and ends the connection.
async fn end_with(core: &Rc<Core>, link: Link, client: IpAddr, error: &ApiError) {
    let link = Rc::new(RefCell::new(link));
    refuse(core, &link, client, error).await;
    if let Some(link) = Rc::into_inner(link) {
        linger(link.into_inner()).await;
    }
}

fn slow_head(core: &Core) -> ApiError {
    meter::gave_up(GaveUp::Head);
    let limit = core.gateway.limits.header_read;
    ApiError::request_too_slow(format!("the head of the request was not whole within {limit:?}"))
}

/// The next request, unless none begins in time or is whole in time after that, or the gateway stops before it begins.
async fn next(core: &Core, link: &Shared, mut closing: Pin<&mut Notified<'_>>) -> Next {
    let (clock, limit) = (core.gateway.clock, core.gateway.limits.header_read);
    let mut by = clock.in_turn() + limit;
    let mut begun = false;
    poll_fn(|cx| {
        let mut link = link.borrow_mut();
        if let Poll::Ready(next) = link.poll_next(cx) {
            return Poll::Ready(next);
        }
        let idle = link.is_idle();
        if !begun && !idle {
            (begun, by) = (true, clock.in_turn() + limit);
        }
        let stops = core.closing.poll_begun(closing.as_mut(), cx).is_ready();
        if stops && idle {
            return Poll::Ready(Next::End);
        }
        match link.is_late(cx, clock, by) {
            true if idle => {
                meter::gave_up(GaveUp::Idle);
                Poll::Ready(Next::End)
            }
            true => Poll::Ready(Next::Slow),
            false => Poll::Pending,
        }
    })
    .await
}

/// The answer; `None` when the client left before there was one.
async fn answer(
    core: &Rc<Core>,
    link: &Shared,
    client: IpAddr,
    request: &mut RequestHead,
) -> Option<Response> {
    let mut handler = pin!(handle::handle(core, client, request, ClientBody::http1(link)));
    let answered = poll_fn(|cx| match turn::is_put_off(|| caught(handler.as_mut(), cx)) {
        (Poll::Ready(answer), _) => Poll::Ready(Some(answer)),
        // The client is looked at in that turn.
        (Poll::Pending, true) => Poll::Pending,
        (Poll::Pending, false) => link.borrow_mut().poll_left(cx).map(|()| None),
    });
    answered.await
}

/// A step of a handler; one that panicked is done, with the answer to a bug, and must not be polled again.
pub(super) fn caught(
    handler: Pin<&mut impl Future<Output = Response>>,
    cx: &mut Context<'_>,
) -> Poll<Response> {
    catch_unwind(AssertUnwindSafe(|| handler.poll(cx))).unwrap_or_else(|_| {
        meter::panicked();
        Poll::Ready(respond::bug())
    })
}

/// Sends an answer; whether the connection goes on.
async fn send(core: &Core, link: &Shared, about: About, response: Response) -> bool {
    let Response { status, fields, body } = response;
    let bodyless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match body.size_hint().exact() {
        _ if bodyless => Framing::None,
        Some(length) => Framing::Length(length),
        None if about.version == Version::HTTP_10 => Framing::Close,
        None => Framing::Chunked,
    };
    let goes_on = about.keeps
        && framing != Framing::Close
        && !fields.has(Name::Connection)
        && !core.closing.begun.get()
        && link.borrow_mut().is_read();
    let after = match (goes_on, about.version) {
        (false, _) => After::Close,
        (true, Version::HTTP_10) => After::KeepAlive,
        (true, _) => After::Keep,
    };
    let owed = link.borrow_mut().owed();
    let head = |into: &mut Vec<u8>| {
        into.extend_from_slice(owed);
        let line = (about.version, status);
        write::response(into, line, &fields, framing, after, core.gateway.clock.wall_in_turn());
    };
    let body = (!bodyless && !about.is_head).then_some(body);
    let mut reply = Reply::new(head, framing, body);
    drop(fields);
    let (clock, stall) = (core.gateway.clock, core.gateway.stall);
    let sent = poll_fn(|cx| {
        let mut link = link.borrow_mut();
        if let Poll::Ready(sent) = reply.poll(&mut link.stream, cx) {
            return Poll::Ready(sent);
        }
        if reply.is_next() {
            return Poll::Pending;
        }
        if reply.until(clock, stall).is_some_and(|by| link.is_late(cx, clock, by)) {
            if reply.give_up() {
                meter::gave_up(GaveUp::Answer);
            }
            link.give_up();
            return Poll::Ready(Sent::Cut);
        }
        link.poll_left(cx).map(|()| Sent::Cut)
    });
    let sent = sent.await;
    if sent == Sent::Cut {
        link.borrow_mut().stream.tear();
    }
    sent == Sent::Whole && goes_on
}

/// Answers what is no request; the connection does not go on.
async fn refuse(core: &Core, link: &Shared, client: IpAddr, error: &ApiError) {
    let about = About { version: Version::HTTP_11, is_head: false, keeps: false };
    send(core, link, about, handle::unreadable(core, client, error)).await;
}

/// Ends the connection, within bounds. A client that still sends gets to see its answer: what comes is thrown away.
pub(super) async fn linger(mut link: Link) {
    if link.is_given_up() {
        return;
    }
    if link.is_read() && link.is_idle() {
        return link.stream.goodbye().await;
    }
    if link.stream.end().await.is_err() {
        return;
    }
    let mut thrown = BytesMut::new();
    read::throw_away(|cx| {
        thrown.clear();
        poll_fill(&mut link.stream, cx, &mut thrown)
    })
    .await;
}
