//! The requests of one HTTP/1.1 connection, one after the other: reads a head, has it answered, sends the answer.
//!
//! Decides what becomes of the connection after each: it goes on, ends, or ends after what the client still sends was
//! thrown away. Never looks into a body.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{Method, StatusCode, Version};
use http_body::Body;
use tokio::io::AsyncWriteExt;
use tokio::sync::futures::Notified;

use super::link::{ClientBody, Link, Next};
use super::reply::{Reply, Sent};
use super::{Core, handle};
use crate::clock;
use crate::http1::fields::Name;
use crate::http1::fill::poll_fill;
use crate::http1::head::{BadHead, Head, RequestHead};
use crate::http1::write::{self, After, Framing};
use crate::layer::body::Response;
use crate::layer::{read, respond};
use crate::telemetry::meter;

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
    let mut closing = pin!(core.closing.told.notified());
    loop {
        let head = match next(core, &link, closing.as_mut()).await {
            Next::Request(head) => head,
            Next::Bad(bad) => {
                // Boxed: rare, and large.
                Box::pin(refuse(core, &link, client, bad)).await;
                break;
            }
            Next::End => return,
        };
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

/// The next request, unless none comes in time, or the gateway stops before it begins.
async fn next(core: &Core, link: &Shared, mut closing: std::pin::Pin<&mut Notified<'_>>) -> Next {
    let clock = core.gateway.clock;
    let by = clock.now() + core.gateway.limits.header_read;
    poll_fn(|cx| {
        let mut link = link.borrow_mut();
        if let Poll::Ready(next) = link.poll_next(cx) {
            return Poll::Ready(next);
        }
        let stops = core.closing.begun.get() || closing.as_mut().poll(cx).is_ready();
        if (stops && link.is_idle()) || link.is_late(cx, clock, by) {
            return Poll::Ready(Next::End);
        }
        Poll::Pending
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
    let answered = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
        Ok(Poll::Ready(answer)) => Poll::Ready(Some(answer)),
        Ok(Poll::Pending) => link.borrow_mut().poll_left(cx).map(|()| None),
        Err(_) => {
            meter::panicked();
            Poll::Ready(Some(respond::bug()))
        }
    });
    answered.await
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
    let head = |into: &mut Vec<u8>| {
        let line = (about.version, status);
        write::response(into, line, &fields, framing, after, clock::wall());
    };
    let body = (!bodyless && !about.is_head).then_some(body);
    let mut reply = Reply::new(head, framing, body);
    drop(fields);
    let sent = poll_fn(|cx| {
        let mut link = link.borrow_mut();
        match reply.poll(&mut link.stream, cx) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => link.poll_left(cx).map(|()| Sent::Cut),
        }
    });
    sent.await == Sent::Whole && goes_on
}

/// Answers what is no request; the connection does not go on.
async fn refuse(core: &Core, link: &Shared, client: IpAddr, bad: BadHead) {
    let about = About { version: Version::HTTP_11, is_head: false, keeps: false };
    send(core, link, about, handle::unreadable(core, client, bad)).await;
}

/// Ends the connection. A client that still sends gets to see its answer: what comes is thrown away, within bounds.
async fn linger(mut link: Link) {
    if (link.is_read() && link.is_idle()) || link.stream.shutdown().await.is_err() {
        return;
    }
    read::throw_away(|cx, thrown| poll_fill(&mut link.stream, cx, thrown)).await;
}
