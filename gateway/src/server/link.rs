//! One HTTP/1.1 connection to a client: what came and is not used yet, and the body that is being read.
//!
//! Reads when asked, says when the client has left, and knows when it has been silent for too long. Understands no
//! request.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use thiserror::Error;
use tidegate_shared::time::Instant;
use tokio::io::AsyncWrite;

use super::client::ClientStream;
use super::http2::body::Body;
use crate::clock::{Alarm, Clock};
use crate::http1::body::Left;
use crate::http1::chunks::BadChunk;
use crate::http1::fill::{poll_fill, settle};
use crate::http1::head::{self, BadHead, Head, RequestHead};
use crate::layer::read::{self, Source};
use crate::layer::space::Space;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: ClientStream,
    /// Came, and is not used yet.
    pub(super) ahead: BytesMut,
    /// How much of it was looked at for a head.
    seen: usize,
    /// The body of the present request.
    body: Left,
    /// To be sent before the body is read.
    go_on: GoOn,
    /// The client was too slow: nothing is waited for any more.
    given_up: bool,
    /// For the limit on silence.
    alarm: Alarm,
}

/// What reading for a request came to.
pub(super) enum Next {
    Request(Head<RequestHead>),
    Bad(BadHead),
    /// It has begun and did not come to an end in time.
    Slow,
    /// The client has left, or nothing has come in time.
    End,
}

impl Link {
    pub(super) fn new(stream: ClientStream, ahead: BytesMut) -> Self {
        let (body, go_on, alarm) = (Left::NONE, GoOn::default(), Alarm::default());
        Self { stream, ahead, seen: 0, body, go_on, given_up: false, alarm }
    }

    /// Whether nothing of a next request has come. The empty lines that some clients send after a body are dropped.
    pub(super) fn is_idle(&mut self) -> bool {
        self.seen = self.seen.saturating_sub(head::skip_empty_lines(&mut self.ahead));
        self.ahead.is_empty()
    }

    /// The next request. Its body is to be read from here on.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            match head::request(&mut self.ahead, self.seen) {
                Ok(Some(head)) => {
                    self.seen = 0;
                    self.body = head.body.clone();
                    self.go_on = if head.expects { GoOn(CONTINUE) } else { GoOn::default() };
                    if self.ahead.is_empty() {
                        self.ahead = BytesMut::new();
                    }
                    return Poll::Ready(Next::Request(head));
                }
                Ok(None) => self.seen = self.ahead.len(),
                Err(bad) => return Poll::Ready(Next::Bad(bad)),
            }
            match ready!(poll_fill(&mut self.stream, cx, &mut self.ahead)) {
                Ok(1..) => {}
                Ok(_) | Err(_) => return Poll::Ready(Next::End),
            }
        }
    }

    /// Whether the moment `by` has passed; else the task is woken when it has.
    pub(super) fn is_late(&mut self, cx: &mut Context<'_>, clock: Clock, by: Instant) -> bool {
        self.alarm.is_late(cx, clock, by)
    }

    /// The client was too slow. Nothing is sent to it any more, nor taken from it.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        self.stream.forsake();
    }

    /// Whether it was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Resolves when the client has left, while its request is served or answered (H7).
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.body.is_over() {
            // Whoever reads the body sees it.
            return Poll::Pending;
        }
        if self.ahead.is_empty() {
            match ready!(poll_fill(&mut self.stream, cx, &mut self.ahead)) {
                Ok(1..) => settle(&mut self.ahead),
                Ok(_) | Err(_) => return Poll::Ready(()),
            }
        }
        self.stream.poll_left(cx)
    }

    /// Whether all of the present request was read, or the rest of it has come and is dropped here.
    pub(super) fn is_read(&mut self) -> bool {
        while !self.body.is_over() {
            match self.body.take(&mut self.ahead) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.body.is_over()
    }

    /// More of the body; 0 at its end.
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut Space) -> Poll<Result<usize, BodyError>> {
        if self.go_on.is_untold() && !self.ahead.is_empty() {
            // It has not waited.
            self.go_on = GoOn::default();
        }
        ready!(self.go_on.poll(&mut self.stream, cx))?;
        loop {
            if self.body.is_over() {
                return Poll::Ready(Ok(0));
            }
            if let (Left::Length(left), true) = (&mut self.body, self.ahead.is_empty()) {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let read = ready!(into.poll_read(&mut self.stream, cx, most))?;
                *left -= read as u64;
                return Poll::Ready(if read == 0 { Err(BodyError::Ended) } else { Ok(read) });
            }
            let (mut read, before) = (0, self.ahead.len());
            while let Some(data) = self.body.take(&mut self.ahead)? {
                into.extend(&data);
                read += data.len();
            }
            if read > 0 {
                settle(&mut self.ahead);
                return Poll::Ready(Ok(read));
            }
            debug_assert!(before == 0 || self.ahead.is_empty() || self.body.is_over());
            if !self.body.is_over() && ready!(poll_fill(&mut self.stream, cx, &mut self.ahead))? == 0 {
                return Poll::Ready(Err(BodyError::Ended));
            }
        }
    }

    /// What must be sent before an answer.
    pub(super) fn owed(&mut self) -> &'static [u8] {
        self.go_on.owed()
    }
}

/// What is left of a `100 Continue` that is to be sent. All of it is sent or nothing.
#[derive(Debug, Default)]
struct GoOn(&'static [u8]);

impl GoOn {
    /// Whether all of it is to be sent yet.
    fn is_untold(&self) -> bool {
        self.0.len() == CONTINUE.len()
    }

    fn poll<W: AsyncWrite + Unpin>(&mut self, to: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.0.is_empty() {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, self.0))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.0 = self.0.get(written..).unwrap_or_default();
        }
        Pin::new(to).poll_flush(cx)
    }

    /// The rest of one that was begun; of one that was not, nothing is owed. The caller sends it.
    fn owed(&mut self) -> &'static [u8] {
        let untold = self.is_untold();
        let rest = std::mem::take(&mut self.0);
        if untold { &[] } else { rest }
    }
}

/// Why a body has no end.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended in the middle.
    #[error("the connection ended in the middle of the body")]
    Ended,
    /// It is not chunked as it should be.
    #[error(transparent)]
    Chunk(#[from] BadChunk),
    /// Over HTTP/2.
    #[error(transparent)]
    Http2(#[from] h2::Error),
}

/// The body of a client's request.
#[derive(Debug)]
pub struct ClientBody(Kind);

#[derive(Debug)]
enum Kind {
    Http1(Rc<RefCell<Link>>),
    Http2(Body),
}

impl ClientBody {
    /// The body that `link` is about to read.
    pub(super) fn http1(link: &Rc<RefCell<Link>>) -> Self {
        Self(Kind::Http1(Rc::clone(link)))
    }

    pub(super) fn http2(body: Body) -> Self {
        Self(Kind::Http2(body))
    }

    /// It will not be read to its end: what is left of it is thrown away, within bounds, so that the client gets to see
    /// its answer. Over HTTP/1.1 the connection does that, when it has answered.
    pub fn discard(self) {
        if let Kind::Http2(body) = self.0 {
            tokio::task::spawn_local(read::discard(body));
        }
    }
}

impl Source for ClientBody {
    type Error = BodyError;

    fn announced(&self) -> Option<u64> {
        match &self.0 {
            Kind::Http1(link) => link.borrow().body.size_hint().exact(),
            Kind::Http2(body) => body.announced(),
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut Space) -> Poll<Result<usize, BodyError>> {
        match &mut self.0 {
            Kind::Http1(link) => link.borrow_mut().poll_body(cx, into),
            Kind::Http2(body) => body.poll_more(cx, into).map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test]
    async fn h6_a_client_gets_all_of_an_interim_answer_or_nothing_of_it() {
        let mut go_on = GoOn(CONTINUE);
        assert_eq!(go_on.owed(), b"", "nothing has left");
        assert!(go_on.0.is_empty(), "and nothing will");

        // Room for a part of it.
        let (mut ours, mut theirs) = duplex(10);
        let mut go_on = GoOn(CONTINUE);
        assert!(poll_fn(|cx| go_on.poll(&mut ours, cx)).now_or_never().is_none());
        // An answer comes before there is room for the rest.
        let mut seen = vec![0; 10];
        theirs.read_exact(&mut seen).await.expect("what has left");
        seen.extend_from_slice(go_on.owed());
        assert_eq!(seen, CONTINUE);
        assert!(poll_fn(|cx| go_on.poll(&mut ours, cx)).now_or_never().is_some(), "once");
    }
}
